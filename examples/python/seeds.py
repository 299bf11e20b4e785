"""The programs in examples/, run from Python on made-up values and compared with what their definitions say.

    python examples/python/seeds.py [FOLDER [DEVICE]]

With the device cuda the values are PyTorch's tensors on the first GPU.
"""

import pathlib
import sys

import numpy

import weir

FOLDER = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"


def values(random, shape, dtype):
    """Small integers: bf16 holds them exactly, and index inputs stay in range."""
    if dtype == "bf16":
        return weir.RawArray((random.integers(0, 3, shape).astype("f4").view("u4") >> 16).astype("u2"))
    names = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i8": "i1", "u8": "u1", "bool": "?"}
    return random.integers(0, 2, shape).astype(names[dtype])


def placed(array):
    """The array in memory of the device."""
    if DEVICE != "cuda":
        return array
    import torch
    if isinstance(array, weir.RawArray):
        return torch.from_numpy(array.bits.view("i2")).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def as_float(array):
    if DEVICE == "cuda":
        return array.double().cpu().numpy()
    if isinstance(array, weir.RawArray):
        return (array.bits.astype("u4") << 16).view("f4")
    return numpy.asarray(array, "f8")


def run(name: str, shapes) -> float:
    """The largest difference from the definition, over the largest value."""
    program = weir.load(FOLDER / f"{name}.weir").compile(device=DEVICE)
    random = numpy.random.default_rng(1)
    arrays = [placed(values(random, s, t.dtype)) for s, t in zip(shapes, program.inputs)]
    worst = 0.0
    made = [[placed(values(random, s, t.dtype)) for s, t in zip(program.shapes(*shapes), program.outputs)] for _ in range(2)]
    program(*arrays, out=tuple(made[0]))
    program.definition(*arrays, out=tuple(made[1]))
    for a, b in zip(*made):
        scale = max(float(numpy.abs(as_float(b)).max(initial=0)), 1e-30)
        worst = max(worst, float(numpy.abs(as_float(a) - as_float(b)).max(initial=0)) / scale)
    return worst


# Shapes of the inputs; a program is the first of its file.
PROGRAMS = {
    "ag_matmul": [(4, 2, 32, 128), (128, 96)],
    "row_parallel_linear": [(6, 32), (8, 32), ()],
    "column_parallel_linear": [(6, 16), (64, 16)],
    "mlp": [(12, 24), (96, 24), (24, 96), (24,)],
    "mlp_parallel": [(12, 24), (96, 24), (96,), (24, 96), (24,)],
    "mlp_streams": [(32, 64), (256, 64), (64, 256)],
    "attention": [(2, 8, 32), (32, 32), (32, 32), (32, 32), (32, 32)],
}


def main() -> int:
    wrong = 0
    for name, shapes in PROGRAMS.items():
        difference = run(name, shapes)
        wrong += difference > 0.02
        print(f"{name:24} {difference:.2g} {'ok' if difference <= 0.02 else 'WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
