#!/bin/bash
# Programs with --check on the stand-ins: the examples, those for GPUs on four devices, and those beside this file; directly, as
# graphs, through the host, with delays; on one GPU and on four, which read each other's memory or do not.
#
#   programs.sh STANDINS      the folder of the stand-ins; $WEIR is the command
. "$(dirname "$0")/../cli/kit"
export WEIR_STANDIN_GPUS WEIR_STANDIN_PEERS WEIR_STANDIN_SEED=0

modes=('' '--graph --repeat 3' '--link host' '--adversary 3 --stats')

# check N FILE OPTION...: N modes, others from program to program, and so the GPUs.
check() {
  local n=$1 i mode code
  shift
  for ((i = 0; i < n; i++)); do
    WEIR_STANDIN_SEED=$((WEIR_STANDIN_SEED + 1))
    WEIR_STANDIN_GPUS=$((WEIR_STANDIN_SEED % 3 ? 4 : 1))
    WEIR_STANDIN_PEERS=$((WEIR_STANDIN_SEED % 3 == 1))
    mode=${modes[WEIR_STANDIN_SEED % 4]}
    # shellcheck disable=SC2086
    "$weir" run "$@" --device cuda --check $mode >"$dir/out" 2>&1
    code=$?
    holds "$* $mode, $WEIR_STANDIN_GPUS GPUs, seed $WEIR_STANDIN_SEED: $(tail -3 "$dir/out")" \
      test $code = 0
  done
}

while read -r -a line; do
  check 2 "${line[@]}"
done < <(sed -n 's/^# RUN: weir run \(examples.*\) --check.*/\1/p' tests/golden/examples_run.weir)
for file in tests/gpu/programs/*.weir; do
  sed 's/@D/4/g' "$file" >"$dir/$(basename "$file")"
  check 4 "$dir/$(basename "$file")"
done
for file in tests/standin/*.weir; do
  check 4 "$file"
done

# Loops that are kept in plans, and unrolled when they are loaded.
check 4 tests/golden/plan_loops.weir -D n=200 -D m=201 --streams 2 --fill iota
check 4 tests/golden/plan_loops_comm.weir --fusion gathers -D s=150 --streams 3 --pipeline marked
check 2 tests/golden/plan_loops_donate.weir --fusion step -D n=200 --streams 2 --donate w=y

long_body 2500 | program long # more operations than one kernel can have
check 1 "$dir/long.weir" -D n=3 -D m=5

# The bound of GPUs: with the figures measured on them, and over the host's memory.
for link in auto host; do
  WEIR_STANDIN_GPUS=1 expect 0 'of the bound; device' bound examples/ag_matmul.weir --device cuda --link $link
done

# A profiler sees a range for every launch, and none within another.
NVTX_INJECTION64_PATH=$1/libprofiler.so expect 0 'profiler: some ranges, 0 open' \
  run examples/ag_matmul.weir --device cuda
finish
