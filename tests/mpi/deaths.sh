#!/usr/bin/env bash
# deaths.sh WEIR MPIRUN FLAVOUR N [all]: a rank dies after instruction i of its plan, for i = 0, 1, 5, 21, …
# (all: 0, 1, 2, 3, …) until the run is over before it comes to that. Always: the others end soon, with
# exit code 3 and one message that names the dead rank; nothing is left in shared memory, and no process.
# Then a rank that is stopped, and one that computes for longer than the timeout.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4 every=${5:-}
failed=0 runs=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/mpi/shm.sh
cp tests/mpi/programs.weir "$dir"
cd "$dir" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=() keeps_going=()
if [ "$flavour" = openmpi ]; then
  options=(--oversubscribe --bind-to none)
  keeps_going=(--enable-recovery)
fi
[ "$flavour" = tcp ] && keeps_going=(--keep-going)

wrong() {
  echo "$flavour, $n ranks: $what, WEIR_FAULT=$WEIR_FAULT: $1"
  sed 's/^/  | /' out codes
  failed=1
}

# What a rank does: it adds its exit code to a file, which outlives the launcher's pipes. Beside the
# program, as modules are looked for there.
cat >rank <<END
#!/bin/bash
"$weir" run "$dir/programs.weir" "\$@"
code=\$?
echo \$code >>"$dir/codes"
exit \$code
END
chmod +x rank

# launch FAULT OPTION... -- ARGUMENTS...: everything must be over before the timeout of a run that waits in vain; the
# launcher's exit code is in $rc.
limit=50
launch() {
  export WEIR_FAULT=$1
  local before left start=$SECONDS launcher=()
  shift
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  before=$(in_shm)
  : >codes
  runs=$((runs + 1))
  timeout -k 2 60 "$mpirun" "${options[@]}" "${launcher[@]}" -n "$n" ./rank "$@" >out 2>&1
  rc=$?
  while pgrep -f "run $dir/programs.weir" >/dev/null && [ $((SECONDS - start)) -le "$limit" ]; do sleep 0.1; done
  [ $((SECONDS - start)) -le "$limit" ] || wrong "took more than $limit s"
  left=$(left_in_shm "$before")
  [ -z "$left" ] || wrong "left in shared memory: $left"
}

# A shell says 137 of a process that was killed.
check_survivors() {
  [ "$(grep -cx 137 codes)" = 1 ] || wrong 'not one rank was killed'
  [ "$(grep -cx 3 codes)" = $((n - 1)) ] || wrong 'the others did not all end with 3'
  [ "$(grep -c "rank $1 (process [0-9]*) has died" out)" = 1 ] || wrong "not one message about rank $1"
}

is_done() { [ "$(grep -cx 0 codes)" = "$n" ] && grep -q ' ok$' out; }

# dies FUSION ARGUMENTS...: at every instruction. A launcher ends all ranks when one is killed, unless it
# is told not to; MPICH's may fall over then.
dies() {
  local i=0 k
  what="$*"
  while :; do
    k=$((i % n))
    [ -z "$every" ] && k=$((runs % n))
    launch "die:$k:$i" "${keeps_going[@]}" -- --fusion "$@" --check --timeout 60
    if is_done; then break; fi
    if [ "$flavour" != mpich ]; then check_survivors $k; fi
    [ "$flavour" != mpich ] || [ $rc != 0 ] || wrong 'exit status 0'
    [ $failed = 0 ] || return
    if [ -n "$every" ]; then i=$((i + 1)); else i=$((4 * i + 1)); fi
  done
  [ $i -gt 0 ] || wrong 'nobody died'
}

case $n in
2)
  dies sums_2
  if [ "$flavour" != mpich ] || [ -n "$every" ]; then
    dies ag_matmul_2 --pipeline collective
    dies pieces_2 -D t=8 --pipeline p2p
    dies pieces_2 -D t=8 --pipeline ring
  fi
  ;;
*) dies mlp -D t=7 ;;
esac

# Stopped: nobody hears of it, so nothing moves any more. The launcher is what ends it at last.
what=stopped
launch "stop:$((n - 1)):1" -- --fusion "$([ "$n" -eq 2 ] && echo sums_2 || echo grid)" --timeout 2
[ $rc != 0 ] || wrong 'exit status 0'
grep -q "no progress in 2 s: .* rank $((n - 1)) does not answer" out ||
  wrong 'no message about the rank that is stopped'
# Three seconds for an instruction are not too many, whatever the timeout. A machine that stops a process for longer than
# the timeout is one to give up: then once more.
what=slow
for _ in 1 2 3; do
  launch "sleep:$((n - 1)):1" -- --fusion "$([ "$n" -eq 2 ] && echo sums_2 || echo grid)" --check --timeout 1
  if is_done; then break; fi
done
is_done || wrong 'given up'
[ $failed = 0 ] && echo "$flavour, $n ranks: $runs runs, ok"
exit $failed
