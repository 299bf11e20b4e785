#!/bin/bash
# What a careless or hostile user gives: one clear message, the right exit code, no half-written file.
. "$(dirname "$0")/kit"
program f <<'END'
fusion f { x : f32[n, 4]; y = exp(x); z = sum(y); return y, z }
END
f=$dir/f.weir

# ---- definitions ----
expect 2 "'y' is not an input" run "$f" -D y=3x4
expect 2 'not a definition' run "$f" -D =3
expect 2 'integers from 0 to 2^63 - 1' run "$f" -D n=99999999999999999999
expect 2 'integers from 0 to 2^63 - 1' run "$f" -D n=-1
expect 2 'name of the file is empty' run ''

# ---- extents that make no sense ----
program divided <<'END'
fusion divided { x : f32[n]; y = zeros([n / (n - 5)]); return y }
END
expect 2 'n / (n - 5)' run "$dir/divided.weir" -D n=5
program divided_host <<'END'
host divided_host(x : f32[n]) -> (y) { y : f32[n / (n - 5)] = allocate(); y <- zeros([n / (n - 5)]) }
END
expect 2 "extent 0 of 'y' cannot be computed: n / (n - 5)" run "$dir/divided_host.weir" -D n=5

# ---- plans without end ----
for body in '' 'y <- neg(x)' 'for j in n { y <- neg(x) }'; do
  program loops <<END
host loops(x : f32[n]) -> (y) {
  y : f32[n] = allocate()
  for i in 1000 * n * n { $body }
  y <- neg(x)
}
END
  expect 2 'may take 50000000' run "$dir/loops.weir" -D n=1000
done
expect 0 'y: f32[3]' run "$dir/loops.weir" -D n=3

# ---- more operands than lowering has room for ----
{
  printf 'fusion wide {\n'
  for i in $(seq 65); do printf 'x%d : f32[2]\n' "$i"; done
  printf 'y = cat(x1'
  for i in $(seq 2 65); do printf ', x%d' "$i"; done
  printf ', dim=0)\nreturn y\n}\n'
} >"$dir/wide.weir"
expect 2 'cat of 65 tensors cannot be lowered' run "$dir/wide.weir"
expect 2 'cat of 65 tensors cannot be lowered' lower "$dir/wide.weir"
expect 0 'y: f32[130]' run "$dir/wide.weir" --device ref

# ---- bodies of more operations than one kernel can have: they are split ----
long_body 2500 | program long
expect 0 'check: y' run "$dir/long.weir" -D n=3 -D m=5 --check
sed '/^host/,$d' "$dir/long.weir" | program long_fusion
expect 0 'check: y' run "$dir/long_fusion.weir" -D n=3 -D m=5 --check

# ---- files ----
expect 2 "writes both 'y' and 'z'" run "$f" -D n=3 --output "y=$dir/a.npy" --output "z=$dir/./a.npy"
ln -s a.npy "$dir/link.npy"
touch "$dir/a.npy"
expect 2 "writes both 'y' and 'z'" run "$f" -D n=3 --output "y=$dir/a.npy" --output "z=$dir/link.npy"
expect 0 'z: f32' run "$f" -D n=3 --output y=/dev/null --output z=/dev/null
expect 2 'both write to' run "$f" -D n=3 --output "y=$dir/a.json" --trace "$dir/../$(basename "$dir")/a.json"
holds 'nothing was written' test ! -s "$dir/a.npy" -a ! -e "$dir/a.json"

# ---- files that are replaced ----
mkdir "$dir/own"
touch "$dir/own/y.npy" && chmod 600 "$dir/own/y.npy"
expect 0 '' run "$f" -D n=3 --output "y=$dir/own/y.npy"
holds 'a file that is replaced keeps its permissions' test "$(stat -c %a "$dir/own/y.npy")" = 600
echo precious >"$dir/victim"
# shellcheck disable=SC2016
holds 'links that somebody planted are not followed' bash -c '
  for name in t.json.tmp.$$ .weir.tmp.$$.0 .weir.tmp.$$; do ln -s ../victim "$1/own/$name"; done
  exec "$2" run "$3" -D n=3 --trace "$1/own/t.json"' - "$dir" "$weir" "$f"
holds 'and what they point to is as it was' grep -q precious "$dir/victim"
holds 'the trace is written' test -s "$dir/own/t.json" -a ! -L "$dir/own/t.json"
rm "$dir"/own/.weir.tmp.* "$dir"/own/t.json.tmp.*
long=$(printf 'a%.0s' {1..250})
expect 0 '' run "$f" -D n=3 --output "y=$dir/own/$long.npy"
holds 'a name as long as one may be' test -s "$dir/own/$long.npy"
expect 2 'File name too long' run "$f" -D n=3 --output "y=$dir/own/${long}aaa.npy"
holds 'a longer one is refused before the run' test ! -s "$dir/.out"
for signal in INT TERM HUP; do
  for delay in 0.02 0.05 0.08 0.11 0.15; do
    bash -c 'trap - INT; exec "$@"' - "$weir" run "$f" -D n=400000 --output "y=$dir/own/big.npy" \
      >/dev/null 2>&1 &
    sleep $delay
    kill -$signal $! 2>/dev/null
    wait $! 2>/dev/null
  done
done
holds 'a signal leaves no temporary file' test -z "$(find "$dir/own" -name '*.tmp.*')"

# ---- standard streams that are closed ----
"$weir" run "$f" -D n=3 --output "y=$dir/b.npy" >&- 2>"$dir/messages"
holds 'a closed standard output is exit 3' test $? = 3
holds 'with one message' test "$(wc -l <"$dir/messages")" = 1
holds 'and no file' test ! -e "$dir/b.npy"
"$weir" run "$f" -D n=3 --output "y=$dir/b.npy" --output "z=$dir" >/dev/null 2>&-
holds 'messages do not end up in files' test $? = 2 -a ! -e "$dir/b.npy"
"$weir" run "$f" -D n=3 --output "y=$dir/c.npy" >/dev/null 2>&- <&-
holds 'a closed standard error does not matter' test $? = 0 -a -s "$dir/c.npy"
"$weir" run - <&- >/dev/null 2>&1
holds 'a closed standard input is exit 3' test $? = 3
"$weir" run "$f" -D n=3 2>"$dir/messages" | true
holds 'a reader that goes away needs no message' test ! -s "$dir/messages"

# ---- a rank that says nothing leaves after the one that does: its launcher would end that one ----
begin=$(date +%s%N)
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$weir" verify "$dir/none.weir" >"$dir/messages" 2>&1
code=$? took=$((($(date +%s%N) - begin) / 1000000))
holds 'rank 1 fails too, and says nothing' test $code = 2 -a ! -s "$dir/messages"
holds 'and leaves later' test $took -ge 100
finish
