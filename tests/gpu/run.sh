#!/bin/bash
# Everything that needs a GPU, in parts: tests/gpu/run.sh BUILD [PART...]
#
#   conform   the device, its kernels, its communications
#   seeds     the seed programs on 1, 2, 4 and 8 devices in every form of pipeline: directly, over the host,
#             as graphs
#   programs  tests/gpu/programs on 1, 2, 4 and 8 devices: the same three ways
#   examples  all fusions of all examples: the same three ways
#   attention  forward and backward in many shapes, through cuDNN and by generated kernels, three ways
#   late      what only a run shows to be wrong: positions, lengths, groups, capacities, donated memory; random too
#   random    random programs: COUNT (1,000) on streams, and COUNT on each of 1, 2, 4 and 8 devices
#   nccl      NCCL itself with a rank per GPU, in one process and in processes, and on the stand-in with more
#   ipc       ranks as MPI processes that open each other's memory, 2 and 4 of them
#   sanitize  compute-sanitizer on the conformance suite (memcheck, racecheck, initcheck), on large kernels
#
# BUILD is a build folder; its target gpu_tests is enough. What fails is printed in full, what passes in a
# line that says how many ran; exit 1 if anything failed. AT_ONCE (8) processes run at once, THREADS (12)
# threads of one process run random programs.
#
# Kernels take longer to compile than to run, and need no GPU for it: KERNELS=FILE (build-kernels/kernels.tgz, if
# it is there) has them compiled, so that little is left to do for the compiler. DEVICE=compile makes that file of
# all that the parts use, on any machine with the vendor's NVRTC. Named parts add to what is in BUILD/kernels.
#
#   DEVICE=compile tests/gpu/run.sh build      # here; then, where the GPU is:
#   tests/gpu/run.sh build
#
# DEVICE=standin runs the parts on the stand-ins of tests/standin, DEVICE=cpu on the CPU, to try the script.
build=$(cd "$1" && pwd) || exit 2
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
log=$(mktemp -d)
failed=0
mode=${DEVICE:-cuda}
device=cuda
at_once=${AT_ONCE:-8}
threads=${THREADS:-12}
kernels=${KERNELS:-$root/build-kernels/kernels.tgz}
count=${COUNT:-1000}
all='conform seeds programs examples attention late random nccl ipc sanitize'

case $mode in
  cuda)
    # What is compiled is kept in a folder of this run, and not among the driver's files as well.
    export XDG_CACHE_HOME=$log/cache CUDA_CACHE_DISABLE=1
    (umask 077 && mkdir -p "$XDG_CACHE_HOME/weir")
    [ -e "$kernels" ] && tar -xzf "$kernels" -C "$XDG_CACHE_HOME/weir" --no-same-owner
    echo "kernels compiled before: $(find "$XDG_CACHE_HOME/weir" -name '*.cubin' | wc -l)"
    ;;
  standin)
    export LD_LIBRARY_PATH=$build/tests/standin XDG_CACHE_HOME=$build/tests/standin/cache
    count=${COUNT:-24} at_once=${AT_ONCE:-2} threads=${THREADS:-3}
    all='conform seeds programs examples late random nccl'
    ;;
  compile) # a driver that pretends, and the vendor's compiler
    mkdir "$log/lib"
    ln -s "$build/tests/standin/libcuda.so.1" "$build/tests/standin/libcublasLt.so.13" "$log/lib"
    export LD_LIBRARY_PATH=$log/lib XDG_CACHE_HOME=$build/kernels WEIR_STANDIN_KERNELS=skip
    export WEIR_STANDIN_ORDER=eager WEIR_CUDNN_LIBRARY=none
    [ $# -gt 0 ] || rm -rf "$build/kernels"
    at_once=${AT_ONCE:-$(nproc)} threads=${THREADS:-$(nproc)}
    all='conform seeds programs examples random'
    ;;
  cpu)
    device=cpu at_once=${AT_ONCE:-2} threads=${THREADS:-2}
    all='seeds programs examples random'
    ;;
  *) echo "there is no DEVICE=$mode" && exit 2 ;;
esac
parts=${*:-$all}
ways='three ways' later=
[ $device = cuda ] || ways='one way'

