#!/usr/bin/env python3
"""Writes cases.txt: small programs, inputs, and the results NumPy gives for them.

    tests/numpy/generate.py > tests/numpy/cases.txt

Nothing here shares code with weir. A tensor is a dtype and a NumPy array that holds its values
exactly: float64 for floats, int64 for integers, bool for bool. Results are computed in float64 or
int64 and rounded to the result's dtype at the end; bf16 exists only as that rounding.

The format, one item per line:

    case NAME
    | TEXT                             a line of the program
    in NAME DTYPE LAYOUT SHAPE : VALUES  in row-major order; LAYOUT says how the test lays them out
                                       in memory: C or F order, R with negative strides, S with gaps
    out DTYPE KIND SHAPE : VALUES      in order of the outputs; KIND is `exact` or `close`
    fails TEXT                         instead of out: the message must contain TEXT

SHAPE is 2x3, or - for a scalar. Floats are written so that strtod reads them back exactly.
"""
import itertools
import math
import warnings
import zlib

import numpy as np

np.seterr(all="ignore")
warnings.simplefilter("ignore")  # means of nothing

FLOATS = ["f64", "f32", "f16", "bf16"]
INTS = ["i64", "i32", "i8", "u8"]
DTYPES = FLOATS + INTS + ["bool"]
RANGES = {"i64": np.int64, "i32": np.int32, "i8": np.int8, "u8": np.uint8}


# ---- dtypes ----
def kind(dtype):
    return 2 if dtype in FLOATS else 1 if dtype in INTS else 0


def promote(*dtypes):
    def two(a, b):
        if a == b:
            return a
        if kind(a) != kind(b):
            return a if kind(a) > kind(b) else b
        if {a, b} == {"f16", "bf16"}:
            return "f32"
        if {a, b} == {"i8", "u8"}:
            return "i32"
        return next(t for t in DTYPES if t in (a, b))  # DTYPES lists wider ones first

    result = dtypes[0]
    for t in dtypes[1:]:
        result = two(result, t)
    return result


def round_bf16(x):
    """8 significant bits, exponents of f32, ties to even."""
    x = np.asarray(x, np.float64)
    _, exponent = np.frexp(x)
    quantum = np.ldexp(1.0, np.maximum(exponent, -125) - 8)
    rounded = np.where(np.isfinite(x), np.rint(x / quantum) * quantum, x)
    largest = np.ldexp(2.0 - 2.0**-7, 127)
    return np.where(np.abs(rounded) > largest, np.copysign(np.inf, x), rounded)


def round_to(dtype, values):
    """Values computed in float64, int64 or bool, as elements of `dtype`."""
    values = np.asarray(values)
    if dtype == "bool":
        return values != 0
    if dtype in INTS:
        if values.dtype.kind == "f":
            return saturate(dtype, values)
        return values.astype(np.int64).astype(RANGES[dtype]).astype(np.int64)
    if dtype == "f32" and values.dtype.kind == "i":
        return values.astype(np.float32).astype(np.float64)
    values = values.astype(np.float64)
    if dtype == "f32":
        return values.astype(np.float32).astype(np.float64)
    if dtype == "f16":
        return values.astype(np.float16).astype(np.float64)
    return round_bf16(values) if dtype == "bf16" else values


def saturate(dtype, values):
    low, high = int(np.iinfo(RANGES[dtype]).min), int(np.iinfo(RANGES[dtype]).max)

    def one(v):
        if math.isnan(v):
            return 0
        return low if v <= low else high if v >= high else int(v)

    flat = [one(v) for v in values.ravel().tolist()]
    return np.array(flat, np.int64).reshape(values.shape)


class Tensor:
    def __init__(self, dtype, values, exact=False):
        self.dtype, self.values, self.exact = dtype, round_to(dtype, values), exact

    @property
    def shape(self):
        return self.values.shape

    def to(self, dtype):
        return Tensor(dtype, self.values)


def exact(dtype, values):
    return Tensor(dtype, values, exact=True)


# ---- data ----
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, math.inf, -math.inf, math.nan, 100.0, 1e-3]
EDGES = {
    "i64": [0, 1, -1, 2, -7, 2**63 - 1, -(2**63), 5, 2**40 + 1, -3, 100, 13],
    "i32": [0, 1, -1, 2, -7, 2**31 - 1, -(2**31), 5, 65537, -3, 100, 13],
    "i8": [0, 1, -1, 2, -7, 127, -128, 5, 64, -3, 100, 13],
    "u8": [0, 1, 255, 2, 7, 127, 128, 5, 64, 3, 100, 13],
    "bool": [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0],
}


def random(seed):
    return np.random.default_rng(zlib.crc32(seed.encode()))


def sample(dtype, shape, seed, low=-4.0, high=4.0):
    r = random(f"{seed} {dtype} {shape}")
    if dtype == "bool":
        return Tensor(dtype, r.integers(0, 2, shape))
    if dtype in INTS:
        return Tensor(dtype, r.integers(max(low, 0) if dtype == "u8" else low, high + 1, shape))
    return Tensor(dtype, np.round(r.uniform(low, high, shape) * 256) / 256)


def edges(dtype, turn=0):
    values = EDGES.get(dtype, SPECIAL)
    return Tensor(dtype, np.array(values[turn:] + values[:turn]))


# ---- writing ----
lines, names = [], set()
layouts = itertools.cycle("CFRS")


def number(v):
    if isinstance(v, (bool, np.bool_)):
        return str(int(v))
    if isinstance(v, int):
        return str(v)
    if math.isnan(v) or math.isinf(v):
        return str(v)
    if v == int(v) and abs(v) < 1e6 and not (v == 0 and math.copysign(1, v) < 0):
        return str(int(v))
    mantissa, exponent = v.hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent


def values_text(t):
    shape = "x".join(map(str, t.shape)) or "-"
    return f"{shape} : " + " ".join(number(v) for v in t.values.ravel().tolist())


def declaration(name, t):
    return f"{name} : {t.dtype}" + (str(list(t.shape)) if t.shape else "")


def case(name, inputs, body, outs=None, types=None, fails=None, returns=None):
    """inputs: {name: Tensor}. body: one expression, or lines that define y0, y1, … for each output.
    types: input types to write instead of the tensors' own, such as {"x": "f32[n, 3]"}.
    returns: the names of the outputs, where they are not y0, y1, …"""
    assert name not in names, name
    names.add(name)
    outs = outs if isinstance(outs, list) else [outs]
    body = [f"y0 = {body}"] if isinstance(body, str) else body
    types = types or {}
    lines.append(f"case {name}")
    lines.append("| fusion f {")
    for n, t in inputs.items():
        lines.append("|   " + (f"{n} : {types[n]}" if n in types else declaration(n, t)))
    lines.extend(f"|   {b}" for b in body)
    lines.append("|   return " + (returns or ", ".join(f"y{i}" for i in range(len(outs)))))
    lines.append("| }")
    for n, t in inputs.items():
        lines.append(f"in {n} {t.dtype} {next(layouts)} {values_text(t)}")
    if fails:
        lines.append(f"fails {fails}")
        return
    for t in outs:
        lines.append(f"out {t.dtype} {'exact' if t.exact else 'close'} {values_text(t)}")


# ---- pointwise ----
erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def int_pow(base, exponent):
    if exponent >= 0:
        return (pow(base, exponent, 2**64) + 2**63) % 2**64 - 2**63
    return {1: 1, -1: 1 if exponent % 2 == 0 else -1}.get(base, 0)


def ints_pow(a, b):
    a, b = np.broadcast_arrays(a, b)
    flat = [int_pow(int(x), int(y)) for x, y in zip(a.ravel(), b.ravel())]
    return np.array(flat, np.int64).reshape(a.shape)


def power(a, b):
    return ints_pow(a, b) if a.dtype.kind == "i" else np.power(a, b)


def invert(a):
    return ~a


def clamp(x, low, high):
    return np.minimum(np.maximum(x, low), high)


# name: (dtypes it takes, rule of its result, function)
NUMBERS = FLOATS + INTS
BITS = INTS + ["bool"]
UNARY = {
    "neg": (NUMBERS, "same", np.negative),
    "abs": (DTYPES, "same", np.abs),
    "sign": (NUMBERS, "same", np.sign),
    "floor": (NUMBERS, "same", lambda x: x if x.dtype.kind in "iu" else np.floor(x)),
    "ceil": (NUMBERS, "same", lambda x: x if x.dtype.kind in "iu" else np.ceil(x)),
    "round": (NUMBERS, "same", np.round),
    "exp": (DTYPES, "float", np.exp),
    "log": (DTYPES, "float", np.log),
    "sqrt": (DTYPES, "float", np.sqrt),
    "rsqrt": (DTYPES, "float", lambda x: 1 / np.sqrt(x)),
    "reciprocal": (DTYPES, "float", lambda x: 1 / x),
    "sin": (DTYPES, "float", np.sin),
    "cos": (DTYPES, "float", np.cos),
    "tanh": (DTYPES, "float", np.tanh),
    "sigmoid": (DTYPES, "float", lambda x: 1 / (1 + np.exp(-x))),
    "erf": (DTYPES, "float", erf),
    "relu": (NUMBERS, "same", lambda x: np.maximum(x, 0)),
    "silu": (DTYPES, "float", lambda x: x / (1 + np.exp(-x))),
    "gelu": (DTYPES, "float", gelu),
    "not": (BITS, "same", invert),
}
BINARY = {
    "add": (DTYPES, "same", np.add),
    "sub": (NUMBERS, "same", np.subtract),
    "mul": (DTYPES, "same", np.multiply),
    "div": (DTYPES, "float", np.true_divide),
    "pow": (NUMBERS, "same", power),
    "max": (DTYPES, "same", np.maximum),
    "min": (DTYPES, "same", np.minimum),
    "mod": (NUMBERS, "same", np.mod),
    "and": (BITS, "same", np.bitwise_and),
    "or": (BITS, "same", np.bitwise_or),
    "xor": (BITS, "same", np.bitwise_xor),
    "eq": (DTYPES, "truth", np.equal),
    "ne": (DTYPES, "truth", np.not_equal),
    "lt": (DTYPES, "truth", np.less),
    "le": (DTYPES, "truth", np.less_equal),
    "gt": (DTYPES, "truth", np.greater),
    "ge": (DTYPES, "truth", np.greater_equal),
}


