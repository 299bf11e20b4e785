#!/bin/bash
# Attention on the CUDA device: who computes it, and that it is right. Every shape that the library's limits
# are about, on the stand-in, which gives nonsense where the library does.
#
#   attention.sh       $WEIR is the command; LD_LIBRARY_PATH names the stand-ins
. "$(dirname "$0")/../cli/kit"
export WEIR_CUDNN_EXPLAIN=1 XDG_CACHE_HOME=$dir/cache

# goes ROUTE [OPTION...] < PROGRAM: it is right, and every attention takes the route.
goes() {
  local route=$1 code n
  shift
  cat >"$dir/a.weir"
  "$weir" run "$dir/a.weir" --device cuda --check "$@" >"$dir/out" 2>"$dir/err"
  code=$?
  n=$(grep -c '^weir: attention' "$dir/err")
  holds "exit $code: $* $(cat "$dir/a.weir" "$dir/out" "$dir/err")" test $code = 0
  holds "$route: $(cat "$dir/a.weir" "$dir/err")" \
    test "$n" -gt 0 -a "$(grep -c ": $route" "$dir/err")" = "$n"
}

# shape ROUTE Q K V CALL [OPTION...]: one attention of these types.
shape() {
  local route=$1 q=$2 k=$3 v=$4 call=$5
  shift 5
  goes "$route" "$@" <<END
fusion f {
  q : $q
  k : $k
  v : $v
  o = sdpa(q, k, v$call)
  return o
}
END
}

# ---- what the library takes ----
for t in bf16 f16; do
  for call in '' ', causal=true' ', scale=0.7' ', causal=true, scale=2'; do
    for s in 2 17 64 65; do
      shape cudnn "${t}[2, 3, $s, 16]" "${t}[2, 3, $s, 16]" "${t}[2, 3, $s, 16]" "$call"
    done
    shape cudnn "${t}[2, 2, 1, 8]" "${t}[2, 2, 200, 8]" "${t}[2, 2, 200, 8]" "$call"   # one query
    shape cudnn "${t}[3, 40, 24]" "${t}[3, 33, 24]" "${t}[3, 33, 40]" "$call"         # one batch; other widths
    shape cudnn "${t}[20, 8]" "${t}[33, 8]" "${t}[33, 8]" "$call"                     # none
    shape cudnn "${t}[4, 20, 8]" "${t}[33, 8]" "${t}[33, 8]" "$call"                  # keys of one head for all
    shape cudnn "${t}[2, 4, 20, 8]" "${t}[4, 33, 8]" "${t}[4, 33, 8]" "$call"         # of one batch for all
    shape cudnn "${t}[2, 3, 2, 9, 8]" "${t}[2, 3, 2, 9, 8]" "${t}[2, 3, 2, 9, 8]" "$call"
  done
done

# gradient ROUTE DTYPE HEADS KEY_HEADS QUERIES KEYS WIDTH VALUE_WIDTH CALL [OPTION...]: result and gradients.
gradient() {
  local route=$1 t=$2 hq=$3 hk=$4 sq=$5 sk=$6 d=$7 dv=$8 call=$9
  shift 9
  goes "$route" "$@" <<END
fusion f {
  q : ${t}[2, $hq, $sq, $d]
  k : ${t}[2, $hk, $sk, $d]
  v : ${t}[2, $hk, $sk, $dv]
  g : ${t}[2, $hq, $sq, $dv]
  o, l = sdpa(q, k, v$call)
  dq, dk, dv = sdpa_backward(q, k, v, o, l, g$call)
  return o, l, dq, dk, dv
}
END
}
for call in '' ', causal=true' ', causal=true, scale=0.7'; do
  gradient cudnn bf16 3 3 17 17 16 16 "$call"
  gradient cudnn f16 4 2 65 65 8 16 "$call"      # groups of heads
  gradient cudnn bf16 4 1 20 33 16 8 "$call"     # one head of keys; more keys than queries
  gradient cudnn bf16 2 2 33 20 8 8 "$call"      # fewer
  gradient cudnn bf16 2 2 1 40 16 16 "$call"     # one query
  WEIR_STANDIN_CUDNN_VERSION=91400 gradient cudnn bf16 4 2 20 33 16 8 "$call" # masked by lengths
  WEIR_CUDNN_LIBRARY=none gradient kernel bf16 4 2 70 66 16 8 "$call"
  WEIR_CUDNN_LIBRARY=none gradient kernel f16 2 1 33 130 128 8 "$call"
  WEIR_CUDNN_LIBRARY=none gradient kernel bf16 2 2 130 40 40 96 "$call"
  WEIR_CUDNN_LIBRARY=none gradient kernel bf16 3 1 1 70 64 64 "$call"
