"""mixed.py WEIR [FIRST [COUNT]]: random blocks that mix tokens and features, over devices.

Linear layers over features, products over tokens, Gram matrices, attention by hand and as one operation, norms and
residual sums, of inputs and weights that are cut in any dimension or whole, on lines and grids of devices: products meet
operands that do not go together, and are gathered for, reduced, or turned. Each program is proven, and compared with the
reference."""
import random
import sys

import judge


class Block:
    """Values are [batch, tokens, features]."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.mesh = r.choice([[2], [4], [8], [3], [2, 2], [2, 4]])
        self.b, self.s, self.e = r.choice([1, 2, 4, 5]), r.choice([8, 16, 12]), r.choice([8, 16, 24])
        self.inputs, self.marks, self.body, self.n = [], [], [], 0
        self.sharded("x", [self.b, self.s, self.e], .9)
        values = ["x"]
        for _ in range(r.randint(2, 5)):
            kind = r.choice(["features", "tokens", "gram", "by_hand", "sdpa", "norm", "add", "gelu", "two"])
            values.append(getattr(self, kind)(r.choice(values[-2:]), values))
        self.outputs = values[-1:] if r.random() < .7 or len(values) < 3 else values[-2:]
        for y in self.outputs if r.random() < .5 else []:
            self.mark(y, [self.b, self.s, self.e])

    def name(self):
        self.n += 1
        return f"y{self.n}"

    def sharded(self, t, dims, likely=.5):
        self.inputs.append(f"{t} : f32[{', '.join(map(str, dims))}]")
        if self.r.random() < likely:
            self.mark(t, dims)

    def mark(self, t, dims):
        """Along each axis of the mesh perhaps one dimension, from the last on: positions before stay."""
        axes = self.r.sample(range(len(dims)), min(len(dims), len(self.mesh)))
        lines = [f"{t} on d"]
        for k, dim in sorted(zip(range(len(self.mesh)), axes), key=lambda z: -z[1]):
            size = self.mesh[len(self.mesh) - 1 - k]
            if self.r.random() < .25:
                continue
            lines.append(f"{t}.outer_split({dim}, {size}); {t}[{dim}] = mesh.{k}")
        self.marks += lines

    def weight(self, dims):
        t = f"w{len(self.inputs)}"
        self.sharded(t, dims, .3)
        return t

    def add_line(self, text):
        y = self.name()
        self.body.append(f"{y} = {text}")
        return y

    def features(self, x, _):
        return self.add_line(f"linear({x}, {self.weight([self.e, self.e])})")

    def tokens(self, x, _):
        if self.r.random() < .5:
            return self.add_line(f"matmul({self.weight([self.s, self.s])}, {x})")
        return self.add_line(f"transpose(linear(transpose({x}), {self.weight([self.s, self.s])}))")

    def gram(self, x, _):
        g = self.add_line(f"matmul({x}, transpose({x})) * 0.1")
        return self.add_line(f"matmul({g}, {x})")

    def heads(self, x):
        return f"permute(reshape({x}, [{self.b}, {self.s}, 4, {self.e // 4}]), [0, 2, 1, 3])"

    def merged(self, o):
        return self.add_line(f"reshape(permute({o}, [0, 2, 1, 3]), [{self.b}, {self.s}, {self.e}])")

    def by_hand(self, x, values):
        p = self.add_line(f"softmax(matmul({self.heads(x)}, transpose({self.heads(self.r.choice(values))})) * 0.3)")
        return self.merged(self.add_line(f"matmul({p}, {self.heads(x)})"))

    def sdpa(self, x, values):
        k = self.heads(self.r.choice(values))
        causal = ", causal=true" * (self.r.random() < .5)
        return self.merged(self.add_line(f"sdpa({self.heads(x)}, {k}, {self.heads(x)}{causal})"))

    def norm(self, x, _):
        return self.add_line(f"layer_norm({x})")

    def add(self, x, values):
        y, z = self.r.choice(values), self.r.choice(values)
        return self.add_line(f"{x} + {y} - {z} * 0.5")

    def gelu(self, x, _):
        return self.add_line(f"gelu({x})")

    def two(self, x, _):
        """Two products of one kind, added to what they are of."""
        a, b = self.weight([self.s, self.s]), self.weight([self.s, self.s])
        return self.add_line(f"{x} + matmul({a}, {x}) - matmul({b}, {x})")

    def options(self):
        return []

    def text(self):
        body = "\n  ".join([f"mesh d = {self.mesh}"] + self.inputs + self.body + ["return " + ", ".join(self.outputs)])
        schedule = "\n    ".join(self.marks or ["x on d"])
        return f"fusion mixed {{\n  {body}\n  schedule {{\n    {schedule}\n  }}\n}}\n"


sys.exit(judge.main(Block, proven=True))
