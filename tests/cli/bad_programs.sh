#!/bin/bash
# Wrong programs: exit 2 and a message that names the place and the trouble.
. "$(dirname "$0")/kit"

# bad TEXT MESSAGE: both verify and run refuse the program.
bad() {
  printf '%s\n' "$1" >"$dir/bad.weir"
  expect 2 "$2" verify "$dir/bad.weir"
  expect 2 "$2" run "$dir/bad.weir"
  expect 2 "bad.weir:" verify "$dir/bad.weir"
}

bad 'fusion f { x : f32[2]; y = x + q; return y }' "unknown name 'q'"
bad 'fusion f { x : f32[2]; y = nag(x); return y }' "unknown function 'nag'"
bad 'fusion f { x : f32[2]; y = add(x); return y }' 'add'
bad 'fusion f { x : f32[2]; y = neg(x, x); return y }' 'too many arguments'
bad 'fusion f { x : f32[2]; y : f32[3]; z = x + y; return z }' '1:'
bad 'fusion f { x : f32[2, 3]; y : f32[2, 3]; z = matmul(x, y); return z }' 'matmul'
bad 'fusion f { x : f32[2]; y = not(x); return y }' 'f32'
bad 'fusion f { x : f33[2]; return x }' 'f33'
bad 'fusion f { x : f32[2]; y : bf16[2] = neg(x); return y }' 'bf16'
bad 'fusion f { x : f32[2]; x : f32[3]; return x }' "'x'"
bad 'fusion f { x : f32[2]; return x }
fusion f { x : f32[2]; return x }' "'f'"
bad 'fusion f { x : f32[2]; y = sum(x, dims=[3]); return y }' '3'
bad 'fusion f { x : f32[2]; return x; schedule { x[4] = stream } }' '4'
bad 'fusion f { mesh d = [2]; x : f32[2, 2]; return x
  schedule { x on d; x[0] = mesh.x; x[1] = mesh.x } }' 'mesh.x'
bad 'fusion f { mesh d = [2] of {3, 3}; x : f32[2]; return x }' 'twice'
bad 'fusion f { x : f32[9223372036854775807, 9223372036854775807]; return x }' 'overflow'
bad 'fusion f { x : f32[99999999999999999999]; return x }' '64 bits'
bad 'fusion f { x : f32[2]; y = '"$(printf '(%.0s' {1..1100})x$(printf ')%.0s' {1..1100})"'; return y }' \
  '1000'
bad 'fusion f { x : f32[2]' "'}'"
bad 'fusion f { x : f32[2] }' 'return'
bad '' 'no fusion'
bad $'\x00\x01\xff' 'error'

# Independent errors come together.
printf 'fusion f {\n  x : f32[2]\n  y = nag(x)\n  z = x + q\n  return x\n}\n' >"$dir/two.weir"
expect 2 'two.weir:3:7: error:' verify "$dir/two.weir"
expect 2 "two.weir:4:11: error:" verify "$dir/two.weir"

# What only shapes can show.
program shapes <<'END'
fusion f {
  mesh d = [4]
  x : f32[n, m]
  y : f32[m, n]
  z = x + y
  return z
  schedule { x on d; x[0] = mesh.x }
}
END
expect 2 'these extents have no value: n, m' run "$dir/shapes.weir"
expect 2 'm' run "$dir/shapes.weir" -D n=4
expect 2 'n = 4' run "$dir/shapes.weir" -D n=4 -D m=5
expect 2 '4 devices' run "$dir/shapes.weir" -D n=5 -D m=5
expect 2 'need 4 devices' run "$dir/shapes.weir" -D n=4 -D m=4 --devices 3
expect 2 'overflow' run "$dir/shapes.weir" -D n=4611686018427387904 -D m=4611686018427387904
expect 2 'has no extent' run "$dir/shapes.weir" -D q=4
expect 2 'not a definition' run "$dir/shapes.weir" -D n=-4
expect 0 'check: z max_abs=0 max_rel=0 ok' run "$dir/shapes.weir" -D n=4 -D m=4 --check --devices 4
finish