done
WEIR_CUDNN_LIBRARY=none gradient kernel bf16 2 1 65 65 24 16 ', scale=-0.3'
# Widths and lengths around those of tiles and pieces.
WEIR_CUDNN_LIBRARY=none gradient kernel f16 8 1 200 63 72 8 ', causal=true'
WEIR_CUDNN_LIBRARY=none gradient kernel bf16 4 2 63 200 128 128 ', causal=true'
WEIR_CUDNN_LIBRARY=none gradient kernel f16 2 2 129 1 8 72 ''
WEIR_CUDNN_LIBRARY=none gradient kernel bf16 2 1 1 65 120 40 ', causal=true'
gradient kernel f32 4 2 9 12 8 8 ''
gradient kernel bf16 4 2 9 12 12 8 ''
gradient cudnn bf16 4 2 20 20 8 8 ', causal=true' --graph --repeat 3
for wanted in dq 'dq, dk'; do
  for library in '' none; do
    WEIR_CUDNN_LIBRARY=$library goes "$([ "$library" ] && echo kernel || echo cudnn)" <<END
fusion some {
  q : bf16[2, 4, 20, 16]
  k : bf16[2, 2, 33, 16]
  g : bf16[2, 4, 20, 16]
  o, l = sdpa(q, k, k)
  $wanted = sdpa_backward(q, k, k, o, l, g)
  return $wanted
}
END
  done
done
# Rows of q and g, k and v beside each other, gradients that are read across; a query that counts for nothing.
WEIR_CUDNN_LIBRARY=none goes kernel <<'END'
fusion views {
  x : bf16[2, 70, 4, 40]
  y : bf16[2, 90, 2, 40]
  q = permute(slice(x, starts=[0, 0, 0, 0], stops=[2, 70, 4, 24]), [0, 2, 1, 3])
  g = permute(slice(x, starts=[0, 0, 0, 24], stops=[2, 70, 4, 40]), [0, 2, 1, 3])
  k = permute(slice(y, starts=[0, 0, 0, 0], stops=[2, 90, 2, 24]), [0, 2, 1, 3])
  v = permute(slice(y, starts=[0, 0, 0, 24], stops=[2, 90, 2, 40]), [0, 2, 1, 3])
  o, l = sdpa(q, k, v)
  lse = where(iota(70) == 66, full([], inf, dtype=f32), l)
  dq, dk, dv = sdpa_backward(q, k, v, o, lse, g)
  a = permute(dq, [0, 2, 1, 3])
  b = permute(dk, [0, 2, 1, 3])
  return a, b, dv
}
END
goes cudnn --adversary 1 <<'END'
fusion batches {
  q : bf16[4, 4, 16, 8]
  k : bf16[4, 2, 16, 8]
  g : bf16[4, 4, 16, 8]
  o, l = sdpa(q, k, k, causal=true)
  dq, dk, dv = sdpa_backward(q, k, k, o, l, g, causal=true)
  return o, l, dq, dk, dv
  schedule { q[0] = stream; dq[0] = stream }
}
END
# Heads over devices: whole groups, or parts of one.
for n in 2 4; do
  goes '' <<END
fusion heads {
  mesh d = [$n]
  q : bf16[2, 8, 12, 8]
  k : bf16[2, 2, 12, 8]
  o, l = sdpa(q, k, k, causal=true)
  return o, l
  schedule { q on d; q.outer_split(1, d); q[1] = mesh.x }
}
END
done

# ---- what it cannot take ----
shape kernel 'f32[2, 9, 8]' 'f32[2, 9, 8]' 'f32[2, 9, 8]' ''
shape kernel 'bf16[2, 9, 12]' 'bf16[2, 9, 12]' 'bf16[2, 9, 8]' ''
shape kernel 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 12]' ', causal=true'
shape kernel 'bf16[2, 9, 8]' 'f16[2, 9, 8]' 'bf16[2, 9, 8]' ''
WEIR_STANDIN_ATTENTION=0 shape kernel 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''
WEIR_CUDNN_LIBRARY=none shape kernel 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''
WEIR_STANDIN_CUDNN_VERSION=91001 shape kernel 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''

