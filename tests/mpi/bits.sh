#!/usr/bin/env bash
# bits.sh WEIR MPIRUN FLAVOUR N: with --deterministic ranks in processes have the bits of ranks in one process, and
# ranks of processes agree about the machine, which is measured once.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4
file=tests/mpi/programs.weir
[ "$n" -eq 4 ] || exit 0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { echo "$flavour, $n ranks: $1"; failed=1; }
run() { timeout -k 2 60 "$mpirun" "${options[@]}" -n "$n" "$weir" "$@"; }

export XDG_CACHE_HOME=$dir/cache
run machine show >"$dir/shown" 2>&1 || fail "machine show"
[ "$(grep -c link_gb_s "$dir/shown")" = 1 ] || fail "rank 0 alone shows the machine: $(cat "$dir/shown")"
[ "$(ls "$dir"/cache/weir | wc -l)" = 1 ] || fail "one file is kept: $(ls "$dir"/cache/weir)"

for fusion in sums added_up; do
  rm -f "$dir"/w.npy "$dir"/v.npy
  "$weir" run $file --fusion $fusion -D r=1000 --deterministic -q --output w="$dir/w.npy" --output v="$dir/v.npy" ||
    fail "$fusion in one process"
  for how in "" "--streams 1" "--pipeline ring" "--pipeline collective --disable join" "--pipeline p2p --threads 3"; do
    run run $file --fusion $fusion -D r=1000 --deterministic -q $how --output w="$dir/w2.npy" \
      --output v="$dir/v2.npy" >"$dir/out" 2>&1 || fail "$fusion $how: $(cat "$dir/out")"
    cmp -s "$dir/w.npy" "$dir/w2.npy" && cmp -s "$dir/v.npy" "$dir/v2.npy" || fail "$fusion $how: other bits"
  done
done
[ "$(ls "$dir"/cache/weir | wc -l)" -le 2 ] || fail "files are kept for one and for $n processes: $(ls "$dir"/cache/weir)"
exit $failed
