#!/bin/sh
# The suppressions of ThreadSanitizer name libraries only, never Weir's own code, and the script that
# looks finds each planted violation.
set -eu
passed=0 failed=0
own='weir|(^|[^a-z])(rt|cpu|host|ir|ref|check|schedule|text|api|base|device|adversary|null|sim)_|src/|tests/|tools/|\.c$|\*[^a-z]*$'

# names_own_code FILE: lines that do more than name a library; fails if there are none.
names_own_code() {
  grep -vE '^[[:space:]]*(#|$)' "$1" |
    grep -vE '^(race|called_from_lib|mutex|thread|deadlock):lib[a-z0-9_+-]+$' || [ $? = 1 ]
  grep -vE '^[[:space:]]*(#|$)' "$1" | grep -E "$own" || [ $? = 1 ]
}

count() { # OK WHAT
  if [ "$1" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $2"
  fi
}

found=$(names_own_code tests/tsan.supp)
[ -z "$found" ] && ok=0 || ok=1
count $ok "tests/tsan.supp suppresses more than libraries: $found"

file=$(mktemp)
trap 'rm -f "$file"' EXIT
for line in race:weir_run race:rt_run race:cpu_kernel_run race:host_lower race:ir_array_copy \
  race:ref_eval race:src/device/cpu/device.c 'race:*' race:libweir 'race:^main$' \
  called_from_lib:libweir_core; do
  printf '# a comment\nrace:libgomp\n%s\n' "$line" >"$file"
  [ -n "$(names_own_code "$file")" ] && ok=0 || ok=1
  count $ok "'$line' is not noticed"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
