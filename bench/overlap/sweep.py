#!/usr/bin/env python3
"""What bench/overlap/sweep does in Python, with the package that the build makes (build/python).

sweep.py names RANKS PART NUMBER           the cases of a part, NUMBER of them in a line, with commas
sweep.py machine OUT FILE...               of machine files, for each figure the median
sweep.py predict RANKS MACHINE PART OUT    what the simulator says of every form, on a machine file
sweep.py measure MACHINE PART ROUNDS OUT   on each rank (RANK, WORLD_SIZE, MASTER_ADDR): all forms in turns, into OUT.RANK
sweep.py report FILE...                    what these files, or those of several sweeps, say
sweep.py fit MACHINE FILE...               figures of the machine that are not measured, with which the predictions are best

PART is i/n: of n parts of all cases the i-th; or NUMBER@SEED: so many of them, drawn at random, of each kind of program
about as many as it has of all; or names of cases, with commas. Lines of the files are JSON objects.
"""
import json
import math
import os
import random
import re
import statistics
import sys
import time

from cases import cases, forms

SYNC = """fusion sync {{ mesh d = [{0}]
x : f32[{0}, 8]
y = sum(x, dims=[0])
return y
schedule {{ x, y on d; x[0] = mesh.x }} }}"""


def draw(all_cases, number, seed):
    """By kind in turns, so that each has its share; the order within a kind is random."""
    numbers, kinds = random.Random(seed), {}
    for case in all_cases:
        kinds.setdefault(case[0].split(":")[0], []).append(case)
    ranked = []
    for found in kinds.values():
        numbers.shuffle(found)
        ranked += [((i + numbers.random()) / len(found), case) for i, case in enumerate(found)]
    return [case for _, case in sorted(ranked, key=lambda r: r[0])[:number]]


def part_of(ranks, part):
    if "@" in part:
        number, seed = map(int, part.split("@"))
        return draw(cases(ranks), number, seed + ranks)
    if "/" not in part:
        return [case for case in cases(ranks) if case[0] in part.split(",")]
    index, count = map(int, part.split("/"))
    return cases(ranks)[index - 1 :: count]


def names(ranks, part, number):
    found = [case[0] for case in part_of(int(ranks), part)]
    for i in range(0, len(found), int(number)):
        print(",".join(found[i : i + int(number)]))


def figures_of(machine):
    lines = [line.split("=") for line in open(machine).read().split("\n") if "=" in line and line[0] != "#"]
    return {k.strip(): float(v) for k, v in lines}


def middle_machine(out, *files):
    all_figures = [figures_of(f) for f in files]
    keys = dict.fromkeys(k for f in all_figures for k in f)
    with open(out, "w") as f:
        f.writelines(f"{k} = {statistics.median([m.get(k, 0) for m in all_figures])!r}\n" for k in keys)


def compiled(text, machine, options, **more):
    import weir

    return weir.compile(text, machine=machine, threads=1, **options, **more)


def shapes_of(text):
    """Of the inputs, in order."""
    found = re.findall(r"^\w+ : f32\[([0-9, ]+)\]$", text, re.M)
    return [tuple(map(int, extents.split(","))) for extents in found]


def predict(ranks, machine, part, out):
    with open(out, "a") as f:
        for name, text, marked in part_of(int(ranks), part):
            found = {"case": name, "ranks": int(ranks), "predicted_s": {}}
            for form, options in forms(marked, int(ranks)).items():
                bound = compiled(text, machine, options, device="sim").bound(*shapes_of(text), machine=machine)
                found["predicted_s"][form] = bound["predicted_s"]
                found["bound_s"] = bound["bound_s"]
            print(json.dumps(found), file=f, flush=True)


def held(program, numbers):
    """Each input's part of this rank."""
    import numpy
    from weir import Shards

    result = []
    for t in program.inputs:
        shape = program.shard(t.name)
        parts = [None if shape is None else numbers.standard_normal(shape.extents, dtype="f4") / 16]
        result.append(Shards(*parts))
    return result


class Form:
    def __init__(self, text, machine, options, numbers):
        self.program = compiled(text, machine, options)
        self.inputs, self.times = held(self.program, numbers), []
        self.out = self.program(*self.inputs, whole=False)
        if not isinstance(self.out, tuple):
            self.out = (self.out,)

    def run(self, sync, keep):
        sync()
        start = time.perf_counter()
        self.program(*self.inputs, out=self.out, whole=False)
        if keep:
            self.times.append(time.perf_counter() - start)


def measure(machine, part, rounds, out):
    import numpy
    from weir import Shards

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    numbers = numpy.random.default_rng(rank)
    sync = compiled(SYNC.format(ranks), machine, {})
    one = Shards(numpy.ones((1, 8), "f4"))
    with open(f"{out}.{rank}", "a") as f:
        for name, text, marked in part_of(ranks, part):
            all_forms = {k: Form(text, machine, o, numbers) for k, o in forms(marked, ranks).items()}
            for r in range(-1, int(rounds)):
                for form in all_forms.values():
                    form.run(lambda: sync(one), r >= 0)
            found = {"case": name, "ranks": ranks, "rank": rank, "times_s": {k: v.times for k, v in all_forms.items()}}
            print(json.dumps(found), file=f, flush=True)


