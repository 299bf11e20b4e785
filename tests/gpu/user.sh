#!/bin/bash
# Weir in a user's own process, on a GPU: tests/gpu/user.sh BUILD [PART...]
#
#   outside   a program outside the tree, by pkg-config as C and C++ and by find_package: CUDA memory, a stream, a capture
#   calls     what a call costs above the issue of its plan, and from Python above C
#   block     a block of a model in PyTorch whose MLP is a Weir program: values, time, CUDA graph, torch.compile
#   tensors   memory, streams, threads and contexts of the caller
#   faults    memory that runs out, a context that is lost; in one process, and on one of two ranks
#   examples  examples/python with PyTorch's tensors, in one process and under torchrun
#   worlds    ranks that are processes: worlds from Python, a rank that dies
#   torch     worlds of communicators that PyTorch made: of one rank with its own NCCL, of 2 and 4 with WEIR_NCCL_LIBRARY
#   nccl      worlds through NCCL, and tests/gpu/nccl_shared.sh, which runs beside the parts that are not timed
#
# BUILD needs the targets weir, libweir, weir_archive, gpu_tests and bench_gpu_call_cost. Every part has a limit and says
# one line for each thing tried; exit 1 if anything failed. WEIR_NCCL_LIBRARY is an NCCL of 2.30 or later, with which
# several ranks share a GPU; build-nccl/libnccl.so.2.xz is unpacked for it if it is there.
#
# DEVICE=standin tries the script on the stand-ins; what needs PyTorch on a GPU is skipped then.
build=$(cd "$1" && pwd) || exit 2
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
parts=${*:-outside calls block tensors faults examples worlds torch nccl}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
failed=0 shared=
mode=${DEVICE:-cuda}
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
if [ "$mode" = standin ]; then
  export LD_LIBRARY_PATH=$build/tests/standin XDG_CACHE_HOME=$build/tests/standin/cache WEIR_STANDIN_NCCL=
  export WEIR_STANDIN_GPUS=3
elif [ -z "${WEIR_NCCL_LIBRARY:-}" ] && [ -e build-nccl/libnccl.so.2.xz ]; then
  xz -dkf build-nccl/libnccl.so.2.xz
  export WEIR_NCCL_LIBRARY=$root/build-nccl/libnccl.so.2
fi
export NCCL_MULTI_RANK_GPU_ENABLE=1
torchrun=(bash tests/mpi/torchrun.sh -n 2)

say() { printf '%-5s %4ds  %s\n' "$1" "$2" "${*:3}"; }

# try SECONDS NAME COMMAND...: the last line, and those that say a result of their own; or what is wrong.
try() {
  local limit=$1 name=$2 start=$SECONDS code
  shift 2
  timeout -k 5 "$limit" "$@" >"$log/out" 2>&1
  code=$?
  if [ $code = 0 ]; then
    say ok $((SECONDS - start)) "$name: $(grep -av '^ok \|^skip ' "$log/out" | tail -1 | cut -c1-300)"
    grep -a '^ok \|^skip \|PASS\|MISS\|  .*context\|  after\|  cuDevice\| after [0-9]' "$log/out" | sed 's/^/             /'
  else
    say FAIL $((SECONDS - start)) "$name (exit $code)"
    head -c 1500 "$log/out"
    tail -c 1500 "$log/out"
    failed=1
  fi
}

has_python() {
  bash tests/gpu/extension.sh "$build" >"$log/why" 2>&1 && return 0
  say skip 0 "$1: $(tail -1 "$log/why")"
  return 1
}
has_torch_gpu() {
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null && return 0
  say skip 0 "$1: there is no PyTorch that sees a GPU"
  return 1
}

# Several ranks share this machine's GPU by NCCL.
shares() {
  [ "$mode" = standin ] && return 0
  sed 's/@D/2/g' tests/gpu/programs/ar_matmul.weir >"$log/shares.weir"
  timeout 60 "$build/weir" run "$log/shares.weir" --device cuda --comm nccl --check >"$log/why" 2>&1 && return 0
  say skip 0 "$1: $(tail -1 "$log/why" | cut -c1-200)"
  return 1
}

outside() {
  local headers
  headers=$(sed -n 's/^CUDA_HEADERS:PATH=//p' "$build/CMakeCache.txt")
  try 120 'a program outside the tree' bash tests/install/installed.sh "$build" "$headers" \
    "$([ "$mode" = standin ] && echo standin || echo gpu)"
  grep -ac 'captured: 0 of' "$log/out" | sed 's/^/             programs that captured: /'
}

