"""A tensor-parallel MLP on two ranks, in PyTorch, checked against PyTorch.

    torchrun --nproc-per-node 2 examples/python/tp_mlp.py     # a process per rank
    mpirun -n 2 python examples/python/tp_mlp.py              # the same by MPI
    python examples/python/tp_mlp.py                          # both ranks in this process

The first weight is cut by columns, the second by rows, and each rank keeps its own part of them. What Weir adds is the
allreduce, and slices of the rows by which it overlaps the products.
"""

import sys

import torch

import weir

d = weir.Mesh("d", 2)


@weir.fusion
def mlp(x: "f32[n, 64]", w1: "f32[256, 64]", w2: "f32[64, 256]"):
    return weir.ops.linear(weir.ops.gelu(weir.ops.linear(x, w1)), w2)


s = weir.Schedule()
s["w1"].shard(0, d.x)
s["w2"].shard(1, d.x)
s["x"].outer_split(0, 4).mark(0, weir.stream)


def main() -> int:
    program = mlp.scheduled(s).compile()
    torch.manual_seed(1)  # all ranks draw the same numbers
    x, w1, w2 = torch.randn(32, 64), torch.randn(256, 64) / 8, torch.randn(64, 256) / 16
    mine = [weir.Shards(*(part.contiguous() for part in program.cut(name, w))) for name, w in [("w1", w1), ("w2", w2)]]
    y = program(x, *mine)
    expected = torch.nn.functional.gelu(x @ w1.T, approximate="none") @ w2.T
    error = (y - expected).abs().max().item()
    first, here, world = program.devices
    print(f"ranks {first}..{first + here - 1} of {world}: largest difference from PyTorch {error:.3g}", flush=True)
    return 0 if error < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
