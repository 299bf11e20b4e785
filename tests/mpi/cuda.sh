#!/usr/bin/env bash
# cuda.sh WEIR MPIRUN FLAVOUR N [gpu]: `mpirun -n N weir run --device cuda`: programs of N ranks that open
# each other's memory, then what goes wrong with one of them. On the stand-ins of tests/standin; with `gpu`
# on a real one, and without what only the stand-ins can do.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4 gpu=${5:-}
failed=0 runs=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/mpi/shm.sh
cp tests/mpi/programs.weir "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=() keeps_going=(--enable-recovery)
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
last=$((n - 1))

wrong() {
  echo "$flavour, $n ranks: ${what[*]}: $1"
  sed 's/^/  | /' "$dir/out" "$dir/codes"
  failed=1
}

# A rank adds its exit code to a file, which outlives the launcher's pipes. ONLY_LAST, a variable and its
# value, is for the last rank.
cat >"$dir/rank" <<END
#!/bin/bash
me=\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}
[ -n "\${ONLY_LAST:-}" ] && [ "\$me" = $last ] && export "\$ONLY_LAST"
"$weir" run "$dir/programs.weir" --device cuda "\$@"
code=\$?
echo \$code >>"$dir/codes"
exit \$code
END
chmod +x "$dir/rank"

# launch SECONDS LAUNCHER-OPTION... -- ARGUMENTS...: all is over within so many seconds.
launch() {
  local limit=$1 before left start=$SECONDS launcher=()
  shift
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  what=("${ONLY_LAST:-}" "${WEIR_FAULT:-}" "$@")
  before=$(in_shm)
  : >"$dir/codes"
  runs=$((runs + 1))
  timeout -k 2 60 "$mpirun" "${options[@]}" "${launcher[@]}" -n "$n" "$dir/rank" --fusion "$@" >"$dir/out" 2>&1
  rc=$?
  while pgrep -f "run $dir/programs.weir" >/dev/null && [ $((SECONDS - start)) -le "$limit" ]; do sleep 0.1; done
  [ $((SECONDS - start)) -le "$limit" ] || wrong "took more than $limit s"
  left=$(left_in_shm "$before")
  [ -z "$left" ] || wrong "left in shared memory: $left"
}

# passes FUSION ARGUMENTS...: exit 0, and one line that says ok.
passes() {
  launch 60 -- "$@" --check
  [ $rc = 0 ] && [ "$(grep -c '^check: .* ok$' "$dir/out")" = 1 ] || wrong "exit $rc"
}

# ends CODE WORDS FUSION ARGUMENTS...: all ranks end with the code, and one message has the words.
ends() {
  local code=$1 words=$2
  shift 2
  launch 20 "${keeps_going[@]}" -- "$@" --check
  [ "$(grep -cx "$code" "$dir/codes")" = "$n" ] || wrong "not all ranks end with $code"
  [ "$(grep -c -- "$words" "$dir/out")" = 1 ] || wrong "not one message with: $words"
}

# ---- programs ----
if [ "$n" = 2 ]; then
  small=sums_2
  cases=('ag_matmul_2 --pipeline collective' 'exchange_2 --fill int' 'pieces_2 -D t=8 --pipeline ring'
    'pieces_2 -D t=8 --pipeline p2p' sums_2)
else
  small=grid
  cases=('mlp -D t=7 --fill int' grid stages 'scatter_by_pieces --pipeline p2p')
fi
for case in "${cases[@]}"; do
  read -r -a words <<<"$case"
  passes "${words[@]}"
  passes "${words[@]}" --link host
done
passes $small --repeat 20
passes $small --adversary 5 --repeat 3
passes $small --comm cuda-ipc --stats
passes $small --trace "$dir/trace.json"
[ -s "$dir/trace.json" ] || wrong 'no trace'

report() {
  [ $failed = 0 ] && echo "$flavour, $n ranks: $runs runs, ok"
  exit $failed
}

# Other launchers end all ranks when one fails, before these can say why.
[ "$flavour" = openmpi ] || report

# ---- what is refused ----
ends 2 'graph cannot capture communications between processes' $small --graph
ends 2 'link host and --comm cuda-ipc exclude' $small --comm cuda-ipc --link host

# ---- a rank that dies, stops, is late ----
for i in 0 1 2; do
  WEIR_FAULT=die:$last:$i launch 20 "${keeps_going[@]}" -- $small --check --timeout 10
  [ "$(grep -cx 137 "$dir/codes")" = 1 ] || wrong 'not one rank was killed'
  [ "$(grep -cx 3 "$dir/codes")" = $last ] || wrong 'the others did not all end with 3'
  [ "$(grep -c "rank $last (process [0-9]*) has died" "$dir/out")" = 1 ] || wrong 'not one message'
done
WEIR_FAULT=stop:$last:0 launch 20 -- $small --timeout 2
[ $rc != 0 ] || wrong 'exit status 0'
grep -q "no progress in 2 s: rank .*rank $last has not" "$dir/out" ||
  wrong 'no message about the rank that is stopped'
WEIR_FAULT=sleep:$last:1 passes $small --timeout 1

# ---- calls that fail on one rank, of two ----
if [ -z "$gpu" ] && [ "$n" = 2 ]; then
  for call in cuIpcGetMemHandle:1 cuIpcOpenMemHandle:1; do
    ONLY_LAST=WEIR_STANDIN_FAIL=$call passes $small # through the host
    ONLY_LAST=WEIR_STANDIN_FAIL=$call ends 3 'not all ranks can open' $small --comm cuda-ipc
  done
  for call in cuMemAlloc:1 cuMemAlloc:2 cuIpcGetMemHandle:2 cuIpcOpenMemHandle:"$n" cuDeviceGetUuid:1 \
    cuMemHostRegister:1 cuMemHostGetDevicePointer:1 cuStreamWaitValue64:1 cuStreamWriteValue64:1 \
    cuStreamWriteValue64:3 cuEventRecord:1 cublasLtMatmul:1 kernel:1; do
    ONLY_LAST=WEIR_STANDIN_FAIL=$call ends 3 "rank $last: cuda: " $small --timeout 10
  done
fi
report
