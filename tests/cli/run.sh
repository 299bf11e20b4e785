#!/bin/bash
# weir run: inputs, outputs, checks, reports.
. "$(dirname "$0")/kit"
program mm <<'END'
fusion mm {
  a : f32[m, k]
  b : f32[k, n]
  c = matmul(a, b)
  s = sum(c)
  return c, s
}
END
mm=$dir/mm.weir
sizes='-D a=4x5 -D n=3'

# shellcheck disable=SC2086
{
  expect 0 'check: c max_abs=' run "$mm" $sizes --check
  holds 'one check line per output' test "$(grep -c '^check: .* ok$' "$dir/.out")" = 2
  expect 0 'c: f32[4, 3] min=' run "$mm" $sizes
  expect 0 'time: min ' run "$mm" $sizes --repeat 5

  # Where there is no GPU, or the build knows none, it says so; where there is one, it computes.
  "$weir" run "$mm" $sizes --device cuda --check >"$dir/.out" 2>"$dir/cuda"
  code=$?
  holds 'cuda runs, or says what is missing with code 3' test $code = 0 -o $code = 3
  [ $code = 0 ] || holds 'what is missing' grep -q '^weir: error: cuda: ' "$dir/cuda"
  expect 2 'graph' run "$mm" $sizes --graph=maybe
  expect 2 'auto|host' run "$mm" $sizes --link pigeon
  expect 0 'stats: device=cpu wall_s=' run "$mm" $sizes --stats
  expect 0 '"outputs": [{"name": "c"' run "$mm" $sizes --json --check --stats --repeat 2
  cp "$dir/.out" "$dir/report.json"
  holds 'one line of JSON' test "$(wc -l <"$dir/report.json")" = 1
  if command -v python3 >/dev/null; then
    holds 'JSON that parses' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
assert r['fusion'] == 'mm' and r['outputs'][0]['shape'] == [4, 3], r
assert all(c['ok'] for c in r['checks']) and len(r['checks']) == 2, r
assert r['times_s']['runs'] == 2 and r['stats']['output_bytes'] == 52, r" "$dir/report.json"
  fi

  # Out and in again: files give the same result as the values they hold.
  expect 0 '' run "$mm" $sizes --seed 3 --output "c=$dir/c.npy" --output "s=$dir/s.npy"
  program id <<'END'
fusion id { x : f32[?, ?]; return x }
END
  expect 0 'x: f32[4, 3]' run "$dir/id.weir" --input "x=$dir/c.npy" --output "x=$dir/again.npy"
  holds 'a copy is bit-equal' cmp "$dir/c.npy" "$dir/again.npy"
  expect 0 '' run "$mm" $sizes --seed 3 --streams 2 --pipeline ring --output "c=$dir/d.npy"
  holds 'the same values whatever the schedule options' cmp "$dir/c.npy" "$dir/d.npy"
  expect 0 '' run "$mm" $sizes --seed 4 --output "c=$dir/d.npy"
  holds 'other values with another seed' bash -c "! cmp -s '$dir/c.npy' '$dir/d.npy'"

  # Files that do not fit.
  expect 2 'extent' run "$mm" $sizes --input "a=$dir/c.npy"
  expect 2 'rank' run "$mm" $sizes --input "a=$dir/s.npy"
  expect 2 "there is no input 'q'; there are a, b" run "$mm" $sizes --input "q=$dir/c.npy"
  expect 2 "there is no output 'a'; there are c, s" run "$mm" $sizes --output "a=$dir/c.npy"
  expect 2 'twice' run "$mm" $sizes --input "a=$dir/c.npy" --input "a=$dir/c.npy"
  expect 2 'NAME=FILE' run "$mm" $sizes --input "$dir/c.npy"
  expect 2 'both' run "$mm" $sizes --output "c=$dir/e.npy" --output "s=$dir/e.npy"
  expect 2 'cannot open' run "$mm" $sizes --input "a=$dir/missing.npy"
  expect 2 'directory' run "$mm" $sizes --input "a=$dir"
  head -c 90 "$dir/c.npy" >"$dir/short.npy"
  expect 2 'ends inside' run "$mm" $sizes --input "a=$dir/short.npy"
  head -c 140 "$dir/c.npy" >"$dir/short.npy"
  expect 2 'truncated' run "$mm" $sizes --input "a=$dir/short.npy"
  sed 's/(4, 3)/(9, 9)/' "$dir/c.npy" >"$dir/lie.npy"
  expect 2 'truncated' run "$mm" $sizes --input "a=$dir/lie.npy"
  sed 's/<f4/<c8/' "$dir/c.npy" >"$dir/type.npy"
  expect 2 "'<c8'" run "$mm" $sizes --input "a=$dir/type.npy"
  sed 's/<f4/<i4/' "$dir/c.npy" >"$dir/type.npy"
  expect 2 "holds i32, but input 'a' is f32" run "$mm" $sizes --input "a=$dir/type.npy"

  # Outputs that cannot be written: no file, and nothing half-written beside it.
  expect 2 'cannot write' run "$mm" $sizes --output "c=$dir/no/such/folder.npy"
  expect 2 'directory' run "$mm" $sizes --output "c=$dir"
  expect 2 'cannot write' run "$mm" $sizes --output "c=$dir/ok.npy" --output "s=$dir/no/s.npy"
  holds 'all outputs or none' test ! -e "$dir/ok.npy"
  if [ -w /dev/full ]; then expect 3 'writing failed' run "$mm" $sizes --output c=/dev/full; fi
  holds 'no temporary files' bash -c "! ls '$dir' | grep -q tmp"
}