def apply(rule, function, *tensors):
    """A pointwise op: promote, convert, compute, round."""
    dtype = promote(*(t.dtype for t in tensors))
    if rule == "float" and dtype not in FLOATS:
        dtype = "f32"
    result = function(*(t.to(dtype).values for t in tensors))
    return Tensor("bool" if rule == "truth" else dtype, result)


def unary_cases():
    for name, (dtypes, rule, function) in UNARY.items():
        for dtype in dtypes:
            x = sample(dtype, (2, 3), name)
            z = edges(dtype)
            outs = [apply(rule, function, x), apply(rule, function, z)]
            case(f"{name}.{dtype}", {"x": x, "z": z}, [f"y0 = {name}(x)", f"y1 = {name}(z)"], outs)
    for dtype in FLOATS:
        x = sample(dtype, (8,), "gelu")
        outs = [apply("float", gelu, x), apply("float", gelu_tanh, x)]
        body = ["y0 = gelu(x, approximate=none)", "y1 = gelu(x, approximate=tanh)"]
        case(f"gelu.forms.{dtype}", {"x": x}, body, outs)


    halves = np.array([-2.5, -1.5, -0.5, -0.25, 0.25, 0.5, 0.75, 1.5, 2.5, 3.5])
    for dtype in FLOATS:
        x = Tensor(dtype, halves)
        for name in ("floor", "ceil", "round"):
            case(f"{name}.halves.{dtype}", {"x": x}, f"{name}(x)", apply("same", UNARY[name][2], x))


def binary_cases():
    for name, (dtypes, rule, function) in BINARY.items():
        for dtype in dtypes:
            a, b = sample(dtype, (2, 3), name), sample(dtype, (3,), name + "b")
            s, t = edges(dtype), edges(dtype, 5)
            outs = [apply(rule, function, a, b), apply(rule, function, s, t)]
            case(f"{name}.{dtype}", {"a": a, "b": b, "s": s, "t": t},
                 [f"y0 = {name}(a, b)", f"y1 = {name}(s, t)"], outs)


def promotion_cases():
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = sample(a, (2, 2), "promote"), sample(b, (2, 2), "with")
        case(f"promote.add.{a}.{b}", {"x": x, "y": y}, "x + y", apply("same", np.add, x, y))
    for a, b in itertools.combinations(DTYPES, 2):
        x, y = sample(a, (3,), "promote", 1, 4), sample(b, (), "scalar", 1, 4)
        outs = [apply("float", np.true_divide, x, y), apply("truth", np.less, x, y),
                apply("same", np.maximum, x, y)]
        case(f"promote.mixed.{a}.{b}", {"x": x, "y": y},
             ["y0 = x / y", "y1 = x < y", "y2 = max(x, y)"], outs)


def broadcast_shape_cases():
    shapes = [((), ()), ((0,), ()), ((1,), (1,)), ((1,), (4,)), ((2, 1), (1, 3)), ((2, 0, 3), (3,)),
              ((2, 0, 3), (1, 1, 1)), ((1, 0), (2, 1)), ((3, 1, 2), (2, 1)), ((), (2, 2)),
              ((2, 1, 2, 1, 2), (1, 2, 1, 2, 1))]
    for a, b in shapes:
        x, y = sample("f32", a, "shape"), sample("i32", b, "shape")
        case(f"shapes.{a}.{b}".replace(" ", ""), {"x": x, "y": y}, "x * y",
             apply("same", np.multiply, x, y))


def literal_cases():
    for dtype in DTYPES:
        x = sample(dtype, (4,), "literal")
        weak = dtype if dtype != "bool" else "i64"
        fraction = dtype if dtype in FLOATS else "f32"
        half, two = Tensor(fraction, 0.5), Tensor(weak, 2)
        outs = [apply("same", np.add, x, two), apply("same", np.multiply, x, half),
                apply("same", np.subtract, two, x), apply("float", np.true_divide, x, two),
                apply("truth", np.greater_equal, x, half), apply("same", np.maximum, x, two)]
        case(f"literal.{dtype}", {"x": x},
             ["y0 = x + 2", "y1 = x * 0.5", "y2 = 2 - x", "y3 = x / 2", "y4 = x >= 0.5",
              "y5 = max(x, 2)"], outs)
    for dtype in FLOATS:
        x = sample(dtype, (4,), "tenth")
        case(f"literal.rounds.{dtype}", {"x": x}, "x + 0.1",
             apply("same", np.add, x, Tensor(dtype, 0.1)))
        case(f"literal.pow.{dtype}", {"x": x}, ["y0 = pow(x, 2)", "y1 = pow(abs(x), 0.5)"],
             [Tensor(dtype, x.values**2), Tensor(dtype, np.abs(x.values) ** 0.5)])
    x = sample("f32", (3, 2), "extent")
    case("literal.extent", {"x": x}, ["y0 = x / n", "y1 = x * n"],
         [Tensor("f32", x.values / 3), Tensor("f32", x.values * 3)], types={"x": "f32[n, 2]"})
    a, b = sample("f64", (3,), "a"), sample("f64", (3,), "b")
    case("literal.precedence", {"a": a, "b": b}, "-a + b * 2 - a / (b - 10) * 3",
         Tensor("f64", -a.values + b.values * 2 - a.values / (b.values - 10) * 3))
    i = Tensor("i64", np.array([2**53 + 1, -(2**62) - 1, 7]))
    case("literal.i64.exact", {"i": i}, ["y0 = i + 1", "y1 = i * 3"],
         [Tensor("i64", i.values + 1), Tensor("i64", i.values * 3)])


def choice_cases():
    for dtype in DTYPES:
        c = sample("bool", (2, 1), "where")
        a, b = sample(dtype, (3,), "where"), edges(dtype)
        b = Tensor(dtype, b.values[:6].reshape(2, 3))
        case(f"where.{dtype}", {"c": c, "a": a, "b": b}, "where(c, a, b)",
             exact(dtype, np.where(c.values, a.values, b.values)))
        x = edges(dtype)
        low, high = sample(dtype, (12,), "low", -3, 0), sample(dtype, (12,), "high", 0, 3)
        case(f"clamp.{dtype}", {"x": x, "lo": low, "hi": high}, "clamp(x, lo, hi)",
             exact(dtype, clamp(x.values, low.values, high.values)))
    for a, b in [("f16", "bf16"), ("i8", "u8"), ("bool", "f16"), ("i64", "f32")]:
        c, x, y = sample("bool", (4,), "c"), sample(a, (4,), "x"), sample(b, (4,), "y")
        t = promote(a, b)
        case(f"where.{a}.{b}", {"c": c, "x": x, "y": y}, "where(c, x, y)",
             Tensor(t, np.where(c.values, x.to(t).values, y.to(t).values)))
    x = sample("f32", (6,), "positive")
    case("where.literal", {"x": x}, ["y0 = where(x > 0, x, 0)", "y1 = clamp(x, -1, 1.5)"],
         [exact("f32", np.where(x.values > 0, x.values, 0)), exact("f32", clamp(x.values, -1, 1.5))])
    i = sample("i32", (6,), "positive")
    case("clamp.literal", {"x": i}, ["y0 = clamp(x, -1, 2)", "y1 = clamp(x, -0.5, 1.5)"],
         [exact("i32", clamp(i.values, -1, 2)), exact("f32", clamp(i.values, -0.5, 1.5))])


def cast_cases():
    for a, b in itertools.product(DTYPES, DTYPES):
        x, z = sample(a, (2, 3), "cast", -100, 100), edges(a)
        case(f"cast.{a}.{b}", {"x": x, "z": z}, [f"y0 = cast(x, {b})", f"y1 = cast(z, {b})"],
             [exact(b, x.values), exact(b, z.values)])
    for dtype in FLOATS:
        steps = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[dtype]
        x = Tensor("f64", np.array([1 + steps, 1 + 3 * steps, 1 + steps * 1.0001, 65519.9, 65520.0,
                                    3.3e38, 3.4e38, 1e39, -1e300, 6e-8, 2.9e-8, 1e-40, 1e-41, 5e-324]))
        case(f"cast.rounding.{dtype}", {"x": x}, f"cast(x, {dtype})", exact(dtype, x.values))
    big = Tensor("i64", np.array([2**24 + 1, 2**53 + 1, 2**62 + 2**38, 2**63 - 1, 2**32 + 300, -300]))
    for dtype in DTYPES:
        want = exact(dtype, big.values)
        if dtype == "bf16":
            want = exact(dtype, [2.0**24, 2.0**53, 2.0**62, 2.0**63, 2.0**32, -300])
        case(f"cast.big.{dtype}", {"x": big}, f"cast(x, {dtype})", want)
    for dtype in DTYPES:
        x = sample(dtype, (2, 2), "set")
        case(f"set.{dtype}", {"x": x}, "set(x)", exact(dtype, x.values))
    case("set.empty", {"x": sample("f32", (0, 2), "set")}, "set(x)", exact("f32", np.zeros((0, 2))))


