"""Programs written as Python functions over symbolic tensors.

    @weir.fusion
    def mlp(x: "f32[n, 64]", w: "f32[64, 128]"):
        return weir.ops.gelu(x @ w)

The function is called once; what it does with its arguments becomes the text of a program, which is parsed,
checked and compiled like any other.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple


class _Trace:
    def __init__(self):
        self.lines: list[str] = []
        self.names: set[str] = set()

    def add(self, text: str) -> Tensor:
        name = f"t{len(self.lines)}"
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.lines.append(f"{name} = {text}")
        return Tensor(self, name)


def _text(value) -> str:
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, (int, float, str)):
        return str(value)
    raise TypeError(f"{value!r} cannot be an argument of an operation")


class Tensor:
    """A tensor of a function that is traced: it has a name and no values."""

    __slots__ = ("_trace", "name")

    def __init__(self, trace: _Trace, name: str):
        self._trace = trace
        self.name = name

    def __repr__(self) -> str:
        return f"<weir tensor {self.name}>"

    def __bool__(self):
        raise TypeError("a traced tensor has no values to decide by: use weir.ops.where")

    def _binary(self, operator, other, swapped=False):
        if not isinstance(other, (Tensor, int, float)):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        return self._trace.add(f"{_text(a)} {operator} {_text(b)}")

    def __add__(self, other):
        return self._binary("+", other)

    def __radd__(self, other):
        return self._binary("+", other, True)

    def __sub__(self, other):
        return self._binary("-", other)

    def __rsub__(self, other):
        return self._binary("-", other, True)

    def __mul__(self, other):
        return self._binary("*", other)

    def __rmul__(self, other):
        return self._binary("*", other, True)

    def __truediv__(self, other):
        return self._binary("/", other)

    def __rtruediv__(self, other):
        return self._binary("/", other, True)

    def __neg__(self):
        return self._trace.add(f"neg({self.name})")

    def __matmul__(self, other):
        return self._trace.add(f"matmul({self.name}, {_text(other)})")


class _Ops:
    """Every operation of `weir list ops`: ops.matmul(a, b), ops.sum(x, dims=[1])."""

    def __getattr__(self, op: str):
        if op.startswith("__"):
            raise AttributeError(op)

        def call(*args, **keywords) -> Tensor:
            tensors = [a for a in (*args, *keywords.values()) if isinstance(a, Tensor)]
            for a in (*args, *keywords.values()):
                if isinstance(a, (list, tuple)):
                    tensors += [t for t in a if isinstance(t, Tensor)]
            if not tensors:
                raise TypeError(f"ops.{op} needs a traced tensor among its arguments")
            words = [_text(a) for a in args] + [f"{k}={_text(v)}" for k, v in keywords.items()]
            return tensors[0]._trace.add(f"{op}({', '.join(words)})")

        call.__name__ = op
        return call


ops = _Ops()


class Fusion(NamedTuple):
    """A traced function: its text, and programs compiled from it."""

    name: str
    text: str

    def compile(self, **options):
        from . import load
        return load(self.text, self.name).compile(self.name, **options)


def _trace(function, meshes: dict, schedule: str) -> Fusion:
    trace = _Trace()
    arguments = []
    for name, parameter in inspect.signature(function).parameters.items():
        if not isinstance(parameter.annotation, str):
            raise TypeError(f"{function.__name__}: annotate {name} with its type as text, like \"f32[n, 64]\"")
        kind = parameter.annotation.strip("'\"")
        trace.names.add(name)
        trace.lines.append(f"{name} : {kind}")
        arguments.append(Tensor(trace, name))
    result = function(*arguments)
    results = result if isinstance(result, (tuple, list)) else (result,)
    if not results or not all(isinstance(t, Tensor) for t in results):
        raise TypeError(f"{function.__name__} must return traced tensors")
    lines = [f"mesh {k} = {_text(list(v))}" for k, v in meshes.items()] + trace.lines
    lines.append("return " + ", ".join(t.name for t in results))
    if schedule:
        lines.append("schedule {\n" + schedule + "\n}")
    return Fusion(function.__name__, f"fusion {function.__name__} {{\n" + "\n".join(lines) + "\n}\n")


def fusion(function=None, *, meshes: dict | None = None, schedule: str = ""):
    """Traces a function whose parameters are annotated with types. `meshes` are device meshes by name, and
    `schedule` statements of the language about the parameters."""
    if function is None:
        return lambda f: _trace(f, meshes or {}, schedule)
    return _trace(function, meshes or {}, schedule)
