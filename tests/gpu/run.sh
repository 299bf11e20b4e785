#!/bin/bash
# Everything that needs a GPU, in parts: tests/gpu/run.sh BUILD [PART...]
#
#   conform   the device, its kernels, its communications
#   examples  examples and seed programs with --check on 1, 2, 4 and 8 devices
#   random    random programs, COUNT of each kind (250 by default)
#   nccl      NCCL itself with a rank per GPU, and on the stand-in with more
#   ipc       ranks as MPI processes that open each other's memory, 2 and 4 of them
#   sanitize  compute-sanitizer on the conformance suite (memcheck, racecheck, initcheck)
#
# BUILD is a build folder. What fails is printed in full, what passes in a line; exit 1 if anything failed.
build=$1
shift
parts=${*:-conform examples random nccl ipc sanitize}
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$(mktemp -d)
failed=0

# try NAME COMMAND...: one line, or the end of the output.
try() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$log/out" 2>&1; then
    printf 'ok    %4ds  %s: %s\n' $((SECONDS - start)) "$name" "$(tail -1 "$log/out")"
  else
    printf 'FAIL  %4ds  %s (exit %d)\n' $((SECONDS - start)) "$name" $?
    head -c 1200 "$log/out"
    tail -c 400 "$log/out"
    failed=1
  fi
}

# shards NAME N COMMAND...: N at a time, each with its number in place of @.
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
  if [ $bad = 0 ]; then
    printf 'ok    %4ds  %s: %s\n' $((SECONDS - start)) "$name" \
      "$(tail -qn1 "$log"/shard* | awk '{p += $1; f += $3} END {print p " passed, " f " failed"}')"
  else
    printf 'FAIL  %4ds  %s\n' $((SECONDS - start)) "$name"
    failed=1
  fi
  rm -f "$log"/shard*
}

conform() {
  try 'conformance' "$build/tests/conform/test_cuda"
  try 'arrays of the caller' "$build/tests/gpu/test_arrays"
  shards 'kernels' 12 "$build/tests/conform/test_cuda_windows" @ 1 2
}

# A program needs as many devices as its meshes have; any larger number is allowed.
example() {
  local file=$1
  shift
  try "$(basename "$file") $*" "$build/weir" run "$file" --device cuda --check "$@"
}

examples() {
  local n
  for n in 1 2 4 8; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$(basename "$file")"
      example "$log/$(basename "$file")"
      example "$log/$(basename "$file")" --link host
      example "$log/$(basename "$file")" --graph --repeat 3
    done
  done
  while read -r -a line; do
    example "${line[@]}"
  done < <(sed -n 's/^# RUN: weir run \(examples.*\) --check.*/\1/p' tests/golden/examples_run.weir)
}

random() {
  local count=${COUNT:-250} each
  each=$(((count + 7) / 8))
  shards 'random programs on streams' 8 bash -c \
    "'$build/tests/fuzz/test_streams' $each --first \$((@ * $each)) --seconds 200 --cuda"
  shards 'random programs on devices' 8 bash -c \
    "'$build/tests/fuzz/test_devices' $each --first \$((@ * $each)) --seconds 200 --cuda"
}

nccl() {
  local n file
  try 'NCCL' "$build/tests/conform/test_nccl"
  export WEIR_NCCL_LIBRARY=$build/tests/standin/libnccl.so.2 WEIR_STANDIN_NCCL=
  try 'NCCL, stand-in' "$build/tests/conform/test_nccl"
  for n in 2 8; do
    for file in "$root"/tests/gpu/programs/*.weir; do
      sed "s/@D/$n/g" "$file" >"$log/$(basename "$file")"
      example "$log/$(basename "$file")" --comm nccl
      example "$log/$(basename "$file")" --comm nccl --graph --repeat 3
    done
  done
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
}

cd "$root" || exit 2
for part in $parts; do
  case $part in
    conform | examples | random | nccl | ipc | sanitize) $part ;;
    *) echo "there is no part '$part'" && failed=1 ;;
  esac
done
rm -rf "$log"
exit $failed
