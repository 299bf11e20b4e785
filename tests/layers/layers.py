"""layers.py WEIR [FIRST [COUNT]]: random networks of linear layers on several devices, with products sliced.

Each is proven and compared with the reference, with any number of streams, in all pipeline forms, some in a hostile
order; and, where no reduction is sliced, has the bits of the program without slices."""
import os
import random
import re
import subprocess
import sys
import tempfile

WEIR = os.path.abspath(sys.argv[1])
FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 0
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 60


def layer(r, i, bias):
    """Of one layer: x0 -> x1, and what else it makes."""
    lines = [f"h{i} = {r.choice(['relu', 'gelu', 'tanh'])}(linear(x{i}, u{i}))"]
    lines.append(f"y{i} = linear(h{i}, v{i}{', c' if bias and r.random() < .5 else ''})")
    rest = ["x{i} + y{i}", "relu(y{i})", "softmax(y{i}, dim=-1)", "set(y{i})", "set(y{i})"]
    lines.append(f"x{i + 1} = " + r.choice(rest).format(i=i))
    return lines


def network(r):
    devices, layers, rank = r.choice([2, 2, 3, 4]), r.randint(1, 4), r.choice([2, 2, 3])
    bias, rows = r.random() < .5, rank - 2
    body = [f"mesh d = [{devices}]", f"x0 : f32[{'b, t' if rank == 3 else 't'}, e]"]
    body += ["c : f32[e]"] * bias + [f"u{i} : f32[f, e];  v{i} : f32[e, f]" for i in range(layers)]
    for i in range(layers):
        body += layer(r, i, bias)
    outputs = [f"x{layers}"] + [f"y{r.randrange(layers)}"] * (r.random() < .3)
    if rank == 2 and r.random() < .4:  # the gradient of a weight, if the result were it
        body.append(f"g = matmul(transpose(x{layers}), h{layers - 1})")
        outputs.append("g")
    marks = []
    for i in range(layers):
        marks.append(f"u{i}, v{i} on d; u{i}.outer_split(0, d); u{i}[0] = mesh.x")
        marks.append(f"v{i}.outer_split(1, d); v{i}[1] = mesh.x")
    if r.random() < .6:  # sequence parallelism
        if r.random() < .8:
            marks.append(f"x0 on d; x0.outer_split({rows}, d); x0[{rows}] = mesh.x")
        for i in range(layers):
            if r.random() < .7:
                marks.append(f"y{i} on d; y{i}.outer_split({rows}, d); y{i}[{rows}] = mesh.x")
                marks.append(f"y{i}.outer_split(-1, d); y{i}[-2] = mesh.x")
    text = "fusion net {\n  " + "\n  ".join(body) + f"\n  return {', '.join(dict.fromkeys(outputs))}"
    text += "\n  schedule {\n    " + "\n    ".join(marks) + "\n  }\n}\n"
    sizes = [f"t={r.randint(1, 13)}", f"e={r.randint(2, 12)}", f"f={r.randint(4, 16)}"]
    sizes += [f"b={r.randint(1, 5)}"] if rank == 3 else []
    return text, sizes, list(dict.fromkeys(outputs))


def run(file, sizes, *options):
    command = [WEIR, "run", file, "--seed", "7", *options]
    for size in sizes:
        command += ["-D", size]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return command, done.returncode, done.stdout + done.stderr


def slices_reduction(file, sizes, options):
    """Do iterations add up, so that sums are others?"""
    given = [word for size in sizes for word in ("-D", size)]
    done = subprocess.run([WEIR, "lower", file, *options, *given], capture_output=True, text=True)
    return done.returncode != 0 or re.search(r"(\S+) <- \1 \+ ", done.stdout) is not None


def attempt(seed, folder):
    r = random.Random(seed)
    text, sizes, outputs = network(r)
    file = os.path.join(folder, "net.weir")
    with open(file, "w") as out:
        out.write(text)
    way = r.choice(["slice-products", "halve-products", "slice-last"])
    form = r.choice(["marked", "marked", "p2p", "ring", "collective"])
    options = ["--enable", way, "--pipeline", form, "--streams", str(r.randint(1, 5))]
    hostile = ["--adversary", str(seed)] if r.random() < .3 else []
    command, code, said = run(file, sizes, *options, *hostile, "--check", "--prove", "always")
    if code != 0:
        return f"seed {seed}: {' '.join(command)}\n{said[:2000]}\n{text}"
    if slices_reduction(file, sizes, options[:4]):
        return None
    kept = []
    for how in (options, ["--pipeline", "marked"]):
        files = [os.path.join(folder, f"{name}{len(kept)}.npy") for name in outputs]
        named = [f"--output={name}={where}" for name, where in zip(outputs, files)]
        command, code, said = run(file, sizes, *how, *named)
        if code != 0:
            return f"seed {seed}: {' '.join(command)}\n{said[:2000]}"
        kept.append([open(where, "rb").read() for where in files])
    return None if kept[0] == kept[1] else f"seed {seed}: {way} changes bits\n{text}"


def main():
    failures = 0
    for seed in range(FIRST, FIRST + COUNT):
        with tempfile.TemporaryDirectory() as folder:
            wrong = attempt(seed, folder)
        if wrong:
            failures += 1
            print(wrong)
    print(f"{COUNT - failures} passed, {failures} failed")
    return failures != 0


sys.exit(main())
