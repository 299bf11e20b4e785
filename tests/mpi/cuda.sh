#!/usr/bin/env bash
# cuda.sh WEIR MPIRUN FLAVOUR N [gpu|all]: `mpirun -n N weir run --device cuda`: programs of N ranks that open
# each other's memory, then what goes wrong with one of them. On the stand-ins of tests/standin; with `gpu`
# on a real one, without what only the stand-ins can do, and with all programs in the same N processes; with `all`
# after more instructions, and with more calls that fail.
how='' gpu=${5:-} all=${5:-}
[ "$gpu" = gpu ] && all='' || gpu=''
. tests/mpi/cuda_kit.sh

# ---- programs ----
if [ "$n" = 2 ]; then
  small=sums_2
  cases=('ag_matmul_2 --pipeline collective' 'exchange_2 --fill int' 'pieces_2 -D t=8 --pipeline ring'
    'pieces_2 -D t=8 --pipeline p2p' sums_2)
else
  small=grid
  cases=('mlp -D t=7 --fill int' grid stages 'scatter_by_pieces --pipeline p2p')
fi
for case in "${cases[@]}"; do
  read -r -a words <<<"$case"
  passes "${words[@]}"
  passes "${words[@]}" --link host
done
passes $small --repeat 20
passes $small --adversary 5 --repeat 3
passes $small --comm cuda-ipc --stats
passes $small --trace "$dir/trace.json"
[ -z "$gpu" ] || run_listed
[ -s "$dir/trace.json" ] || wrong 'no trace'

# Other launchers end all ranks when one fails, before these can say why.
[ "$flavour" != mpich ] || report

# ---- what is refused ----
ends 2 'graph cannot capture communications between processes' $small --graph
ends 2 'link host and --comm cuda-ipc exclude' $small --comm cuda-ipc --link host

# ---- a rank that dies, stops, is late ----
deaths=(1)
[ -z "$all" ] || deaths=(0 1 2)
for i in "${deaths[@]}"; do dies "$i"; done
WEIR_FAULT=stop:$last:0 launch -- $small --timeout 2
[ $rc != 0 ] || wrong 'exit status 0'
grep -q "no progress in 2 s: rank .*rank $last has not" "$dir/out" ||
  wrong 'no message about the rank that is stopped'
is_late

# ---- calls that fail on one rank, of two ----
if [ -z "$gpu" ] && [ "$n" = 2 ]; then
  for call in cuIpcGetMemHandle:1 cuIpcOpenMemHandle:1; do
    ONLY_LAST=WEIR_STANDIN_FAIL=$call passes $small # through the host
    ONLY_LAST=WEIR_STANDIN_FAIL=$call ends 3 'not all ranks can open' $small --comm cuda-ipc
  done
  calls=(cuMemAlloc:2 cuIpcOpenMemHandle:"$n" cuMemHostRegister:1 cuStreamWaitValue64:1 cuStreamWriteValue64:3
    kernel:1)
  [ -z "$all" ] || calls+=(cuMemAlloc:1 cuIpcGetMemHandle:2 cuDeviceGetUuid:1 cuMemHostGetDevicePointer:1
    cuStreamWriteValue64:1 cuEventRecord:1 cublasLtMatmul:1)
  for call in "${calls[@]}"; do
    ONLY_LAST=WEIR_STANDIN_FAIL=$call ends 3 "rank $last: .*cuda: " $small
  done
fi
report
