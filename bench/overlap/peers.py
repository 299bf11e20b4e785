#!/usr/bin/env python3
"""Training steps by Weir, and by hand on torch and gloo: bench/overlap/peers starts it on every host.

peers.py bounds MACHINE CASE...          what weir.Program.bound() says of each case on two hosts
peers.py MACHINE BOUNDS ROUNDS CASE...   on each rank (RANK, WORLD_SIZE, MASTER_ADDR), with that output as a file

A case is fsdp:LAYERS:B:H, dp:LAYERS:B:H or tp:LAYERS:T:E. Weir as `auto` chooses and without overlap, torch with overlap and without, in turns. torch overlaps
as one would by hand: data-parallel by DistributedDataParallel with its buckets, fully sharded by gathering the next
layer's weight and scattering gradients asynchronously, tensor-parallel by halves of the rows. Medians in ms of the
slowest rank.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import cases
from sweep import Form, compiled, shapes_of

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 2))


class Ddp:
    """A chain of linear layers and relus; gradients are those of a given one of the result."""

    def __init__(self, count, b, h):
        model = torch.nn.Sequential(*(m for _ in range(count) for m in (torch.nn.Linear(h, h), torch.nn.ReLU())))
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.x, self.dy = torch.randn(b // RANKS, h), torch.randn(b // RANKS, h)

    def overlapped(self):
        self.model.zero_grad()
        self.model(self.x).backward(self.dy)

    def plain(self):
        with self.model.no_sync():
            self.overlapped()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)


class Fsdp:
    """Forward and backward by hand: weights lie in pieces of rows."""

    def __init__(self, count, b, h):
        self.x, self.dy = torch.randn(b // RANKS, h), torch.randn(b // RANKS, h)
        self.pieces = [torch.randn(h // RANKS, h) / 16 for _ in range(count)]
        self.whole = [torch.empty(h, h) for _ in range(2)]  # in turns
        self.partial = [torch.empty(h, h) for _ in range(count)]
        self.grads = [torch.empty(h // RANKS, h) for _ in range(count)]
        self.empty = [torch.empty(b // RANKS, h) for _ in range(count)]

    def gather(self, i, slot, wait):
        work = dist.all_gather_into_tensor(self.whole[slot], self.pieces[i], async_op=True)
        if wait:
            work.wait()
        return work

    def scatter(self, i, wait):
        work = dist.reduce_scatter_tensor(self.grads[i], self.partial[i], async_op=True)
        if wait:
            work.wait()
        return work

    def step(self, ahead):
        """`ahead`: the next layer's weight is gathered while this one computes."""
        n, acts, scattered = len(self.pieces), [self.x], []
        order = list(range(n)) + list(range(n - 1, 0, -1))  # weights, as they are used
        under_way = [self.gather(order[0], 0, not ahead)]
        for k, i in enumerate(order):
            under_way[k].wait()
            if k + 1 < len(order):
                slot = (k + 1) % 2
                if ahead:
                    under_way.append(self.gather(order[k + 1], slot, False))
            w = self.whole[k % 2]
            if k < n:
                acts.append(torch.relu(acts[-1] @ w))
                if k == n - 1:
                    d = torch.where(acts[-1] > 0, self.dy, 0)
                    self.weight_gradient(n - 1, acts, d, scattered, ahead)
            else:
                d = torch.where(acts[i] > 0, d @ w.T, 0)
                self.weight_gradient(i - 1, acts, d, scattered, ahead)
            if not ahead and k + 1 < len(order):
                under_way.append(self.gather(order[k + 1], (k + 1) % 2, True))
        for work in scattered:
            work.wait()

    def weight_gradient(self, i, acts, d, scattered, ahead):
        torch.matmul(acts[i].T, d, out=self.partial[i])
        scattered.append(self.scatter(i, not ahead))

    def overlapped(self):
        self.step(True)

    def plain(self):
        self.step(False)


class Tp:
    """A chain of MLPs, whose hidden features are cut. Rows are halved: one half is reduced while the other is computed."""

    def __init__(self, count, t, e):
        self.x = torch.randn(t, e)
        self.up = [torch.randn(e, 4 * e // RANKS) / 16 for _ in range(count)]
        self.down = [torch.randn(4 * e // RANKS, e) / 16 for _ in range(count)]

    def layer(self, i, x):
        y = torch.nn.functional.gelu(x @ self.up[i]) @ self.down[i]
        return y, dist.all_reduce(y, async_op=True)

    def overlapped(self):
        halves = [(x, None) for x in self.x.chunk(2)]
        for i in range(len(self.up)):
            for k, (x, work) in enumerate(halves):
                if work:
                    work.wait()
                halves[k] = self.layer(i, x)
        for _, work in halves:
            work.wait()

    def plain(self):
        x = self.x
        for i in range(len(self.up)):
            x, work = self.layer(i, x)
            work.wait()


HAND = {"fsdp": Fsdp, "dp": Ddp, "tp": Tp}


class Hand:
    def __init__(self, call):
        self.call, self.times = call, []
        self.call()

    def run(self, sync, keep):
        sync()
        start = time.perf_counter()
        self.call()
        if keep:
            self.times.append(time.perf_counter() - start)


def slowest(times):
    found = torch.tensor(times)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return statistics.median(found.tolist()) * 1e3


def sizes_of(case):
    kind, *sizes = case.split(":")
    return kind, list(map(int, sizes))


def text_of(case):
    kind, sizes = sizes_of(case)
    return getattr(cases, kind)(RANKS, *sizes)


def bounds(machine, *found):
    for case in found:
        text = text_of(case)
        b = compiled(text, machine, cases.forms(False, RANKS)["auto"], device="sim").bound(*shapes_of(text), machine=machine)
        print(case, *(b[k] * 1e3 for k in ("bound_s", "compute_s", "receive_s", "predicted_s")))


def read_bounds(path):
    lines = [line.split() for line in open(path)]
    return {case: list(map(float, figures)) for case, *figures in lines}


def measure(case, machine, bound, rounds):
    import numpy

    kind, sizes = sizes_of(case)
    text, numbers = text_of(case), numpy.random.default_rng(RANK)
    options, hand = cases.forms(False, RANKS), HAND[kind](*sizes)
    runs = [Form(text, machine, options["auto"], numbers), Form(text, machine, options["none"], numbers),
            Hand(hand.overlapped), Hand(hand.plain)]
    for r in range(-1, rounds):
        for run in runs:
            run.run(dist.barrier, r >= 0)
    auto, none, torch_auto, torch_none = (slowest(run.times) for run in runs)
    if RANK == 0:
        least, compute, receive, predicted = bound
        print(f"{case:16} {auto:9.1f} {none:9.1f} {torch_auto:9.1f} {torch_none:9.1f} {least:9.1f}   {auto / none:5.2f} "
              f"{auto / torch_auto:5.2f} {auto / least:6.2f} {predicted / auto:9.2f} {compute / receive:9.2f}", flush=True)


def main():
    machine, found, rounds = sys.argv[1], read_bounds(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    address = f"tcp://{os.environ['MASTER_ADDR']}:29577"
    dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=RANKS)
    if RANK == 0:
        print(f"torch {torch.__version__}, gloo; ms\n{'':16}      auto      none  by hand     plain     bound   /none /hand /bound predicted  compute/link", flush=True)
    for case in sys.argv[4:]:
        measure(case, machine, found[case], rounds)
    dist.destroy_process_group()


if __name__ == "__main__":
    bounds(*sys.argv[2:]) if sys.argv[1] == "bounds" else main()
