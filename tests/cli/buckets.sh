#!/usr/bin/env bash
# Buckets are compared by time: on machines and sizes of all kinds, the program with them is not predicted to be slower
# by more than 3%, and is faster on the whole. Everything here is simulated.
set -u
file=tests/golden/bucket_times.weir
predicted() { "$WEIR" bound $file --pipeline marked "$@" | sed -n 's/^predicted \([0-9.]*\).*/\1/p'; }
for machine in threads hosts-1g hosts-100g dgx-h100; do
  for h in 16 64 256 1024; do
    for b in 64 1024 16384; do
      with=$(predicted --machine $machine -D b=$b -D h=$h)
      without=$(predicted --machine $machine -D b=$b -D h=$h --disable buckets)
      echo "$machine b=$b h=$h ${with:-none} ${without:-none}"
    done
  done
done | awk '
  $4 + 0 <= 0 || $5 + 0 <= 0 { print "no prediction: " $0; failed++; next }
  { ratio = $4 / $5; sum += log(ratio); n++ }
  ratio > 1.03 { print "slower with buckets: " $0; failed++ }
  END {
    mean = n ? exp(sum / n) : 9
    if (mean > 0.75) { print "buckets save too little: geometric mean " mean; failed++ }
    printf "%d passed, %d failed (geometric mean %.3f)\n", n - failed, failed, mean
    exit failed > 0 || n < 48
  }'
