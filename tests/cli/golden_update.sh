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
finish
