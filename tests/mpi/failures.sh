#!/usr/bin/env bash
# failures.sh RANK MPIRUN FLAVOUR N: what goes wrong with one of N ranks must end all of them soon, with
# one message, and leave nothing in shared memory. RANK is the program built from rank.c.
set -u
rank=$1 mpirun=$2 flavour=$3 n=$4
failed=0
fail() {
  echo "$flavour, $n ranks: $name: $1"
  sed 's/^/  | /' "$log" "$out"
  failed=1
}
out=$(mktemp) log=$(mktemp)
trap 'rm -f "$out" "$log"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=() keeps_going=()
case $flavour in
openmpi)
  options=(--oversubscribe --bind-to none)
  keeps_going=(--enable-recovery)
  ;;
mpich) keeps_going=(-disable-auto-cleanup) ;;
tcp) keeps_going=(--keep-going) ;;
esac

. tests/mpi/shm.sh

# run CASE RANKS [OPTION...]: so many ranks must end by themselves, well before their long timeout. The exit status is in
# $rc.
limit=50
run() {
  name=$1
  local ranks=$2 before left start=$SECONDS
  shift 2
  before=$(in_shm)
  : >"$log"
  timeout -k 2 60 "$mpirun" "${options[@]}" "$@" -n "$n" "$rank" "$name" "$log" >"$out" 2>&1
  rc=$?
  # A launcher may give up before the ranks do.
  while [ "$(wc -l <"$log")" -lt "$ranks" ] && [ $((SECONDS - start)) -lt "$limit" ]; do sleep 0.1; done
  [ $((SECONDS - start)) -le "$limit" ] || fail "took more than $limit s"
  left=$(left_in_shm "$before")
  [ -z "$left" ] || fail "left in shared memory: $left"
}

# says COUNT PART: as many ranks ended with a message that has PART in it, and all with the same.
says() {
  [ "$(grep -cF -- "$2" "$log")" = "$1" ] || fail "not $1 ranks say: $2"
  [ "$(sed -E 's/^rank [0-9]+: //' "$log" | sort -u | wc -l)" = 1 ] || fail "messages differ"
}

fails() { [ $rc != 0 ] || fail 'exit status 0'; }

last=$((n - 1))
run well "$n"
[ $rc = 0 ] || fail "exit status $rc"
says "$n" done
run mismatch "$n"
says "$n" "but rank $last posts allreduce of 49999 f32 (sum) at odd.weir:9"
fails
run aborts "$n"
says "$n" 'the disk is full'
fails
run slow "$n"
[ $rc = 0 ] || fail "exit status $rc"
says "$n" done
run silent "$n"
says "$n" "rank $last has not posted it; its last post is allreduce at all.weir:3, done"
fails
# A launcher ends the others when one rank is gone, unless it is told not to; MPICH's may fall over then.
run exits $last "${keeps_going[@]}"
says $last "rank $last has not posted it and has left"
if [ "$flavour" != mpich ]; then
  run killed $last "${keeps_going[@]}"
  says $last "rank $last (process"
fi
run killed 0
fails
export WEIR_MPI_START_SECONDS=2
run absent $last "${keeps_going[@]}"
if [ "$flavour" = tcp ]; then says $last "tcp: rank $last has not come within 2 s"; else
  says $last "mpi: not all ranks started within 2 s"
fi
run absent 0
[ $failed = 0 ] && echo "$flavour, $n ranks: ok"
exit $failed