# ---- reductions ----
def reduced_dtype(op, dtype):
    if op in ("amax", "amin") or dtype in FLOATS:
        return dtype
    return "i64" if op in ("sum", "prod") else "f32"


REDUCTIONS = {"sum": np.sum, "prod": np.prod, "amax": np.amax, "amin": np.amin, "mean": np.mean,
              "var": np.var}


def reduce_with(op, values, axis, keepdims):
    if values.dtype == bool and op != "amax" and op != "amin":
        values = values.astype(np.int64)
    return REDUCTIONS[op](values, axis=axis, keepdims=keepdims)


def dims_text(axis, keepdims):
    text = "" if axis is None else f", dims={list(axis)}"
    return text + (", keepdim=true" if keepdims else "")


def reduction_cases():
    forms = [(None, False), ((0,), False), ((1,), True), ((-1,), False), ((0, 2), False),
             ((-2, -1), True), ((0, 1, 2), False), (None, True)]
    for op, dtype in itertools.product(REDUCTIONS, DTYPES):
        x = sample(dtype, (2, 3, 2), op, -2, 2)
        t = reduced_dtype(op, dtype)
        body = [f"y{i} = {op}(x{dims_text(*form)})" for i, form in enumerate(forms)]
        case(f"{op}.{dtype}", {"x": x}, body,
             [Tensor(t, reduce_with(op, x.values, *form)) for form in forms])
    for op in REDUCTIONS:
        scalar, one = sample("f32", (), op), sample("f32", (1, 1), op)
        case(f"{op}.small", {"s": scalar, "x": one},
             [f"y0 = {op}(s)", f"y1 = {op}(x, dims=[0])", f"y2 = {op}(x)"],
             [Tensor("f32", reduce_with(op, scalar.values, None, False)),
              Tensor("f32", reduce_with(op, one.values, 0, False)),
              Tensor("f32", reduce_with(op, one.values, None, False))])
        special = Tensor("f32", np.array([[1, math.nan, 2], [math.inf, 1, -1],
                                          [-math.inf, math.inf, 0], [-0.0, 0.0, -0.0]]))
        case(f"{op}.special", {"x": special}, f"{op}(x, dims=[1])",
             Tensor("f32", reduce_with(op, special.values, 1, False)))


def empty_reduction_cases():
    x = sample("f32", (2, 0, 3), "empty")
    for op in ("sum", "prod", "mean", "var"):
        case(f"{op}.empty", {"x": x}, [f"y0 = {op}(x, dims=[1])", f"y1 = {op}(x, dims=[0])",
                                       f"y2 = {op}(x)"],
             [Tensor("f32", reduce_with(op, x.values, axis, False)) for axis in (1, 0, None)])
    for op in ("amax", "amin"):
        case(f"{op}.empty.kept", {"x": x}, f"{op}(x, dims=[0])", Tensor("f32", np.zeros((0, 3))))
        case(f"{op}.empty.axis", {"x": x}, f"{op}(x, dims=[1])", fails="zero-size")
        case(f"{op}.empty.all", {"x": x}, f"{op}(x)", fails="zero-size")


def more_reduction_cases():
    for dtype in FLOATS + ["i32"]:
        x = sample(dtype, (3, 4), "var")
        t = reduced_dtype("var", dtype)
        body = ["y0 = var(x, dims=[1], correction=1)", "y1 = var(x, correction=2)",
                "y2 = var(x, dims=[0], keepdim=true, correction=3)",
                "y3 = var(x, dims=[0], correction=5)"]
        v = x.values
        case(f"var.correction.{dtype}", {"x": x}, body,
             [Tensor(t, np.var(v, axis=1, ddof=1)), Tensor(t, np.var(v, ddof=2)),
              Tensor(t, np.var(v, axis=0, ddof=3, keepdims=True)),
              Tensor(t, np.full(4, np.inf))])
    big = Tensor("i64", np.array([2**62, 2**62, 2**62, 5]))
    case("sum.wraps", {"x": big}, ["y0 = sum(x)", "y1 = prod(x)"],
         [Tensor("i64", big.values.sum()), Tensor("i64", big.values.prod())])
    ones = Tensor("i8", np.full(300, 100))
    case("sum.i8.wide", {"x": ones}, ["y0 = sum(x)", "y1 = mean(x)"],
         [Tensor("i64", 30000), Tensor("f32", 100.0)])
    half = Tensor("f16", np.full(4097, 1.0))
    case("sum.f16.long", {"x": half}, "sum(x)", Tensor("f16", 4097.0))
    long = Tensor("bf16", np.full(1000, 0.01))
    case("sum.bf16.long", {"x": long}, ["y0 = sum(x)", "y1 = mean(x)"],
         [Tensor("bf16", long.values.sum()), Tensor("bf16", long.values.mean())])


# ---- shapes ----
def shape_cases():
    for dtype in DTYPES:
        x = sample(dtype, (2, 3), "shape")
        v = x.values
        moves = [
            ("broadcast(x, [true, false, true, false])", v[None, :, None, :]),
            ("squeeze(broadcast(x, [false, true, false]), dims=[1])", v),
            ("expand(x, [4, 2, 3])", np.broadcast_to(v, (4, 2, 3))),
            ("permute(x, [1, 0])", v.T),
            ("transpose(x)", v.T),
            ("reshape(x, [3, 2])", v.reshape(3, 2)),
            ("slice(x, starts=[0, 1], stops=[2, 3])", v[0:2, 1:3]),
            ("pad(x, [1, 0, 0, 2])", np.pad(v, [(1, 0), (0, 2)])),
            ("cat(x, x, dim=0)", np.concatenate([v, v])),
            ("select(x, dim=1, index=2)", v[:, 2]),
        ]
        case(f"moves.{dtype}", {"x": x}, [f"y{i} = {text}" for i, (text, _) in enumerate(moves)],
             [exact(dtype, want) for _, want in moves])


