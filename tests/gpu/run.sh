#!/bin/bash
# Everything that needs a GPU, in parts: tests/gpu/run.sh BUILD [PART...]
#
#   conform   the device, its kernels, its communications
#   seeds     the seed programs in every form of pipeline: directly, over the host, as graphs
#   programs  tests/gpu/programs on 1, 2, 4 and 8 devices: the same three ways
#   examples  all fusions of all examples: the same three ways
#   random    random programs: COUNT (1,000) on streams, and COUNT on each of 1, 2, 4 and 8 devices
#   nccl      NCCL itself with a rank per GPU, and on the stand-in with more
#   ipc       ranks as MPI processes that open each other's memory, 2 and 4 of them
#   sanitize  compute-sanitizer on the conformance suite (memcheck, racecheck, initcheck), on large kernels
#
# BUILD is a build folder. What fails is printed in full, what passes in a line that says how many ran;
# exit 1 if anything failed. AT_ONCE (12) programs run at once. DEVICE=cpu tries the script itself.
build=$1
shift
parts=${*:-conform seeds programs examples random nccl ipc sanitize}
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$(mktemp -d)
failed=0
device=${DEVICE:-cuda}
at_once=${AT_ONCE:-12}

# say WHAT SECONDS TEXT...
say() { printf '%-5s %4ds  %s\n' "$1" "$2" "${*:3}"; }

# try NAME COMMAND...: one line, or the end of the output.
try() {
  local name=$1 start=$SECONDS code
  shift
  "$@" >"$log/out" 2>&1
  code=$?
  if [ $code = 0 ]; then
    say ok $((SECONDS - start)) "$name: $(tail -1 "$log/out")"
  else
    say FAIL $((SECONDS - start)) "$name (exit $code)"
    head -c 1200 "$log/out"
    tail -c 400 "$log/out"
    failed=1
  fi
}

# each NAME: runs the commands on its input, one per line, AT_ONCE at a time.
# shellcheck disable=SC2016 # expanded by the shell that runs a command
each() {
  local name=$1 start=$SECONDS n bad
  cat >"$log/list"
  mkdir -p "$log/bad"
  n=$(wc -l <"$log/list")
  nl -ba -w1 -s' ' "$log/list" | xargs -P "$at_once" -d '\n' -n 1 bash -c '
    number=${2%% *} command=${2#* }
    timeout 120 bash -c "$command" >"$1/$number" 2>&1 && rm "$1/$number" && exit
    echo "$command" >>"$1/$number"' run "$log/bad"
  bad=$(find "$log/bad" -type f | wc -l)
  if [ "$bad" = 0 ]; then
    say ok $((SECONDS - start)) "$name: $n programs ran and passed their check"
  else
    say FAIL $((SECONDS - start)) "$name: $bad of $n programs"
    for file in $(find "$log/bad" -type f | sort -V | head -5); do tail -c 900 "$file"; done
    failed=1
  fi
  rm -rf "$log/bad"
}

# shards NAME N COMMAND...: N at a time, each with its number in place of @. The last two lines of each
# may say "P programs …: R refused" and must say "P passed, F failed".
shards() {
  local name=$1 n=$2 start=$SECONDS pids=() bad=0 i
  shift 2
  for ((i = 0; i < n; i++)); do
    "${@//@/$i}" >"$log/shard$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < n; i++)); do
    wait "${pids[$i]}" && continue
    bad=1
    echo "shard $i:"
    head -c 900 "$log/shard$i"
    tail -c 300 "$log/shard$i"
  done
  local sums
  sums=$(tail -qn2 "$log"/shard* | awk '
    $2 == "programs" {
      all += $1
      for (i = 3; i < NF; i++) if ($(i + 1) ~ /^refused/) refused += $i
    }
    $2 == "passed," { p += $1; f += $3 }
    END {
      if (all) printf "%d programs, of which %d were refused before they ran; ", all, refused
      printf "%d passed, %d failed", p, f
    }')
  local word=ok
  [ $bad = 0 ] || word=FAIL failed=1
  say $word $((SECONDS - start)) "$name: $sums"
  rm -f "$log"/shard*
}

# three_ways FILE OPTIONS...: the commands.
three_ways() {
  local way
  for way in '' '--link host' '--graph --repeat 3'; do
    echo "'$build/weir' run '$1' --device $device --check ${*:2} $([ "$device" = cuda ] && echo "$way")"
  done
}

conform() {
  try 'conformance' "$build/tests/conform/test_cuda"
  try 'arrays of the caller' "$build/tests/gpu/test_arrays"
  try 'threads and contexts of the caller' "$build/tests/gpu/test_callers"
  shards 'kernels' 12 "$build/tests/conform/test_cuda_windows" @ 1 2
}

# The programs as the golden tests have them, with extents; the large one also small.
seeds() {
  local golden=$root/tests/golden pipeline name extents
  {
    three_ways "$golden/seed_ag_linear.weir" | head -1
    sed 's/1024/32/g' "$golden/seed_ag_linear.weir" >"$log/seed_ag_linear.weir"
    for pipeline in auto collective p2p p2p-offset ring broadcast; do
      three_ways "$log/seed_ag_linear.weir" --pipeline $pipeline
      while read -r name extents; do
        three_ways "$golden/seed_$name.weir" "$extents" --pipeline $pipeline
      done <<'END'
ag_matmul -D a=3x8x4x16 -D b=16x24
ag_matmul_p2p -D a=8x5x16 -D b=16x24
allgather -D t0=6x8
allgather_p2p -D t0=8x33
allreduce -D t0=5x8x33
matmul_ar -D a=3x8x10x6 -D b=8x6x24
matmul_rs -D a=3x8x8x2x6 -D b=8x6x24
reduce_scatter -D t0=3x8x8x33
reduction -D t0=5x7x33
row_parallel_linear -D inp=26x8
single_set -D t0=5x33
three_sets -D t0=5x33
two_sets -D t0=5x33
END
    done
  } | each 'seeds, 14 in six pipelines, three ways'
}

programs() {
  local n file
  for n in 1 2 4 8; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
      three_ways "$log/$n-$(basename "$file")" --devices "$n"
    done | each "programs on $n devices, three ways"
  done
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
    row_parallel_linear) echo '-D t=26' ;;
    split_reduction) echo '-D rows=100' ;;
    transformer_forward | transformer_backward) echo '-D b=2 -D s=8' ;;
    triangle_update) echo '-D b=4 -D n=6' ;;
  esac
}

