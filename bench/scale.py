#!/usr/bin/env python3
"""bench/scale.py [--weir PATH] [--limit SECONDS] [COUNT...]: verify and simulate programs for COUNT devices
(8, 64, 512 and 4096 by default), with the time and the peak memory of each command.

Programs: an allgather and a matmul as a ring, as messages to and from all in turn, by allgathers of slices, and by a
broadcast per device; the same with pieces of unequal length, and a sum of such pieces; a fully sharded training
step; a transformer block forward and backward, tensor-parallel over all devices, and on a mesh of data-parallel
groups of 8; and 96 tensor-parallel layers forward. What one device holds does not depend on COUNT."""
import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent


def fusion(path, name):
    text = (root / "examples" / path).read_text()
    return re.search(r"^fusion %s \{.*?^\}\n" % name, text, re.S | re.M).group(0)


def ring(n):
    return """fusion ag_matmul {
  mesh d = [%d]
  a : f32[%d, 16, 64]
  b : f32[64, 32]
  c = matmul(a, b)
  return c
  schedule { a, b, c on d; a[0] = mesh.x; c[0] = stream }
}
""" % (n, n)


def slices(n):
    return """fusion ag_matmul {
  mesh d = [%d]
  a : f32[4, %d, 16, 64]
  b : f32[64, 32]
  c = matmul(a, b)
  return c
  schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream }
}
""" % (n, n)


def uneven(n):
    """The last device has less than the others."""
    return """fusion uneven {
  mesh d = [%d]
  a : f32[%d, 64]
  b : f32[64, 32]
  c = matmul(a, b)
  return c
  schedule { a, b, c on d; a.outer_split(0, d); a[0] = mesh.x }
}
""" % (n, 16 * n - 5)


def uneven_sum(n):
    return """fusion uneven {
  mesh d = [%d]
  x : f32[2, %d]
  y = sum(neg(x), dims=[1])
  return y
  schedule { x on d; x.outer_split(1, d); x[1] = mesh.x }
}
""" % (n, 16 * n - 5)


def layers(n, depth=96):
    """A head of 8 features for each device, and 4 times as many hidden ones; 96 layers."""
    e, text, marks = 8 * n, "", ""
    for i in range(depth):
        text += "".join("  w%s%d : f32[%d, %d]\n" % (k, i, e, e) for k in "qkvo")
        text += "  u%d : f32[%d, %d]\n  d%d : f32[%d, %d]\n" % (i, 4 * e, e, i, e, 4 * e)
        marks += "    wq{0}, wk{0}, wv{0}, wo{0}, u{0}, d{0} on d\n".format(i)
        marks += "".join("    %s%d.outer_split(0, d); %s%d[0] = mesh.x\n" % (k, i, k, i)
                         for k in ("wq", "wk", "wv", "u"))
        marks += "".join("    %s%d.outer_split(1, d); %s%d[1] = mesh.x\n" % (k, i, k, i)
                         for k in ("wo", "d"))
    for i in range(depth):
        text += "  n%d = layer_norm(x%d)\n" % (i, i)
        text += "".join("  {0}{1} = permute(reshape(linear(n{1}, w{0}{1}), [b, s, {2}, 8]), [0, 2, 1, 3])\n"
                        .format(k, i, n) for k in "qkv")
        text += ("  a{0} = sdpa(q{0}, k{0}, v{0}, causal=true, scale=0.05)\n"
                 "  r{0} = x{0} + linear(reshape(permute(a{0}, [0, 2, 1, 3]), [b, s, {2}]), wo{0})\n"
                 "  x{1} = r{0} + linear(gelu(linear(layer_norm(r{0}), u{0})), d{0})\n").format(i, i + 1, e)
    return "fusion layers {\n  mesh d = [%d]\n  x0 : f32[b, s, %d]\n%s  return x%d\n  schedule {\n%s  }\n}\n" % (
        n, e, text, depth, marks)


