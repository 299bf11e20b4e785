"""A Llama as a user runs it: Weir from Python beside PyTorch, on two threads, with the same weights and greedy tokens.

    python bench/decode.py [f32|bf16] [ROUNDS]

Needs numpy, torch and the package. A prompt of 256 tokens, then one token at a time, with caches of [heads, capacity, 64]
of which the rows so far are handed over. Prints the best time of the prompt and of a token (a round's median), in ms.
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import weir
from weir import ops

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, VOCABULARY = 8, 1024, 16, 4, 64, 2816, 32000
CAPACITY, PROMPT, TOKENS, BASE, THREADS = 1024, 256, 32, 10000.0, 2
LAYER = {"q": (HEADS * HEAD, WIDTH), "k": (KV_HEADS * HEAD, WIDTH), "v": (KV_HEADS * HEAD, WIDTH), "o": (WIDTH, HEADS * HEAD),
         "gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN), "norm1": (WIDTH,), "norm2": (WIDTH,)}
WEIGHTS = {"embed": (VOCABULARY, WIDTH), "norm": (WIDTH,), "head": (VOCABULARY, WIDTH),
           **{f"{name}{n}": shape for n in range(LAYERS) for name, shape in LAYER.items()}}
CACHES = [f"{side}{n}" for n in range(LAYERS) for side in ("keys", "values")]
DTYPE = sys.argv[1] if len(sys.argv) > 1 else "f32"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
TORCH_DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16}[DTYPE]


def make_weights():
    g = torch.Generator().manual_seed(1)
    def draw(shape):
        scale = 0.5 / shape[-1] ** 0.5 if len(shape) > 1 else 0.1
        return (torch.randn(shape, generator=g) * scale + (len(shape) == 1)).to(TORCH_DTYPE)
    return {name: draw(shape) for name, shape in WEIGHTS.items()}


def empty_cache():
    return torch.zeros(KV_HEADS, CAPACITY, HEAD, dtype=TORCH_DTYPE)


# ---- Weir ----

def rotated(x, position):
    frequencies = ops.exp(ops.iota(HEAD // 2, dtype="f32") * (-2 * np.log(BASE) / HEAD))
    angles = position.cast("f32")[:, None] * frequencies
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    cos, sin = ops.cos(angles).cast(DTYPE), ops.sin(angles).cast(DTYPE)
    return ops.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def layer(x, w, keys, values, at, position):
    t, s = x.shape[0], keys.shape[1]
    h = x.rms_norm(w("norm1"))
    q, k, v = (ops.linear(h, w(n)).reshape(t, heads, HEAD).permute(1, 0, 2)
               for n, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
    keys = ops.update(keys, rotated(k, position), at, dim=1)
    values = ops.update(values, v, at, dim=1)
    q = rotated(q, position).reshape(KV_HEADS, HEADS // KV_HEADS, t, HEAD)
    scores = ops.matmul(q, keys[:, None].T) * HEAD**-0.5
    a = ops.matmul(ops.softmax(ops.where(ops.iota(s) <= position[:, None], scores, -1e30)), values[:, None])
    x = x + ops.linear(a.permute(2, 0, 1, 3).reshape(t, HEADS * HEAD), w("o"))
    h = x.rms_norm(w("norm2"))
    return x + ops.linear(ops.silu(ops.linear(h, w("gate"))) * ops.linear(h, w("up")), w("down")), keys, values


def build():
    types = {"tokens": "i64[t]", "at": "i64", **{c: f"{DTYPE}[{KV_HEADS}, s, {HEAD}]" for c in CACHES},
             **{n: f"{DTYPE}[{', '.join(map(str, shape))}]" for n, shape in WEIGHTS.items()}}

    def step(**x):
        position = ops.iota(x["tokens"].shape[0]) + x["at"]
        h = ops.index_select(x["embed"], x["tokens"], dim=0)
        caches = []
        for n in range(LAYERS):
            h, *new = layer(h, lambda name: x[f"{name}{n}"], x[f"keys{n}"], x[f"values{n}"], x["at"], position)
            caches += [c.named(f"{side}{n}_new") for c, side in zip(new, ("keys", "values"))]
        return ops.linear(h[-1:].rms_norm(x["norm"]), x["head"]).named("logits"), *caches

    return weir.fusion(step, types=types, capacities={"s": CAPACITY}).compile(device="cpu", threads=THREADS)


def by_weir(weights):
    program, caches = build(), [empty_cache() for _ in CACHES]

    def run(tokens, at):
        rows = program.bucket("s", at + len(tokens))
        logits, *_ = program(torch.tensor(tokens), torch.tensor(at), *(c[:, :rows] for c in caches), *weights.values(),
                             donate={c: f"{c}_new" for c in CACHES}, extents={"s": rows})
        return logits

    return run


# ---- PyTorch ----

def by_torch(weights):
    angles = torch.arange(CAPACITY)[:, None] * BASE ** (-torch.arange(HEAD // 2) * 2 / HEAD)
    cos, sin = angles.cos().to(TORCH_DTYPE), angles.sin().to(TORCH_DTYPE)
    keys, values = ([empty_cache()[None] for _ in range(LAYERS)] for _ in range(2))

    def rotate(x, at, t):
        a, b, c, s = x[..., : HEAD // 2], x[..., HEAD // 2 :], cos[at : at + t], sin[at : at + t]
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    @torch.inference_mode()
    def run(tokens, at):
        t, x = len(tokens), weights["embed"][tokens]
        for n in range(LAYERS):
            w = {name: weights[f"{name}{n}"] for name in LAYER}
            h = F.rms_norm(x, (WIDTH,), w["norm1"], 1e-6)
            q, k, v = (F.linear(h, w[m]).view(t, -1, HEAD).transpose(0, 1)[None] for m in "qkv")
            keys[n][:, :, at : at + t] = rotate(k, at, t)
            values[n][:, :, at : at + t] = v
            a = F.scaled_dot_product_attention(rotate(q, at, t), keys[n][:, :, : at + t], values[n][:, :, : at + t],
                                               is_causal=t > 1, enable_gqa=True)
            x = x + F.linear(a[0].transpose(0, 1).reshape(t, -1), w["o"])
            h = F.rms_norm(x, (WIDTH,), w["norm2"], 1e-6)
            x = x + F.linear(F.silu(F.linear(h, w["gate"])) * F.linear(h, w["up"]), w["down"])
        return F.linear(F.rms_norm(x[-1:], (WIDTH,), weights["norm"], 1e-6), weights["head"])

    return run


# ---- both, in turns ----

def timed(run, tokens, at):
    start = time.perf_counter()
    token = int(run(tokens, at).argmax())
    return token, (time.perf_counter() - start) * 1e3


def one_round(run, prompt):
    token, prompt_ms = timed(run, prompt, 0)
    tokens, times = [token], []
    for at in range(PROMPT, PROMPT + TOKENS):
        token, ms = timed(run, [token], at)
        tokens.append(token)
        times.append(ms)
    return prompt_ms, sorted(times)[TOKENS // 2], tokens


def main():
    torch.set_num_threads(THREADS)
    weights = make_weights()
    prompt = np.random.default_rng(3).integers(0, VOCABULARY, PROMPT).tolist()
    runs = {"Weir": by_weir(weights), "PyTorch": by_torch(weights)}
    results = {name: [] for name in runs}
    for _ in range(ROUNDS + 1):
        for name, run in runs.items():
            results[name].append(one_round(run, prompt))
    best = {name: [min(r[k] for r in rounds[1:]) for k in (0, 1)] for name, rounds in results.items()}
    for k, what in enumerate((f"prompt of {PROMPT}", "a token")):
        times = "  ".join(f"{name} {best[name][k]:7.2f} ms" for name in runs)
        print(f"{DTYPE:5s} {what:14s} {times}   ratio {best['Weir'][k] / best['PyTorch'][k]:.2f}")
    a, b = (results[name][-1][2] for name in runs)
    print(f"{sum(x == y for x, y in zip(a, b))} of {len(a)} tokens are the same")


main()