# ---- views ----
goes cudnn <<'END'
fusion one_buffer {          # [b, s, heads of q, k and v, d], read in place
  x : bf16[2, 12, 9, 16]
  y = permute(x, [0, 2, 1, 3])
  q = slice(y, starts=[0, 0, 0, 0], stops=[2, 3, 12, 16])
  k = slice(y, starts=[0, 3, 0, 0], stops=[2, 6, 12, 16])
  v = slice(y, starts=[0, 6, 0, 0], stops=[2, 9, 12, 16])
  o = permute(sdpa(q, k, v, causal=true), [0, 2, 1, 3])
  return o
}
END
# Slices of rows that are no multiple of 16 bytes, keys that lie across: right by whatever way.
for view in 'slice(x, starts=[0, 0, 0], stops=[2, 9, 8])' 'slice(x, starts=[0, 1, 4], stops=[2, 9, 12])' \
  'slice(x, starts=[0, 0, 2], stops=[2, 9, 10])' 'permute(slice(x, starts=[0, 0, 0], stops=[2, 8, 9]), [0, 2, 1])'; do
  goes '' <<END
fusion views {
  x : bf16[2, 9, 12]
  y = $view
  o = sdpa(y, y, y, causal=true)
  return o
}
END
done

# ---- windows ----
goes cudnn <<'END'
fusion queries {             # causal queries of the second device do not begin at the first key
  mesh d = [2]
  q : bf16[3, 8, 8]
  k : bf16[3, 8, 8]
  v : bf16[3, 8, 8]
  y = sdpa(q, k, v, causal=true)
  return y
  schedule { q, k, v, y on d; q.outer_split(1, d); q[1] = mesh.x; y.outer_split(1, d); y[1] = mesh.x }
}
END
goes '' <<'END'
fusion more_queries {        # than keys: some windows lie past the last of them
  mesh d = [4]
  q : bf16[3, 16, 8]
  k : bf16[3, 6, 8]
  v : bf16[3, 6, 8]
  y = sdpa(q, k, v, causal=true)
  return y
  schedule { q, k, v, y on d; q.outer_split(1, d); q[1] = mesh.x; y.outer_split(1, d); y[1] = mesh.x }
}
END
for axis in 0 1 2; do
  goes cudnn <<END
fusion streamed {
  q : bf16[4, 4, 16, 8]
  k : bf16[4, 4, 16, 8]
  v : bf16[4, 4, 16, 8]
  y = sdpa(q, k, v, causal=true)
  return y
  schedule { y.outer_split($axis, 2); y[$axis] = stream }
}
END
done
# Several at once on streams of their own, in every order; as graphs; a workspace each.
for mode in '--adversary 1' '--graph --repeat 3' '--adversary 2' '--adversary 3 --streams 2'; do
  # shellcheck disable=SC2086
  goes cudnn $mode <<'END'
fusion streamed {
  q : bf16[4, 4, 16, 8]
  k : bf16[4, 4, 16, 8]
  v : bf16[4, 4, 16, 8]
  y = sdpa(q, k, v, causal=true)
  return y
  schedule { y[0] = stream }
}
END
done

# ---- without the library ----
export WEIR_CUDNN_LIBRARY=none
for axis in 0 1 2; do
  goes kernel <<END
fusion streamed {
  q : bf16[2, 2, 140, 16]
  k : bf16[2, 2, 140, 16]
  v : bf16[2, 2, 140, 24]
  y = sdpa(q, k, v, causal=true)
  return y
  schedule { y.outer_split($axis, 2); y[$axis] = stream }
}
END
done
unset WEIR_CUDNN_LIBRARY

# ---- plans that are kept ----
again() {
  shape cudnn 'bf16[2, 2, 24, 8]' 'bf16[2, 2, 24, 8]' 'bf16[2, 2, 24, 8]' ''
  holds "$1: $(cat "$dir/err")" grep -q "$1" "$dir/err"
}
again 'the fastest of 2 plans'
again 'a plan from disk'
WEIR_STANDIN_CUDNN_VERSION=91902 again 'the fastest of 2 plans'
for file in "$XDG_CACHE_HOME"/weir/*cudnn*; do printf 'x' | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null; done
again 'the fastest of 2 plans'

# ---- failures: of a call while plans are made another way is found, of a run it is an error ----
for call in cudnnCreate:1 cudnnCreate:2 cudnnBackendCreateDescriptor:5 cudnnBackendSetAttribute:20 \
  cudnnBackendFinalize:9 cudnnBackendGetAttribute:1 cudnnBackendGetAttribute:2 cudnnBackendGetAttribute:4; do
  WEIR_STANDIN_FAIL=$call XDG_CACHE_HOME=$dir/none shape '' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''
  rm -rf "$dir/none"
done
shape cudnn 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''
WEIR_STANDIN_FAIL=cudnnBackendExecute:1 shape kernel 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' 'bf16[2, 9, 8]' ''
for call in cudnnSetStream:2 cudnnBackendExecute:2; do
  WEIR_STANDIN_FAIL=$call expect 3 'cuda: issuing attention' run "$dir/a.weir" --device cuda
done
finish
