"""The blocks of block.weir in PyTorch, compiled: block.py BLOCK:TOKENSxWIDTHxKEYSxINNER...

Prints BLOCK TOKENS WIDTH us us-with-reduced-overhead peak-bytes. The peak is that of the default mode with its inputs
and results, of what PyTorch's allocator gave out."""
import sys

import torch
import torch.nn.functional as F


def llama(x, n1, wq, wk, wv, wo, n2, wg, wu, wd, cosv, sinv):
    s, e = x.shape
    h = F.rms_norm(x, (e,), n1, 1e-6)
    q = F.linear(h, wq).view(s, -1, 128).transpose(0, 1)
    k = F.linear(h, wk).view(s, -1, 128).transpose(0, 1)
    v = F.linear(h, wv).view(s, -1, 128).transpose(0, 1)

    def turn(t):
        a, b = t[..., :64], t[..., 64:]
        return torch.cat((a * cosv - b * sinv, b * cosv + a * sinv), -1)

    a = F.scaled_dot_product_attention(
        turn(q)[None], turn(k)[None], v[None], is_causal=True, enable_gqa=True
    )[0]
    r = x + F.linear(a.transpose(0, 1).reshape(s, e), wo)
    m = F.rms_norm(r, (e,), n2, 1e-6)
    return r + F.linear(F.silu(F.linear(m, wg)) * F.linear(m, wu), wd)


def gpt(x, g1, c1, wq, bq, wk, bk, wv, bv, wo, bo, g2, c2, wu, bu, wd, bd):
    s, e = x.shape
    n1 = F.layer_norm(x, (e,), g1, c1)
    q = F.linear(n1, wq, bq).view(s, -1, 64).transpose(0, 1)
    k = F.linear(n1, wk, bk).view(s, -1, 64).transpose(0, 1)
    v = F.linear(n1, wv, bv).view(s, -1, 64).transpose(0, 1)
    a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    r = x + F.linear(a.transpose(0, 1).reshape(s, e), wo, bo)
    n2 = F.layer_norm(r, (e,), g2, c2)
    return r + F.linear(F.gelu(F.linear(n2, wu, bu), approximate="tanh"), wd, bd)


def training(block):
    """The block and the gradients of all its inputs, from that of its result."""

    def run(*args):
        *inputs, dy = args
        y = block(*inputs)
        return y, torch.autograd.grad(y, inputs, dy)

    return run


def measure(f, args, runs=10, repeats=15):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for r in range(-3, repeats):
        begin.record()
        for _ in range(runs):
            torch.compiler.cudagraph_mark_step_begin()
            f(*args)
        end.record()
        end.synchronize()
        if r >= 0:
            times.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(times)[repeats // 2]


def peak(f, args):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    f(*args)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def shapes_of(name, s, e, k, f):
    if name == "llama":
        return [(s, e), (e,), (e, e), (k, e), (k, e), (e, e), (e,), (f, e), (f, e), (e, f), (s, 64), (s, 64)]
    own = [(s, e), (e,), (e,)] + [(e, e), (e,)] * 4 + [(e,), (e,), (f, e), (f,), (e, f), (e,)]
    return own + [(s, e)] if name == "gpt_training" else own


def main():
    for asked in sys.argv[1:]:
        name, size = asked.split(":")
        s, e, k, f = (int(n) for n in size.split("x"))
        args = [torch.randn(n, device="cuda", dtype=torch.bfloat16) * 0.05 for n in shapes_of(name, s, e, k, f)]
        trains = name == "gpt_training"
        if trains:
            for a in args[:-1]:
                a.requires_grad_()
        block = llama if name == "llama" else gpt
        times, most = [], 0
        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(block, mode=mode)
            f_ = training(compiled) if trains else compiled
            with torch.set_grad_enabled(trains):
                times.append(measure(f_, args))
                if mode == "default":
                    most = peak(f_, args)
        print(name, s, e, f"{times[0]:.1f} {times[1]:.1f} {most}", flush=True)
        del args
        torch._dynamo.reset()
        torch.cuda.empty_cache()


main()
