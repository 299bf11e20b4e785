#!/bin/bash
# weir run: one file per device, x.%r.npy.
. "$(dirname "$0")/kit"
program stages <<'END'
fusion stages {
  mesh a = [2]
  mesh b = [2] of {3, 2}
  x : f32[n, 6]
  w : bf16[6]
  y = x + 1
  z = y * w
  return z, x
  schedule {
    x, y, w on a
    z on b
    x.outer_split(0, a); x[0] = mesh.x
    y.outer_split(0, a); y[0] = mesh.x
    z.outer_split(1, b); z[1] = mesh.x
  }
}
fusion give_x {
  mesh a = [2]
  x : f32[n, 6]
  return x
  schedule { x on a; x.outer_split(0, a); x[0] = mesh.x }
}
fusion give_w {
  mesh a = [2]
  w : bf16[6]
  return w
  schedule { w on a }
}
fusion whole_z {
  mesh b = [2] of {3, 2}
  z : f32[n, 6]
  return z
  schedule { z on b; z.outer_split(1, b); z[1] = mesh.x }
}
END
file=$dir/stages.weir
run() { "$weir" run "$file" --fusion "$@"; }

# 7 rows on two devices are 4 and 3.
holds 'shards of x' run give_x -D n=7 --output "x=$dir/x.%r.npy"
holds 'both devices of w' run give_w --output "w=$dir/w.%r.npy"
holds 'replicas are equal' cmp "$dir/w.0.npy" "$dir/w.1.npy"
shards=(--input "x=$dir/x.%r.npy" --input "w=$dir/w.%r.npy")
expect 0 'z: f32[7, 6] min=' run "$file" -D n=7 --output "z=$dir/z.npy"
expect 0 "z: f32[7, 6] in $dir/z.%r.npy" run "$file" -D n=7 "${shards[@]}" --output "z=$dir/z.%r.npy" --stats
holds 'devices that hold nothing have no file' test ! -e "$dir/z.0.npy" -a ! -e "$dir/z.1.npy"
holds 'the others have' test -e "$dir/z.2.npy" -a -e "$dir/z.3.npy"
expect 0 '' run "$file" --fusion whole_z -D n=7 --input "z=$dir/z.%r.npy" --output "z=$dir/again.npy"
holds 'the shards are those of the whole' cmp "$dir/z.npy" "$dir/again.npy"
expect 0 'check: z max_abs=' run "$file" -D n=7 "${shards[@]}" --check --output "x=$dir/y.%r.npy" --repeat 2
holds 'an output that is an input' cmp "$dir/x.1.npy" "$dir/y.1.npy"
expect 0 '"shape": [7, 6]}' run "$file" -D n=7 "${shards[@]}" --output "z=$dir/z.%r.npy" --json
expect 0 '' run "$file" -D n=7 "${shards[@]}" --output "z=$dir/100%%.npy"
holds 'a literal percent sign' cmp "$dir/z.npy" "$dir/100%.npy"
expect 0 '' run "$file" -D n=7 --devices 6 "${shards[@]}" --check
expect 0 'path: virtual_s=' run "$file" -D n=7 "${shards[@]}" --device sim

# Fortran order, whole and as shards.
sed 's/False/True /' "$dir/x.1.npy" >"$dir/f.1.npy"
sed 's/False/True /' "$dir/x.0.npy" >"$dir/f.0.npy"
expect 0 'check: z max_abs=' run "$file" -D n=7 --input "x=$dir/f.%r.npy" --check
expect 0 '' run "$file" -D n=7 --output "x=$dir/x.npy"
sed 's/False/True /' "$dir/x.npy" >"$dir/f.npy"
expect 0 ' ok' run "$file" --input "x=$dir/f.npy" --check

# One device: rank 0 holds all.
program one <<'END'
fusion one { x : f32[n, 6]; y = x + 1; return y }
END
cp "$dir/x.npy" "$dir/o.0.npy"
expect 0 ' ok' run "$dir/one.weir" -D n=7 --input "x=$dir/o.%r.npy" --output "y=$dir/oy.%r.npy" --check
holds 'its file' test -e "$dir/oy.0.npy"

