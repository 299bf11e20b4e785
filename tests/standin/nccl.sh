#!/bin/bash
# --comm nccl on the stand-ins: programs with --check on several GPUs or one, and every way to fail: exit
# code 3, one message that says what and where, and no hang.
#
#   nccl.sh STANDINS      the folder of the stand-ins; $WEIR is the command
. "$(dirname "$0")/../cli/kit"
standins=$1
export WEIR_STANDIN_GPUS WEIR_STANDIN_PEERS WEIR_STANDIN_SEED=0

# ---- programs ----
modes=('' '--graph --repeat 3' '--adversary 3 --stats' '--pipeline ring')
for file in tests/gpu/programs/*.weir; do
  for n in 2 3 8; do
    sed "s/@D/$n/g" "$file" >"$dir/$n.$(basename "$file")"
    WEIR_STANDIN_SEED=$((WEIR_STANDIN_SEED + 1))
    WEIR_STANDIN_GPUS=$((WEIR_STANDIN_SEED % 2 ? 1 : n))
    WEIR_STANDIN_PEERS=$((WEIR_STANDIN_SEED % 3 == 1))
    mode=${modes[WEIR_STANDIN_SEED % 4]}
    # shellcheck disable=SC2086
    "$weir" run "$dir/$n.$(basename "$file")" --device cuda --comm nccl --check $mode >"$dir/out" 2>&1
    code=$?
    refused=$(grep -c 'is not supported\|pieces of different lengths' "$dir/out")
    holds "$(basename "$file") on $n $mode, $WEIR_STANDIN_GPUS GPUs: $(tail -3 "$dir/out")" \
      test $code = 0 -o "$refused" -gt 0
  done
done

# ---- failures ----
program two <<'END'
fusion two {
  mesh d = [2]
  a : f32[2, 8]
  s = sum(a, dims=[0])
  return s
  schedule {
    a, s on d
    a[0] = mesh.x
  }
}
END
WEIR_STANDIN_GPUS=2 WEIR_STANDIN_PEERS=1

# ends CODE WORDS TOLD OPTION...: told so, the run ends with the code and one message, before its timeout.
ends() {
  local code=$1 words=$2 told=$3 got
  shift 3
  WEIR_STANDIN_NCCL=$told timeout 50 "$weir" run "$dir/two.weir" --device cuda --comm nccl "$@" >"$dir/out" 2>"$dir/err"
  got=$?
  holds "exit code $got instead of $code: $told $*: $(cat "$dir/err")" test $got = "$code"
  [ "$code" = 0 ] && return
  holds "one message: $told $*: $(cat "$dir/err")" test "$(wc -l <"$dir/err")" = 1
  holds "'$words' in $(cat "$dir/err")" grep -qF -- "$words" "$dir/err"
}

where="allreduce of 8 f32 (sum) at $dir/two.weir:4 on team (0 1)"
ends 0 '' '' --check
ends 0 '' '' --check --trace "$dir/trace.json"
ends 3 "no progress in 3 s: rank 0 waits for $where; rank 1 waits for $where" hang:1 --timeout 3
ends 3 "no progress in 3 s in a graph with 2 communications, the first of which is $where" hang:1 --timeout 3 --graph
for graph in '' --graph; do
  ends 3 "cuda: NCCL failed at rank 0's $where: remote process exited or there was a network error" \
    async:1 $graph
  ends 3 "cuda: NCCL failed at rank 0's $where: unhandled system error (2): ncclAllReduce was told to fail" \
    fail:ncclAllReduce:1 $graph
  ends 3 "cuda: NCCL failed at rank 1's $where: unhandled system error (2): ncclGroupEnd was told to fail" \
    fail:ncclGroupEnd:2 $graph
  ends 3 "cuda: NCCL makes no communicator for team (0 1): unhandled system error (2): ncclCommInitRankConfig" \
    fail:ncclCommInitRankConfig:2 $graph
done
ends 0 '' strict --check
ends 2 '--link host and --comm nccl exclude each other' '' --link host
WEIR_STANDIN_GPUS=1
ends 0 '' '' --check
ends 3 'NCCL wants a GPU for every device, but devices 0 and 1 share one: the program has 2 devices and this machine 1 GPU; run without --comm nccl' \
  strict

# ---- what is not there ----
expect 2 "device 'cpu' does not communicate by --comm nccl" run "$dir/two.weir" --comm nccl
WEIR_NCCL_LIBRARY=$dir/nothing.so ends 3 'cuda: cannot load libnccl.so.2: install NCCL' ''
echo 'int ncclGetVersion(int *v) { return *v = 0; }' >"$dir/old.c"
cc -shared -fPIC -o "$dir/old.so" "$dir/old.c"
WEIR_NCCL_LIBRARY=$dir/old.so ends 3 'cuda: libnccl.so has no ncclGetErrorString: it is too old' ''
WEIR_NCCL_LIBRARY=$standins/libnccl.so.2 ends 0 '' '' --check
finish
