#!/bin/bash
# The benchmarks on a GPU, in parts of a few minutes at most: bench/gpu/run.sh BUILD RESULTS [PART...]
#
#   host      what issuing costs the host
#   calls     what calls of the C API and of the Python package cost the host
#   kernels   generated kernels beside copying
#   attention bf16 attention forward and backward beside PyTorch's best, and the generated kernels
#   overlap   communication over the host link, beside a program by hand and one in PyTorch
#   steps     training steps of eight layers over the host link, beside PyTorch with streams by hand
#   choice    what the model of --pipeline auto says beside what happens
#   fused     chains of operations beside copying and torch.compile
#   bodies    the same chains, each as one body, without the rest of Weir
#   block     blocks of Llama and GPT models beside torch.compile, with the memory of both
#   grouped   grouped products and their gradients beside torch._grouped_mm
#   never     random programs, joined and not
#
# Each part leaves RESULTS/PART.txt; a part that has it is not run again, so a run that was broken off can
# go on on another machine.
build=$1
results=$2
shift 2
parts=${*:-host calls kernels attention overlap steps choice fused bodies block grouped never}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results" || exit 2

host() { "$build/bench/gpu/host_cost"; }
calls() {
  "$build/bench/gpu/call_cost" || return 1
  bash "$here/../../tests/gpu/extension.sh" "$build" || return 0
  PYTHONPATH=$build/python python3 "$here/../call_cost.py" cuda
}
steps() { # what was measured earlier may have been while others used the link
  "$build/weir" machine measure --device cuda && "$build/bench/gpu/steps" "$here/steps.weir" "$here/steps.py"
}
kernels() { "$build/bench/gpu/kernels"; }
choice() { "$build/bench/gpu/choice"; }
fused() { "$build/bench/gpu/fused" "$here/fused.py"; }
never() { "$build/bench/gpu/never_slower" 60 && "$build/bench/gpu/never_slower" 20 --products; }
block() { "$build/bench/gpu/block" "$here/block.weir" "$here/block.py"; }
grouped() { PYTHONPATH=$build/python python3 "$here/grouped.py"; }
bodies() { "$build/bench/gpu/fused" --kernels "$here/fused.py"; }

# Rounds in turns; medians, and Weir's time over PyTorch's. PyTorch's own cuDNN, if there is no other.
attention() {
  local cases=$here/attention.txt dir i
  dir=$(mktemp -d)
  if ! ldconfig -p | grep -q libcudnn.so.9 && [ ! -e /usr/local/cuda/lib64/libcudnn.so.9 ]; then
    export WEIR_CUDNN_LIBRARY
    WEIR_CUDNN_LIBRARY=$(python3 -c 'import os, nvidia.cudnn as c; print(os.path.join(list(c.__path__)[0], "lib/libcudnn.so.9"))')
  fi
  for i in 1 2 3; do
    "$build/bench/gpu/attention" "$cases" >"$dir/weir.$i" || return 1
    python3 "$here/attention.py" "$cases" >"$dir/torch.$i" || return 1
  done
  for i in f b64-512 b64-1k b128-1k decode; do # the others would take the kernels minutes
    WEIR_CUDNN_LIBRARY=none "$build/bench/gpu/attention" "$cases" "$i" >>"$dir/kernel.1" || return 1
  done
  awk '
    function middle(n, who) {
      a = t[who, n, 1]; b = t[who, n, 2]; c = t[who, n, 3]
      if (k[who, n] < 3) return a
      return a < b ? (b < c ? b : (a < c ? c : a)) : (a < c ? a : (b < c ? c : b))
    }
    FNR == 1 { who = FILENAME; sub(/.*\//, "", who); sub(/\..*/, "", who) }
    $3 == "us" { if (!seen[$1]++) name[++count] = $1; t[who, $1, ++k[who, $1]] = $2 + 0; rest[who, $1] = $0 }
    END {
      printf "%-16s %10s %10s %7s %10s %7s\n", "case", "weir us", "torch us", "ratio", "kernel us", "ratio"
      for (i = 1; i <= count; i++) {
        n = name[i]; w = middle(n, "weir"); p = middle(n, "torch"); g = middle(n, "kernel")
        printf "%-16s %10.1f %10.1f %7.3f %10.1f %7.3f\n", n, w, p, p ? w / p : 0, g, p ? g / p : 0
      }
    }' "$dir"/weir.* "$dir"/torch.* "$dir"/kernel.1
  cat "$dir/weir.3"
  rm -rf "$dir"
}

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
