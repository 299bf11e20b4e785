#!/bin/bash
# tests/gpu/batch: many commands in few processes; one that fails, dies or hangs is named, and the others run.
# shellcheck disable=SC2154 # of the kit
. "$(dirname "$0")/kit"
batch=$(dirname "$weir")/tests/gpu/batch

program sum <<'END'
fusion sum { x : f32[n]; y = x + x; return y }
END
good="run '$dir/sum.weir' -D n=4 --check"

# batch CODE OPTION... < LIST: with a folder for temporary files that no other test has. A file of more than so many blocks is a signal.
largest=unlimited
mkdir "$dir/tmp"
batch() {
  local code=$1 got
  shift
  cat >"$dir/list"
  (ulimit -f "$largest" && TMPDIR=$dir/tmp exec timeout 60 "$batch" "$@" "$dir/list") >"$dir/out" 2>&1
  got=$?
  holds "exit code $got instead of $code: $(cat "$dir/out")" test $got = "$code"
}
says() { holds "'$1' in: $(cat "$dir/out")" grep -qxF -- "$1" "$dir/out"; }
tells() { holds "'$1' as a part of: $(cat "$dir/out")" grep -qF -- "$1" "$dir/out"; }

# ---- all is well ----
for n in 1 3; do
  batch 0 --at-once $n < <(yes "$good" | head -7)
  holds "one line: $(cat "$dir/out")" test "$(cat "$dir/out")" = '7 passed, 0 failed'
done
batch 0 --together --gpu < <(printf '%s\n' "$good" 'list ops')
says '2 passed, 0 failed'
batch 0 < <(printf '%s\n' '# small ones' "$good" "$good" '# others' 'list ops' "verify '$dir/sum.weir'" 'list comms')
says 'small ones: 2 passed, 0 failed'
says 'others: 3 passed, 0 failed'
says '5 passed, 0 failed'

# ---- one fails ----
batch 1 --at-once 2 < <(printf '%s\n' "$good" '# wrong' 'run nothing.weir' "$good" "run '$dir/sum.weir' --fill odd" "$good")
says 'failed: weir run nothing.weir'
tells 'nothing.weir: error: cannot read'
says "failed: weir run '$dir/sum.weir' --fill odd"
says 'wrong: 2 passed, 2 failed'
says '3 passed, 2 failed'
batch 1 --together < <(printf '%s\n' "$good" 'run nothing.weir' "$good")
says '1 commands were not run'
says '1 passed, 2 failed'

# ---- one hangs, one dies ----
mkfifo "$dir/never"
batch 1 --seconds 5 < <(printf '%s\n' "$good" "run '$dir/never'" "$good")
says "took too long: weir run '$dir/never'"
says '2 passed, 1 failed'
largest=8
batch 1 < <(printf '%s\n' "$good" "run '$dir/sum.weir' -D n=100000 --output y='$dir/y.npy'" "$good")
largest=unlimited
tells "ended by signal"
says '2 passed, 1 failed'
holds 'nothing is left behind' rmdir "$dir/tmp"

# ---- no list ----
timeout 10 "$batch" "$dir/no/list" >"$dir/out" 2>&1
holds 'a list that is not there' test $? = 2
tells 'No such file'
finish
