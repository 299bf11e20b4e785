"""Grouped products in bf16 beside torch._grouped_mm: forward, and both gradients.

    PYTHONPATH=build/python python3 bench/gpu/grouped.py

Rows are sorted by group, of random lengths. us, medians; TFLOP/s; Weir's time over PyTorch's; and how far Weir's result is
from a product in f32 for each group, over the largest element (16 bits round to 0.004).
"""
import torch
import weir

from timing import median_us

FORWARD = "fusion f { x : bf16[t, k]; w : bf16[e, k, n]; i : i64[t]; y = grouped_matmul(x, w, i); return y }"
BACKWARD = """fusion b { dy : bf16[t, n]; w : bf16[e, k, n]; i : i64[t]
  dx = grouped_matmul(dy, transpose(w), i); return dx }"""
OUTER = """fusion o { x : bf16[t, k]; dy : bf16[t, n]; w : bf16[e, k, n]; i : i64[t]
  dw = grouped_outer(x, dy, i, e); return dw }"""
CASES = [(4096, 8, 2048, 4096), (8192, 64, 2048, 1408), (16384, 8, 4096, 14336), (64, 64, 2048, 1408), (512, 128, 1024, 512)]


def report(name, t, e, k, n, weir_call, torch_call, truth):
    out = weir_call()
    worst = (out.float() - truth).abs().max().item() / max(truth.abs().max().item(), 1e-30)
    mine = median_us(weir_call)
    try:
        peer = median_us(torch_call)
    except (RuntimeError, AttributeError, NotImplementedError) as why:
        peer = float("nan")
        print(f"  torch: {str(why).splitlines()[0][:100]}")
    flops = 2 * t * k * n
    print(f"{name:8} t={t} e={e} k={k} n={n}: {mine:9.1f} us {flops / mine * 1e-6:6.1f} TFLOP/s, torch {peer:9.1f} us "
          f"{flops / peer * 1e-6:6.1f}; {mine / peer:.2f}; error {worst:.4f}", flush=True)


def main():
    torch.manual_seed(0)
    forward, backward, outer = (weir.compile(text, device="cuda") for text in (FORWARD, BACKWARD, OUTER))
    for t, e, k, n in CASES:
        def new(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        x, w, dy = new(t, k), new(e, k, n) / k**0.5, new(t, n)
        index = torch.randint(0, e, (t,), device="cuda").sort().values
        ends = torch.bincount(index, minlength=e).cumsum(0).to(torch.int32)
        rows = [slice(int(a), int(b)) for a, b in zip([0, *ends[:-1].tolist()], ends.tolist())]
        y = torch.cat([x[r].float() @ w[g].float() for g, r in enumerate(rows)])
        dx = torch.cat([dy[r].float() @ w[g].float().T for g, r in enumerate(rows)])
        dw = torch.stack([x[r].float().T @ dy[r].float() for r in rows])
        report("forward", t, e, k, n, lambda: forward(x, w, index), lambda: torch._grouped_mm(x, w, offs=ends), y)
        report("dx", t, e, k, n, lambda: backward(dy, w, index),
               lambda: torch._grouped_mm(dy, w.transpose(-2, -1), offs=ends), dx)
        report("dw", t, e, k, n, lambda: outer(x, dy, w, index), lambda: torch._grouped_mm(x.T, dy, offs=ends), dw)


main()
