#!/usr/bin/env bash
# shards.sh WEIR MPIRUN FLAVOUR N: one file per rank. What one process does with all devices is what N
# ranks do with their own files; what goes wrong on one rank is told by all and leaves no file.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4
file=$PWD/tests/mpi/programs.weir
failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

wrong() {
  echo "$flavour, $n ranks: $1"
  sed 's/^/  | /' out
  failed=1
}

# ranks CODE TEXT ARGUMENTS...: what N ranks do must end with the code and say the text, once.
ranks() {
  local code=$1 text=$2 rc
  shift 2
  timeout -k 2 60 "$mpirun" "${options[@]}" -n "$n" "$weir" run "$file" --fusion "$@" >out 2>&1
  rc=$?
  # A launcher may have another code than the rank that failed.
  { [ $rc -eq 0 ] && [ "$code" -eq 0 ]; } || { [ $rc -ne 0 ] && [ "$code" -ne 0 ]; } || wrong "exit $rc: $*"
  [ "$(grep -cF -- "$text" out)" = 1 ] || wrong "does not say '$text' once: $*"
}

if [ "$n" -eq 2 ]; then
  fusion=exchange_2 input=x output=z holders='0 1'
else
  fusion=stages input=x output=z holders='2 3'
fi
# The input, cut: the program's own output would be in another layout.
"$weir" run "$file" --fusion "give_$fusion" --output "$input=in.%r.npy" >out 2>&1 || wrong 'no input shards'
"$weir" run "$file" --fusion $fusion --input "$input=in.%r.npy" --output "$output=one.%r.npy" >out 2>&1 ||
  wrong 'one process'
ranks 0 "$output: " $fusion --input "$input=in.%r.npy" --output "$output=many.%r.npy"
for r in $holders; do cmp "one.$r.npy" "many.$r.npy" || wrong "rank $r wrote something else"; done
ranks 0 ' ok' $fusion --input "$input=in.%r.npy" --output "$output=checked.%r.npy" --check
for r in $holders; do cmp "one.$r.npy" "checked.$r.npy" || wrong "rank $r wrote something else"; done
[ "$(ls | grep -c '^checked')" = 2 ] || wrong 'other files than those of the devices'

# A file of the last holder of the input is missing, or has another shape.
mv in.1.npy kept.npy
ranks 2 'in.1.npy: cannot open' $fusion --input "$input=in.%r.npy" --output "$output=bad.%r.npy"
cp "one.${holders#* }.npy" in.1.npy
ranks 2 'in.1.npy has shape [' $fusion --input "$input=in.%r.npy" --output "$output=bad.%r.npy"
mv kept.npy in.1.npy
# An output of one rank cannot be written: no other is.
mkdir "bad.${holders#* }.npy"
ranks 2 'it is a directory' $fusion --input "$input=in.%r.npy" --output "$output=bad.%r.npy"
rmdir "bad.${holders#* }.npy"
# The same when its disk is full, and when the check fails on rank 0.
ln -s /dev/full "bad.${holders#* }.npy"
ranks 3 'writing failed' $fusion --input "$input=in.%r.npy" --output "$output=bad.%r.npy"
rm "bad.${holders#* }.npy"
[ "$n" -ne 2 ] || ranks 1 'FAILED' wrong_2 --output "y=bad.%r.npy" --check
[ -z "$(ls | grep -E 'bad|tmp')" ] || wrong "left behind: $(ls)"
exit $failed