# say WHAT SECONDS TEXT...
say() { printf '%-5s %4ds  %s\n' "$1" "$2" "${*:3}"; }

# told NAME CODE SECONDS FILE [TEXT]: one line, the last of the output or the text; or what is wrong. Kernels
# that are only compiled compute nothing that could be right.
told() {
  if [ "$mode" = compile ]; then
    say ok "$3" "$1: $(find "$XDG_CACHE_HOME/weir" -name '*.cubin' | wc -l) kernels so far"
  elif [ "$2" = 0 ]; then
    say ok "$3" "$1: ${5:-$(tail -1 "$4")}"
  else
    say FAIL "$3" "$1 (exit $2): ${5:-}"
    head -c 1200 "$4"
    tail -c 600 "$4"
    failed=1
  fi
}

# try NAME COMMAND...
try() {
  local name=$1 start=$SECONDS
  shift
  "$@" >"$log/out" 2>&1
  told "$name" $? $((SECONDS - start)) "$log/out"
}

# each NAME: runs the commands of weir on its input, one per line, in AT_ONCE processes; "# NAME" lines name those
# that follow.
each() {
  local name=$1 start=$SECONDS options=(--at-once "$at_once") code
  [ "$device" = cuda ] && options+=(--gpu)
  [ "$mode" = compile ] && options+=(--failures 1000000)
  cat >"$log/list"
  "$build/tests/gpu/batch" "${options[@]}" "$log/list" >"$log/out" 2>&1
  code=$?
  told "$name" "$code" $((SECONDS - start)) "$log/out"
  [ "$code" = 0 ] && [ "$mode" != compile ] && sed '$d; s/^/             /' "$log/out"
}

# shards NAME N COMMAND...: N at a time, each with its number in place of @; each ends with "P passed, F failed".
shards() {
  local name=$1 n=$2 start=$SECONDS pids=() code=0 i
  shift 2
  for ((i = 0; i < n; i++)); do
    "${@//@/$i}" >"$log/shard$i" 2>&1 &
    pids+=($!)
  done
  : >"$log/out"
  for ((i = 0; i < n; i++)); do
    wait "${pids[$i]}" && continue
    code=1
    { echo "shard $i:" && head -c 500 "$log/shard$i" && tail -c 200 "$log/shard$i"; } >>"$log/out"
  done
  told "$name" "$code" $((SECONDS - start)) "$log/out" \
    "$(tail -qn1 "$log"/shard* | awk '{ p += $1; f += $3 } END { print p " passed, " f " failed" }')"
  rm -f "$log"/shard*
}

# many NAME COMMAND...: random programs, of which at least COUNT must run: some are refused.
many() {
  local name=$1 start=$SECONDS code sums
  shift
  "$@" >"$log/out" 2>&1
  code=$?
  sums=$(awk -v count="$count" '
    $2 == "programs" { all = $1; for (i = 3; i < NF; i++) if ($(i + 1) ~ /^refused/) refused = $i }
    $1 == "GPUs:" { sub(/^GPUs: /, ""); times = " (" $0 ")" }
    $2 == "passed," { bad = $3 }
    END {
      printf "%d ran and agree, %d refused, %d failed%s", all - refused - bad, refused, bad, times
      exit all - refused < count
    }' "$log/out") || code=${code/#0/too few}
  told "$name" "$code" $((SECONDS - start)) "$log/out" "$sums"
}

# three_ways FILE OPTIONS...: the commands.
three_ways() {
  local way line="run '$1' --device $device ${*:2}"
  case $mode in
    cpu) echo "$line --check" ;;
    compile) printf '%s\n' "$line" "$line --link host" ;;
    *) for way in '' '--link host' '--graph --repeat 3'; do echo "$line --check $way"; done ;;
  esac
}

conform() {
  try 'conformance' "$build/tests/conform/test_cuda"
  try 'loops' "$build/tests/conform/test_cuda_loops"
  try 'arrays of the caller' "$build/tests/gpu/test_arrays"
  try 'tensors through the API' "$build/tests/gpu/test_api"
  try 'streams of the caller' "$build/tests/gpu/test_streams"
  try 'threads and contexts of the caller' "$build/tests/gpu/test_callers"
  local products=10
  [ "$mode" = cuda ] && products=400
  try 'products with epilogues' "$build/tests/fuzz/test_epilogues" $products --cuda
  [ "$mode" = standin ] && return # the rest has texts for many minutes of the C compiler
  shards 'bodies' 12 "$build/tests/fuzz/test_cuda_bodies" --device @ 40 20000
  shards 'kernels' 12 "$build/tests/conform/test_cuda_windows" @ 1 2
}

