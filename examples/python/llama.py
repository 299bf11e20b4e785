"""A Llama on two ranks: weights from safetensors, a prompt, then token by token with caches that grow in place.

    python examples/python/llama.py                          # both ranks in this process
    torchrun --nproc-per-node 2 examples/python/llama.py     # a process per rank
    mpirun -n 2 python examples/python/llama.py
    python examples/python/llama.py cuda                     # on GPUs, with PyTorch's tensors; also in the ways above

One program does it all: it takes any number of new tokens and the position of the first. Heads, hidden features and the
vocabulary are cut over the ranks; each rank maps the file and reads its own part. The weights here are drawn at random, and
NumPy computes the same tokens for comparison. Needs NumPy.
"""

import json
import os
import sys
import tempfile

import numpy as np

import weir
from weir import ops

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, VOCABULARY = 2, 64, 4, 2, 16, 176, 256
CAPACITY, PROMPT, TOKENS, BASE = 256, 20, 60, 10000.0
SHAPES = {"q": (HEADS * HEAD, WIDTH), "k": (KV_HEADS * HEAD, WIDTH), "v": (KV_HEADS * HEAD, WIDTH), "o": (WIDTH, HEADS * HEAD),
          "gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN), "norm1": (WIDTH,), "norm2": (WIDTH,)}
WEIGHTS = {"embed": (VOCABULARY, WIDTH), "norm": (WIDTH,), "head": (VOCABULARY, WIDTH),
           **{f"{name}{n}": shape for n in range(LAYERS) for name, shape in SHAPES.items()}}
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
CACHES = [f"{side}{n}" for n in range(LAYERS) for side in ("keys", "values")]


# ---- the program ----

def rotated(x, position):
    """Rotary embedding of [heads, t, HEAD]: pairs are half a head apart."""
    frequencies = ops.exp(ops.iota(HEAD // 2, dtype="f32") * (-2 * np.log(BASE) / HEAD))
    angles = position.cast("f32")[:, None] * frequencies
    a, b, cos, sin = x[..., : HEAD // 2], x[..., HEAD // 2 :], ops.cos(angles), ops.sin(angles)
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
    seen = ops.iota(s) <= position[:, None]
    a = ops.matmul(ops.softmax(ops.where(seen, scores, -1e30)), values[:, None])
    x = x + ops.linear(a.permute(2, 0, 1, 3).reshape(t, HEADS * HEAD), w("o"))
    h = x.rms_norm(w("norm2"))
    return x + ops.linear(ops.silu(ops.linear(h, w("gate"))) * ops.linear(h, w("up")), w("down")), keys, values


def build():
    """The fusion: a function is written for as many layers as there are."""
    types = {"tokens": "i64[t]", "at": "i64", **{c: f"f32[{KV_HEADS}, s, {HEAD}]" for c in CACHES},
             **{n: f"f32[{', '.join(map(str, shape))}]" for n, shape in WEIGHTS.items()}}

    def step(**x):
        position = ops.iota(x["tokens"].shape[0]) + x["at"]
        h = ops.index_select(x["embed"], x["tokens"], dim=0)
        caches = []
        for n in range(LAYERS):
            h, *new = layer(h, lambda name: x[f"{name}{n}"], x[f"keys{n}"], x[f"values{n}"], x["at"], position)
            caches += [c.named(f"{side}{n}_new") for c, side in zip(new, ("keys", "values"))]
        logits = ops.linear(h[-1:].rms_norm(x["norm"]), x["head"])
        return logits.named("logits"), *caches

    return weir.fusion(step, types=types, capacities={"s": CAPACITY})


def schedule():
    """Says what is cut over the ranks; everything else follows."""
    d, s = weir.Mesh("d", 2), weir.Schedule()
    for n in range(LAYERS):
        for name in ("q", "k", "v", "gate", "up"):
            s[f"{name}{n}"].shard(0, d.x)
        for name in ("o", "down"):
            s[f"{name}{n}"].shard(1, d.x)
        for name in ("keys", "values"):
            s[f"{name}{n}"].shard(0, d.x)
            s[f"{name}{n}_new"].shard(0, d.x)
    s["head"].shard(0, d.x)
    s["logits"].on(d)  # all of them on every rank
    return s


# ---- running it ----

def placed(array, i=0):
    """A copy of an array for this process's i-th device: in NumPy's memory, or on its GPU."""
    if DEVICE != "cuda":
        return np.array(array)
    import torch
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
    return torch.from_numpy(np.array(array)).to(f"cuda:{(local + i) % torch.cuda.device_count()}")


def decode(program, weights, prompt):
    """Greedy: the most likely token each time."""
    parts = {n: program.cut(n, weights[n]) for n in WEIGHTS}
    parts = {n: weir.Shards(*(placed(p, i) for i, p in enumerate(ps))) for n, ps in parts.items()}
    empty = np.zeros((KV_HEADS, CAPACITY, HEAD), "f4")
    caches = {c: [placed(p, i) for i, p in enumerate(program.cut(c, empty))] for c in CACHES}
    tokens, new, at = [], prompt, 0
    while len(tokens) < TOKENS:
        rows = program.bucket("s", at + len(new))
        used = {c: weir.Shards(*(p[:, :rows] for p in ps)) for c, ps in caches.items()}
        logits, *_ = program(placed(np.asarray(new)), placed(np.asarray(at)), *used.values(), *parts.values(),
                             donate={c: f"{c}_new" for c in CACHES}, extents={"s": rows})
        at += len(new)
        new = [int(logits[0].argmax())]
        tokens += new
    return tokens


# ---- the same in NumPy ----

def by_numpy(weights, tokens):
    """The most likely token after each position of a text."""
    def norm(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w

    def rotate(x):
        angles = np.arange(len(tokens))[:, None] * BASE ** (-np.arange(HEAD // 2) * 2 / HEAD)
        a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = weights["embed"].astype("f8")[tokens]
    for n in range(LAYERS):
        w = {name: weights[f"{name}{n}"].astype("f8") for name in SHAPES}
        h = norm(x, w["norm1"])
        q, k, v = ((h @ w[m].T).reshape(len(tokens), -1, HEAD).transpose(1, 0, 2) for m in "qkv")
        q, k = rotate(q), np.repeat(rotate(k), HEADS // KV_HEADS, 0)
        scores = q @ k.transpose(0, 2, 1) * HEAD**-0.5 + np.triu(np.full((len(tokens),) * 2, -1e30), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        a = p / p.sum(-1, keepdims=True) @ np.repeat(v, HEADS // KV_HEADS, 0)
        x = x + a.transpose(1, 0, 2).reshape(len(tokens), -1) @ w["o"].T
        h = norm(x, w["norm2"])
        g = h @ w["gate"].T
        x = x + (g / (1 + np.exp(-g)) * (h @ w["up"].T)) @ w["down"].T
    return (norm(x, weights["norm"]) @ weights["head"].astype("f8").T).argmax(-1)


def save(path):
    """A safetensors file of random weights."""
    random, table, at, data = np.random.default_rng(7), {}, 0, []
    for name, shape in WEIGHTS.items():
        x = random.standard_normal(shape) * (0.5 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1)
        x = (x + (len(shape) == 1)).astype("f4")
        table[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
        data.append(x.tobytes())
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"".join(data))


def main() -> int:
    program = build().scheduled(schedule()).compile(device=DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        save(path)
        weights = weir.load_weights(path)
        prompt = [int(t) for t in np.random.default_rng(3).integers(0, VOCABULARY, PROMPT)]
        tokens = decode(program, weights, prompt)
        expected = by_numpy(weights, prompt + tokens)[PROMPT - 1 : -1]
    n, (first, here, world) = program.counts, program.devices
    print(f"ranks {first}..{first + here - 1} of {world}: {sum(a == b for a, b in zip(tokens, expected))} of {TOKENS} tokens as "
          f"by NumPy; {n['runs']} runs, {n['bindings']} bindings, {n['in_place']} caches grown in place, {n['copied']} copied",
          flush=True)
    return 0 if list(expected) == tokens and n["copied"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
