"""python -m weir demo: the flagship example, checked against NumPy or, where that is missing, the reference evaluator."""

from __future__ import annotations

import importlib.util
import sys

DEMO = """
# Allgather + matmul, pipelined: the rows of `a` are sharded over two devices, and every device wants the whole
# product. Cut into 4 slices, the allgather of one slice overlaps the matmul of another.
fusion ag_matmul {
  mesh d = [2]
  a : f32[4, 2, 32, 128]
  b : f32[128, 96]
  c = matmul(a, b)
  return c
  schedule {
    a, b, c on d
    a[1] = mesh.x
    c[0] = stream
  }
}
"""


A, B = (4, 2, 32, 128), (128, 96)


def by_numpy(program):
    """The largest difference."""
    import numpy
    random = numpy.random.default_rng(1)
    a, b = (random.standard_normal(shape, dtype="float32") for shape in (A, B))
    return float(numpy.abs(program(a, b, profile=True) - a @ b).max())


def by_definition(program):
    import random

    import weir
    draw = random.Random(1)
    a, b = (weir.PlainArray(shape, "f32", (draw.gauss(0, 1) for _ in range(n))) for shape, n in ((A, 32768), (B, 12288)))
    pairs = zip(program(a, b, profile=True).values(), program.definition(a, b).values())
    return max(abs(x - y) for x, y in pairs)


def demo() -> int:
    import weir

    program = weir.compile(DEMO)
    has_numpy = importlib.util.find_spec("numpy") is not None
    difference = by_numpy(program) if has_numpy else by_definition(program)
    print(program.lower())
    print(f"{program!r}: {program.stats['launches']} launches, {program.stats['posts']} communications")
    print(f"largest difference from {'NumPy' if has_numpy else 'the definition'}: {difference:.3g}",
          "ok" if difference < 1e-3 else "WRONG")
    return 0 if difference < 1e-3 else 1


def main() -> int:
    if sys.argv[1:] != ["demo"]:
        print("usage: python -m weir demo", file=sys.stderr)
        return 2
    return demo()


if __name__ == "__main__":
    sys.exit(main())