calls() {
  try 60 'call cost in C' "$build/bench/gpu/call_cost"
  cat "$log/out"
  if has_python 'calls from Python' && has_torch_gpu 'calls from Python'; then
    try 60 'call cost from Python' python3 bench/call_cost.py cuda
    cat "$log/out"
  fi
}

block() {
  has_python 'a block in PyTorch' || return
  try 120 "a block in PyTorch" python3 tests/gpu/torch_block.py values time graph memory
  try 150 'a block in PyTorch, compiled' python3 tests/gpu/torch_block.py compile
}

tensors() {
  local name
  for name in api arrays streams callers; do try 60 "tests/gpu/test_$name" "$build/tests/gpu/test_$name"; done
}

faults() {
  try 60 'faults in one process' "$build/tests/gpu/test_faults"
  try 60 'faults on one of two ranks' "${torchrun[@]}" "$build/tests/gpu/test_faults" ranks auto
  shares 'faults by NCCL' && try 60 'faults on one of two ranks, NCCL' "${torchrun[@]}" "$build/tests/gpu/test_faults" ranks nccl
}

examples() {
  local how=()
  has_python 'examples' && has_torch_gpu 'examples' || return
  try 90 'seeds.py' python3 examples/python/seeds.py examples cuda
  for how in '' "${torchrun[*]}"; do
    # shellcheck disable=SC2086
    try 90 "tp_mlp.py ${how:+under torchrun}" $how python3 examples/python/tp_mlp.py cuda
    # shellcheck disable=SC2086
    try 90 "llama.py ${how:+under torchrun}" $how python3 examples/python/llama.py cuda
  done
}

world_tests='Worlds.test_torchrun Worlds.test_shards Worlds.test_exchange Worlds.test_death'
worlds() {
  has_python 'worlds' || return
  # shellcheck disable=SC2086
  WEIR_DEVICE=cuda try 90 'worlds from Python, a rank that dies' python3 tests/python/test_world.py $world_tests
}

nccl() {
  shares 'NCCL with several ranks on a GPU' || return
  # shellcheck disable=SC2086
  has_python 'worlds by NCCL' &&
    WEIR_DEVICE=cuda WEIR_COMM=nccl try 90 'worlds from Python by NCCL, a rank that dies' \
      python3 tests/python/test_world.py $world_tests
}

# PyTorch takes the library that is there already.
torch() {
  local n
  has_python "worlds of PyTorch's communicators" && has_torch_gpu "worlds of PyTorch's communicators" || return
  try 90 "a world of PyTorch's communicator, one rank" bash tests/mpi/torchrun.sh -n 1 python3 tests/gpu/torch_world.py
  for n in 2 4; do
    LD_PRELOAD=${WEIR_NCCL_LIBRARY:-} try 90 "worlds of PyTorch's communicators, $n ranks" bash tests/mpi/torchrun.sh -n $n \
      python3 tests/gpu/torch_world.py
  done
}

# In the background, while parts run whose times do not count.
start_shared() {
  [ -n "$shared" ] || case " $parts " in
    *' nccl '*)
      if [ "$mode" = cuda ]; then
        SECONDS_LEFT=${SHARED_SECONDS:-270} bash -c 'timeout $SECONDS_LEFT bash tests/gpu/nccl_shared.sh "$0"' "$build" \
          >"$log/shared" 2>&1 &
        shared=$!
      fi
      ;;
  esac
}

for part in $parts; do
  start=$SECONDS
  case $part in
    outside | calls | block) $part ;;
    tensors | faults | examples | worlds | torch | nccl)
      [ "$part" = tensors ] || [ "$part" = faults ] || start_shared # memory that is full is not for others
      $part
      ;;
    *) echo "there is no part '$part'" && failed=1 ;;
  esac
  echo "== $part: $((SECONDS - start)) s"
done
if [ -n "$shared" ]; then
  wait "$shared"
  code=$?
  say "$([ $code = 0 ] && echo ok || echo FAIL)" "$SECONDS" "nccl_shared.sh (exit $code): $(tail -1 "$log/shared")"
  [ $code = 0 ] || { head -c 3000 "$log/shared" && failed=1; }
fi
exit $failed
