#!/usr/bin/env bash
# torchrun.sh [--keep-going] -n N COMMAND... [: -n M COMMAND...]: starts processes with the environment that
# torchrun gives them. If one fails the others have a few seconds to end by themselves, or, with --keep-going, as
# long as they like. The exit code is that of one that failed.
keep_going=
[ "$1" = --keep-going ] && keep_going=1 && shift
ranks=() commands=() part=()
add() {
  for ((i = 0; i < part[1]; i++)); do commands+=("$(printf '%q ' "${part[@]:2}")"); done
  part=()
}
for word in "$@"; do
  if [ "$word" = : ]; then add; else part+=("$word"); fi
done
add
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=${#commands[@]}
# A port of this process: below those that the system gives to connections, and nobody listens on it.
export MASTER_PORT=$((20000 + $$ % 12000))
while (exec 3<>"/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((20000 + RANDOM % 12000)); done
started=$(mktemp)
end() { xargs -r kill -KILL <"$started" 2>/dev/null; }
trap 'rm -f "$started"' EXIT
trap 'end; exit 143' TERM INT
# One shell per rank, each waited for by its process id: `wait -n` may miss one of two that end together.
rank() {
  trap - TERM INT EXIT
  bash -c "exec ${commands[$1]}" &
  echo $! >>"$started"
  wait $!
  local rc=$?
  if [ $rc != 0 ] && [ -z "$keep_going" ]; then { sleep 4 && end; } >/dev/null 2>&1 & fi
  exit $rc
}
for rank in "${!commands[@]}"; do
  RANK=$rank LOCAL_RANK=$rank rank "$rank" &
  ranks+=($!)
done
code=0
for pid in "${ranks[@]}"; do
  wait "$pid"
  rc=$?
  [ $code = 0 ] && code=$rc
done
exit $code