# A check that fails, and a disk that is full, leave no file.
program wrong <<'END'
fusion wrong {
  mesh d = [2]
  x : f32[n, 6]
  y = x + 1
  return y
  schedule { x, y on d; x.outer_split(0, d); x[0] = mesh.x; y.outer_split(0, d); y[0] = mesh.x }
}
host wrong(mesh d = [2], x : f32[n@x, 6] on d) -> (y) {
  y : f32[n@x, 6] on d = allocate()
  y <- x + 2
}
END
expect 1 'FAILED' run "$dir/wrong.weir" -D n=7 --input "x=$dir/x.%r.npy" --output "y=$dir/q.%r.npy" --check
ln -s /dev/full "$dir/q.1.npy"
expect 3 'writing failed' run "$dir/wrong.weir" -D n=7 --input "x=$dir/x.%r.npy" --output "y=$dir/q.%r.npy"
rm "$dir/q.1.npy"
holds 'no file is left' test -z "$(cd "$dir" && ls | grep -E '^q\.|tmp')"

# What does not fit leaves no file.
rm -f "$dir"/z.*
out=(--output "z=$dir/z.%r.npy")
expect 2 "x.1.npy has shape [3, 6], but rank 1 holds [4, 6] of input 'x', which is [8, 6]" \
  run "$file" -D n=8 "${shards[@]}" "${out[@]}"
expect 2 'files of shards fix no extents' run "$file" "${shards[@]}"
program types <<'END'
fusion types {
  mesh a = [2]
  w : i64[6]
  return w
  schedule { w on a }
}
END
expect 2 "w.0.npy holds f32, but input 'w' is i64 on rank 0" run "$dir/types.weir" --input "w=$dir/w.%r.npy"
cp "$dir/w.1.npy" "$dir/v.1.npy"
expect 2 'v.0.npy: cannot open' run "$file" -D n=7 --input "w=$dir/v.%r.npy" "${out[@]}"
expect 0 '' run "$file" --fusion give_w --fill ones --output "w=$dir/ones.%r.npy"
cp "$dir/w.0.npy" "$dir/v.0.npy"
cp "$dir/ones.1.npy" "$dir/v.1.npy"
expect 2 'devices 0 and 1 hold the same part of input w, and other values' \
  run "$file" -D n=7 --input "w=$dir/v.%r.npy" "${out[@]}"
expect 2 'there is nothing else' run "$file" -D n=7 --input "x=$dir/%d.npy"
expect 2 'whole tensors' run "$file" -D n=7 --device ref "${shards[@]}"
expect 2 'both' run "$file" -D n=7 "${out[@]}" --output "x=$dir/z.2.npy"
expect 2 'cannot write' run "$file" -D n=7 --output "z=$dir/none/z.%r.npy"
mkdir "$dir/z.3.npy"
expect 2 'it is a directory' run "$file" -D n=7 "${out[@]}"
rmdir "$dir/z.3.npy"
holds 'no file is left' test -z "$(cd "$dir" && ls | grep -E '^z\.|tmp')"

# ---- devices that hold nothing ----
program few <<'END'
fusion few {
  mesh a = [3]
  x : f32[4, n]
  y = -x
  return y
  schedule { x on a; x.outer_split(1, a); x[1] = mesh.x }
}
fusion give {
  mesh a = [3]
  x : f32[4, n]
  return x
  schedule { x on a; x.outer_split(1, a); x[1] = mesh.x }
}
END
expect 0 '' run "$dir/few.weir" --fusion give -D n=2 --output "x=$dir/x.%r.npy"
expect 0 ' ok' run "$dir/few.weir" -D n=2 --check --input "x=$dir/x.%r.npy" --output "y=$dir/y.%r.npy"
holds 'an empty part is a file without elements' grep -qa "'shape': (4, 0)" "$dir/y.2.npy"
finish
