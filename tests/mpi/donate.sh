#!/usr/bin/env bash
# donate.sh WEIR MPIRUN FLAVOUR: two ranks update their shards of the weights where they are. The result is that of one
# process, whole tensors can be donated too, and what cannot be overwritten is refused once and leaves no file.
set -u
weir=$1 mpirun=$2 flavour=$3
file=$PWD/tests/mpi/programs.weir
failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

wrong() {
  echo "$flavour: $1"
  sed 's/^/  | /' out
  failed=1
}
# ranks ARGUMENTS...: what two ranks do; the exit code is theirs.
ranks() {
  timeout -k 2 60 "$mpirun" "${options[@]}" -n 2 "$weir" run "$file" --fusion "$@" >out 2>&1
}
# says TEXT N: so many lines of the last output have it.
says() { [ "$(grep -cF -- "$1" out)" = "$2" ] || wrong "does not say '$1' $2 times"; }

"$weir" run "$file" --fusion give_optimizer_2 --output a=w.%r.npy --output b=m.%r.npy >out 2>&1 ||
  wrong 'no input shards'
donated=(--donate w=w2 --donate m=m2)
shards=(--input w=w.%r.npy --input m=m.%r.npy)
"$weir" run "$file" --fusion optimizer_2 "${shards[@]}" --output w2=one_w.%r.npy --output m2=one_m.%r.npy >out 2>&1 ||
  wrong 'one process'
cp w.0.npy kept.npy
# Three runs, each from the same values: --check looks at the first, and further runs must give the same.
ranks optimizer_2 "${donated[@]}" "${shards[@]}" --output w2=two_w.%r.npy --output m2=two_m.%r.npy --repeat 3 \
  --check --stats || wrong 'two ranks fail'
says ' ok' 2
says 'in_place=6 copied=0' 1
for r in 0 1; do
  cmp "one_w.$r.npy" "two_w.$r.npy" || wrong "rank $r updates w otherwise"
  cmp "one_m.$r.npy" "two_m.$r.npy" || wrong "rank $r updates m otherwise"
done
cmp kept.npy w.0.npy || wrong 'the file of a donated input is not as it was'
ranks optimizer_2 "${donated[@]}" --check --stats || wrong 'whole tensors'
says ' ok' 2
says 'in_place=2 copied=0' 1
ranks overwritten_2 --donate w=w2 --output w2=bad.%r.npy --input w=w.%r.npy && wrong 'is not refused'
says 'it cannot be overwritten' 1
[ -z "$(ls | grep bad)" ] || wrong "left behind: $(ls)"
exit $failed
