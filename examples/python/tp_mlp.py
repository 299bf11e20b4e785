"""A tensor-parallel MLP on two ranks, in PyTorch, checked against PyTorch.

    torchrun --nproc-per-node 2 examples/python/tp_mlp.py     # a process per rank
    mpirun -n 2 python examples/python/tp_mlp.py              # the same by MPI
    python examples/python/tp_mlp.py                          # both ranks in this process
    python examples/python/tp_mlp.py cuda                     # on GPUs, which ranks may share; also in the ways above

The first weight is cut by columns, the second by rows, and each rank keeps its own part of them. What Weir adds is the
allreduce, and slices of the rows by which it overlaps the products.
"""

import os
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
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    program = mlp.scheduled(s).compile(device=device)
    torch.manual_seed(1)  # all ranks draw the same numbers
    x, w1, w2 = torch.randn(32, 64), torch.randn(256, 64) / 8, torch.randn(64, 256) / 16
    if device == "cuda":  # Weir's devices are on the GPUs in turn, a process's on that of its local rank
        local = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
        gpus = [f"cuda:{(local + i) % torch.cuda.device_count()}" for i in range(program.devices[1])]
        torch.backends.cuda.matmul.allow_tf32 = False
        x, w1, w2 = (t.to(gpus[0]) for t in (x, w1, w2))
    else:
        gpus = ["cpu"] * program.devices[1]
    mine = [weir.Shards(*(part.to(gpu).contiguous() for part, gpu in zip(program.cut(name, w), gpus)))
            for name, w in [("w1", w1), ("w2", w2)]]
    y = program(x, *mine)
    expected = torch.nn.functional.gelu(x @ w1.T, approximate="none") @ w2.T
    error = (y - expected).abs().max().item()
    first, here, world = program.devices
    print(f"ranks {first}..{first + here - 1} of {world}: largest difference from PyTorch {error:.3g}", flush=True)
    return 0 if error < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