# bf16 goes through f32 files; index inputs stay in range; every fill works.
program half <<'END'
fusion half { x : bf16[4]; y = x + 1; return y }
END
expect 0 'y: bf16[4]' run "$dir/half.weir" --output "y=$dir/y.npy"
expect 0 'y: bf16[4]' run "$dir/half.weir" --input "x=$dir/y.npy" --check=false
program pick <<'END'
fusion pick { x : f32[3, 50]; i : i64[200]; y = index_select(x, i, dim=0); return y }
END
for fill in normal int iota ones; do expect 0 'ok' run "$dir/pick.weir" --fill $fill --check; done
expect 2 'one of normal' run "$dir/pick.weir" --fill zeros
program empty <<'END'
fusion empty { x : f32[2, 0, 3]; y = exp(x); return y }
END
expect 0 'y: f32[2, 0, 3] empty' run "$dir/empty.weir"
expect 0 'max_abs=0 max_rel=0 ok' run "$dir/empty.weir" --check --output "y=$dir/empty.npy"

# Millions of terms keep their digits.
program dot <<'END'
fusion dot {
  x : f32[n]
  y = matmul(x, x)
  return y
}
END
expect 0 ' ok' run "$dir/dot.weir" -D n=2000000 --threads 1 --check
# Adding in f32 loses the 1 that f64 keeps, which rounding explains. --rtol knows nothing of that: the check
# fails, says where, and no file is written.
program lost <<'END'
fusion lost { s = matmul(cat(full([1], 1e8), ones([1]), full([1], -1e8), dim=0), ones([3])); return s }
END
expect 0 'check: s max_abs=1 max_rel=1 ok' run "$dir/lost.weir" --check
expect 1 'check: s max_abs=1 max_rel=1 FAILED' run "$dir/lost.weir" --check --rtol 1e-3 --output "s=$dir/lost.npy"
holds 'no output after a failed check' test ! -e "$dir/lost.npy"
expect 1 'check: s is 0, but 1 by its definition; --rtol allows 0.001' run "$dir/lost.weir" --check --rtol 1e-3
expect 1 '"ok": false' run "$dir/lost.weir" --check --rtol 1e-3 --json
expect 2 '--rtol needs a number above 0' run "$dir/lost.weir" --check --rtol x
expect 2 '--rtol needs a number above 0' run "$dir/lost.weir" --check --rtol nan
# A sample: so many rows of the output.
program rows <<'END'
fusion rows { a : f32[40, 16]; b : f32[16, 8]; c = softmax(matmul(tanh(a), b)); d = relu(matmul(a, b)); return c, d }
END
expect 0 'check: d max_abs=' run "$dir/rows.weir" --check=sample:3
expect 0 '"elements": 24, "wrong": 0' run "$dir/rows.weir" --check=sample:3 --json
expect 0 '"elements": 320, "wrong": 0' run "$dir/rows.weir" --check=sample:100 --json
expect 1 'elements are wrong' run "$dir/rows.weir" --check=sample:7 --rtol 1e-300
expect 2 "sample:N, which looks at N rows of each output; not 'some'" run "$dir/rows.weir" --check=some
expect 2 "not 'sample:x'" run "$dir/rows.weir" --check=sample:x
expect 2 'which is not given' run "$dir/rows.weir" --sample 3
expect 2 'which is not given' run "$dir/lost.weir" --rtol 1e-3
# Exponentials of large numbers amplify rounding: a correct result passes for all seeds.
program mlp <<'END'
fusion mlp {
  x : f32[64, 256]
  w : f32[1024, 256]
  v : f32[256, 1024]
  y = softmax(linear(relu(linear(x, w)), v))
  return y
}
END
for seed in 1 2 3 4 5; do expect 0 ' ok' run "$dir/mlp.weir" --seed $seed --check; done
# The reference evaluator is its own measure, however long a sum is.
expect 0 's: f32 min=1 max=1' run "$dir/lost.weir" --device ref
program long <<'END'
fusion long { x : f32[n]; s = sum(x * x); v = var(x); return s, v }
END
expect 0 'check: s max_abs=0 max_rel=0 ok' run "$dir/long.weir" -D n=200000 --device ref --check
program odd <<'END'
fusion odd { x : f32[2]; y = log(x * 0 - 1); z = x / 0; return y, z }
END
expect 0 '"min": "nan"' run "$dir/odd.weir" --json
expect 0 '"inf"' run "$dir/odd.weir" --json --fill ones
expect 0 'max_abs=0 max_rel=0 ok' run "$dir/odd.weir" --check
# Of ranks that torchrun started: ports that are none, and a rank that does not find rank 0.
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 WEIR_MPI_START_SECONDS=1
RANK=0 MASTER_PORT=99999 expect 2 'MASTER_PORT is 99999; ports are 1 to 65535' run examples/row_parallel_linear.weir -D t=6
RANK=0 WEIR_MASTER_PORT=x expect 2 'WEIR_MASTER_PORT is x' run examples/row_parallel_linear.weir -D t=6
RANK=1 WEIR_MASTER_PORT=9 expect 3 'rank 0 was not found at 127.0.0.1' run examples/row_parallel_linear.weir -D t=6
# Rank 0 prints for all.
RANK=0 expect 0 'ok: mm' verify "$mm"
RANK=1 expect 0 '' verify "$mm"
holds 'rank 1 prints nothing' test ! -s "$dir/.out"
# Variables that name no rank, or no place to meet, are no silent run of one process alone.
two="run examples/row_parallel_linear.weir -D t=6"
RANK=5 expect 2 'RANK is 5 and WORLD_SIZE is 2: ranks are 0 to WORLD_SIZE - 1' $two
RANK=-1 expect 2 'RANK is -1, which is no number' $two --comm tcp
RANK=0 WORLD_SIZE=2x expect 2 'WORLD_SIZE is 2x, which is no number' $two
MASTER_PORT=x RANK=0 expect 2 'MASTER_PORT is x, which is no number' $two
MASTER_ADDR='' RANK=0 expect 2 'MASTER_ADDR, the address of rank 0, is not set' $two
RANK=5 expect 0 '' $two --comm inproc
# shellcheck disable=SC2086
RANK=5 expect 0 'check: ' run "$mm" -D a=4x5 -D n=3 --check
unset WORLD_SIZE MASTER_ADDR WEIR_MPI_START_SECONDS
# Streams that the program marks and that are not used are told of, once, unless --quiet.
tiny="examples/mlp_parallel.weir --fusion overlapped -D rows=8"
# shellcheck disable=SC2086
{
  "$weir" run $tiny --repeat 3 >"$dir/.out" 2>"$dir/note"
  holds 'a note about streams' grep -q "^weir: note: the program's streams are not used: predicted [^ ]* s with them, [^ ]* s without" "$dir/note"
  holds 'one line' test "$(wc -l <"$dir/note")" = 1
  "$weir" run $tiny --quiet >"$dir/.out" 2>"$dir/note"
  holds 'no note with --quiet' test ! -s "$dir/note"
  "$weir" run $tiny --pipeline collective >"$dir/.out" 2>"$dir/note"
  holds 'no note without a choice' test ! -s "$dir/note"
}
finish
