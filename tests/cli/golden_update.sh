#!/bin/bash
# The golden runner's --update: one call is enough, and it fails only for commands that cannot run.
. "$(dirname "$0")/kit"
runner=$(dirname "$weir")/tests/golden/runner
if [ ! -x "$runner" ]; then
  echo "skipped: there is no golden runner beside $weir"
  echo "1 passed, 0 failed"
  exit 0
fi

# The expectation stands before the program, so writing it moves the lines it speaks about.
program moves <<'END'
# RUN: weir verify %s
fusion f {
  x : f32[n]
  y = foo(x)
  return y
}
END
holds 'an update' "$runner" "$weir" "$dir/moves.weir" --update
holds 'and what it wrote holds' "$runner" "$weir" "$dir/moves.weir"
holds 'with the line where it is now' grep -q '^#! .*moves.weir:8:7: error: unknown' "$dir/moves.weir"
cp "$dir/moves.weir" "$dir/before.weir"
holds 'a second update' "$runner" "$weir" "$dir/moves.weir" --update
holds 'changes nothing' cmp "$dir/moves.weir" "$dir/before.weir"

# A command that fails is an expectation; one that cannot be executed is not.
program fails <<'END'
fusion f { x : f32[2]; return x }
# RUN: weir verify %s | grep nothing
# RUN: sh -c 'exit 77'
END
holds 'exit codes are written down' "$runner" "$weir" "$dir/fails.weir" --update
holds 'as they are' test "$(grep -c '^# EXIT: \(1\|77\)$' "$dir/fails.weir")" = 2
program absent <<'END'
fusion f { x : f32[2]; return x }
# RUN: no-such-command-at-all
END
cp "$dir/absent.weir" "$dir/before.weir"
holds 'no update without the command' bash -c "! '$runner' '$weir' '$dir/absent.weir' --update"
holds 'and the file stays as it was' cmp "$dir/absent.weir" "$dir/before.weir"

# FOREACH and CHECK.
program values <<'END'
fusion f { x : f32[n]; y = neg(x); return y }
# FOREACH: n = 1 2
# FOREACH: m = a b
# RUN: echo same $((n - n)); echo other $n$m
# CHECK: lines same
# FOREACH: n = 1 2
# RUN: echo "value $n"
# RUN: printf 'a\nb1 b2\nc\nd\n' > %t/file; cat %t/file
# CHECK: from ^b to ^c
# CHECK: words [bc][0-9]?
# RUN: echo "takes 12 ms"; exit 3
# CHECK: without [0-9]+[ ]
# RUN: printf 'x\ny\nx\n'
# CHECK: count x
END
holds 'values and parts' "$runner" "$weir" "$dir/values.weir" --update
grep '^#> \|EXIT' "$dir/values.weir" >"$dir/got"
printf '#> %s\n' 'same 0' '[n=1]' 'value 1' '[n=2]' 'value 2' b1 b2 c 'takes ms' 2 >"$dir/expected"
holds 'are written once where they agree' diff "$dir/expected" <(grep -v EXIT "$dir/got")
holds 'exit codes are not hidden' grep -qx '# EXIT: 3' "$dir/got"
holds 'and hold' "$runner" "$weir" "$dir/values.weir"
sed 's/^#> value 2/#> value 3/' "$dir/values.weir" >"$dir/wrong.weir"
holds 'one wrong value is noticed' bash -c "! '$runner' '$weir' '$dir/wrong.weir'"
sed 's/# CHECK: count x/# CHECK: some x/' "$dir/values.weir" >"$dir/unknown.weir"
holds 'an unknown part is an error' bash -c "! '$runner' '$weir' '$dir/unknown.weir'"
finish
