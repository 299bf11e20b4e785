"""The programs of steps.weir in PyTorch, with streams by hand: two devices on one GPU whose data go through pinned memory
of the host.

    python3 steps.py fsdp|dp|tp B H [F]     started by steps.c
    python3 steps.py check                  the results against plain PyTorch, small

Says "ready", then reads lines and answers each with the time of one run in ms:

    hand CHUNKS SLICES   a message travels in CHUNKS; tp: rows are computed in SLICES
    compute              what the devices compute, and nothing moves
    transfer CHUNKS      what moves, and nothing is computed

fsdp gathers weights two layers ahead and scatters gradients on streams of their own; dp sends a layer's gradients as soon
as they are computed; tp reduces a slice of the rows while the next one is computed. Where there is no GPU, streams do
nothing, everything runs at once, and in f32.
"""
import contextlib
import sys
import time

import torch

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPE = torch.bfloat16 if CUDA else torch.float32
LAYERS, AHEAD = 8, 2
BOTH = (0, 1)


class NoStream:
    def record_event(self):
        return None

    def wait_event(self, event):
        pass


def new_stream():
    return torch.cuda.Stream() if CUDA else NoStream()


def on(stream):
    return torch.cuda.stream(stream) if CUDA else contextlib.nullcontext()


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def random(*shape):
    return (torch.rand(*shape, device=DEVICE) - 0.5).to(DTYPE)


def room(*shape):
    return torch.empty(*shape, dtype=DTYPE, device=DEVICE)


