#!/usr/bin/env bash
# The programs of tests/programs: right results, and no more bytes than the table says.
set -u
passed=0 failed=0
bad() { echo "$*"; failed=$((failed + 1)); }

# Prints the bytes that the busiest device receives; fails if the program does, or a result is wrong.
bytes_of() {
  local out
  out=$("$WEIR" run "tests/programs/$1.weir" $(sed 's/^-$//; s/^./-D &/; s/,/ -D /g' <<<"$2") --check --stats 2>&1) || { echo "$out"; return 1; }
  grep -q '^check: ' <<<"$out" || { echo "nothing was checked: $out"; return 1; }
  grep '^check: ' <<<"$out" | grep -v ' ok$' && return 1
  awk '/^stats: on=/ { for (i = 1; i <= NF; i++) if (sub(/^bytes_received=/, "", $i) && $i + 0 > most) most = $i + 0 }
       END { print most + 0 }' <<<"$out"
}

while read -r kind program extents best now _; do
  case $kind in reached) limit=$best ;; open) limit=$now ;; *) continue ;; esac
  if ! bytes=$(bytes_of "$program" "$extents"); then bad "$program: $bytes"; continue; fi
  if [ "$bytes" -gt "$limit" ]; then bad "$program: $bytes bytes, $limit are enough"; continue; fi
  if [ "$kind" = open ] && [ "$bytes" -lt "$now" ]; then
    bad "$program: $bytes bytes where the table has $now: correct the table"
    continue
  fi
  passed=$((passed + 1))
done < tests/programs/table.txt

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