# The programs as the golden tests have them, with meshes of N devices and extents that fit.
seeds_on() {
  local golden=$root/tests/golden n=$1 pipeline name extents file
  mkdir "$log/$n"
  for file in "$golden"/seed_*.weir; do
    sed -e "s/mesh d = \[[0-9]*\]/mesh d = [$n]/" -e 's/1024/32/g' -e "s/\[8, 2, 64/[8, $n, 64/" \
      -e "s/outer_split(\([12]\), 2)/outer_split(\1, $n)/" "$file" >"$log/$n/$(basename "$file")"
  done
  echo "# 14 seeds on $n devices, six pipelines, $ways"
  for pipeline in auto collective p2p p2p-offset ring broadcast; do
    while read -r name extents; do
      three_ways "$log/$n/seed_$name.weir" "${extents//@/$n}" --pipeline "$pipeline" --devices "$n"
    done <<'END'
ag_linear
ag_matmul -D a=3x@x4x16 -D b=16x24
ag_matmul_p2p -D a=@x5x16 -D b=16x24
allgather -D t0=6x@
allgather_p2p -D t0=@x33
allreduce -D t0=5x@x33
matmul_ar -D a=3x@x10x6 -D b=@x6x24
matmul_rs -D a=3x@x@x2x6 -D b=@x6x24
reduce_scatter -D t0=3x@x@x33
reduction -D t0=5x7x33
row_parallel_linear -D inp=26x8
single_set -D t0=5x33
three_sets -D t0=5x33
two_sets -D t0=5x33
END
  done
}

# The largest one in its own size takes the reference long: it is waited for at the end of all parts.
seeds() {
  local n
  later_name='the largest seed, in its own size'
  three_ways "$root/tests/golden/seed_ag_linear.weir" | head -1 >"$log/largest"
  "$build/tests/gpu/batch" "$log/largest" >"$log/later" 2>&1 &
  later=$!
  for n in 1 2 4 8; do seeds_on "$n"; done | each 'seeds'
}

programs() {
  local n file
  for n in 1 2 4 8; do
    echo "# $(find tests/gpu/programs -name '*.weir' | wc -l) programs on $n devices, $ways"
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
      three_ways "$log/$n-$(basename "$file")" --devices "$n"
    done
  done | each 'programs'
}

# Extents that the files leave open; every fusion of every file.
extents_of() {
  case $(basename "$1" .weir) in
    attention) echo '-D batch=2 -D seq=24' ;;
    column_parallel_linear) echo '-D t=26' ;;
    experts) echo '-D g=8 -D t=20' ;;
    mlp | mlp_streams) echo '-D rows=64' ;;
    mlp_parallel) echo '-D rows=18' ;;
    moe_routing) echo '-D t=12 -D h=8 -D e=4 -D f=16' ;;
    pipeline_stages) echo '-D rows=16' ;;
    ragged) [ "$2" = packed_sequences ] && echo '-D s=20 -D h=8 -D n=3' || echo '-D t=12 -D h=8 -D e=4 -D f=16' ;;
    row_parallel_linear) echo '-D t=26' ;;
    split_reduction) echo '-D rows=100' ;;
    training_steps) echo "-D b=16 -D h=32$([ "$2" != tensor_parallel ] || echo ' -D f=64')" ;;
    transformer_forward | transformer_backward) echo '-D b=2 -D s=8' ;;
    triangle_update) echo '-D b=4 -D n=6' ;;
  esac
}

examples() {
  local file fusion pipeline
  for file in "$root"/examples/*.weir; do
    for fusion in $(sed -n 's/^fusion \([a-z_0-9]*\) .*/\1/p' "$file"); do
      three_ways "$file" --fusion "$fusion" "$(extents_of "$file" "$fusion")"
    done
  done >"$log/examples"
  for pipeline in p2p ring broadcast; do
    for fusion in permute broadcast; do
      file=$root/examples/column_parallel_linear.weir
      three_ways "$file" --fusion $fusion "$(extents_of "$file" "$fusion")" --pipeline "$pipeline"
    done
  done >>"$log/examples"
  each "examples, all fusions, $ways" <"$log/examples"
}

