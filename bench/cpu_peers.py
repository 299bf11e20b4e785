#!/usr/bin/env python3
"""Times the cases of bench/cpu_products.c with Weir, PyTorch and JAX, in turns.

    cpu_peers.py PATH/cpu_products [NAME...] [--threads N] [--rounds N] [--seconds S] [--cpu-time]

Each library runs in a process of its own, for SECONDS per round; of all rounds the shortest time counts. A
library that is missing, or that the processor ends, is left out. --cpu-time counts the processor's time, of all
threads together, for machines that others use as well. Needs numpy, and torch or jax.
"""
import argparse
import json
import re
import subprocess
import sys
import time

CASES = [
    "matmul_f32_256", "matmul_f32_512", "matmul_f32_1024", "matmul_f32_2048", "matmul_f64_1024",
    "matmul_bf16_1024", "matmul_f16_1024", "linear_f32_512x512x2048", "linear_bf16_512x512x2048",
    "linear_f32_1x4096x4096", "matmul_f32_1x4096x4096", "linear_f32_4x4096x4096",
    "linear_f32_16x4096x4096", "matmul_f32_8x4096x4096", "linear_bf16_1x4096x4096",
    "linear_bf16_8x4096x4096", "matmul_bf16_1x4096x4096", "sdpa_f32_8x1024x64",
    "sdpa_causal_f32_8x1024x64", "sdpa_bf16_8x1024x64", "sdpa_f32_8x4096x128",
    "llama_block_f32_512x512",
]


def shapes_of(name):
    kind, dtype = re.match(r"(matmul|linear|sdpa|llama)\w*?_(f32|f64|bf16|f16)_", name).groups()
    sizes = [int(x) for x in name.rsplit("_", 1)[1].split("x")]
    return kind, dtype, sizes


def operands(name):
    import numpy
    random = numpy.random.default_rng(1)
    kind, dtype, s = shapes_of(name)
    if kind == "matmul":
        m, k, n = s if len(s) == 3 else s * 3
        shapes = [(m, k), (k, n)]
    elif kind == "linear":
        m, k, n = s
        shapes = [(m, k), (n, k), (n,)]
    elif kind == "sdpa":
        shapes = [(1, *s)] * 3
    else:
        shapes = [(1, 512, 512), (512,)] + [(512, 512)] * 4 + [(512,), (1408, 512), (1408, 512),
                                                               (512, 1408)]
    return dtype, [random.standard_normal(x).astype("float32") for x in shapes]


def torch_case(name, threads):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    types = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
    dtype, arrays = operands(name)
    x = [torch.from_numpy(a).to(types[dtype]) for a in arrays]

    def rms(t, g):
        return t * torch.rsqrt((t * t).mean(-1, keepdim=True) + 1e-5) * g

    def llama(t, g1, wq, wk, wv, wo, g2, w1, w3, w2):
        n = rms(t, g1)
        q, k, v = (F.linear(n, w).view(1, 512, 8, 64).transpose(1, 2) for w in (wq, wk, wv))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        r = t + F.linear(a.transpose(1, 2).reshape(1, 512, 512), wo)
        n = rms(r, g2)
        return r + F.linear(F.silu(F.linear(n, w1)) * F.linear(n, w3), w2)

    kind = shapes_of(name)[0]
    if kind == "matmul":
        return lambda: torch.matmul(*x)
    if kind == "linear":
        return lambda: F.linear(*x)
    if kind == "sdpa":
        return lambda: F.scaled_dot_product_attention(*x, is_causal="causal" in name)
    return lambda: llama(*x)


def jax_case(name, threads):
    del threads  # XLA takes the cores it is given: use taskset
    import jax
    import jax.numpy as np
    if "f64" in name:
        jax.config.update("jax_enable_x64", True)
    types = {"f32": np.float32, "f64": np.float64, "bf16": np.bfloat16, "f16": np.float16}
    dtype, arrays = operands(name)
    x = [np.asarray(a).astype(types[dtype]) for a in arrays]

    def attend(q, k, v, causal):
        s = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
        if causal:
            s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
        return np.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, -1), v)

    def rms(t, g):
        return t * jax.lax.rsqrt((t * t).mean(-1, keepdims=True) + 1e-5) * g

    def llama(t, g1, wq, wk, wv, wo, g2, w1, w3, w2):
        n = rms(t, g1)
        q, k, v = ((n @ w.T).reshape(1, 512, 8, 64).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
        a = attend(q, k, v, True).transpose(0, 2, 1, 3).reshape(1, 512, 512)
        r = t + a @ wo.T
        n = rms(r, g2)
        return r + (jax.nn.silu(n @ w1.T) * (n @ w3.T)) @ w2.T

    kind = shapes_of(name)[0]
    functions = {"matmul": lambda a, b: a @ b, "linear": lambda a, w, b: a @ w.T + b,
                 "sdpa": lambda q, k, v: attend(q, k, v, "causal" in name), "llama": llama}
    run = jax.jit(functions[kind])
    return lambda: run(*x).block_until_ready()


def worker(library, name, threads, seconds, cpu_time):
    clock = time.process_time if cpu_time else time.perf_counter
    run = {"torch": torch_case, "jax": jax_case}[library](name, threads)
    run()
    least, end, n = 1e30, time.perf_counter() + seconds, 0
    while n < 5 or time.perf_counter() < end:
        start = clock()
        run()
        least = min(least, clock() - start)
        n += 1
    print(json.dumps({"name": name, "ms": least * 1e3}))


def time_once(library, args, name):
    if library == "weir":
        command = [args.program, "--json"] + ["--cpu-time"] * args.cpu_time
        command += [str(args.threads), str(args.seconds), name]
    else:
        command = [sys.executable, __file__, "worker", library, name, str(args.threads),
                   str(args.seconds)] + ["cpu"] * args.cpu_time
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    times = [x["ms"] for x in lines if x["name"] == name]
    return times[0] if done.returncode == 0 and times else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_intermixed_args()
    print(f"{'case':28}{'weir ms':>10}{'torch':>10}{'jax':>10}{'weir / best':>13}")
    for name in [c for c in CASES if not args.names or any(n in c for n in args.names)]:
        best = {"weir": None, "torch": None, "jax": None}
        for _ in range(args.rounds):
            for library, least in best.items():
                ms = time_once(library, args, name)
                if ms is not None and (least is None or ms < least):
                    best[library] = ms
        peers = [v for k, v in best.items() if k != "weir" and v is not None]
        show = [f"{v:10.3f}" if v is not None else f"{'-':>10}" for v in best.values()]
        ratio = f"{best['weir'] / min(peers):13.2f}" if peers and best["weir"] else f"{'-':>13}"
        print(f"{name:28}{''.join(show)}{ratio}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "worker":
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), len(sys.argv) > 6)
    else:
        main()
