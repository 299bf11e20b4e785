#!/bin/bash
# What is shown is what runs: `lower`, `why`, `verify` and `--dump` speak of the variant that `run` takes.
. "$(dirname "$0")/kit"
export XDG_CACHE_HOME=/dev/null

program ag <<'END'
fusion ag {
  mesh d = [2]
  a : f32[m, k]
  b : f32[k, n]
  c = matmul(a, b)
  return c
  schedule {
    a, b, c on d
    a.outer_split(0, d);  a[0] = mesh.x
    b.outer_split(1, d);  b[1] = mesh.x
    c.outer_split(1, d);  c[1] = mesh.x
    c.outer_split(0, d);  c[0] = stream
  }
}
END
printf 'f32_gflops = 100\nmemory_gb_s = 20\nlink_gb_s = 1000\nlaunch_us = 100\n' >"$dir/near"
printf 'f32_gflops = 0.1\nmemory_gb_s = 20\nlink_gb_s = 0.001\n' >"$dir/far"
sizes="-D m=64 -D k=64 -D n=64"

# same COMMAND...: the host program that lower prints is the one that run dumps.
same() {
  "$weir" lower "$@" | sed -n '/^host /,$p' >"$dir/shown"
  "$weir" run "$@" -q --dump host 2>"$dir/dumped"
  sed -n '/^host /,$p' "$dir/dumped" >"$dir/ran"
  [ -s "$dir/shown" ] && cmp "$dir/shown" "$dir/ran"
}
for machine in near far; do
  holds "$machine" same "$dir/ag.weir" $sizes --machine "$dir/$machine"
  cp "$dir/shown" "$dir/$machine.host"
done
holds "no machine" same "$dir/ag.weir" $sizes
holds "marked" same "$dir/ag.weir" $sizes --machine "$dir/near" --pipeline marked
holds "streams are used on one of them" grep -q set_stream "$dir/far.host"
holds "and not on the other" bash -c '! grep -q set_stream "$1"' - "$dir/near.host"
holds "sim" same "$dir/ag.weir" $sizes --device sim --machine "$dir/near"
for file in examples/column_parallel_linear.weir examples/row_parallel_linear.weir; do
  holds "$file" same $file -D t=6
done
# Without extents it is the program as it is marked.
"$weir" lower "$dir/ag.weir" --machine "$dir/near" >"$dir/any"
holds "for all shapes" grep -q set_stream "$dir/any"

# ---- the others ----
expect 0 'streamed along dimension 0, in 2 slices' why "$dir/ag.weir" c $sizes --machine "$dir/far"
"$weir" why "$dir/ag.weir" c $sizes --machine "$dir/near" >"$dir/why"
holds "no slices without a loop" bash -c '! grep -q slices "$1"' - "$dir/why"
near=$("$weir" verify "$dir/ag.weir" $sizes --machine "$dir/near" 2>"$dir/note" | head -n 1)
holds "verify proves what runs" test "$near" != "$("$weir" verify "$dir/ag.weir" $sizes --machine "$dir/far" 2>&1 | head -n 1)"
holds "and says so" grep -q "streams are not used: predicted .* s with them, .* s without" "$dir/note"
expect 0 'streams are not used' run "$dir/ag.weir" $sizes --machine "$dir/near"
"$weir" run "$dir/ag.weir" $sizes --machine "$dir/near" -q 2>"$dir/note"
holds "silence" test ! -s "$dir/note"
expect 0 'type=Allreduce' run examples/row_parallel_linear.weir -D t=6 -q --dump nvfuser --pipeline marked

# ---- a mark that no loop comes of ----
program rs <<'END'
fusion rs {
  mesh d = [2]
  x : f32[m, k]
  w : f32[k, n]
  y = matmul(x, w)
  return y
  schedule {
    x, w, y on d
    x.outer_split(1, d);  x[1] = mesh.x
    w.outer_split(0, d);  w[0] = mesh.x
    y.outer_split(0, d);  y[0] = mesh.x
    y.outer_split(1, 4);  y[1] = stream
  }
}
END
expect 0 'note: line 12: the stream of y along dimension 0 is not used: ' run "$dir/rs.weir" $sizes
expect 0 'but made in one piece' why "$dir/rs.weir" y

# ---- movements that another mark would avoid ----
program moves <<'END'
fusion unmarked {
  mesh d = [2]
  x : f32[m, k]
  t = exp(x)
  y = t * 2.0
  return y
  schedule {
    x, t, y on d
    x.outer_split(0, d);  x[0] = mesh.x
    y.outer_split(0, d);  y[0] = mesh.x
  }
}
fusion beside {
  mesh d = [2]
  x : f32[m, k]
  b : f32[m, k]
  y = x + b
  return y
  schedule {
    x, b, y on d
    x.outer_split(0, d);  x[0] = mesh.x
    y.outer_split(0, d);  y[0] = mesh.x
    b.outer_split(1, d);  b[1] = mesh.x
  }
}
END
expect 0 'note: line 4: each device receives 2097152 bytes of' run "$dir/moves.weir" -D m=1024 -D k=1024
expect 0 'note: line 17: each device receives 1048576 bytes of b, which is cut differently from y' run "$dir/moves.weir" --fusion beside -D m=1024 -D k=1024
"$weir" run "$dir/moves.weir" -D m=10 -D k=10 2>"$dir/note" >"$dir/.out"
holds "few bytes are not worth a note" test ! -s "$dir/note"
finish
