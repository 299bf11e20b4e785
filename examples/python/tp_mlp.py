"""A tensor-parallel MLP on two ranks, in PyTorch, checked against PyTorch.

    torchrun --nproc-per-node 2 examples/python/tp_mlp.py     # a process per rank
    mpirun -n 2 python examples/python/tp_mlp.py              # the same by MPI
    python examples/python/tp_mlp.py                          # both ranks in this process

The first weight is cut by columns, the second by rows; what Weir adds is the allreduce, and slices of the rows by which
it overlaps the products.
"""

import sys

import torch

import weir


@weir.fusion(meshes={"d": [2]}, schedule="""
    x, w1, w2 on d
    w1.outer_split(0, d);  w1[0] = mesh.x
    w2.outer_split(1, d);  w2[1] = mesh.x
    x.outer_split(0, 4);   x[0] = stream
""")
def mlp(x: "f32[n, 64]", w1: "f32[256, 64]", w2: "f32[64, 256]"):
    return weir.ops.linear(weir.ops.gelu(weir.ops.linear(x, w1)), w2)


def main() -> int:
    torch.manual_seed(1)  # all ranks have the same tensors
    x, w1, w2 = torch.randn(32, 64), torch.randn(256, 64) / 8, torch.randn(64, 256) / 16
    program = mlp.compile()
    y = program(x, w1, w2)
    expected = torch.nn.functional.gelu(x @ w1.T, approximate="none") @ w2.T
    error = (y - expected).abs().max().item()
    first, here, world = program.devices
    print(f"ranks {first}..{first + here - 1} of {world}: largest difference from PyTorch {error:.3g}", flush=True)
    return 0 if error < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
