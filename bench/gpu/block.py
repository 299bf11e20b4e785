"""The block of block.weir in PyTorch, compiled: prints TOKENS WIDTH us us-with-reduced-overhead."""
import sys

import torch
import torch.nn.functional as F


def block(x, n1, wq, wk, wv, wo, n2, wg, wu, wd, cosv, sinv):
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


def measure(f, args, runs=10, repeats=15):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for r in range(-3, repeats):
        begin.record()
        for _ in range(runs):
            f(*args)
        end.record()
        end.synchronize()
        if r >= 0:
            times.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(times)[repeats // 2]


for size in sys.argv[1:]:
    s, e, k, f = (int(n) for n in size.split("x"))
    shapes = [(s, e), (e,), (e, e), (k, e), (k, e), (e, e), (e,), (f, e), (f, e), (e, f), (s, 64), (s, 64)]
    args = [torch.randn(n, device="cuda", dtype=torch.bfloat16) * 0.05 for n in shapes]
    with torch.no_grad():
        plain = measure(torch.compile(block), args)
        torch._dynamo.reset()
        quick = measure(torch.compile(block, mode="reduce-overhead"), args)
    torch._dynamo.reset()
    torch.cuda.reset_peak_memory_stats()
    print(s, e, f"{plain:.1f} {quick:.1f}", flush=True)
