# Hosts on this machine, for sh: network namespaces on one bridge, each with a link of RATE, which lets 32 KB through at
# once. Segments that the system makes are smaller than that: larger ones are cut in software, packet by packet, which takes
# half of a core for each host at 1 Gbit/s where a network card would do it.
# Each has a core of its own, or a part of one.
#   hosts_up NAME RATE RANKS     makes them; fails where there is no right to do so
#   hosts_run COMMAND...         on every host, as rank i of torchrun's environment; the first one's output is the output
hosts_down() {
  for i in $(seq 0 $((hosts_n - 1))); do ip netns del "$hosts_name$i" 2>/dev/null || true; done
  ip netns del "${hosts_name}hub" 2>/dev/null || true
}
hosts_up() {
  hosts_name=$1 hosts_rate=$2 hosts_n=$3 hosts_hub=${1}hub
  ip netns add "$hosts_hub" 2>/dev/null || return 1
  trap hosts_down EXIT
  ip -n "$hosts_hub" link add bridge type bridge
  ip -n "$hosts_hub" link set bridge up
  for i in $(seq 0 $((hosts_n - 1))); do
    ip netns add "$hosts_name$i"
    ip link add eth0 netns "$hosts_name$i" type veth peer name "host$i" netns "$hosts_hub"
    ip -n "$hosts_hub" link set "host$i" master bridge up mtu 9000
    ip -n "$hosts_name$i" link set lo up
    ip -n "$hosts_name$i" addr add "10.79.0.$((i + 1))/24" dev eth0
    ip -n "$hosts_name$i" link set eth0 up mtu 9000 gso_max_size 31000
    ip netns exec "$hosts_name$i" tc qdisc add dev eth0 root tbf rate "$hosts_rate" burst 32kb latency 20ms
  done
}
hosts_on() {
  host=$1
  core=$((host * $(nproc --all) / hosts_n))
  shift
  RANK=$host WORLD_SIZE=$hosts_n LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.79.0.1 MASTER_PORT=29655 \
    GLOO_SOCKET_IFNAME=eth0 ip netns exec "$hosts_name$host" \
    taskset -c "$core" unshare -u sh -c "hostname $hosts_name$host-$hosts_rate; exec \"\$@\"" sh "$@"
}
hosts_run() {
  others=
  for i in $(seq 1 $((hosts_n - 1))); do
    hosts_on "$i" "$@" > /dev/null &
    others="$others $!"
  done
  rc=0
  hosts_on 0 "$@" || rc=$?
  for pid in $others; do wait "$pid" || rc=$?; done
  return $rc
}