examples() {
  local file fusion pipeline
  for file in "$root"/examples/*.weir; do
    for fusion in $(sed -n 's/^fusion \([a-z_0-9]*\) .*/\1/p' "$file"); do
      three_ways "$file" --fusion "$fusion" "$(extents_of "$file")"
    done
  done >"$log/examples"
  for pipeline in p2p ring broadcast; do
    for fusion in permute broadcast; do
      file=$root/examples/column_parallel_linear.weir
      three_ways "$file" --fusion $fusion "$(extents_of "$file")" --pipeline $pipeline
    done
  done >>"$log/examples"
  each 'examples, all fusions, three ways' <"$log/examples"
}

# Some are refused, so there are a few more than COUNT.
random() {
  local count=${COUNT:-1000} share n gpu=--cuda
  share=$(((count * 23 / 20 + at_once - 1) / at_once))
  [ "$device" = cuda ] || gpu=
  shards 'random programs on streams' "$at_once" bash -c \
    "'$build/tests/fuzz/test_streams' $share --first \$((@ * $share)) --seconds 40 $gpu"
  for n in 1 2 4 8; do
    shards "random programs on $n devices" "$at_once" bash -c \
      "'$build/tests/fuzz/test_devices' $share --first \$((@ * $share)) --seconds 60 --devices $n $gpu"
  done
}

nccl() {
  local n file way
  try 'NCCL' "$build/tests/conform/test_nccl"
  export WEIR_NCCL_LIBRARY=$build/tests/standin/libnccl.so.2 WEIR_STANDIN_NCCL=
  try 'NCCL, stand-in' "$build/tests/conform/test_nccl"
  for n in 2 8; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"
      for way in '' '--graph --repeat 3'; do
        echo "'$build/weir' run '$log/$n-$(basename "$file")' --device cuda --check --comm nccl $way"
      done
    done
  done | each 'programs through NCCL, two ways'
  shards 'random programs through NCCL' 8 bash -c \
    "'$build/tests/fuzz/test_devices' 12 --first \$((@ * 12)) --seconds 100 --nccl"
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
      sed "s/@D/$n/g" "$file" >"$log/$(basename "$file")"
      try "$(basename "$file"), $n processes" "${launcher[@]}" -n $n "$build/weir" run \
        "$log/$(basename "$file")" --device cuda --comm cuda-ipc --check
    done
    try "programs of $n processes" bash tests/mpi/cuda.sh "$build/weir" mpirun openmpi $n gpu
    try "worlds of $n processes" "${launcher[@]}" -n $n "$build/tests/conform/test_cuda_ranks" 12
    try "random programs, $n processes" "${launcher[@]}" -n $n "$build/tests/fuzz/test_devices" \
      $(((${COUNT:-250} + 7) / 8)) --ranks
  done
}

sanitize() {
  local tool
  for tool in memcheck racecheck initcheck; do
    try "compute-sanitizer $tool" timeout 250 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$build/tests/conform/test_cuda" quick
  done
  for tool in memcheck racecheck; do
    try "compute-sanitizer $tool, large kernels" timeout 250 compute-sanitizer --tool $tool \
      --error-exitcode 9 "$build/tests/conform/test_cuda_windows" 1 0 0 30
  done
}

cd "$root" || exit 2
for part in $parts; do
  start=$SECONDS
  case $part in
    conform | seeds | programs | examples | random | nccl | ipc | sanitize) $part ;;
    *) echo "there is no part '$part'" && failed=1 ;;
  esac
  echo "== $part: $((SECONDS - start)) s"
done
rm -rf "$log"
exit $failed
