"""The cases of attention.txt in PyTorch: us of the fastest of its own choice, cuDNN and flash.

    attention.py CASES [NAME]
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from timing import median_us

CHOICES = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def make(b, hq, hk, sq, sk, d, causal, backward):
    def new(h, s):
        return torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=backward)

    q, k, v = new(hq, sq), new(hk, sk), new(hk, sk)
    attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=hq != hk)
    if not backward:
        return attend
    o = attend()
    g = torch.randn_like(o)
    return lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)


def time_case(words):
    b, hq, hk, sq, sk, d, causal = map(int, words[1:8])
    args = (b, hq, hk, sq, sk, d, bool(causal), words[8] == "backward")
    times = {"default": median_us(make(*args))}
    for name, backend in CHOICES.items():
        try:
            with sdpa_kernel(backend):
                times[name] = median_us(make(*args))
        except RuntimeError:
            pass
    best = min(times, key=times.get)
    print(f"{words[0]:16} {times[best]:10.1f} us {best}", flush=True)


with open(sys.argv[1]) as cases:
    for line in cases:
        words = line.split()
        if len(words) == 9 and words[0] != "#" and words[0].startswith((sys.argv + ["", ""])[2]):
            time_case(words)
