#!/usr/bin/env bash
# late.sh WEIR MPIRUN FLAVOUR: what only a run shows to be wrong ends both ranks soon, with one message that names
# the line: positions, lengths and groups out of range, extents over their capacity, an alias that overlaps wrongly.
set -u
weir=$1 mpirun=$2 flavour=$3
failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
out=$(mktemp)
trap 'rm -f "$out"' EXIT

wrong() {
  echo "$flavour: $1"
  sed 's/^/  | /' "$out"
  failed=1
}
ranks() {
  timeout -k 2 60 "$mpirun" "${options[@]}" -n 2 "$weir" run tests/mpi/late.weir --fusion "$@" >"$out" 2>&1
}
# fails WORDS FUSION ARGUMENTS...: not with success, and one line has the words.
fails() {
  local words=$1
  shift
  ranks "$@" && wrong "$* does not fail"
  [ "$(grep -cF -- "$words" "$out")" = 1 ] || wrong "$* does not say '$words' once"
}

ones=(--fill ones --timeout 20)
fails 'late.weir:7: update: position 6 along axis 0 is not in 0 to 5' position "${ones[@]}"
fails 'late.weir:17: group_index: the lengths add up to 10 or more, and there are 8 rows' lengths "${ones[@]}"
fails 'late.weir:27: grouped_matmul: index 7 is not in 0 to 6, for 6 groups' one_rank "${ones[@]}"
fails 'late.weir:57: grouped_outer: index 7 is not in 0 to 6, for 6 groups' outer "${ones[@]}"
fails "extent 's' is 9, over its capacity of 8" capacity -D s=9
fails 'late.weir:43: it would be read and written at once' turned --donate x=y
ranks well --check || wrong 'well fails'
exit $failed
