#!/usr/bin/env bash
# traces.sh WEIR MPIRUN FLAVOUR N: under mpirun a trace has the devices of all processes, with what each waited for and
# arrows between them, and %r names a file for each.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4
failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

sed "s/mesh d = \[2\]/mesh d = [$n]/" examples/row_parallel_linear.weir >"$folder/p.weir"

run() { # ARGUMENTS...
  timeout -k 2 60 "$mpirun" "${options[@]}" -n "$n" "$weir" run "$folder/p.weir" -D t=6 --pipeline collective "$@" \
    >"$folder/out" 2>&1 && return
  echo "$flavour, $n ranks: weir run $*: exit $?"
  sed 's/^/  | /' "$folder/out"
  failed=1
}

expect() { # WORDS COMMAND...
  local words=$1
  shift
  "$@" >/dev/null 2>&1 && return
  echo "FAILED: $flavour, $n ranks: $words"
  failed=1
}

# spans FILE KIND RANK: how many there are.
spans() { grep '"ph":"X"' "$1" | grep "\"cat\":\"$2\"" | grep -c "\"pid\":$3,"; }

run --trace "$folder/all.json" --quiet
[ $failed = 0 ] || exit 1
"$weir" run "$folder/p.weir" -D t=6 --pipeline collective --trace "$folder/one.json" --quiet
for r in $(seq 0 $((n - 1))); do
  for kind in compute communication; do
    expect "rank $r has as many spans of $kind as in one process" \
      [ "$(spans "$folder/all.json" $kind "$r")" = "$(spans "$folder/one.json" $kind "$r")" ]
  done
done
expect "some rank waited for another" grep -q '"cat":"wait"' "$folder/all.json"
expect "there are arrows between ranks" grep -q '"ph":"s".*"cat":"meeting"' "$folder/all.json"
expect "no time is negative" bash -c "! grep -q '\"\\(ts\\|dur\\)\":-' '$folder/all.json'"

run --trace "$folder/t.%r.json" --quiet
for r in $(seq 0 $((n - 1))); do
  expect "rank $r has a file of its own" [ "$(spans "$folder/t.$r.json" compute "$r")" -gt 0 ]
  expect "with nobody else in it" bash -c "! grep '\"ph\"' '$folder/t.$r.json' | grep -v '\"pid\":$r,'"
done
expect "no other files" [ "$(ls "$folder" | grep -c '^t[.]')" = "$n" ]
expect "weir view puts them on one page" "$weir" view "$folder"/t.*.json --page "$folder/page.html"
exit $failed
