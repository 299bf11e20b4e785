#!/bin/bash
# What only a run shows to be wrong, on the stand-ins: positions, lengths and groups out of range are found by the
# kernels and reported with the line, directly and as a graph; then the device still works.
. "$(dirname "$0")/../cli/kit"
late=tests/mpi/late.weir
for mode in '' --graph '--link host'; do
  for gpus in 1 2; do
    export WEIR_STANDIN_GPUS=$gpus
    # shellcheck disable=SC2086
    {
      expect 2 'late.weir:7: update: position 6 along axis 0 is not in 0 to 5' \
        run $late --fusion position --fill ones --device cuda $mode
      expect 2 'late.weir:17: group_index: the lengths add up to 10 or more, and there are 8 rows' \
        run $late --fusion lengths --fill ones --device cuda $mode
      expect 2 'late.weir:27: grouped_matmul: index 7 is not in 0 to 6, for 6 groups' \
        run $late --fusion one_rank --fill ones --device cuda $mode
      expect 0 'check: z ' run $late --fusion well --device cuda --check $mode
    }
  done
done
expect 2 "extent 's' is 9, over its capacity of 8" run $late --fusion capacity --device cuda -D s=9
expect 2 'late.weir:43: it would be read and written at once' run $late --fusion turned --device cuda --donate x=y

# Donated memory: overwritten where it is, also by a graph that runs again; refused where the old value is read later.
donate=tests/golden/run_donate.weir
for mode in '' '--graph --repeat 3'; do
  # shellcheck disable=SC2086
  expect 0 'check: w2 max_abs=0' run $donate -D n=6 -D k=5 --device cuda --check $mode \
    --donate w=w2 --donate m=m2 --donate v=v2
done
expect 2 'the old value is read after the new one is written' \
  run $donate --fusion late -D n=6 --device cuda --donate x=y --disable join
expect 2 'it would be read and written at once' run $donate --fusion square -D n=6 --device cuda --donate x
finish