# ---- report ----
def pooled(case):
    """The median of each form. Forms of which exactly the same is predicted are one program: their runs count together."""
    runs = {}
    for form, times in case["times_s"].items():
        runs.setdefault(case["predicted_s"][form], []).extend(times)
    return {form: statistics.median(runs[case["predicted_s"][form]]) for form in case["times_s"]}


def taken(case):
    """The form that auto takes: the one of which the same is predicted."""
    wanted = case["predicted_s"]["auto"]
    others = [k for k in case["predicted_s"] if k not in ("auto", "none")]
    return min(others, key=lambda k: abs(case["predicted_s"][k] - wanted))


def judge(case):
    """Ratios of one case."""
    median, form = pooled(case), taken(case)
    chosen = median.pop("auto")
    best = min(median, key=median.get)
    return {"choice": chosen / min(chosen, median[best]), "none": chosen / median["none"], "form": form, "chosen_s": chosen,
            "best": best, "predicted": case["predicted_s"]["auto"] / chosen,
            "all_predicted": [case["predicted_s"][k] / median[k] for k in median]}


def share(values, limit):
    return sum(v <= limit for v in values) / len(values)


def off(ratio):
    return abs(ratio - 1)


def slowest(times, more):
    """A run ends when its last rank does."""
    return {k: [max(pair) for pair in zip(v, more[k])] for k, v in times.items()}


def read(files):
    """Cases that are predicted and measured, by folder, name and ranks."""
    found = {}
    for path in files:
        for line in open(path):
            one = json.loads(line)
            case = found.setdefault((os.path.dirname(path), one["case"], one["ranks"]), {})
            if "times_s" in one and "times_s" in case:
                one["times_s"] = slowest(one["times_s"], case["times_s"])
            case.update(one)
    return {k: c for k, c in found.items() if "times_s" in c and "predicted_s" in c}


def report(files):
    rows = [(k, judge(c)) for k, c in sorted(read(files).items())]
    short = [r for r in rows if r[1]["chosen_s"] < 1e-3]
    rows = [r for r in rows if r[1]["chosen_s"] >= 1e-3]
    for (_, name, ranks), j in rows:
        print(f"{name:24} {ranks} ranks {j['chosen_s'] * 1e3:9.2f} ms  {j['form']:7} best {j['best']:7} "
              f"{j['choice']:5.2f}  of none {j['none']:5.2f}  predicted {j['predicted']:5.2f}")
    if not rows:
        sys.exit("nothing took a millisecond")
    choice, none, predicted = ([j[k] for _, j in rows] for k in ("choice", "none", "predicted"))
    every = [off(p) for _, j in rows for p in j["all_predicted"]]
    mean = math.exp(sum(map(math.log, none)) / len(none))
    print(f"{len(rows)} cases of at least 1 ms ({len(short)} shorter)")
    print(f"choice within 1.03 of the best form: {share(choice, 1.03):.1%} (goal 95%), worst {max(choice):.2f}")
    print(f"over the unoverlapped program: geometric mean {mean:.3f} (goal < 1), worst {max(none):.2f} (goal 1.05)")
    for what, offs in (("the choice", [off(p) for p in predicted]), ("every form", every)):
        print(f"prediction of {what}: within 10% in {share(offs, 0.10):.1%} (goal 80%), 25% in {share(offs, 0.25):.1%} "
              "(goal 98%)")


# ---- fit ----
def scaled(machine, key, factor, out):
    """The machine file with one figure multiplied."""
    figures = figures_of(machine)
    figures[key] = figures.get(key, 0) * factor
    with open(out, "w") as f:
        f.writelines(f"{k} = {v!r}\n" for k, v in figures.items())


def error(machine, measured):
    """The mean of |log(predicted / measured)| over cases and forms."""
    found = []
    for (_, name, ranks), case in measured.items():
        _, text, marked = next(c for c in cases(ranks) if c[0] == name)
        for form, options in forms(marked, ranks).items():
            bound = compiled(text, machine, options, device="sim").bound(*shapes_of(text), machine=machine)
            found.append(abs(math.log(bound["predicted_s"] / statistics.median(case["times_s"][form]))))
    return sum(found) / len(found)


def fit(machine, *files):
    measured, best = read(files), error(machine, read(files))
    print(f"as it is: mean error {math.expm1(best):.1%}")
    now, tried = machine + ".fitted", machine + ".tried"
    scaled(machine, "post_us", 1, now)
    for factor in (2, 1.4, 1.15):
        for key in ("post_us", "comm_cores", "launch_us", "memory_gb_s", "link_us"):
            for by in (factor, 1 / factor):
                scaled(now, key, by, tried)
                while (e := error(tried, measured)) < best - 1e-4:
                    best = e
                    os.replace(tried, now)
                    scaled(now, key, by, tried)
    os.remove(tried)
    print(f"fitted: mean error {math.expm1(best):.1%}\n{open(now).read()}", end="")


if __name__ == "__main__":
    what = {"names": names, "machine": middle_machine, "predict": predict, "measure": measure, "report": lambda *files: report(files), "fit": fit}
    what[sys.argv[1]](*sys.argv[2:])
