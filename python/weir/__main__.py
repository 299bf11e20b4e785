"""python -m weir demo: the flagship example, checked against NumPy."""

from __future__ import annotations

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


def demo() -> int:
    import numpy

    import weir

    program = weir.compile(DEMO)
    random = numpy.random.default_rng(1)
    a = random.standard_normal((4, 2, 32, 128), dtype="float32")
    b = random.standard_normal((128, 96), dtype="float32")
    c = program(a, b, profile=True)
    difference = float(numpy.abs(c - a @ b).max())
    print(program.lower())
    print(f"{program!r}: {program.stats['launches']} launches, {program.stats['posts']} communications")
    print(f"largest difference from NumPy: {difference:.3g}", "ok" if difference < 1e-3 else "WRONG")
    return 0 if difference < 1e-3 else 1


def main() -> int:
    if sys.argv[1:] != ["demo"]:
        print("usage: python -m weir demo", file=sys.stderr)
        return 2
    return demo()


if __name__ == "__main__":
    sys.exit(main())
