#!/usr/bin/env bash
# nccl.sh WEIR MPIRUN FLAVOUR N: `mpirun -n N weir run --device cuda --comm nccl` on the stand-ins: programs of
# N ranks, then what is refused, and what goes wrong with one of them.
how='--comm nccl'
. tests/mpi/cuda_kit.sh

# ---- programs ----
if [ "$n" = 2 ]; then
  small=sums_2
  cases=('exchange_2 --fill int' 'pieces_2 -D t=8 --pipeline ring' "sums_2 --repeat 20 --stats --trace $dir/trace.json")
else
  small=grid
  cases=('stages --adversary 5' 'grid --repeat 3')
fi
for case in "${cases[@]}"; do
  read -r -a words <<<"$case"
  WEIR_STANDIN_NCCL=strict WEIR_STANDIN_GPUS=$n passes "${words[@]}"
done
[ "$flavour" != mpich ] || report

# ---- a rank that dies, in the middle of a call of others ----
dies 1
[ "$n" = 2 ] || report
[ -s "$dir/trace.json" ] || wrong 'no trace'

# ---- what is refused ----
ends 2 'graph cannot capture communications between processes' $small --graph
ONLY_LAST=$local_rank=0 WEIR_STANDIN_NCCL=strict WEIR_STANDIN_GPUS=2 \
  ends 3 'NCCL wants a GPU for every device, but devices 0 and 1 share one' $small

# ---- a rank that is late, or fails; one that never ends or does not come is in test_cuda_ranks ----
where="allreduce of [0-9]* f32 (sum) at $dir/programs.weir:[0-9]* on team (0 1)"
is_late
ONLY_LAST=WEIR_STANDIN_NCCL=async:1 ends 3 "rank 1: cuda: NCCL failed at rank 1's $where: remote" $small
ONLY_LAST=WEIR_STANDIN_FAIL=kernel:1 ends 3 'rank 1: .*cuda: ' $small
report
