#!/bin/bash
# Every pass of the pipeline has a golden test of its own name, tests/golden/pass_NAME.weir, that runs it, or the
# pipeline with and without it: what it changes is seen there.
. "$(dirname "$0")/kit"
shows() {
  local file=tests/golden/pass_${1//-/_}.weir
  [ -f "$file" ] && grep -qE "^# RUN:.*--(passes|disable|enable) ([a-z,-]+,)?$1([ ,|]|$)" "$file"
}
passes=$("$weir" list passes | awk '{print $1}')
holds 'there are passes' test "$(wc -w <<<"$passes")" -gt 20
for pass in $passes; do holds "pass $pass has a golden test" shows "$pass"; done
finish
