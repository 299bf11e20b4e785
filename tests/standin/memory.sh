#!/bin/bash
# Memory that several things use in turn, on the stand-ins: a donated input that a long kernel, run in parts, reads after
# its first part; scratch memory of a sum beside a buffer that is read later.
. "$(dirname "$0")/../cli/kit"

{
  printf 'host parts(x : f32[n]) -> (a, t) {\n  a : f32[n] = allocate()\n  t : f32[n] = allocate()\n'
  printf '  a, t <- kernel(x) {\n    a0 = x + 1\n    t0 = x * 0.5\n'
  for i in $(seq 900); do printf '    t%d = tanh(t%d)\n' "$i" $((i - 1)); done
  printf '    t901 = t900 + x\n    return a0, t901\n  }\n}\n'
} | program parts
"$weir" run "$dir/parts.weir" -D n=64 --device cpu >"$dir/expected"
while read -r line; do
  expect 0 "$line" run "$dir/parts.weir" -D n=64 --device cuda
  expect 0 "$line" run "$dir/parts.weir" -D n=64 --device cuda --donate x=a
done <"$dir/expected"

program scratch <<'END'
fusion scratch {
  x : f32[n]
  a = exp(x)
  q = x * x
  s = sum(q)
  y = a * s
  return y
}
END
expect 0 'check: y' run "$dir/scratch.weir" -D n=300000 --device cuda --check --disable join
finish
