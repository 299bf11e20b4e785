"""The chains of fused.c with torch.compile, bf16: prints "name rows columns us" per chain and size.

Started by fused.c, before it measures anything itself.
"""
import torch
import torch.nn.functional as F

gpu = torch.device("cuda")
RUNS, REPEATS = 10, 15


def new(*shape):
    return (torch.rand(*shape, device=gpu) - 0.5).to(torch.bfloat16)


def gelu(x, w, b, r):
    return F.gelu(x * w + b) * r + x


def rows(x, r):
    return (x.exp() * r).sum(1)


def columns(x, r):
    return (F.gelu(x) * r).sum(0)


def swiglu(x, g):
    return F.silu(x) * g


def add_rms_norm(x, r, w):
    s = x + r
    return F.rms_norm(s, (s.shape[1],), w, 1e-6), s


def softmax(x, m):
    return torch.softmax(x * 0.125 + m, 1)


def cross_entropy(x, i):
    f = x.float()
    return torch.logsumexp(f, 1, keepdim=True) - f.gather(1, i)


def layer_norm_back(x, g, w):
    x, g = x.float(), g.float()
    d = x - x.mean(1, keepdim=True)
    s = torch.rsqrt((d * d).mean(1, keepdim=True) + 1e-5)
    h, gw = d * s, g * w
    dx = (gw - gw.mean(1, keepdim=True) - h * (gw * h).mean(1, keepdim=True)) * s
    return dx.bfloat16(), (g * h).sum(0).bfloat16(), g.sum(0).bfloat16()


def rms_norm_back(x, g, w):
    x, g = x.float(), g.float()
    s = torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)
    h, gw = x * s, g * w
    dx = (gw - h * (gw * h).mean(1, keepdim=True)) * s
    return dx.bfloat16(), (g * h).sum(0).bfloat16()


def dropout(x):
    return torch.where(torch.rand_like(x) < 0.1, 0.0, x * 1.1111)


def transposed_add(x, r):
    return x + r.t()


def cat(x, r):
    return torch.cat([x * 2.0, r], 1)


def pad(x):
    return F.pad(x * 2.0, (8, 8))


def tensors(name, rows_, columns_):
    x, other, w = new(rows_, columns_), new(rows_, columns_), new(columns_)
    return {
        "gelu": lambda: (x, w, new(columns_), other),
        "add_rms_norm": lambda: (x, other, w),
        "layer_norm_back": lambda: (x, other, w),
        "rms_norm_back": lambda: (x, other, w),
        "cross_entropy": lambda: (x, torch.zeros(rows_, 1, dtype=torch.int64, device=gpu)),
        "dropout": lambda: (x,),
        "pad": lambda: (x,),
        "transposed_add": lambda: (x, new(columns_, rows_)),
    }.get(name, lambda: (x, other))()


def measure(fn, args):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(3):
        fn(*args)
    for _ in range(REPEATS):
        begin.record()
        for _ in range(RUNS):
            fn(*args)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / RUNS)
    return sorted(times)[REPEATS // 2]


def main():
    chains = [gelu, rows, columns, swiglu, add_rms_norm, softmax, cross_entropy, layer_norm_back,
              rms_norm_back, dropout, transposed_add, cat, pad]
    for chain in chains:
        large = (8192, 128000) if chain is cross_entropy else (16384, 8192)
        for size in [large] if chain is cross_entropy else [large, (4096, 1024)]:
            torch._dynamo.reset()
            with torch.no_grad():
                us = measure(torch.compile(chain), tensors(chain.__name__, *size))
            print(chain.__name__, *size, f"{us:.2f}", flush=True)
            torch.cuda.empty_cache()


main()
