#!/bin/bash
# weir run on host programs: proven before they run, given the inputs of their fusion.
. "$(dirname "$0")/kit"

# ---- what is not safe is not run ----
program race <<'END'
host race(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  t : f32[n] = allocate()
  main = current_stream()
  t <- neg(x)
  set_stream(0)
  y <- abs(t)
  set_stream(main)
  wait_stream(0)
}
END
program half <<'END'
host half(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  a = shard(x, dim=0, index=0, parts=2)
  b = shard(y, dim=0, index=0, parts=2)
  b <- neg(a)
}
END
program unwritten <<'END'
host unwritten(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  t : f32[n] = allocate()
  y <- x + t
}
END
for device in cpu sim null; do
  expect 1 'race.weir:7:3: error: stream 0 reads t' run "$dir/race.weir" -D n=4 --device $device
done
expect 1 'race.weir:7:3: error: stream 0 reads t' run "$dir/race.weir" -D n=4 --output "y=$dir/y.npy" --trace "$dir/t.json"
holds 'nothing is written' test ! -e "$dir/y.npy" -a ! -e "$dir/t.json"
holds 'nothing is reported' bash -c "! '$weir' run '$dir/race.weir' -D n=4 2>/dev/null | grep -q ."
expect 1 'unwritten.weir:4:3: error: t is read before' run "$dir/unwritten.weir" -D n=4
expect 1 'weir: error: the output y is not written completely' run "$dir/half.weir" -D n=4
holds 'one prefix' test "$(grep -c 'error: error' "$dir/.err")" = 0
expect 1 'weir: error: the output y is not written completely' verify "$dir/half.weir" -D n=4
expect 0 'y: f32[4]' run "$dir/race.weir" -D n=4 --prove never --adversary 2
WEIR_PROVE=never expect 0 'y: f32[4]' run "$dir/race.weir" -D n=4 --adversary 2
expect 0 'check: y' run examples/mlp_streams.weir -D rows=8 --check --prove always --repeat 3
expect 2 'one of auto|always|never' run "$dir/race.weir" -D n=4 --prove maybe

# ---- redundant waits are notes of verify, one per line ----
program waits <<'END'
host waits(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  main = current_stream()
  for i in n {
    set_stream(i % streams)
    wait_stream(main)
    a = shard(x, dim=0, index=i, chunk=1)
    b = shard(y, dim=0, index=i, chunk=1)
    b <- neg(a)
  }
  set_stream(main)
  for i in min(n, streams) { wait_stream(i) }
}
END
expect 0 'waits.weir:6:5: note: redundant wait, instruction 0' verify "$dir/waits.weir" -D n=6
cp "$dir/.out" "$dir/verify.out"
cp "$dir/.err" "$dir/verify.err"
holds 'one note with a count, on standard error' \
  bash -c "test \"\$(grep -c note '$dir/verify.err')\" = 1 && grep -q 'the first of 6 here' '$dir/verify.err'"
holds 'and the summary on standard output' \
  bash -c "grep -q '^checked 16 instructions' '$dir/verify.out' && ! grep -q note '$dir/verify.out'"
expect 0 'y: f32[6]' run "$dir/waits.weir" -D n=6
holds 'weir run has no notes' test ! -s "$dir/.err"

# ---- the inputs of the fusion, whatever the fill ----
program indexed <<'END'
fusion indexed {
  x : f32[n, m]
  i : i64[n, 3]
  s : f32[n, 3]
  k : i64[3, 2]
  y = gather(x, i, dim=1)
  z = scatter(x, i, s, dim=1)
  w = index_select(x, reshape(transpose(k), [6]), dim=0)
  return y, z, w
  schedule {
    y[0] = stream
    z[0] = stream
    w.outer_split(0, 2)
    w[0] = stream
  }
}
END
"$weir" lower "$dir/indexed.weir" >"$dir/lowered.weir"
sed -n '/^host/,$p' "$dir/lowered.weir" >"$dir/alone.weir"
for fill in normal int iota ones; do
  for seed in 0 7; do
    args="-D x=6x4 --fill $fill --seed $seed"
    # shellcheck disable=SC2086
    {
      expect 0 'check: w' run "$dir/lowered.weir" $args --check
      "$weir" run "$dir/indexed.weir" $args >"$dir/fusion.out" 2>&1
      for host in lowered alone; do
        "$weir" run "$dir/$host.weir" $args >"$dir/host.out" 2>&1
        holds "$host: the same with $args" cmp "$dir/host.out" "$dir/fusion.out"
      done
    }
  done
done

# ---- uniform goes by the name of what it writes ----
program random <<'END'
fusion random {
  u = uniform([6, 4])
  v = uniform([6])
  return u, v
}
host random() -> (u, v) {
  u : f32[6, 4] = allocate()
  v : f32[6] = allocate()
  for i in 3 {
    p = shard(u, dim=0, index=i, chunk=2)
    p <- uniform([6, 4]) at [2 * i, 0]
  }
  v <- uniform([6])
}
END
expect 0 'check: u max_abs=0' run "$dir/random.weir" --check --seed 5
expect 0 'p <- uniform([6, 4]) at' opt "$dir/random.weir"

# ---- pieces ----
program chunks <<'END'
host chunks(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  for i in 2 {
    a = shard(x, dim=0, index=i, chunks=[2, 3])
    b = shard(y, dim=0, index=i, chunks=[2, 3])
    b <- neg(a)
  }
}
END
expect 0 'y: f32[5]' run "$dir/chunks.weir" -D n=5
expect 2 "chunks.weir:4:5: error: the chunks of 'x' along dimension 0: 5 must equal n = 4" run "$dir/chunks.weir" -D n=4
expect 2 '5 must equal n = 6' verify "$dir/chunks.weir" -D n=6
program past <<'END'
host past(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  for i in 9 {
    a = shard(x, dim=0, index=i, chunk=2)
    b = shard(y, dim=0, index=i, chunk=2)
    b <- neg(a)
  }
}
END
expect 0 'y: f32[5]' run "$dir/past.weir" -D n=5

# ---- files that cannot be written are refused before the run ----
slow='--repeat 1000000000'
# shellcheck disable=SC2086
{
  expect 2 'ending in .json, .html or .svg' run "$dir/waits.weir" -D n=6 $slow --trace "$dir/t.txt"
  expect 2 'cannot write' run "$dir/waits.weir" -D n=6 $slow --trace "$dir/no/t.json"
  expect 2 'cannot write' run "$dir/waits.weir" -D n=6 $slow --output "y=$dir/no/y.npy"
  expect 2 'directory' run "$dir/waits.weir" -D n=6 $slow --output "y=$dir"
  mkdir "$dir/t.json"
  expect 2 'directory' run "$dir/waits.weir" -D n=6 $slow --trace "$dir/t.json"
  expect 2 'both write' run "$dir/waits.weir" -D n=6 $slow --trace "$dir/y.json" --output "y=$dir/y.json"
}
finish