# Heads, heads of keys, queries, keys, width, width of values: what the library's limits are about, and a little
# of everything. With the width 20 it is a kernel's in any case. Gradients of f16 take another result than the one
# before them: what that was rounded by would count more than the tolerance.
attention_programs() {
  local t call hq hk sq sk d dv file of
  while read -r hq hk sq sk d dv; do
    for t in bf16 f16; do
      for call in '' ', causal=true'; do
        [ "$sq$call" = '1, causal=true' ] && continue # it sees one key: its gradients are 0, to the last bit
        of='o, l'
        [ $t = f16 ] && of='y, m'
        file=$log/attention-$t-$hq-$hk-$sq-$sk-$d-$dv-${call:+causal}.weir
        cat >"$file" <<END
fusion f {
  q : ${t}[2, $hq, $sq, $d]
  k : ${t}[2, $hk, $sk, $d]
  v : ${t}[2, $hk, $sk, $dv]
  g : ${t}[2, $hq, $sq, $dv]
  y : ${t}[2, $hq, $sq, $dv]
  m : f32[2, $hq, $sq]
  o, l = sdpa(q, k, v$call)
  dq, dk, dv = sdpa_backward(q, k, v, $of, g$call)
  return o, l, dq, dk, dv
}
END
        three_ways "$file"
      done
    done
  done <<'END'
4 4 2 2 64 64
4 4 17 17 64 64
2 2 128 128 128 128
4 2 200 200 64 64
8 1 65 130 128 128
4 4 130 65 96 96
2 2 333 333 64 64
4 4 1 200 128 128
2 1 256 256 256 256
2 2 100 100 192 128
4 4 64 64 8 8
2 2 50 70 20 20
END
}

attention() {
  local file=$log/attention-bf16-4-2-200-200-64-64-causal.weir
  attention_programs | each "attention, $ways"
  [ "$mode" = compile ] && return
  if WEIR_CUDNN_EXPLAIN=1 "$build/weir" run "$file" --device "$device" 2>&1 | grep -q ': cudnn'; then
    say ok 0 'attention is computed by cuDNN'
    attention_programs >"$log/again"
    WEIR_CUDNN_LIBRARY=none each "attention by generated kernels, $ways" <"$log/again"
  else
    say skip 0 'cuDNN is missing, or computes no attention: name it in WEIR_CUDNN_LIBRARY'
  fi
}

late() {
  WEIR=$build/weir try 'wrong input, found by the device' bash tests/standin/late.sh
  try 'random programs with wrong input' "$build/tests/fuzz/test_late" $((count / 2 + 1)) --device "$device"
}

random() {
  local n tried=$((count * 23 / 20 + 1)) options=(--threads "$threads" --seconds "${SECONDS_EACH:-100}")
  case $mode in
    compile) options=(--threads "$threads" --seconds 3600 --compile-only) ;;
    cuda | standin) options+=(--cuda) ;;
  esac
  many 'random programs on streams' "$build/tests/fuzz/test_streams" $tried "${options[@]}"
  for n in 1 2 4 8; do
    many "random programs on $n devices" "$build/tests/fuzz/test_devices" $tried "${options[@]}" --devices $n
  done
}

