"""A block of a model in PyTorch whose MLP is a Weir program: values, gradients, time, CUDA graphs, torch.compile.

    PYTHONPATH=build/python python3 tests/gpu/torch_block.py [PART...]     # values time graph compile memory

One line per part; exit 1 if a value is wrong or the block takes more than 1.02 of the time of its parts: the block with
nothing in the place of the MLP, and the MLP alone. Without a GPU the values are computed on the CPU, in f32 and small.
"""

import statistics
import sys

import torch
import torch.nn.functional as F

import weir

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE, NAME = (torch.bfloat16, "bf16") if ON_GPU else (torch.float32, "f32")
TOKENS, WIDTH, HEADS, HIDDEN = (8192, 4096, 32, 16384) if ON_GPU else (32, 64, 4, 128)
GOAL = 1.02

FORWARD = """fusion mlp {
  x : T[n, e]; w1 : T[f, e]; w2 : T[e, f]
  y = linear(gelu(linear(x, w1)), w2)
  return y
}"""
BACKWARD = """fusion mlp_backward {
  x : T[n, e]; w1 : T[f, e]; w2 : T[e, f]; g : T[n, e]
  u = linear(x, w1)
  h = gelu(u)
  dh = matmul(g, w2)
  v = cast(u, f32)
  slope = (erf(v * 0.7071067811865476) + 1) * 0.5 + v * exp(v * v * -0.5) * 0.3989422804014327
  du = cast(cast(dh, f32) * slope, T)
  dx = matmul(du, w1)
  dw1 = matmul(transpose(du), x)
  dw2 = matmul(transpose(g), h)
  return dx, dw1, dw2
}"""


def program(text, **options):
    return weir.compile(text.replace(" T[", f" {NAME}[").replace(", T)", f", {NAME})"), device=DEVICE, **options)


class Block(torch.nn.Module):
    """Attention and an MLP, each after a norm and added to what came in. `mlp(x, w1, w2)` may be anything."""

    def __init__(self, mlp, weights=None):
        super().__init__()
        self.mlp = mlp
        if weights is not None:
            self.load_from(weights)
            return
        torch.manual_seed(1)
        self.qkv = self.parameter(3 * WIDTH, WIDTH)
        self.out = self.parameter(WIDTH, WIDTH)
        self.w1 = self.parameter(HIDDEN, WIDTH)
        self.w2 = self.parameter(WIDTH, HIDDEN)
        self.norm1 = torch.nn.Parameter(torch.ones(WIDTH, dtype=DTYPE, device=DEVICE))
        self.norm2 = torch.nn.Parameter(torch.ones(WIDTH, dtype=DTYPE, device=DEVICE))

    def load_from(self, other):
        for name, value in other.named_parameters():
            setattr(self, name, value)

    @staticmethod
    def parameter(rows, columns):
        return torch.nn.Parameter((torch.randn(rows, columns, device=DEVICE) / columns**0.5).to(DTYPE))

    def forward(self, x):
        h = F.rms_norm(x, (WIDTH,), self.norm1)
        q, k, v = (F.linear(h, self.qkv).view(TOKENS, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3))[:, None].unbind()
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a[0].transpose(0, 1).reshape(TOKENS, WIDTH), self.out)
        return x + self.mlp(F.rms_norm(x, (WIDTH,), self.norm2), self.w1, self.w2)


def by_torch(x, w1, w2):
    return F.linear(F.gelu(F.linear(x, w1)), w2)


def inputs():
    torch.manual_seed(2)
    return torch.randn(TOKENS, WIDTH, device=DEVICE).to(DTYPE)


def difference(a, b):
    """Over the largest value."""
    return ((a.float() - b.float()).abs().max() / b.float().abs().max()).item()


def say(name, good, text):
    print(f"{'ok' if good else 'FAIL':5} {name}: {text}", flush=True)
    return good


# ---- values ----

TOLERANCE = 2e-2 if ON_GPU else 1e-5


