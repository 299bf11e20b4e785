"""bench/tiles beside JAX and PyTorch (torch.compile where a compiler is there), two threads each (THREADS=1: one),
interleaved.

    python bench/tiles.py BUILD/bench/tiles [ROUNDS [DTYPE or ROW]...]

Needs numpy, jax and torch. Each runs six times in its turn, after a rest in which the threads of the others go to
sleep; the last run counts. The shared cache fills with the operands from run to run, so that all must have run
equally often: where two ran, contenders whose operands another one had read before were faster. Prints the best time of each in ms, of processors per thread (WALL=1: on the wall), and
Weir's divided by the better of the two.
"""
import os
import subprocess
import sys
import time

THREADS = int(os.environ.get("THREADS", "2"))
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}")
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

REST = 0.015  # s: threads of OpenMP look for new work that long
RUNS = 6  # as in tiles.c
torch.set_num_threads(THREADS)
WALL = "WALL" in os.environ


def now():
    return time.perf_counter() if WALL else time.process_time() / THREADS


def rms(xp_mean, rsqrt, v, w):
    return v * rsqrt(xp_mean(v * v) + 1e-6) * w


JAX = {
    "gelu_chain": lambda x, r, w, b, z: jax.nn.gelu(x * w + b, approximate=False) * r + x,
    "silu": lambda x, r, w, b, z: jax.nn.silu(x) * r,
    "tanh": lambda x, r, w, b, z: jnp.tanh(x),
    "exp": lambda x, r, w, b, z: jnp.exp(x),
    "add": lambda x, r, w, b, z: x + r,
    "softmax": lambda x, r, w, b, z: jax.nn.softmax(x, axis=-1),
    "rms_norm": lambda x, r, w, b, z: rms(
        lambda v: jnp.mean(v, -1, keepdims=True), jax.lax.rsqrt, x + r, w),
    "row_sum": lambda x, r, w, b, z: jnp.sum(jnp.exp(x) * r, 1),
    "column_sum": lambda x, r, w, b, z: jnp.sum(jax.nn.gelu(x, approximate=False) * r, 0),
    "sum": lambda x, r, w, b, z: jnp.sum(x),
    "transposed_add": lambda x, r, w, b, z: x + z.T,
}
TORCH = {
    "gelu_chain": lambda x, r, w, b, z: F.gelu(x * w + b) * r + x,
    "silu": lambda x, r, w, b, z: F.silu(x) * r,
    "tanh": lambda x, r, w, b, z: torch.tanh(x),
    "exp": lambda x, r, w, b, z: torch.exp(x),
    "add": lambda x, r, w, b, z: x + r,
    "softmax": lambda x, r, w, b, z: torch.softmax(x, -1),
    "rms_norm": lambda x, r, w, b, z: F.rms_norm(x + r, (x.shape[1],), w, 1e-6),
    "row_sum": lambda x, r, w, b, z: (torch.exp(x) * r).sum(1),
    "column_sum": lambda x, r, w, b, z: (F.gelu(x) * r).sum(0),
    "sum": lambda x, r, w, b, z: x.sum(),
    "transposed_add": lambda x, r, w, b, z: x + z.T,
}


def compiled(f, args):
    try:
        g = torch.compile(f)
        g(*args)
        return g
    except Exception:  # no compiler here
        return f


def once(f, args, wait):
    time.sleep(REST)
    for _ in range(RUNS):
        begin = now()
        wait(f(*args))
    return 1e3 * (now() - begin)


def ask(weir, what):
    time.sleep(REST)
    weir.stdin.write(what + "\n")
    weir.stdin.flush()
    return float(weir.stdout.readline())


def main():
    weir = subprocess.Popen([sys.argv[1], "--ask"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    shapes = [(4096, 2048), (4096, 2048), (2048,), (2048,), (2048, 4096)]
    data = [np.random.default_rng(i).standard_normal(s, dtype=np.float32) for i, s in enumerate(shapes)]
    print(f"{'row':22}{'weir':>8}{'by hand':>9}{'jax':>8}{'torch':>8}{'compiled':>9}{'ratio':>7}")
    asked = sys.argv[3:]
    for dtype in [a for a in asked if a not in JAX] or ("f32", "bf16"):
        tdata = [torch.from_numpy(d).to(torch.float32 if dtype == "f32" else torch.bfloat16) for d in data]
        jdata = [jnp.asarray(d, jnp.float32 if dtype == "f32" else jnp.bfloat16) for d in data]
        for name in [a for a in asked if a in JAX] or JAX:
            j, t = jax.jit(JAX[name]), TORCH[name]
            c = compiled(t, tdata)
            j(*jdata).block_until_ready()
            best = [1e9] * 5
            for _ in range(rounds):
                times = (ask(weir, f"{name} {dtype}"), ask(weir, f"hand {name} {dtype}"),
                         once(j, jdata, lambda y: y.block_until_ready()), once(t, tdata, lambda y: y),
                         once(c, tdata, lambda y: y))
                best = [min(a, b) for a, b in zip(best, times)]
            weir.stdin.write("release\n")
            print(f"{name + ' ' + dtype:22}{best[0]:8.2f}{best[1]:9.2f}{best[2]:8.2f}{best[3]:8.2f}{best[4]:9.2f}"
                  f"{best[0] / min(best[2:]):7.2f}", flush=True)
    weir.stdin.close()
    weir.wait()


main()
