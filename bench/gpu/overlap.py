"""The work of overlap.c as a PyTorch program with streams: two devices on one GPU whose data go through
pinned memory of the host, in equal slices.

    python3 overlap.py ag|ar M K N

Started by overlap.c: says "ready", then reads numbers of slices, runs once with each, and answers with
the time in ms.
"""
import sys
import time

import torch

kind, m, k, n = sys.argv[1], *map(int, sys.argv[2:5])
gpu = torch.device("cuda")


def new(*shape):
    return (torch.rand(*shape, device=gpu) - 0.5).to(torch.bfloat16)


def pinned(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, pin_memory=True)


def streams():
    return [torch.cuda.Stream() for _ in range(2)]


def measure(fn):
    torch.cuda.synchronize()
    start = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def allgather_matmul(slices):
    half = [new(m // 2, k) for _ in range(2)]
    other = [torch.empty_like(half[0]) for _ in range(2)]
    b = [new(k, n // 2) for _ in range(2)]
    c = [torch.empty(m, n // 2, dtype=torch.bfloat16, device=gpu) for _ in range(2)]
    host = [pinned(m // 2, k) for _ in range(2)]
    out, into, compute = streams(), streams(), streams()
    rows = m // 2 // slices

    def run():
        for i in range(slices):
            cut = slice(i * rows, (i + 1) * rows)
            sent = []
            for d in range(2):
                with torch.cuda.stream(out[d]):
                    host[d][cut].copy_(half[d][cut], non_blocking=True)
                    sent.append(out[d].record_event())
            for d in range(2):
                with torch.cuda.stream(into[d]):
                    into[d].wait_event(sent[1 - d])
                    other[d][cut].copy_(host[1 - d][cut], non_blocking=True)
                    arrived = into[d].record_event()
                with torch.cuda.stream(compute[d]):
                    torch.matmul(half[d][cut], b[d], out=c[d][cut])
                    compute[d].wait_event(arrived)
                    torch.matmul(other[d][cut], b[d], out=c[d][m // 2 + i * rows : m // 2 + (i + 1) * rows])

    return run


def matmul_allreduce(slices):
    a = [new(m, k // 2) for _ in range(2)]
    b = [new(k // 2, n) for _ in range(2)]
    u = [torch.empty(m, n, dtype=torch.bfloat16, device=gpu) for _ in range(2)]
    got = [torch.empty_like(u[0]) for _ in range(2)]
    host = [pinned(m, n) for _ in range(2)]
    out, into, compute = streams(), streams(), streams()
    rows = m // slices

    def run():
        for i in range(slices):
            cut = slice(i * rows, (i + 1) * rows)
            for d in range(2):
                with torch.cuda.stream(compute[d]):
                    torch.matmul(a[d][cut], b[d], out=u[d][cut])
                    done = compute[d].record_event()
                with torch.cuda.stream(out[d]):
                    out[d].wait_event(done)
                    host[d][cut].copy_(u[d][cut], non_blocking=True)
            sent = [out[d].record_event() for d in range(2)]
            for d in range(2):
                with torch.cuda.stream(into[d]):
                    into[d].wait_event(sent[1 - d])
                    got[d][cut].copy_(host[1 - d][cut], non_blocking=True)
                    got[d][cut].add_(u[d][cut])

    return run


make = allgather_matmul if kind == "ag" else matmul_allreduce
programs = {}
print("ready", flush=True)
for line in sys.stdin:
    slices = int(line)
    if slices not in programs:
        programs[slices] = make(slices)
        programs[slices]()
    print(measure(programs[slices]), flush=True)
