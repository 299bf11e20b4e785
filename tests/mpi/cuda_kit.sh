# shellcheck shell=bash disable=SC2154
# Sourced by cuda.sh and nccl.sh, with WEIR MPIRUN FLAVOUR N: programs of N processes on GPUs, and what goes
# wrong with one of them. `how`: options of every run.
set -u
weir=$1 mpirun=$2 flavour=$3 n=$4
failed=0 runs=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/mpi/shm.sh
cp tests/mpi/programs.weir "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=() keeps_going=(--enable-recovery)
local_rank=OMPI_COMM_WORLD_LOCAL_RANK
[ "$flavour" = tcp ] && keeps_going=(--keep-going) local_rank=LOCAL_RANK
[ "$flavour" = openmpi ] && options=(--oversubscribe --bind-to none)
last=$((n - 1))

wrong() {
  echo "$flavour, $n ranks: ${what[*]}: $1"
  sed 's/^/  | /' "$dir/out" "$dir/codes"
  failed=1
}

# A rank adds its exit code to a file, which outlives the launcher's pipes. ONLY_LAST, a variable and its
# value, is for the last rank.
cat >"$dir/rank" <<END
#!/bin/bash
me=\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-\${RANK:-0}}}
[ -n "\${ONLY_LAST:-}" ] && [ "\$me" = $last ] && export "\$ONLY_LAST"
"$weir" run "$dir/programs.weir" --device cuda $how "\$@"
code=\$?
echo \$code >>"$dir/codes"
exit \$code
END
chmod +x "$dir/rank"

# launch LAUNCHER-OPTION... -- ARGUMENTS...: all is over before the timeout of a run that waits in vain.
limit=50
launch() {
  local before left start=$SECONDS launcher=()
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  what=("${ONLY_LAST:-}" "${WEIR_FAULT:-}" "$@")
  before=$(in_shm)
  : >"$dir/codes"
  runs=$((runs + 1))
  timeout -k 2 60 "$mpirun" "${options[@]}" "${launcher[@]}" -n "$n" "$dir/rank" --fusion "$@" >"$dir/out" 2>&1
  rc=$?
  while pgrep -f "run $dir/programs.weir" >/dev/null && [ $((SECONDS - start)) -le "$limit" ]; do sleep 0.1; done
  [ $((SECONDS - start)) -le "$limit" ] || wrong "took more than $limit s"
  left=$(left_in_shm "$before")
  [ -z "$left" ] || wrong "left in shared memory: $left"
}

# passes FUSION ARGUMENTS...: exit 0, and one line that says ok. On a GPU, by and by: run_listed runs them.
: >"$dir/list"
passes() {
  if [ -n "${gpu:-}" ] && [ -z "${WEIR_FAULT:-}" ]; then
    echo "run '$dir/programs.weir' --device cuda --check --fusion $*" >>"$dir/list"
    return
  fi
  launch -- "$@" --check
  is_right || wrong "exit $rc"
}

is_right() { [ $rc = 0 ] && [ "$(grep -c '^check: .* ok$' "$dir/out")" = 1 ]; }

# is_late: a rank that computes for three seconds is no reason to give up, whatever the timeout. A machine that stops a
# process for longer than the timeout is one: then once more.
is_late() {
  local i
  for i in 1 2 3; do
    WEIR_FAULT=sleep:$last:1 launch -- $small --check --timeout 1
    if is_right; then return; fi
  done
  wrong "exit $rc"
}

run_listed() {
  what=('all programs')
  runs=$((runs + $(wc -l <"$dir/list")))
  timeout 120 "$mpirun" "${options[@]}" -n "$n" "$(dirname "$weir")/tests/gpu/batch" --together --gpu \
    "$dir/list" >"$dir/out" 2>&1 || wrong "exit $?"
}

# ends CODE WORDS FUSION ARGUMENTS...: all ranks end with the code, and one message has the words.
ends() {
  local code=$1 words=$2
  shift 2
  launch "${keeps_going[@]}" -- "$@" --check
  [ "$(grep -cx "$code" "$dir/codes")" = "$n" ] || wrong "not all ranks end with $code"
  [ "$(grep -c -- "$words" "$dir/out")" = 1 ] || wrong "not one message with: $words"
}

report() {
  [ $failed = 0 ] && echo "$flavour, $n ranks: $runs runs, ok"
  exit $failed
}

# dies I: the last rank is killed after instruction I: one message, exit code 3 of all others.
dies() {
  WEIR_FAULT=die:$last:$1 launch "${keeps_going[@]}" -- $small --check
  [ "$(grep -cx 137 "$dir/codes")" = 1 ] || wrong 'not one rank was killed'
  [ "$(grep -cx 3 "$dir/codes")" = $last ] || wrong 'the others did not all end with 3'
  [ "$(grep -c "rank $last (process [0-9]*) has died" "$dir/out")" = 1 ] || wrong 'not one message'
}