def move_cases():
    def moves(name, shape, table, types=None):
        x = sample("f32", shape, name)
        case(name, {"x": x}, [f"y{i} = {text}" for i, (text, _) in enumerate(table)],
             [exact("f32", fn(x.values)) for _, fn in table], types=types)

    moves("broadcast.forms", (3,), [
        ("broadcast(x, [false])", lambda v: v),
        ("broadcast(x, [true, false, true])", lambda v: v[None, :, None]),
    ])
    moves("broadcast.scalar", (), [("broadcast(x, [true, true])", lambda v: v.reshape(1, 1)),
                                   ("broadcast(x, [])", lambda v: v)])
    moves("squeeze.forms", (1, 2, 1, 3), [
        ("squeeze(x, dims=[0])", lambda v: v[0]),
        ("squeeze(x, dims=[0, 2])", lambda v: v[0, :, 0]),
        ("squeeze(x, dims=[-2])", lambda v: v[:, :, 0]),
    ])
    moves("expand.forms", (2, 1), [
        ("expand(x, [2, 3])", lambda v: np.broadcast_to(v, (2, 3))),
        ("expand(x, [2, 2, 1])", lambda v: np.broadcast_to(v, (2, 2, 1))),
        ("expand(x, [2, 0])", lambda v: np.broadcast_to(v, (2, 0))),
        ("sum(expand(x, [2, 3]), dims=[1])", lambda v: v[:, 0] * 3),
    ])
    moves("permute.forms", (2, 3, 4), [
        ("permute(x, [2, 0, 1])", lambda v: v.transpose(2, 0, 1)),
        ("permute(x, [0, -1, 1])", lambda v: v.transpose(0, 2, 1)),
        ("permute(x, [0, 1, 2])", lambda v: v),
        ("transpose(x)", lambda v: v.swapaxes(-1, -2)),
    ])
    moves("reshape.forms", (2, 3, 4), [
        ("reshape(x, [24])", lambda v: v.reshape(24)),
        ("reshape(x, [6, -1])", lambda v: v.reshape(6, 4)),
        ("reshape(x, [-1])", lambda v: v.reshape(-1)),
        ("reshape(x, [1, 4, 1, 6])", lambda v: v.reshape(1, 4, 1, 6)),
        ("reshape(permute(x, [2, 0, 1]), [4, 6])", lambda v: v.transpose(2, 0, 1).reshape(4, 6)),
        ("reshape(x, [4, 3, 2])", lambda v: v.reshape(4, 3, 2)),
    ])
    moves("reshape.one", (1, 1), [("reshape(x, [])", lambda v: v.reshape(())),
                                  ("reshape(x, [1])", lambda v: v.reshape(1))])
    moves("reshape.empty", (0, 3), [("reshape(x, [3, 0])", lambda v: v.reshape(3, 0)),
                                    ("reshape(x, [0])", lambda v: v.reshape(0))])
    moves("reshape.symbolic", (4, 6), [
        ("reshape(x, [a * b])", lambda v: v.reshape(24)),
        ("reshape(x, [a, b / 2, 2])", lambda v: v.reshape(4, 3, 2)),
    ], types={"x": "f32[a, b]"})
    moves("slice.forms", (5, 4), [
        ("slice(x, starts=[1, 0], stops=[4, 4])", lambda v: v[1:4, 0:4]),
        ("slice(x, starts=[-3, 1], stops=[-1, 3])", lambda v: v[-3:-1, 1:3]),
        ("slice(x, starts=[0, 0], stops=[100, 2])", lambda v: v[0:100, 0:2]),
        ("slice(x, starts=[-100, 3], stops=[2, 100])", lambda v: v[-100:2, 3:100]),
        ("slice(x, starts=[0, 1], stops=[5, 4], steps=[2, 2])", lambda v: v[0:5:2, 1:4:2]),
        ("slice(x, starts=[1, 0], stops=[5, 4], steps=[3, 4])", lambda v: v[1:5:3, 0:4:4]),
        ("slice(x, starts=[3, 0], stops=[3, 4])", lambda v: v[3:3, 0:4]),
        ("slice(x, starts=[4, 0], stops=[2, 1])", lambda v: v[4:2, 0:1]),
        ("slice(x, starts=[7, 0], stops=[9, 4])", lambda v: v[7:9, 0:4]),
    ])
    moves("slice.symbolic", (6, 3), [
        ("slice(x, starts=[0, 0], stops=[n / 2, 3])", lambda v: v[0:3]),
        ("slice(x, starts=[n / 2, 0], stops=[n, 3])", lambda v: v[3:6]),
        ("slice(x, starts=[1, 0], stops=[-1, 3])", lambda v: v[1:-1]),
        ("slice(x, starts=[1, 0], stops=[100, 2], steps=[2, 1])", lambda v: v[1:100:2, 0:2]),
    ], types={"x": "f32[n, 3]"})
    moves("slice.empty", (0, 2), [("slice(x, starts=[0, 0], stops=[3, 1])", lambda v: v[0:3, 0:1])])
    moves("pad.forms", (2, 3), [
        ("pad(x, [0, 0, 1, 1])", lambda v: np.pad(v, [(0, 0), (1, 1)])),
        ("pad(x, [2, 1, 0, 0], value=1.5)", lambda v: np.pad(v, [(2, 1), (0, 0)],
                                                              constant_values=1.5)),
        ("pad(x, [0, 0, -1, 0])", lambda v: v[:, 1:]),
        ("pad(x, [-1, 1, 1, -2])", lambda v: np.pad(v[1:, :1], [(0, 1), (1, 0)])),
        ("pad(x, [0, 0, -2, 3], value=-1)", lambda v: np.pad(v[:, 2:], [(0, 0), (0, 3)],
                                                             constant_values=-1)),
        ("pad(x, [0, 0, 0, 1], value=inf)", lambda v: np.pad(v, [(0, 0), (0, 1)],
                                                             constant_values=np.inf)),
    ])
    moves("pad.empty", (0, 2), [("pad(x, [1, 1, 0, 0], value=7)", lambda v: np.full((2, 2), 7.0))])
    moves("select.forms", (3, 2, 2), [
        ("select(x, dim=0, index=0)", lambda v: v[0]),
        ("select(x, dim=-1, index=-1)", lambda v: v[..., -1]),
        ("select(x, dim=1, index=1)", lambda v: v[:, 1]),
        ("select(select(x, dim=0, index=2), dim=0, index=0)", lambda v: v[2, 0]),
    ])
    moves("select.symbolic", (4, 2), [("select(x, dim=0, index=n / 2)", lambda v: v[2])],
          types={"x": "f32[n, 2]"})
    case("select.outside", {"x": sample("f32", (4, 2), "s")}, "select(x, dim=0, index=n + 1)",
         types={"x": "f32[n, 2]"}, fails="index")


def cat_cases():
    a, b, c = (sample("f32", s, "cat") for s in [(2, 3), (2, 1), (2, 0)])
    case("cat.forms", {"a": a, "b": b, "c": c},
         ["y0 = cat(a, b, dim=1)", "y1 = cat(b, c, a, b, dim=-1)", "y2 = cat(a, dim=0)",
          "y3 = cat(a, a, a, dim=0)"],
         [exact("f32", np.concatenate([a.values, b.values], 1)),
          exact("f32", np.concatenate([b.values, c.values, a.values, b.values], 1)),
          exact("f32", a.values), exact("f32", np.concatenate([a.values] * 3))])
    x, y = sample("f16", (2,), "cat"), sample("i64", (3,), "cat")
    case("cat.promotes", {"x": x, "y": y}, "cat(x, y, dim=0)",
         exact("f16", np.concatenate([x.values, y.values.astype(float)])))


# ---- makers ----
def maker_cases():
    for dtype in DTYPES:
        body = [f"y0 = full([2, 3], 3, dtype={dtype})", f"y1 = zeros([2], dtype={dtype})",
                f"y2 = ones([1, 2], dtype={dtype})", f"y3 = full([], 1, dtype={dtype})"]
        case(f"makers.{dtype}", {}, body,
             [exact(dtype, np.full((2, 3), 3)), exact(dtype, np.zeros(2)),
              exact(dtype, np.ones((1, 2))), exact(dtype, np.array(1))])
        if dtype != "bool":
            case(f"iota.{dtype}", {}, f"iota(5, dtype={dtype})", exact(dtype, np.arange(5)))
    case("makers.default", {}, ["y0 = full([2], 0.1)", "y1 = zeros([0, 3])", "y2 = ones([])",
                                "y3 = iota(3)", "y4 = iota(0)", "y5 = full([2], -inf)"],
         [exact("f32", np.full(2, 0.1)), exact("f32", np.zeros((0, 3))), exact("f32", np.ones(())),
          exact("i64", np.arange(3)), exact("i64", np.arange(0)), exact("f32", np.full(2, -np.inf))])
    case("makers.symbolic", {"x": sample("f32", (2, 3), "m")},
         ["y0 = zeros([a, b + 1])", "y1 = iota(a * b)"],
         [exact("f32", np.zeros((2, 4))), exact("i64", np.arange(6))], types={"x": "f32[a, b]"})


MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def scramble(z):
    """The finalizer of splitmix64, written again from its definition."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_bits(key, index):
    return scramble((scramble((key + GOLDEN) & MASK) + (index + 1) * GOLDEN) & MASK)


def name_hash(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return scramble(((h ^ len(name)) + GOLDEN) & MASK)


SEED = 7  # of the test program


def uniform(stream, shape, low=0, high=1, dtype="f32"):
    stream = name_hash(stream) if isinstance(stream, str) else stream
    key, count = random_bits(SEED, stream), math.prod(shape)
    bits = 24 if dtype in ("f32", "f16", "bf16") else 53
    units = [(random_bits(key, i) >> (64 - bits)) / 2**bits for i in range(count)]
    values = low + (high - low) * np.array(units).reshape(shape)
    return Tensor(dtype, np.floor(values) if dtype in INTS + ["bool"] else values)


def uniform_cases():
    for dtype in DTYPES[:-1]:
        low, high = (0, 1) if dtype in FLOATS else (0, 100)
        want = uniform("y0", (2, 3), low, high, dtype)
        if dtype in ("f16", "bf16"):  # rounding up to 1 is taken back
            below = {"f16": 1 - 2.0**-11, "bf16": 1 - 2.0**-8}[dtype]
            want = Tensor(dtype, np.minimum(want.values, below))
        case(f"uniform.{dtype}", {}, f"uniform([2, 3], lo={low}, hi={high}, dtype={dtype})", want)
    case("uniform.streams", {}, ["y0 = uniform([4])", "y1 = uniform([2, 2])",
                                 "y2 = uniform([4], lo=-2.5, hi=2, dtype=f64)", "y3 = uniform([0])",
                                 "y4 = uniform([3], key=5)"],
         [uniform("y0", (4,)), uniform("y1", (2, 2)), uniform("y2", (4,), -2.5, 2, "f64"),
          uniform("y3", (0,)), uniform(5, (3,))])


# ---- indexed ----
def gather(x, index, dim):
    out = np.empty(index.shape, x.dtype)
    for at in np.ndindex(*index.shape):
        source = list(at)
        source[dim] = index[at]
        out[at] = x[tuple(source)]
    return out


def scatter(x, index, src, dim):
    out = x.copy()
    for at in np.ndindex(*index.shape):
        target = list(at)
        target[dim] = index[at]
        out[tuple(target)] = src[at]
    return out


def update(x, src, at, dim):
    out = x.copy()
    place = [slice(None)] * x.ndim
    place[dim] = slice(at, at + src.shape[dim])
    out[tuple(place)] = src
    return out


def update_cases():
    for number_, dtype in enumerate(DTYPES):
        x, src = sample(dtype, (3, 5), "updated"), sample(dtype, (3, 2), "src")
        row = sample(dtype, (1, 5), "row")
        at = Tensor("i64" if number_ % 2 else "i32", np.array(number_ % 3))
        case(f"update.{dtype}", {"x": x, "src": src, "row": row, "at": at},
             ["y0 = update(x, src, at, dim=1)", "y1 = update(x, row, at, dim=-2)",
              "y2 = update(y0, row, at, dim=0)"],
             [exact(dtype, w) for w in
              (update(x.values, src.values, number_ % 3, 1), update(x.values, row.values, number_ % 3, 0),
               update(update(x.values, src.values, number_ % 3, 1), row.values, number_ % 3, 0))])
    x, none = sample("f32", (3, 4), "whole"), Tensor("f32", np.zeros((3, 0)))
    zero = Tensor("i64", np.array(0))
    case("update.whole", {"x": x, "src": sample("f32", (3, 4), "other"), "at": zero},
         "update(x, src, at, dim=1)", exact("f32", sample("f32", (3, 4), "other").values))
    case("update.empty", {"x": x, "src": none, "at": zero}, "update(x, src, at, dim=1)",
         exact("f32", x.values))
    for bad in (3, -1):
        at = Tensor("i64", np.array(bad))
        case(f"update.outside.{bad}", {"x": x, "src": sample("f32", (3, 2), "two"), "at": at},
             "update(x, src, at, dim=1)", fails=f"update(...): position {bad} along axis 1 is not in 0 to 2")


# ---- groups ----
def group_index(lengths, n):
    """The group of each row along the last axis; the number of groups for rows after all of them."""
    groups = lengths.shape[-1]
    out = np.full(lengths.shape[:-1] + (n,), groups)
    for at in np.ndindex(*lengths.shape[:-1]):
        rows = np.repeat(np.arange(groups), lengths[at])
        out[at][:len(rows)] = rows
    return out


def grouped_matmul(x, weight, index):
    shape = np.broadcast_shapes(x.shape[:-2], weight.shape[:-3], index.shape[:-1])
    rows, groups = x.shape[-2], weight.shape[-3]
    out = np.zeros(shape + (rows, weight.shape[-1]), np.result_type(x, weight))
    x = np.broadcast_to(x, shape + x.shape[-2:])
    weight = np.broadcast_to(weight, shape + weight.shape[-3:])
    index = np.broadcast_to(index, shape + index.shape[-1:])
    for at in np.ndindex(*shape, rows):
        if index[at] < groups:
            out[at] = x[at] @ weight[at[:-1]][index[at]]
    return out


def grouped_outer(x, y, index, n):
    shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2], index.shape[:-1])
    rows = x.shape[-2]
    out = np.zeros(shape + (n, x.shape[-1], y.shape[-1]), np.result_type(x, y))
    x, y = (np.broadcast_to(v, shape + v.shape[-2:]) for v in (x, y))
    index = np.broadcast_to(index, shape + index.shape[-1:])
    for at in np.ndindex(*shape, rows):
        if index[at] < n:
            out[at[:-1]][index[at]] += np.outer(x[at], y[at])
    return out


def group_cases():
    for dtype in INTS:
        lengths = Tensor(dtype, np.array([[3, 0, 2, 1], [0, 0, 0, 0], [1, 1, 1, 5]]))
        case(f"group_index.{dtype}", {"l": lengths}, "group_index(l, 8)",
             Tensor("i64", group_index(lengths.values, 8)))
    none, one = Tensor("i32", np.zeros((0,), np.int64)), Tensor("i64", np.array([4]))
    case("group_index.edges", {"a": none, "b": one},
         ["y0 = group_index(a, 3)", "y1 = group_index(b, 4)", "y2 = group_index(a, 0)"],
         [Tensor("i64", np.zeros(3, np.int64)), Tensor("i64", np.zeros(4, np.int64)),
          Tensor("i64", np.zeros(0, np.int64))])
    huge = 2**63 - 1
    for name, bad, text in (("over", [2, 3], "the lengths add up to 5 or more, and there are 4 rows"),
                            ("negative", [2, -1], "a length is negative, -1"),
                            ("negative_first", [-3, 9], "a length is negative, -3"),
                            ("huge", [2, huge], f"the lengths add up to {huge} or more")):
        case(f"group_index.{name}", {"l": Tensor("i64", np.array(bad))}, "group_index(l, 4)",
             fails=f"group_index(...): {text}")
    for number_, dtype in enumerate(DTYPES[:-1]):
        x, w = sample(dtype, (6, 4), "rows"), sample(dtype, (3, 4, 5), "groups")
        index = Tensor(INTS[number_ % 4], np.array([0, 0, 2, 3, 1, 2]))
        want = grouped_matmul(x.values, w.values, index.values)
        case(f"grouped_matmul.{dtype}", {"x": x, "w": w, "i": index}, "grouped_matmul(x, w, i)",
             Tensor(dtype, want))
    x, w = sample("f32", (2, 1, 3, 4), "batch"), sample("f32", (5, 2, 4, 3), "weights")
    index = Tensor("i64", np.array([[0, 1, 2], [1, 1, 0]])[:, None, :])
    case("grouped_matmul.batches", {"x": x, "w": w, "i": index}, "grouped_matmul(x, w, i)",
         Tensor("f32", grouped_matmul(x.values, w.values, index.values)))
    x, w = sample("bf16", (3, 4), "narrow"), sample("bf16", (2, 4, 2), "weights")
    index = Tensor("i8", np.array([1, 0, 2]))
    case("grouped_matmul.dtype", {"x": x, "w": w, "i": index}, "grouped_matmul(x, w, i, dtype=f32)",
         Tensor("f32", grouped_matmul(x.values, w.values, index.values)))
    nan = np.full((2, 2, 2), np.nan)
    nan[1] = [[1, 2], [3, 4]]
    rows = Tensor("f32", np.array([[1.0, 1.0], [0.0, 2.0], [np.inf, 1.0]]))
    index = Tensor("i32", np.array([1, 1, 2]))  # what no row asks for is not looked at
    case("grouped_matmul.unused", {"x": rows, "w": Tensor("f32", nan), "i": index},
         "grouped_matmul(x, w, i)", exact("f32", np.array([[4.0, 6.0], [6.0, 8.0], [0.0, 0.0]])))
    empty = Tensor("f32", np.zeros((0, 4, 3)))
    zeros = Tensor("i64", np.zeros(3, np.int64))
    case("grouped_matmul.none", {"x": sample("f32", (3, 4), "rows"), "w": empty, "i": zeros},
         "grouped_matmul(x, w, i)", exact("f32", np.zeros((3, 3))))
    case("grouped_matmul.shallow", {"x": Tensor("f32", np.zeros((3, 0))),
                                    "w": Tensor("f32", np.zeros((1, 0, 2))), "i": zeros},
         "grouped_matmul(x, w, i)", exact("f32", np.zeros((3, 2))))
    for bad in (-1, 3):
        index = Tensor("i64", np.array([0, bad]))
        case(f"grouped_matmul.outside.{bad}",
             {"x": sample("f32", (2, 4), "rows"), "w": sample("f32", (2, 4, 3), "groups"), "i": index},
             "grouped_matmul(x, w, i)",
             fails=f"grouped_matmul(...): index {bad} is not in 0 to 2, for 2 groups")
    for number_, dtype in enumerate(DTYPES[:-1]):
        x, y = sample(dtype, (6, 4), "rows"), sample(dtype, (6, 5), "others")
        index = Tensor(INTS[number_ % 4], np.array([0, 0, 2, 3, 1, 2]))
        case(f"grouped_outer.{dtype}", {"x": x, "y": y, "i": index}, "grouped_outer(x, y, i, 3)",
             Tensor(dtype, grouped_outer(x.values, y.values, index.values, 3)))
    x, y = sample("f32", (2, 1, 3, 4), "batch"), sample("f32", (5, 3, 2), "others")
    index = Tensor("i64", np.array([[0, 1, 2], [1, 1, 0]])[:, None, :])
    case("grouped_outer.batches", {"x": x, "y": y, "i": index}, "grouped_outer(x, y, i, 2)",
         Tensor("f32", grouped_outer(x.values, y.values, index.values, 2)))
    x, y = sample("bf16", (3, 4), "narrow"), sample("bf16", (3, 2), "others")
    index = Tensor("i8", np.array([1, 0, 2]))
    case("grouped_outer.dtype", {"x": x, "y": y, "i": index}, "grouped_outer(x, y, i, 2, dtype=f32)",
         Tensor("f32", grouped_outer(x.values, y.values, index.values, 2)))
    rows = Tensor("f32", np.array([[1.0, 2.0], [np.inf, np.nan], [3.0, 4.0]]))
    ones = Tensor("f32", np.ones((3, 1)))
    index = Tensor("i32", np.array([1, 2, 1]))  # rows of no group are not looked at, nor those of others
    case("grouped_outer.unused", {"x": rows, "y": ones, "i": index}, "grouped_outer(x, y, i, 2)",
         exact("f32", np.array([[[0.0], [0.0]], [[4.0], [6.0]]])))
    case("grouped_outer.none", {"x": sample("f32", (3, 4), "rows"), "y": sample("f32", (3, 2), "others"),
                                "i": Tensor("i64", np.zeros(3, np.int64))},
         "grouped_outer(x, y, i, 0)", exact("f32", np.zeros((0, 4, 2))))
    case("grouped_outer.shallow", {"x": Tensor("f32", np.zeros((0, 3))), "y": Tensor("f32", np.zeros((0, 2))),
                                   "i": Tensor("i64", np.zeros(0, np.int64))},
         "grouped_outer(x, y, i, 2)", exact("f32", np.zeros((2, 3, 2))))
    for bad in (-1, 3):
        index = Tensor("i64", np.array([0, bad]))
        case(f"grouped_outer.outside.{bad}",
             {"x": sample("f32", (2, 4), "rows"), "y": sample("f32", (2, 3), "others"), "i": index},
             "grouped_outer(x, y, i, 2)",
             fails=f"grouped_outer(...): index {bad} is not in 0 to 2, for 2 groups")


def indexed_cases():
    for number_, dtype in enumerate(DTYPES):
        x, src = sample(dtype, (3, 4), "indexed"), sample(dtype, (2, 3), "src")
        index = Tensor("i64" if number_ % 2 else "i32", random(dtype).integers(0, 3, (2, 3)))
        pick = Tensor("i64", np.array([2, 0, 2, 1]))
        body = ["y0 = gather(x, i, dim=0)", "y1 = gather(x, i, dim=-1)",
                "y2 = scatter(x, i, src, dim=0)", "y3 = scatter(x, i, src, dim=1)",
                "y4 = index_select(x, p, dim=0)", "y5 = index_select(x, p, dim=-1)"]
        v, i, p = x.values, index.values, pick.values
        case(f"indexed.{dtype}", {"x": x, "i": index, "src": src, "p": pick}, body,
             [exact(dtype, w) for w in
              (gather(v, i, 0), gather(v, i, 1), scatter(v, i, src.values, 0),
               scatter(v, i, src.values, 1), v[p], v[:, p])])
    x = sample("f32", (4,), "one")
    twice = Tensor("i64", np.array([1, 3, 1]))
    src = Tensor("f32", np.array([10.0, 20.0, 30.0]))
    none = Tensor("i64", np.zeros(0))
    case("indexed.duplicates", {"x": x, "i": twice, "src": src}, "scatter(x, i, src, dim=0)",
         exact("f32", scatter(x.values, twice.values, src.values, 0)))
    case("indexed.empty", {"x": x, "i": none, "src": Tensor("f32", np.zeros(0))},
         ["y0 = gather(x, i, dim=0)", "y1 = scatter(x, i, src, dim=0)",
          "y2 = index_select(x, i, dim=0)"],
         [exact("f32", np.zeros(0)), exact("f32", x.values), exact("f32", np.zeros(0))])
    for text in ("gather(x, i, dim=0)", "scatter(x, i, x, dim=0)", "index_select(x, i, dim=0)"):
        op = text.split("(")[0]
        for bad in (4, -1):
            i = Tensor("i64", np.array([0, 1, bad, 2]))
            case(f"{op}.outside.{bad}", {"x": x, "i": i}, text, fails=f"{op}(...): index {bad} ")


def scatter_add(dtype, x, index, src, dim):
    """np.add.at in the type sums are kept in: f64, i64; on bools it is or."""
    wide = x.astype(np.int64) if dtype == "bool" else x.copy()
    at = list(np.indices(index.shape))
    at[dim] = index
    np.add.at(wide, tuple(at), src[tuple(slice(n) for n in index.shape)].astype(wide.dtype))
    return wide


def scatter_add_cases():
    for dtype in DTYPES:
        x, src = sample(dtype, (3, 4), "add to"), sample(dtype, (5, 3), "added")
        rows = Tensor("i64", random("rows" + dtype).integers(0, 3, (5, 3)))
        columns = Tensor("i32", random("columns" + dtype).integers(0, 4, (2, 3)))
        case(f"scatter_add.{dtype}", {"x": x, "i": rows, "j": columns, "src": src},
             ["y0 = scatter(x, i, src, dim=0, reduce=add)",
              "y1 = scatter(x, j, src, dim=-1, reduce=add)", "y2 = scatter(x, j, src, 1, none)"],
             [exact(dtype, scatter_add(dtype, x.values, rows.values, src.values, 0)),
              exact(dtype, scatter_add(dtype, x.values, columns.values, src.values, 1)),
              exact(dtype, scatter(x.values, columns.values, src.values, 1))])
    # Ones on a number that is too big for a single one to change it.
    for dtype, big in (("f16", 2048.0), ("bf16", 256.0)):
        n = int(big)
        case(f"scatter_add.rounds_once.{dtype}",
             {"x": Tensor(dtype, np.array([big])), "i": Tensor("i64", np.zeros(n)),
              "src": Tensor(dtype, np.ones(n))},
             "scatter(x, i, src, dim=0, reduce=add)", exact(dtype, np.array([2 * big])))
    x = sample("i8", (2,), "wrap")
    case("scatter_add.wraps", {"x": Tensor("i8", np.array([100, -100])),
                               "i": Tensor("i8", np.array([0, 1, 0])),
                               "src": Tensor("i8", np.array([27, -100, 1]))},
         "scatter(x, i, src, dim=0, reduce=add)", exact("i8", np.array([128, -200])))
    for bad in (2, -1):
        case(f"scatter_add.outside.{bad}", {"x": x, "i": Tensor("i64", np.array([0, bad]))},
             "scatter(x, i, x, dim=0, reduce=add)", fails=f"scatter(...): index {bad} ")


def one_hot_cases():
    for dtype in DTYPES:
        i = Tensor("i32", random("hot" + dtype).integers(0, 4, (2, 3)))
        case(f"one_hot.{dtype}", {"i": i}, f"one_hot(i, 4, dtype={dtype})",
             exact(dtype, np.eye(4)[i.values]))
    u = Tensor("u8", np.array([2, 0, 1]))
    case("one_hot.default", {"i": u}, ["y0 = one_hot(i, n)", "y1 = one_hot(i, n * 2 - 1)"],
         [exact("i64", np.eye(3)[u.values]), exact("i64", np.eye(5)[u.values])],
         types={"i": "u8[n]"})
    case("one_hot.scalar", {"i": Tensor("i64", np.array(1))}, "one_hot(i, 3)",
         exact("i64", np.array([0, 1, 0])))
    case("one_hot.empty", {"i": Tensor("i64", np.zeros((0, 2)))}, "one_hot(i, 3)",
         exact("i64", np.zeros((0, 2, 3))))
    for bad in (3, -1):
        case(f"one_hot.outside.{bad}", {"i": Tensor("i64", np.array([0, bad]))}, "one_hot(i, 3)",
             fails=f"one_hot(...): index {bad} is outside axis 1, which has 3 elements")


# ---- in order along an axis ----
def cumsum_cases():
    for dtype in DTYPES:
        x, z = sample(dtype, (3, 4), "cumsum"), edges(dtype)
        wide = dtype if dtype in FLOATS else "i64"
        values, last = [v.values.astype(np.float64 if wide != "i64" else np.int64) for v in (x, z)]
        case(f"cumsum.{dtype}", {"x": x, "z": z},
             ["y0 = cumsum(x, dim=0)", "y1 = cumsum(x, dim=-1)", "y2 = cumsum(z, 0)"],
             [Tensor(wide, np.cumsum(values, 0)), Tensor(wide, np.cumsum(values, 1)),
              Tensor(wide, np.cumsum(last))])
    x = sample("f32", (2, 0, 3), "none")
    case("cumsum.empty", {"x": x}, ["y0 = cumsum(x, dim=1)", "y1 = cumsum(x, dim=2)"],
         [exact("f32", x.values), exact("f32", x.values)])
    # Kept wide between the elements: 256 + 1 + 1 + … in bf16 would stay where it is.
    ones = Tensor("bf16", np.concatenate([[256.0], np.ones(100)]))
    case("cumsum.rounds_once", {"x": ones}, "cumsum(x, dim=0)",
         exact("bf16", np.cumsum(ones.values)))


def descending(values, axis):
    """Stable, the largest first; NumPy puts NaN last in ascending order, so here it comes first."""
    flipped = np.flip(values, axis)
    order = np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
    return values.shape[axis] - 1 - order


def sort_cases():
    for dtype in DTYPES:
        few = sample(dtype, (4, 9), "ties", 0, 2)
        few = Tensor(dtype, np.round(few.values.astype(np.float64)))
        z = edges(dtype)
        case(f"argsort.{dtype}", {"x": few, "z": z},
             ["y0 = argsort(x)", "y1 = argsort(x, dim=0)", "y2 = argsort(x, descending=true)",
              "y3 = argsort(x, 0, true)", "y4 = argsort(z)", "y5 = argsort(z, descending=true)"],
             [exact("i64", v) for v in
              (np.argsort(few.values, 1, kind="stable"), np.argsort(few.values, 0, kind="stable"),
               descending(few.values, 1), descending(few.values, 0),
               np.argsort(z.values, kind="stable"), descending(z.values, 0))])
        rows, columns = descending(few.values, 1)[:, :3], descending(few.values, 0)[:2]
        case(f"topk.{dtype}", {"x": few, "z": z},
             ["y0 = topk(x, k=3)", "y1 = topk_index(x, k=3)", "y2 = topk(x, 2, 0)",
              "y3 = topk_index(x, k=2, dim=0)", "y4 = topk(z, k=12)", "y5 = topk_index(z, k=5)"],
             [exact(dtype, np.take_along_axis(few.values, rows, 1)), exact("i64", rows),
              exact(dtype, np.take_along_axis(few.values, columns, 0)), exact("i64", columns),
              exact(dtype, z.values[descending(z.values, 0)]),
              exact("i64", descending(z.values, 0)[:5])])
    special = Tensor("f32", np.array([math.nan, 1, -math.inf, math.nan, 0.0, -0.0, math.inf, -1]))
    case("argsort.special", {"x": special},
         ["y0 = argsort(x)", "y1 = argsort(x, descending=true)", "y2 = topk_index(x, k=4)"],
         [exact("i64", np.array([2, 7, 4, 5, 1, 6, 0, 3])),
          exact("i64", np.array([0, 3, 6, 1, 4, 5, 7, 2])), exact("i64", np.array([0, 3, 6, 1]))])
    long = Tensor("i32", random("long").integers(0, 50, (2, 300)))
    case("argsort.long", {"x": long}, ["y0 = argsort(x)", "y1 = topk_index(x, k=n / 3)"],
         [exact("i64", np.argsort(long.values, 1, kind="stable")),
          exact("i64", descending(long.values, 1)[:, :100])], types={"x": "i32[2, n]"})
    none = sample("f32", (2, 0), "none")
    case("argsort.empty", {"x": none}, ["y0 = argsort(x)", "y1 = topk(x, k=0)",
                                        "y2 = topk_index(x, k=1, dim=0)"],
         [exact("i64", np.zeros((2, 0))), exact("f32", np.zeros((2, 0))),
          exact("i64", np.zeros((1, 0)))])


# ---- linear algebra ----
def product_dtype(*tensors):
    return promote(*(t.dtype for t in tensors))


def numeric(t):
    return t.values.astype(np.int64) if t.dtype == "bool" else t.values


def matmul(a, b):
    return Tensor(product_dtype(a, b), np.matmul(numeric(a), numeric(b)))


# Operands and a result that is asked for.
PRODUCT_DTYPES = [("bf16", "f32"), ("f16", "f32"), ("f16", "f64"), ("f32", "bf16"), ("i8", "i32"),
                  ("u8", "i64"), ("i8", "f16"), ("i32", "f64")]


def wide(t, dtype):
    """The values in what nothing of a product is lost in."""
    return t.values.astype(np.int64 if dtype[0] == "i" else np.float64)


def matmul_cases():
    numbers = [d for d in DTYPES if d != "bool"]
    for dtype in numbers:
        a, b, v = (sample(dtype, s, f"mm{s}") for s in [(2, 3), (3, 4), (3,)])
        case(f"matmul.{dtype}", {"a": a, "b": b, "v": v},
             ["y0 = matmul(a, b)", "y1 = matmul(v, b)", "y2 = matmul(a, v)", "y3 = matmul(v, v)"],
             [matmul(a, b), matmul(v, b), matmul(a, v), matmul(v, v)])
    shapes = [((2, 2, 3), (3, 2)), ((2, 3), (4, 3, 2)), ((2, 1, 2, 3), (3, 3, 1)), ((3,), (2, 3, 2)),
              ((2, 2, 3), (3,)), ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((2, 3), (3, 0)),
              ((1, 1), (1, 1)), ((0, 2, 3), (3, 1)), ((0,), (0,))]
    for s, t in shapes:
        a, b = sample("f32", s, "left"), sample("f32", t, "right")
        case(f"matmul.{s}.{t}".replace(" ", ""), {"a": a, "b": b}, "matmul(a, b)", matmul(a, b))
    for s, t in [("f16", "bf16"), ("f32", "f64"), ("i32", "f16"), ("i8", "i64")]:
        a, b = sample(s, (2, 3), "l"), sample(t, (3, 2), "r")
        case(f"matmul.{s}.{t}", {"a": a, "b": b}, "matmul(a, b)", matmul(a, b))
    a, b = Tensor("i8", np.full((1, 200), 100)), Tensor("i8", np.full((200, 1), 100))
    case("matmul.wraps", {"a": a, "b": b}, "matmul(a, b)", matmul(a, b))
    for s, t in PRODUCT_DTYPES:
        a, b = sample(s, (2, 3), "to.a"), sample(s, (3, 4), "to.b")
        case(f"matmul.{s}.to.{t}", {"a": a, "b": b}, f"matmul(a, b, dtype={t})",
             Tensor(t, np.matmul(wide(a, t), wide(b, t))))


def linear(x, w, bias=None):
    tensors = [x, w] + ([bias] if bias else [])
    return Tensor(product_dtype(*tensors),
                  np.matmul(x.values, w.values.T) + (bias.values if bias else 0))


def linear_cases():
    for dtype in [d for d in DTYPES if d != "bool"]:
        x, w, b = (sample(dtype, s, f"linear{s}") for s in [(2, 3), (4, 3), (4,)])
        case(f"linear.{dtype}", {"x": x, "w": w, "b": b},
             ["y0 = linear(x, w)", "y1 = linear(x, w, b)"], [linear(x, w), linear(x, w, b)])
    for s, t in PRODUCT_DTYPES:
        x, w, b = (sample(s, shape, f"to{shape}") for shape in [(2, 3), (4, 3), (4,)])
        case(f"linear.{s}.to.{t}", {"x": x, "w": w, "b": b}, f"linear(x, w, b, dtype={t})",
             Tensor(t, np.matmul(wide(x, t), wide(w, t).T) + wide(b, t)))
    w, b = sample("f32", (4, 3), "w"), sample("f32", (4,), "b")
    for shape in [(3,), (2, 2, 3), (0, 3), (1, 1, 3)]:
        x = sample("f32", shape, "linear")
        case(f"linear.{shape}".replace(" ", ""), {"x": x, "w": w, "b": b}, "linear(x, w, b)",
             linear(x, w, b))
    x, w2, b2 = (sample("f32", s, "stacked") for s in [(2, 3), (2, 4, 3), (2, 4)])
    stacked = np.matmul(x.values, np.swapaxes(w2.values, 1, 2))
    case("linear.stacked", {"x": x, "w": w2, "b": b2}, ["y0 = linear(x, w)", "y1 = linear(x, w, b)"],
         [Tensor("f32", stacked), Tensor("f32", stacked + b2.values[:, None, :])])
    x, w = Tensor("f32", np.zeros((2, 0))), Tensor("f32", np.zeros((4, 0)))
    case("linear.empty", {"x": x, "w": w, "b": b}, "linear(x, w, b)", linear(x, w, b))


# ---- models ----
def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True)) if x.size else x
    return e / e.sum(axis=axis, keepdims=True)


def softmax_cases():
    for dtype in FLOATS:
        x = sample(dtype, (2, 3, 2), "softmax")
        case(f"softmax.{dtype}", {"x": x},
             ["y0 = softmax(x)", "y1 = softmax(x, dim=0)", "y2 = softmax(x, dim=-2)"],
             [Tensor(dtype, softmax(x.values, d)) for d in (-1, 0, 1)])
    i = sample("i32", (3, 2), "softmax")
    case("softmax.i32", {"x": i}, "softmax(x, dim=0)", Tensor("f32", softmax(i.values, 0)))
    inf, nan = math.inf, math.nan
    x = Tensor("f32", np.array([[1000, 1001, 999.0], [-inf, 0, 1], [-inf, -inf, -inf],
                                [inf, 0, 1], [nan, 0, 1], [-1e38, -1e38, 3e38]]))
    case("softmax.special", {"x": x}, "softmax(x, dim=1)", Tensor("f32", softmax(x.values, 1)))
    case("softmax.one", {"x": sample("f32", (3, 1), "one")}, "softmax(x)", Tensor("f32", np.ones((3, 1))))
    case("softmax.empty", {"x": sample("f32", (2, 0), "none")}, "softmax(x)",
         Tensor("f32", np.zeros((2, 0))))


def layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    center, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - center) / np.sqrt(spread + eps) * weight + bias


def rms_norm(x, weight=1.0, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def norm_cases():
    for dtype in FLOATS:
        x, w, b = (sample(dtype, s, f"norm{n}") for n, s in enumerate([(2, 2, 4), (4,), (4,)]))
        v = x.values
        case(f"norm.{dtype}", {"x": x, "w": w, "b": b},
             ["y0 = layer_norm(x)", "y1 = layer_norm(x, w, b)", "y2 = layer_norm(x, weight=w)",
              "y3 = layer_norm(x, bias=b, eps=0.5)", "y4 = rms_norm(x)", "y5 = rms_norm(x, weight=w)",
              "y6 = rms_norm(x, w, eps=0.25)"],
             [Tensor(dtype, t) for t in
              (layer_norm(v), layer_norm(v, w.values, b.values), layer_norm(v, w.values),
               layer_norm(v, bias=b.values, eps=0.5), rms_norm(v), rms_norm(v, w.values),
               rms_norm(v, w.values, 0.25))])
    x, w = sample("f16", (2, 4), "mixed"), sample("f32", (4,), "mixed")
    case("norm.promotes", {"x": x, "w": w}, ["y0 = layer_norm(x, w)", "y1 = rms_norm(x, w)"],
         [Tensor("f32", layer_norm(x.values, w.values)), Tensor("f32", rms_norm(x.values, w.values))])
    for shape in [(4,), (3, 1), (0, 4)]:
        x = sample("f32", shape, "norm")
        case(f"norm.{shape}".replace(" ", ""), {"x": x}, ["y0 = layer_norm(x)", "y1 = rms_norm(x)"],
             [Tensor("f32", layer_norm(x.values)), Tensor("f32", rms_norm(x.values))])
    same = Tensor("f32", np.full((1, 3), 1e4))
    case("norm.constant", {"x": same}, ["y0 = layer_norm(x)", "y1 = rms_norm(x)"],
         [Tensor("f32", np.zeros((1, 3))), Tensor("f32", rms_norm(same.values))])


def sdpa(q, k, v, causal=False, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    return np.matmul(softmax(scores, -1), v)


def sdpa_cases():
    for dtype in FLOATS:
        q, k, v = (sample(dtype, s, f"sdpa{n}") for n, s in enumerate([(2, 3, 4), (2, 5, 4), (2, 5, 2)]))
        a = [t.values for t in (q, k, v)]
        case(f"sdpa.{dtype}", {"q": q, "k": k, "v": v},
             ["y0 = sdpa(q, k, v)", "y1 = sdpa(q, k, v, causal=true)",
              "y2 = sdpa(q, k, v, scale=0.25)"],
             [Tensor(dtype, t) for t in (sdpa(*a), sdpa(*a, causal=True), sdpa(*a, scale=0.25))])
    shapes = {"plain": [(3, 2), (4, 2), (4, 3)], "heads": [(2, 2, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2)],
              "batched": [(2, 1, 3, 2), (1, 2, 4, 2), (4, 2)],
              "long": [(5, 2), (2, 2), (2, 2)], "no_queries": [(0, 2), (3, 2), (3, 2)],
              "one": [(1, 1), (1, 1), (1, 1)], "no_keys": [(3, 2), (0, 2), (0, 2)]}
    for name, (s, t, u) in shapes.items():
        q, k, v = sample("f32", s, "q"), sample("f32", t, "k"), sample("f32", u, "v")
        a = [x.values for x in (q, k, v)]
        case(f"sdpa.{name}", {"q": q, "k": k, "v": v},
             ["y0 = sdpa(q, k, v)", "y1 = sdpa(q, k, v, causal=true)"],
             [Tensor("f32", sdpa(*a)), Tensor("f32", sdpa(*a, causal=True))])


# ---- several results ----
def lse_of(q, k, causal=False, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if scores.shape[-1] == 0:
        return np.full(scores.shape[:-1], -np.inf)
    top = scores.max(-1, keepdims=True)
    return (top + np.log(np.exp(scores - top).sum(-1, keepdims=True)))[..., 0]


def spread_heads(x, heads):
    """Each head of k or v, as often as heads of q read it."""
    return x if x.ndim < 3 else np.repeat(x, heads // x.shape[-3], axis=-3)


def gather_heads(x, heads):
    """The sums over those of q that read the same one."""
    if x.ndim < 3:
        return x
    return x.reshape(*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:]).sum(-3)


def sdpa_backward(q, k, v, out, lse, dout, causal=False, scale=None):
    """out None: by the derivative of the softmax itself, without what the forward pass kept."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    heads, few = (q.shape[-3], k.shape[-3]) if q.ndim > 2 else (1, 1)
    wide_k, wide_v = spread_heads(k, heads), spread_heads(v, heads)
    scores = np.matmul(q, np.swapaxes(wide_k, -1, -2)) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = softmax(scores, -1) if out is None else np.exp(scores - lse[..., None])
    dweights = np.matmul(dout, np.swapaxes(wide_v, -1, -2))
    mean = (dweights * weights if out is None else dout * out).sum(-1, keepdims=True)
    dscores = weights * (dweights - mean) * scale
    return (np.matmul(dscores, wide_k), gather_heads(np.matmul(np.swapaxes(dscores, -1, -2), q), few),
            gather_heads(np.matmul(np.swapaxes(weights, -1, -2), dout), few))


