#!/bin/bash
# The benchmarks on a GPU, in parts of a few minutes at most: bench/gpu/run.sh BUILD RESULTS [PART...]
#
#   host      what issuing costs the host
#   kernels   generated kernels beside copying
#   overlap   communication over the host link, beside a program by hand and one in PyTorch
#   choice    what the model of --pipeline auto says beside what happens
#   fused     chains of operations beside copying and torch.compile
#   bodies    the same chains, each as one body, without the rest of Weir
#
# Each part leaves RESULTS/PART.txt; a part that has it is not run again, so a run that was broken off can
# go on on another machine.
build=$1
results=$2
shift 2
parts=${*:-host kernels overlap choice fused bodies}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results" || exit 2

host() { "$build/bench/gpu/host_cost"; }
kernels() { "$build/bench/gpu/kernels"; }
choice() { "$build/bench/gpu/choice"; }
fused() { "$build/bench/gpu/fused" "$here/fused.py"; }
bodies() { "$build/bench/gpu/fused" --kernels "$here/fused.py"; }

overlap() {
  local work
  for work in 'ag 8192 8192 8192' 'ag 16384 4096 16384' 'ar 4096 8192 4096' 'ar 8192 16384 4096'; do
    # shellcheck disable=SC2086
    "$build/bench/gpu/overlap" $work "$here/overlap.py" || return 1
  done
}

for part in $parts; do
  if [ ! -f "$results/$part.txt" ]; then
    timeout 450 bash -c "$(declare -f "$part"); build='$build' here='$here'; $part" \
      >"$results/$part.part" 2>&1 || { cat "$results/$part.part"; exit 1; }
    mv "$results/$part.part" "$results/$part.txt"
  fi
  echo "== $part"
  cat "$results/$part.txt"
done
