"""Worlds of ranks that PyTorch made, on GPUs: of its process group, and of its NCCL communicator. Started by torchrun.

    PYTHONPATH=build/python torchrun --nproc-per-node 2 tests/gpu/torch_world.py

Ranks may share a GPU where NCCL is 2.30 or later and NCCL_MULTI_RANK_GPU_ENABLE=1. One line per world; exit 1 if a value is
wrong, or if PyTorch's communicator does not work afterwards.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist

import weir

TEXT = """fusion f {
  mesh d = [N]
  x : f32[n, 48]
  w : f32[48, 16]
  y = matmul(x, w)
  return y
  schedule { x, w, y on d;  x.outer_split(1, d); x[1] = mesh.x;  w.outer_split(0, d); w[0] = mesh.x }
}"""


def check(world, comm):
    f = weir.compile(TEXT.replace("[N]", f"[{dist.get_world_size()}]"), device="cuda", comm=comm, world=world)
    torch.manual_seed(1)
    x, w = (torch.randint(-3, 4, s, device="cuda").float() for s in [(20, 48), (48, 16)])
    parts = [weir.Shards(*(p.contiguous() for p in f.cut(name, a))) for name, a in [("x", x), ("w", w)]]
    for _ in range(3):
        y = f(*parts, extents={"n": 20})
    return torch.equal(y.cpu(), (x @ w).cpu())


def reduces():
    """PyTorch's own communicator."""
    t = torch.full((4,), float(dist.get_rank() + 1), device="cuda")
    dist.all_reduce(t)
    size = dist.get_world_size()
    return t[0].item() == size * (size + 1) / 2


def say(what, good):
    if dist.get_rank() == 0 or not good:
        print(f"{'ok' if good else 'FAIL':5} {what}, rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
    return good


def nccl_version():
    """Of the library that PyTorch has loaded; torch.cuda.nccl.version() is that of its build."""
    number = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def main() -> int:
    version = nccl_version()
    torch.backends.cuda.matmul.allow_tf32 = False
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if int(os.environ["WORLD_SIZE"]) > gpus and version < (2, 30):
        print(f"skip  worlds of PyTorch's communicators: several ranks on a GPU need NCCL 2.30, PyTorch has {version}")
        return 0
    torch.cuda.set_device(local % gpus)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local % gpus))
    good = say(f"PyTorch's all_reduce with NCCL {version}", reduces())
    for comm in ("nccl", "auto"):
        good = say(f"a world of its process group, --comm {comm}", check(weir.World.of_torch(), comm)) and good
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
        world = weir.World(nccl=backend._comm_ptr())
        good = say(f"a world of its communicator, --comm {comm}", check(world, comm)) and good
    good = say("PyTorch's all_reduce afterwards", reduces()) and good
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