def gradient_case(name, dtypes, shapes, exact_form=False, **options):
    """shapes: of q, k and v."""
    tq, tk, tv = dtypes
    q, k, v = (sample(t, s, f"{name}{n}") for n, (t, s) in enumerate(zip(dtypes, shapes)))
    a, heads = [t.values for t in (q, k, v)], shapes[0][-3] if len(shapes[0]) > 2 else 1
    wide = [a[0], spread_heads(a[1], heads), spread_heads(a[2], heads)]
    tout = promote(*dtypes)
    out = Tensor(tout, sdpa(*wide, **options))
    lse = Tensor("f64" if tout == "f64" else "f32", lse_of(wide[0], wide[1], **options))
    dout = sample(tout, out.values.shape, f"{name}dout")
    kept = (None, None) if exact_form else (out.values, lse.values)
    gradients = sdpa_backward(*a, *kept, dout.values, **options)
    text = "".join(f", {o}={str(x).lower()}" for o, x in options.items())
    case(f"sdpa_backward.{name}",
         {"q": q, "k": k, "v": v, "o": out, "l": lse, "g": dout},
         [f"y0, y1, y2 = sdpa_backward(q, k, v, o, l, g{text})",
          f"y3, y4 = sdpa(q, k, v{text})", f"y5 = sdpa_backward(q, k, v, o, l, g{text})"],
         [Tensor(t, x) for t, x in zip(dtypes, gradients)] + [out, lse, Tensor(tq, gradients[0])])


