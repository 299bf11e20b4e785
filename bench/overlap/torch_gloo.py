#!/usr/bin/env python3
"""What a program written by hand on torch and gloo reaches: the cases of bench/overlap.c.

torch_gloo.py RANK ADDRESS REPEATS MBITS CASE...; bench/overlap/run starts two of them. Slices are
posted as asynchronous collectives, all at once (AG) or after their product (AR). "equal" has as many
slices as the case says, "unequal" those of bench/overlap.c. Medians of interleaved runs on rank 0, ms.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

GROWTH, MULTIPLE = 1.5, 16


def unequal(is_ag, s, m, k, n, mbits):
    """As slices_of() in bench/overlap.c."""
    count, left = max(s * 3 // 4, 2), s * m
    part = left / sum(GROWTH**i for i in range(count))
    lengths = []
    for i in range(count):
        rows = (int(part) + MULTIPLE - 1) // MULTIPLE * MULTIPLE
        lengths.append(left if i == count - 1 else rows)
        left -= lengths[-1]
        part *= GROWTH
    flops, size = 2.0 * (2 if is_ag else 1) * k * n, 4.0 * (k if is_ag else n)
    bound_by_compute = flops / 100e9 >= size / (mbits / 8 * 1e6)
    return lengths if is_ag == bound_by_compute else lengths[::-1]


class Gather:
    """Rows of a lie on both ranks; all of them times b."""

    def __init__(self, rows, k, n):
        self.a, self.b = torch.ones(rows, k), torch.ones(k, n)
        self.all, self.c = torch.empty(2, rows, k), torch.empty(2, rows, n)

    def compute(self):
        torch.matmul(self.all, self.b, out=self.c)

    def transfer(self):
        dist.all_gather([self.all[0], self.all[1]], self.a)

    def plain(self):
        self.transfer()
        self.compute()

    def sliced(self, lengths):
        begin, work = 0, []
        for rows in lengths:
            here = slice(begin, begin + rows)
            into = [self.all[0, here], self.all[1, here]]
            work.append((dist.all_gather(into, self.a[here], async_op=True), here))
            begin += rows
        for handle, here in work:
            handle.wait()
            for r in range(2):
                torch.matmul(self.all[r, here], self.b, out=self.c[r, here])


class Reduce:
    """Half of the inner dimension lies on each rank; products are added up."""

    def __init__(self, rows, k, n):
        self.a, self.b, self.c = torch.ones(rows, k), torch.ones(k, n), torch.empty(rows, n)

    def compute(self):
        torch.matmul(self.a, self.b, out=self.c)

    def transfer(self):
        dist.all_reduce(self.c)

    def plain(self):
        self.compute()
        self.transfer()

    def sliced(self, lengths):
        begin, work = 0, []
        for rows in lengths:
            here = slice(begin, begin + rows)
            torch.matmul(self.a[here], self.b, out=self.c[here])
            work.append(dist.all_reduce(self.c[here], async_op=True))
            begin += rows
        for handle in work:
            handle.wait()


def measure(case, repeats, mbits, rank):
    what, *sizes = case.split(":")
    s, m, k, n = map(int, sizes)
    is_ag = what == "ag"
    program = (Gather if is_ag else Reduce)(s * m, k, n)
    lists = [[m] * s, unequal(is_ag, s, m, k, n, mbits)]
    runs = [program.compute, program.transfer, program.plain]
    runs += [lambda lengths=lengths: program.sliced(lengths) for lengths in lists]
    times = [[] for _ in runs]
    for r in range(-1, repeats):
        for run, into in zip(runs, times):
            time.sleep(0.02)
            dist.barrier()
            start = time.perf_counter()
            run()
            if r >= 0:
                into.append((time.perf_counter() - start) * 1e3)
    compute, transfer, plain, equal, other = map(statistics.median, times)
    limit, best = max(compute, transfer), min(equal, other)
    if rank == 0:
        name = f"{what} {s:2} x {m:4} x {k:5} x {n:5}"
        columns = "".join(f"{x:8.1f} " for x in (compute, transfer, plain, equal, other))
        print(f"{name}  {columns} {best / plain:5.2f} {best / limit:5.2f}", flush=True)


def main():
    rank, address, repeats, mbits = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29577", rank=rank, world_size=2)
    if rank == 0:
        print(f"torch {torch.__version__} and gloo, by hand")
        heads = ("compute", "transfer", "plain", "equal", "unequal")
        print(f"{'':29}  " + "".join(f"{h:>8} " for h in heads) + " /plain /limit", flush=True)
    for case in sys.argv[5:]:
        measure(case, repeats, mbits, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