def fsdp(n):
    return fusion("training_steps.weir", "fsdp").replace("mesh d = [2]", "mesh d = [%d]" % n)


def transformer(n, mesh):
    """`n` heads of 8 features and hidden features likewise, so that each device has one head."""
    text = fusion("transformer_backward.weir", "tensor_parallel")
    text = re.sub(r"\b(32|128)\b", lambda m: str(int(m.group(1)) // 4 * n), text)
    return text.replace("4, 8]", "%d, 8]" % n).replace("mesh d = [4]", "mesh d = " + mesh)


def groups(n):
    text = transformer(8, "[%d, 8]" % (n // 8)).replace(
        "wq, wk, wv, wo, up, up_b, down on d", "x, dy, wq, wk, wv, wo, up, up_b, down on d")
    text = text.replace("outer_split(0, d)", "outer_split(0, 8)").replace("outer_split(1, d)", "outer_split(1, 8)")
    return text.replace("    wq.outer_split", "    x.outer_split(0, %d); x[0] = mesh.y\n"
                        "    dy.outer_split(0, %d); dy[0] = mesh.y\n    wq.outer_split" % (n // 8, n // 8), 1)


programs = [
    ("ag_matmul ring", ring, lambda n: ["--pipeline", "ring"]),
    ("ag_matmul p2p-offset", ring, lambda n: ["--pipeline", "p2p-offset"]),
    ("ag_matmul p2p", ring, lambda n: ["--pipeline", "p2p"]),
    ("ag_matmul slices", slices, lambda n: []),
    ("ag_matmul broadcasts", ring, lambda n: ["--pipeline", "collective"]),
    ("ag_matmul uneven", uneven, lambda n: []),
    ("sum of uneven pieces", uneven_sum, lambda n: []),
    ("fsdp", fsdp, lambda n: ["-D", "b=%d" % (2 * n), "-D", "h=%d" % (2 * n)]),
    ("transformer tensor", lambda n: transformer(n, "[%d]" % n), lambda n: ["-D", "b=2", "-D", "s=16"]),
    ("transformer groups", groups, lambda n: ["-D", "b=%d" % (n // 4), "-D", "s=16"]),
    ("transformer 96 layers", layers, lambda n: ["-D", "b=2", "-D", "s=16"]),
]


def measure(command, limit_s, memory_bytes):
    start = time.monotonic()
    with tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes)),
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        err.seek(0)
        lines = err.read().decode(errors="replace").strip().splitlines()
    seconds = time.monotonic() - start
    if os.WIFSIGNALED(status):
        return "over %d s" % limit_s
    if os.WEXITSTATUS(status) != 0:
        return "fails: " + (lines[-1] if lines else "exit %d" % os.WEXITSTATUS(status))
    return "%8.3f s %7.1f MiB" % (seconds, usage.ru_maxrss / 1024)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--weir", default=str(root / "build" / "weir"))
    options.add_argument("--limit", type=int, default=60, help="seconds of processor time of a command")
    options.add_argument("--machine", default="dgx-h100", help="that is simulated")
    options.add_argument("--only", default="", help="programs whose name has this in it")
    options.add_argument("counts", type=int, nargs="*", default=[8, 64, 512, 4096])
    o = options.parse_args()
    print("%-22s %6s  %-24s %s" % ("program", "ranks", "verify", "sim"))
    with tempfile.TemporaryDirectory() as folder:
        for name, make, defines in programs:
            if o.only not in name:
                continue
            for n in o.counts:
                path = os.path.join(folder, "p.weir")
                pathlib.Path(path).write_text(make(n))
                results = [measure([o.weir] + command + [path] + defines(n), o.limit, 8 << 30)
                           for command in (["verify"], ["run", "--device", "sim", "--machine", o.machine])]
                print("%-22s %6d  %-24s %s" % (name, n, results[0], results[1]))
                sys.stdout.flush()


main()