class Link:
    """Both devices send to each other at once, in chunks; each message has pinned memory of its own."""

    def __init__(self):
        self.out, self.into, self.pinned = [new_stream() for _ in BOTH], [new_stream() for _ in BOTH], {}

    def host(self, key, like):
        key += tuple(like.shape)
        if key not in self.pinned:
            self.pinned[key] = torch.empty(like.shape, dtype=DTYPE, pin_memory=CUDA)
        return self.pinned[key]

    def exchange(self, name, sent, got, chunks, after=(None, None)):
        """got[d] = sent[1 - d], row by row. Events: when they have arrived, and when they have left."""
        rows = -(-sent[0].shape[0] // chunks)
        for d in BOTH:
            if after[d] is not None:
                self.out[d].wait_event(after[d])
        for first in range(0, sent[0].shape[0], rows):
            cut, left = slice(first, first + rows), []
            for d in BOTH:
                with on(self.out[d]):
                    self.host((name, d), sent[d])[cut].copy_(sent[d][cut], non_blocking=True)
                    left.append(self.out[d].record_event())
            for d in BOTH:
                with on(self.into[d]):
                    self.into[d].wait_event(left[1 - d])
                    got[d][cut].copy_(self.host((name, 1 - d), sent[d])[cut], non_blocking=True)
        return [s.record_event() for s in self.into], left


class Fsdp:
    def __init__(self, b, h):
        self.x, self.dy = ([random(b // 2, h) for _ in BOTH] for _ in range(2))
        self.pieces = [[random(h // 2, h) for _ in BOTH] for _ in range(LAYERS)]
        self.gathered = list(range(LAYERS)) + list(range(LAYERS - 1, 0, -1))  # layers, as weights are used
        self.whole = [[room(h, h) for _ in BOTH] for _ in self.gathered]
        self.acts = [[room(b // 2, h) for _ in BOTH] for _ in range(LAYERS)]
        self.d, self.e = ([[room(b // 2, h) for _ in BOTH] for _ in range(2)] for _ in range(2))
        self.partial = [[room(h, h) for _ in BOTH] for _ in range(LAYERS)]
        self.got, self.grads = ([[room(h // 2, h) for _ in BOTH] for _ in range(LAYERS)] for _ in range(2))
        self.gathers, self.scatters, self.compute = Link(), Link(), [new_stream() for _ in BOTH]
        self.half = h // 2

    def mine(self, whole, d):
        return whole[d][d * self.half : (d + 1) * self.half]

    def theirs(self, whole, d):
        return whole[d][(1 - d) * self.half : (2 - d) * self.half]

    def gather(self, k, chunks):
        pieces, whole = self.pieces[self.gathered[k]], self.whole[k]
        for d in BOTH:
            with on(self.gathers.into[d]):
                self.mine(whole, d).copy_(pieces[d])
        return self.gathers.exchange(("g", k), pieces, [self.theirs(whole, d) for d in BOTH], chunks)[0]

    def scatter(self, i, chunks, after=(None, None)):
        partial = self.partial[i]
        self.scatters.exchange(("s", i), [self.theirs(partial, d) for d in BOTH], self.got[i], chunks, after)
        for d in BOTH:
            with on(self.scatters.into[d]):
                torch.add(self.mine(partial, d), self.got[i][d], out=self.grads[i][d])

    def forward(self, i, d):
        below = self.acts[i - 1][d] if i else self.x[d]
        torch.mm(below, self.whole[i][d], out=self.acts[i][d]).relu_()

    def backward(self, i, d, e):
        below = self.acts[i - 1][d] if i else self.x[d]
        torch.ops.aten.threshold_backward.grad_input(e, self.acts[i][d], 0, grad_input=self.d[i % 2][d])
        torch.mm(below.t(), self.d[i % 2][d], out=self.partial[i][d])

    def step(self, chunks, moves=True):
        arrived = [self.gather(k, chunks) for k in range(AHEAD)] if moves else []
        for k, i in enumerate(self.gathered + [0]):
            if moves and k + AHEAD < len(self.gathered):
                arrived.append(self.gather(k + AHEAD, chunks))
            done = []
            for d in BOTH:
                with on(self.compute[d]):
                    if k < LAYERS:
                        if moves:
                            self.compute[d].wait_event(arrived[k][d])
                        self.forward(i, d)
                        continue
                    self.backward(i, d, self.dy[d] if i == LAYERS - 1 else self.e[(i + 1) % 2][d])
                    done.append(self.compute[d].record_event())
                    if i:
                        if moves:
                            self.compute[d].wait_event(arrived[k][d])
                        torch.mm(self.d[i % 2][d], self.whole[k][d].t(), out=self.e[i % 2][d])
            if moves and done:
                self.scatter(i, chunks, done)

    def hand(self, chunks, slices):
        self.step(chunks)

    def computing(self):
        self.step(1, moves=False)

    def transfer(self, chunks):
        for k in range(len(self.gathered)):
            self.gathers.exchange(("g", k), self.pieces[0], [self.theirs(self.whole[k], d) for d in BOTH], chunks)
        for i in range(LAYERS):
            self.gathers.exchange(("s", i), [self.theirs(self.partial[i], d) for d in BOTH], self.got[i], chunks)

    def wanted(self):
        weights = [torch.cat(p).float().requires_grad_() for p in self.pieces]
        a = torch.cat(self.x).float()
        for w in weights:
            a = torch.relu(a @ w)
        a.backward(torch.cat(self.dy).float())
        return [(w.grad, torch.cat(self.grads[i])) for i, w in enumerate(weights)]


class Dp:
    def __init__(self, b, h):
        self.x, self.dy = ([random(b // 2, h) for _ in BOTH] for _ in range(2))
        one = [random(h, h) for _ in range(LAYERS)]
        self.w = [[w] + [w.clone()] for w in one]
        self.acts = [[room(b // 2, h) for _ in BOTH] for _ in range(LAYERS)]
        self.d, self.e = ([[room(b // 2, h) for _ in BOTH] for _ in range(2)] for _ in range(2))
        self.grads, self.got = ([[room(h + 1, h) for _ in BOTH] for _ in range(LAYERS)] for _ in range(2))
        self.link, self.compute, self.h = Link(), [new_stream() for _ in BOTH], h

    def reduce(self, i, chunks, after):
        """The gradient of the weight, and of the bias as its last row."""
        arrived, left = self.link.exchange(i, self.grads[i], self.got[i], chunks, after)
        for d in BOTH:
            with on(self.link.into[d]):
                self.link.into[d].wait_event(left[d])
                self.grads[i][d].add_(self.got[i][d])

    def layer(self, i, d):
        below = self.acts[i - 1][d] if i else self.x[d]
        e = self.dy[d] if i == LAYERS - 1 else self.e[(i + 1) % 2][d]
        torch.ops.aten.threshold_backward.grad_input(e, self.acts[i][d], 0, grad_input=self.d[i % 2][d])
        torch.mm(below.t(), self.d[i % 2][d], out=self.grads[i][d][: self.h])
        torch.sum(self.d[i % 2][d], 0, out=self.grads[i][d][self.h])

    def step(self, chunks, moves=True):
        for i in range(LAYERS):
            for d in BOTH:
                with on(self.compute[d]):
                    below = self.acts[i - 1][d] if i else self.x[d]
                    torch.mm(below, self.w[i][d], out=self.acts[i][d]).relu_()
        for i in reversed(range(LAYERS)):
            done = []
            for d in BOTH:
                with on(self.compute[d]):
                    self.layer(i, d)
                    done.append(self.compute[d].record_event())
                    if i:
                        torch.mm(self.d[i % 2][d], self.w[i][d].t(), out=self.e[i % 2][d])
            if moves:
                self.reduce(i, chunks, done)

    def hand(self, chunks, slices):
        self.step(chunks)

    def computing(self):
        self.step(1, moves=False)

    def transfer(self, chunks):
        for i in range(LAYERS):
            self.link.exchange(i, self.grads[i], self.got[i], chunks)

    def wanted(self):
        weights = [w[0].detach().float().clone().requires_grad_() for w in self.w]
        a = torch.cat(self.x).float()
        for w in weights:
            a = torch.relu(a @ w)
        a.backward(torch.cat(self.dy).float())
        return [(w.grad, self.grads[i][d][: self.h]) for i, w in enumerate(weights) for d in BOTH]


class Tp:
    def __init__(self, t, e, f):
        self.x = [random(t, e)]
        self.x.append(self.x[0].clone())
        self.up = [[random(f // 2, e) for _ in BOTH] for _ in range(LAYERS)]
        self.down = [[random(e, f // 2) / 4 for _ in BOTH] for _ in range(LAYERS)]
        self.y, self.got = ([[room(t, e) for _ in BOTH] for _ in range(LAYERS)] for _ in range(2))
        self.u = [room(t, f // 2) for _ in BOTH]
        self.link, self.compute = Link(), [new_stream() for _ in BOTH]

    def layer(self, i, d, cut):
        x = self.y[i - 1][d][cut] if i else self.x[d][cut]
        torch.mm(x, self.up[i][d].t(), out=self.u[d][cut])
        torch.ops.aten.gelu.out(self.u[d][cut], out=self.u[d][cut])
        torch.mm(self.u[d][cut], self.down[i][d].t(), out=self.y[i][d][cut])

    def reduce(self, i, cut, chunks, after):
        y, got = ([t[i][d][cut] for d in BOTH] for t in (self.y, self.got))
        _, left = self.link.exchange((i, cut.start), y, got, chunks, after)
        done = []
        for d in BOTH:
            with on(self.link.into[d]):
                self.link.into[d].wait_event(left[d])
                y[d].add_(got[d])
                done.append(self.link.into[d].record_event())
        return done

    def step(self, chunks, slices, moves=True):
        rows = self.x[0].shape[0] // slices
        ready = [None] * slices
        for i in range(LAYERS):
            for k in range(slices):
                cut, done = slice(k * rows, (k + 1) * rows), []
                for d in BOTH:
                    with on(self.compute[d]):
                        if ready[k]:
                            self.compute[d].wait_event(ready[k][d])
                        self.layer(i, d, cut)
                        done.append(self.compute[d].record_event())
                if moves:
                    ready[k] = self.reduce(i, cut, chunks, done)

    def hand(self, chunks, slices):
        self.step(chunks, slices)

    def computing(self):
        self.step(1, 1, moves=False)

    def transfer(self, chunks):
        for i in range(LAYERS):
            self.link.exchange((i, 0), self.y[i], self.got[i], chunks)

    def wanted(self):
        x = self.x[0].float()
        for up, down in zip(self.up, self.down):
            x = torch.nn.functional.gelu(x @ torch.cat(up).float().t()) @ torch.cat(down, 1).float().t()
        return [(x, self.y[-1][d]) for d in BOTH]


PROGRAMS = {"fsdp": Fsdp, "dp": Dp, "tp": Tp}


def measure(fn, *args):
    synchronize()
    start = time.perf_counter()
    fn(*args)
    synchronize()
    return (time.perf_counter() - start) * 1e3


def check():
    """What overlaps computes what plain PyTorch does, up to bf16's rounding, layer by layer."""
    worst = 0
    for name, sizes in (("fsdp", (64, 32)), ("dp", (64, 32)), ("tp", (64, 32, 128))):
        for chunks, slices in ((1, 1), (4, 2), (2, 4)):
            program = PROGRAMS[name](*sizes)
            program.hand(chunks, slices)
            synchronize()
            for wanted, got in program.wanted():
                worst = max(worst, ((got.float() - wanted).norm() / wanted.norm()).item())
            program.computing(), program.transfer(chunks)
    print(f"largest error {worst:.4f}")
    sys.exit(worst > 0.05)


def serve(name, *sizes):
    program = PROGRAMS[name](*map(int, sizes))
    print("ready", flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        call = {"hand": program.hand, "compute": program.computing, "transfer": program.transfer}[what]
        print(measure(call, *map(int, numbers)), flush=True)


with torch.no_grad() if sys.argv[1] != "check" else contextlib.nullcontext():
    check() if sys.argv[1] == "check" else serve(*sys.argv[1:])