def results_cases():
    for dtype in DTYPES:
        x = sample(dtype, (3, 4), "var_mean")
        t = dtype if dtype in FLOATS else "f32"
        v = x.values.astype(np.float64)
        few = Tensor(dtype, np.round(sample(dtype, (4, 9), "ties", 0, 2).values.astype(np.float64)))
        rows = descending(few.values, 1)[:, :3]
        case(f"results.{dtype}", {"x": x, "z": few},
             ["y0, y1 = var_mean(x, dims=[1])", "y2, y3 = var_mean(x, correction=1)",
              "y4, y5 = var_mean(x, dims=[0], keepdim=true)", "y6 = var_mean(x, dims=[0])",
              "y7, y8 = topk(z, k=3)"],
             [Tensor(t, np.var(v, axis=1)), Tensor(t, np.mean(v, axis=1)),
              Tensor(t, np.var(v, ddof=1)), Tensor(t, np.mean(v)),
              Tensor(t, np.var(v, axis=0, keepdims=True)),
              Tensor(t, np.mean(v, axis=0, keepdims=True)), Tensor(t, np.var(v, axis=0)),
              exact(dtype, np.take_along_axis(few.values, rows, 1)), exact("i64", rows)])
    for dtype in FLOATS:
        gradient_case(dtype, [dtype] * 3, [(2, 3, 4), (2, 5, 4), (2, 5, 2)])
        gradient_case(f"{dtype}.causal", [dtype] * 3, [(2, 5, 4), (2, 4, 4), (2, 4, 3)], causal=True)
    gradient_case("mixed", ["bf16", "f32", "f16"], [(3, 4), (5, 4), (5, 2)], scale=0.25)
    heads = [(2, 6, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)]
    gradient_case("groups", ["f32"] * 3, heads)
    gradient_case("groups.causal", ["f64"] * 3, heads, exact_form=True, causal=True)
    gradient_case("softmax", ["f64"] * 3, [(2, 3, 4), (2, 5, 4), (2, 5, 2)], exact_form=True)
    gradient_case("single", ["f32"] * 3, [(4, 3, 2), (1, 5, 2), (1, 5, 2)])
    gradient_case("no_queries", ["f32"] * 3, [(2, 0, 4), (2, 5, 4), (2, 5, 2)])
    gradient_case("no_keys", ["f32"] * 3, [(2, 3, 4), (2, 0, 4), (2, 0, 2)])
    gradient_case("no_values", ["f32"] * 3, [(2, 3, 4), (2, 5, 4), (2, 5, 0)])


