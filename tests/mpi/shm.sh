# Sourced. What ranks leave in shared memory: only names that MPIs give count, and not what a living process
# of somebody else has mapped.
in_shm() {
  find /dev/shm -user "$(id -un)" \( -name 'vader*' -o -name 'mpich*' -o -name 'ucx*' \) | sort |
    while read -r name; do grep -qsF -- "$name" /proc/[0-9]*/maps || echo "$name"; done
}

# left_in_shm BEFORE: prints what is there now and was not; somebody else may just be starting.
left_in_shm() {
  local tries now
  for tries in 1 2 3 4 5; do
    now=$(comm -13 <(echo "$1") <(in_shm))
    [ -n "$now" ] || return 0
    sleep 0.5
  done
  echo "$now"
}