def values():
    f, block = program(FORWARD), Block(by_torch)
    with torch.no_grad():
        x = inputs()
        worst = difference(Block(f, block)(x), block(x))
    return say("values of the block", worst < TOLERANCE, f"{worst:.2g} from PyTorch's, over the largest")


def compile_():
    """The program as an operation of torch.library, under torch.compile, forward and backward."""
    op = weir.torch_op(program(FORWARD), "weirblock::mlp", backward=program(BACKWARD))
    reference = Block(by_torch)
    x = inputs()
    g = torch.randn_like(x)
    expected = reference(x)
    wanted = torch.autograd.grad(expected, [reference.w1, reference.w2, reference.out], g)
    good = True
    for name, f in [("eager", lambda m: m), ("torch.compile", lambda m: torch.compile(m, fullgraph=True))]:
        block = f(Block(op, reference))
        y = block(x)
        found = torch.autograd.grad(y, [reference.w1, reference.w2, reference.out], g)
        worst = max([difference(y, expected), *(difference(a, b) for a, b in zip(found, wanted))])
        good = say(f"torch.library operation, {name}", worst < 2 * TOLERANCE,
                   f"values and gradients {worst:.2g} from PyTorch's") and good
    return good


def memory():
    """Memory of the program's plans from PyTorch's caching allocator."""
    f = program(FORWARD, device_memory="torch")
    block = Block(by_torch)
    with torch.no_grad():
        x = inputs()
        before = torch.cuda.memory_allocated()
        y = f(x, block.w1, block.w2)
        taken = torch.cuda.memory_allocated() - before
        worst = difference(y, by_torch(x, block.w1, block.w2))
    least = TOKENS * HIDDEN * 2
    return say("memory of PyTorch's allocator", worst < TOLERANCE and taken >= least,
               f"{taken / 2**20:.0f} MiB of it are taken, {least / 2**20:.0f} for the hidden layer")


# ---- time ----

def series_ms(call, n=10):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(n):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / n


def compare(name, calls):
    """Medians of interleaved rounds: the whole, the block without its MLP, the MLP, the block in PyTorch alone."""
    times = [[] for _ in calls]
    for r in range(13):
        for t, call in zip(times, calls):
            ms = series_ms(call)
            if r >= 2:
                t.append(ms)
    whole, rest, mlp, torch_ms = map(statistics.median, times)
    ratio = whole / (rest + mlp)
    return say(name, ratio <= GOAL, f"{whole:.3f} ms, {ratio:.3f} of the parts ({rest:.3f} + {mlp:.3f}), goal {GOAL}; "
               f"PyTorch alone {torch_ms:.3f} ms")


def workload():
    f, reference = program(FORWARD), Block(by_torch)
    block, rest = Block(f, reference), Block(lambda x, w1, w2: x, reference)
    x = inputs()
    y = torch.empty_like(x)
    return x, [lambda: block(x), lambda: rest(x), lambda: f(x, block.w1.detach(), block.w2.detach(), out=y), lambda: reference(x)]


def time():
    with torch.no_grad():
        _, calls = workload()
        return compare("time of the block", calls)


def captured(call):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(s)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


def graph():
    with torch.no_grad():
        x, calls = workload()
        graphs = [captured(c) for c in calls]
        x.copy_(x.roll(1, 0))  # other values than those of the capture
        expected = calls[3]()
        graphs[0][0].replay()
        worst = difference(graphs[0][1], expected)
        good = say("values of the block in a CUDA graph", worst < TOLERANCE, f"{worst:.2g} from PyTorch's")
        return compare("time of the block in a CUDA graph", [g.replay for g, _ in graphs]) and good


PARTS = {"values": values, "time": time, "graph": graph, "memory": memory, "compile": compile_}


def main() -> int:
    good = True
    for name in sys.argv[1:] or list(PARTS):
        if name in ("time", "graph", "memory") and not ON_GPU:
            print(f"skip  {name}: PyTorch sees no GPU")
            continue
        try:
            good = PARTS[name]() and good
        except Exception as why:  # noqa: BLE001: the next part may work
            good = say(name, False, f"{type(why).__name__}: {str(why)[:600]}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