# ---- whole programs ----
def program_cases():
    x, w = sample("bf16", (4, 8), "mlp"), sample("bf16", (6, 8), "mlpw")
    s = sample("f32", (), "scale")
    hidden = linear(x, w)
    scaled = apply("same", np.multiply, hidden, s)
    total = Tensor("f32", scaled.values.sum(0))
    case("program.row_parallel", {"x": x, "w": w, "s": s},
         ["h = linear(x, w)", "y0 = h * s", "y1 = sum(y0, dims=[0])"],
         [scaled, total, hidden], types={"x": "bf16[t, 8]"}, returns="y0, y1, h")
    a = sample("f32", (3, 4), "same")
    case("program.symbols", {"a": a, "b": a}, "a - b",
         [Tensor("f32", np.zeros((3, 4))), exact("f32", a.values)],
         types={"a": "f32[m, ?]", "b": "f32[m, 4]"}, returns="y0, a")
    i = sample("i32", (5,), "int")
    case("program.int_div", {"i": i}, ["y0 = (i + 1) / 2", "y1 = mod(i, 3)", "y2 = -i"],
         [Tensor("f32", (i.values + 1) / 2), Tensor("i32", np.mod(i.values, 3)),
          Tensor("i32", -i.values)])


def main():
    for write in (unary_cases, binary_cases, promotion_cases, broadcast_shape_cases, literal_cases,
                  choice_cases, cast_cases, reduction_cases, empty_reduction_cases,
                  more_reduction_cases, shape_cases, move_cases, cat_cases, maker_cases,
                  uniform_cases, indexed_cases, matmul_cases, linear_cases, softmax_cases,
                  norm_cases, sdpa_cases, program_cases, scatter_add_cases, one_hot_cases,
                  cumsum_cases, sort_cases, results_cases, update_cases, group_cases):
        write()
    print("# Written by generate.py; do not edit.")
    print("\n".join(lines))


main()
