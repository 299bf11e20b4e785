#!/usr/bin/env bash
# programs.sh WEIR MPIRUN FLAVOUR N: `mpirun -n N weir run` on programs for N ranks: checked by rank 0,
# which alone prints, and one message when ranks differ.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4
file=tests/mpi/programs.weir
failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# passes FUSION ARGUMENTS...: exit 0, and one line that says ok.
passes() {
  timeout -k 2 60 "$mpirun" "${options[@]}" -n "$n" "$weir" run "$file" --fusion "$@" --check >"$out" 2>&1
  local rc=$?
  if [ $rc -ne 0 ] || [ "$(grep -c '^check: .* ok$' "$out")" -ne 1 ]; then
    echo "$flavour, $n ranks: weir run --fusion $*: exit $rc"
    sed 's/^/  | /' "$out"
    failed=1
  fi
}

# A rank that never starts: the others give up after --timeout, and not before some seconds.
absent() {
  local start=$SECONDS
  timeout -k 2 60 "$mpirun" "${options[@]}" -n 1 "$weir" run "$file" --fusion pieces_2 -D t=8 --timeout 2 : \
    -n 1 sleep 25 >"$out" 2>&1 && failed=1
  if [ $((SECONDS - start)) -gt 40 ] || ! grep -q 'not all ranks started within 10 s' "$out"; then
    echo "$flavour: a rank that does not start: after $((SECONDS - start)) s"
    sed 's/^/  | /' "$out"
    failed=1
  fi
}

if [ "$n" -eq 2 ]; then
  passes ag_matmul_2 --pipeline collective
  passes many_slices_2 -D s=1000 --pipeline marked --streams 3
  passes many_slices_2 -D s=301 --pipeline marked --streams 2 --repeat 3 --adversary 3
  passes exchange_2 --fill int
  passes pieces_2 -D t=8 --pipeline ring
  passes own_first_2 -D t=7 --pipeline p2p-offset
  passes own_first_2 -D t=64
  passes by_slices_2 -D t=7
  [ "$flavour" != openmpi ] || absent
  # Ranks that do not run the same.
  timeout -k 2 60 "$mpirun" "${options[@]}" -n 1 "$weir" run "$file" --fusion pieces_2 -D t=8 : \
    -n 1 "$weir" run "$file" --fusion pieces_2 -D t=9 >"$out" 2>&1
  rc=$?
  if [ $rc -eq 0 ] || ! grep -q 'rank 1 runs another program' "$out"; then
    echo "$flavour: other extents on rank 1: exit $rc"
    sed 's/^/  | /' "$out"
    failed=1
  fi
else
  passes mlp -D t=7 --fill int
  passes grid
  passes stages
  passes scatter_by_pieces --pipeline p2p
fi
exit $failed