# A process for each GPU, or of 8.
nccl_processes() {
  local gpus n file launcher=(timeout 240 mpirun --allow-run-as-root --bind-to none)
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
  n=$((gpus < 1 ? 1 : gpus < 8 ? gpus : 8))
  if ! [ -e "$build/weir-mpi-openmpi.so" ] || ! command -v mpirun >/dev/null; then
    echo 'skip         NCCL between processes: no OpenMPI, or this build has no module for it'
    return
  fi
  launcher+=(-n "$n" -x "WEIR_MPI_MODULE=$build/weir-mpi-openmpi.so")
  try "NCCL, worlds of $n processes" "${launcher[@]}" "$build/tests/conform/test_cuda_ranks" 12 nccl
  for file in "$root"/tests/gpu/programs/*.weir; do
    sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
    try "NCCL, $(basename "$file"), $n processes" "${launcher[@]}" "$build/weir" run \
      "$log/$n-$(basename "$file")" --device cuda --comm nccl --check
  done
  [ "$n" = 1 ] || try "NCCL, random programs of $n processes" "${launcher[@]}" \
    "$build/tests/fuzz/test_devices" 30 --ranks --nccl
}

nccl() {
  local n file way
  if [ "$mode" = cuda ]; then
    try 'NCCL' "$build/tests/conform/test_nccl"
    nccl_processes
  fi
  export WEIR_NCCL_LIBRARY=$build/tests/standin/libnccl.so.2 WEIR_STANDIN_NCCL=
  try 'NCCL, stand-in' "$build/tests/conform/test_nccl"
  for n in 2 8; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
      for way in '' '--graph --repeat 3'; do
        echo "run '$log/$n-$(basename "$file")' --device cuda --check --comm nccl $way"
      done
    done
  done | each 'programs through NCCL, two ways'
  count=$((count / 10)) many 'random programs through NCCL' "$build/tests/fuzz/test_devices" \
    $((count * 23 / 200)) --threads "$threads" --seconds 60 --nccl
  unset WEIR_NCCL_LIBRARY WEIR_STANDIN_NCCL
}

ipc() {
  local n file launcher=(timeout 240 mpirun --allow-run-as-root --oversubscribe --bind-to none)
  export WEIR_MPI_MODULE=$build/weir-mpi-openmpi.so
  if ! [ -e "$WEIR_MPI_MODULE" ] || ! command -v mpirun >/dev/null; then
    echo 'skip         processes: no OpenMPI, or this build has no module for it'
    return
  fi
  for n in 2 4; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
      echo "run '$log/$n-$(basename "$file")' --device cuda --comm cuda-ipc --check"
    done >"$log/list"
    try "programs, $n processes" "${launcher[@]}" -n $n "$build/tests/gpu/batch" --together --gpu "$log/list"
    try "more programs, and failures, $n processes" \
      bash tests/mpi/cuda.sh "$build/weir" mpirun openmpi $n gpu
    try "worlds of $n processes" "${launcher[@]}" -n $n "$build/tests/conform/test_cuda_ranks" 12
    try "random programs, $n processes" "${launcher[@]}" -n $n "$build/tests/fuzz/test_devices" \
      $((count / 10)) --ranks
  done
}

# All at the same time: each waits for its own host most of the while.
# sanitized NAME TOOL COMMAND...: the test's counts and the tool's.
sanitized() {
  local name="compute-sanitizer $2$1" start=$SECONDS tool=$2 code
  shift 2
  timeout 250 compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log/out" 2>&1
  code=$?
  told "$name" $code $((SECONDS - start)) "$log/out" \
    "$(grep -a 'passed, \|SUMMARY' "$log/out" | sed 's/^=* *//' | paste -sd';')"
}

# One after the other: beside others, initcheck has called memory unwritten that was written.
sanitize() {
  local tool
  for tool in memcheck racecheck initcheck; do
    sanitized '' $tool "$build/tests/conform/test_cuda" quick
  done
  for tool in memcheck racecheck; do
    sanitized ', large kernels' $tool "$build/tests/conform/test_cuda_windows" 1 0 0 30
  done
}

for part in $parts; do
  start=$SECONDS
  case $part in
    conform | seeds | programs | examples | attention | late | random | nccl | ipc | sanitize) $part ;;
    *) echo "there is no part '$part'" && failed=1 ;;
  esac
  echo "== $part: $((SECONDS - start)) s"
done
if [ -n "$later" ]; then
  wait "$later"
  told "$later_name" $? $SECONDS "$log/later"
fi
if [ "$mode" = compile ]; then
  mkdir -p "$(dirname "$kernels")"
  (cd "$build/kernels/weir" && find . -name '*.cubin' | sort | tar -czf "$kernels" -T -) || failed=1
  echo "$(tar -tzf "$kernels" | wc -l) kernels, $(du -k "$kernels" | cut -f1) KiB: $kernels"
fi
rm -rf "$log"
exit $failed
