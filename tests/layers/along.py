"""along.py WEIR [FIRST [COUNT]]: random operations along an axis that is cut over devices, of any length.

Lookups, scatters, cumulative sums, topk, ranges, shifts, windows and steps of windows, on lines and grids of devices, with constant and
symbolic extents; each program is compared with the reference."""
import random
import sys

import judge


class Program:
    """x is cut along dimension `dim`, on a grid also along another one."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.devices, self.v, rank = r.choice([2, 3, 4, 5, 8]), r.randint(1, 30), r.choice([1, 2, 3])
        self.dim, self.symbolic, self.grid = r.randrange(rank), r.random() < .5, r.random() < .3 and rank > 1
        self.dims = [str(r.randint(1, 5)) for _ in range(rank)]
        self.multiple = r.choice([0, 0, 2, 3]) * self.devices
        if self.multiple:
            self.v = self.multiple * r.randint(0 if self.symbolic else 1, 3)
        self.dims[self.dim] = "v" if self.symbolic else str(self.v)
        self.dtype = r.choice(["f32", "f32", "i32", "bf16", "i64", "f64", "u8"])
        self.inputs, self.body, self.outputs = [f"x : {self.dtype}{self.shape()}"], [], []
        self.cut = ["x"]
        for i in range(r.randint(1, 4)):
            getattr(self, r.choice(KINDS if self.v else ["shift", "window", "steps"]))(f"y{i}", f"i{i}", f"s{i}")

    def shape(self, length=None):
        return "[" + ", ".join(length or d if k == self.dim else d for k, d in enumerate(self.dims)) + "]"

    def each(self, along, other):
        """A list with an entry per dimension."""
        return "[" + ", ".join(along if k == self.dim else other or d for k, d in enumerate(self.dims)) + "]"

    def add(self, name, text):
        self.body.append(f"{name} = {text}")
        self.outputs += name.split(", ")

    def index(self, name, shape, below):
        self.inputs.append(f"{name} : i64{shape}")
        return f"mod({name}, {below})"

    def select(self, y, *_):
        at = self.r.randint(1, self.v)
        at = f"v - {at}" if self.symbolic and self.r.random() < .5 else str(at - 1)
        self.add(y, f"select(x, dim={self.dim}, index={at})")

    def slice(self, y, *_):
        a = self.r.randrange(self.v)
        b, step = self.r.randint(a, self.v), self.r.choice(["1", "1", "2", "3"])
        starts, stops, steps = self.each(str(a), "0"), self.each(str(b), None), self.each(step, "1")
        self.add(y, f"slice(x, starts={starts}, stops={stops}, steps={steps})")

    def cumsum(self, y, *_):
        self.add(y, f"cumsum(x, {self.dim})")

    def topk(self, y, *_):
        self.add(f"{y}, {y}i", f"topk(x, k={self.r.randint(1, self.v)}, dim={self.dim})")

    def scatter(self, y, i, s):
        shape = self.shape(str(self.r.randint(1, 6)))
        self.inputs.append(f"{s} : {self.dtype}{shape}")
        at = self.index(i, shape, self.dims[self.dim])
        self.add(y, f"scatter(x, {at}, {s}, dim={self.dim}, reduce=add)")
        self.cut += [y] * (self.r.random() < .5)

    def added(self, y, i, s):
        n = self.r.randint(1, 6)
        self.inputs.append(f"{s} : {self.dtype}{self.shape(str(n))}")
        self.add(y, f"scatter({s}, {self.index(i, self.shape(), n)}, x, dim={self.dim}, reduce=add)")
        self.cut.append(i)

    def gather(self, y, i, _):
        at = self.index(i, self.shape(str(self.r.randint(1, 6))), self.dims[self.dim])
        self.add(y, f"gather(x, {at}, dim={self.dim})")

    def index_select(self, y, i, _):
        at = self.index(i, f"[{self.r.randint(1, 6)}]", self.dims[self.dim])
        self.add(y, f"index_select(x, {at}, dim={self.dim})")

    def shift(self, y, *_):
        by = self.r.randint(-min(3, self.v), min(3, self.v))
        self.add(y, f"pad(x, {self.each(f'{by}, {-by}', '0, 0')})")

    def window(self, y, *_):
        wide = [self.r.randint(0, 2) for _ in self.dims]
        at = [self.r.randint(0, 2 * w) for w in wide]
        self.body.append(f"{y}p = pad(x, [{', '.join(f'{w}, {w}' for w in wide)}], value={self.r.randint(0, 3)})")
        stops = ", ".join(f"{d} + {a}" for d, a in zip(self.dims, at))
        self.add(y, f"slice({y}p, starts=[{', '.join(map(str, at))}], stops=[{stops}])")

    def steps(self, y, *_):
        step = self.multiple // self.devices or 2
        wide = self.r.randint(0, 3)
        at, beside = self.r.randint(0, 2 * wide), self.r.randint(0, 1)
        pads = ["0, 0"] * len(self.dims)
        pads[self.dim] = f"{wide}, {wide}"
        self.body.append(f"{y}p = pad(x, [{', '.join(pads)}], value={self.r.randint(0, 3)})")
        starts, steps = self.each(str(at), str(beside)), self.each(str(step), "1")
        self.add(y, f"slice({y}p, starts={starts}, stops={self.each(f'{self.dims[self.dim]} + {at}', None)}, steps={steps})")

    def marks(self):
        beside = [k for k in range(len(self.dims)) if k != self.dim][:1] if self.grid else []
        for t in self.cut:
            yield f"{t}.outer_split({self.dim}, d{'.x' * self.grid}); {t}[{self.dim}] = mesh.x"
            for k in beside:
                k += k > self.dim
                yield f"{t}.outer_split({k}, d.y); {t}[{k}] = mesh.y"

    def text(self):
        mesh = f"[2, {self.devices}]" if self.grid else f"[{self.devices}]"
        said = [f"extent v % {self.multiple} == 0"] * (self.symbolic and self.multiple > 0)
        body = "\n  ".join([f"mesh d = {mesh}"] + self.inputs + said + self.body + ["return " + ", ".join(self.outputs)])
        schedule = "\n    ".join([", ".join(sorted(set(self.cut))) + " on d"] + list(self.marks()))
        return f"fusion along {{\n  {body}\n  schedule {{\n    {schedule}\n  }}\n}}\n"

    def options(self):
        fill, pipeline = self.r.choice(["int", "normal"]), self.r.choice(["auto", "ring", "collective", "p2p"])
        return ["--fill", fill, "--pipeline", pipeline] + ["-D", f"v={self.v}"] * self.symbolic


KINDS = ["select", "slice", "cumsum", "topk", "scatter", "added", "gather", "index_select", "shift", "window", "steps"]


sys.exit(judge.main(Program))
