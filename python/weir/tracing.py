"""Programs written as Python functions over symbolic tensors.

    @weir.fusion
    def mlp(x: "f32[n, 64]", w: "f32[64, 128]"):
        return weir.ops.gelu(x @ w)

The function is called once; what it does with its arguments becomes the text of a program, which is parsed,
checked and compiled like any other. A mistake is reported at the line of the function that made it.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import numbers
import re
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from . import _weir
from .schedules import Mesh, Schedule, _place

if TYPE_CHECKING:
    from . import Module, Program

_TRACE: contextvars.ContextVar = contextvars.ContextVar("weir.trace")
_DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
           "int8": "i8", "uint8": "u8", "bool": "bool"}
_WORD = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = frozenset("fusion host return schedule mesh stream serial true false inf nan".split())


@functools.cache
def _results() -> dict[str, int]:
    """How many results an operation has, for those with several."""
    lines = _weir.list("ops").splitlines()
    return {line.split()[0]: line.split(" -> ")[1].count(",") + 1 for line in lines if " -> " in line}


class _Line:
    """A statement: names, what they are given, and where in Python it was written."""

    def __init__(self, names: list[str], text: str, place: tuple[str, int]):
        self.names = names
        self.text = text
        self.place = place

    def __str__(self) -> str:
        return f"{', '.join(self.names)} {self.text}"


class _Trace:
    def __init__(self, name: str):
        self.name = name
        self.lines: list[_Line] = []
        self.names: set[str] = set()
        self.made: set[str] = set()  # names that tensors have by default
        self.given: set[str] = set()  # default names of tensors that were given another one
        self.renamed: dict[str, str] = {}  # other names of tensors, by their default names
        self.inputs: dict[str, _Line] = {}
        self.symbols: dict[str, str] = {}  # extents, and an input that declares each
        self.makers: dict[str, _Line] = {}  # the statements of other tensors
        self.types: dict[str, str] = {}  # the types of these that were asked for

    def fresh(self, wanted: str) -> str:
        while wanted in self.names:
            wanted += "_"
        self.names.add(wanted)
        return wanted

    def make(self, wanted: str) -> str:
        name = self.fresh(wanted)
        self.made.add(name)
        return name

    def rename(self, made: str, name: str) -> None:
        """Gives a tensor a name; a tensor that has this name by default gets another one."""
        if name in self.made and name not in self.renamed and name != made:
            self.renamed[name] = self.fresh(name)
        elif name in self.renamed.values() or name in self.names - self.made:
            raise ValueError(f"two tensors of {self.name} are called {name}")
        self.names.add(name)
        self.given.add(made)
        self.renamed[made] = name

    def add(self, text: str, op: str = "") -> Tensor:
        name = self.make(f"t{len(self.lines)}")
        self.lines.append(_Line([name], f"= {text}", _place()))
        self.makers[name] = self.lines[-1]
        return Tensor(self, self.lines[-1], 0, op)

    def add_input(self, name: str, kind: str, place: tuple[str, int]) -> Tensor:
        line = _Line([name], f": {kind}", place)
        self.names.update([name, *_NAME.findall(kind)])
        self.lines.append(line)
        self.inputs[name] = line
        for symbol in _NAME.findall(kind.partition("[")[2]):
            self.symbols.setdefault(symbol, name)
        return Tensor(self, line, 0)

    def type_of(self, name: str) -> str:
        """The type of a tensor, found from its statement and the types of its operands."""
        wanted = [name]
        while wanted:
            at = wanted[-1]
            unknown = [n for n in self.operands_of(at) if n not in self.types]
            wanted += unknown
            if not unknown:
                wanted.pop()
                if at not in self.types:
                    self.types[at] = self.find_type(at)
        return self.types[name]

    def operands_of(self, name: str) -> list[str]:
        return [] if name in self.inputs else [n for n in _NAME.findall(self.makers[name].text) if n in self.makers]

    def find_type(self, name: str) -> str:
        from . import ProgramError
        line = self.inputs.get(name) or self.makers[name]
        operands = {n: "= zeros([{1}], dtype={0})".format(*_parts(self.types[n])) for n in self.operands_of(name)}
        used = {w for text in (name, line.text, *operands.values()) for w in _NAME.findall(text)}
        needed = {self.symbols.get(w, w) for w in used}
        lines = [str(self.inputs[n]) for n in self.inputs if n in needed or n in used]
        lines += [f"{n} {text}" for n, text in operands.items()]
        lines += [] if name in self.inputs else [str(line)]
        try:
            module = _weir.Module("<line>", "\n".join(["fusion f {", *lines, f"return {name}", "}"]))
            return module.signature("f")[1][0][3]
        except ProgramError:  # the whole text gives a better message, or has what is missing
            text, places = self.program([name])
            return _parse(self.name, text + "\n}\n", places).signature(self.name)[1][0][3]

    def program(self, results: list[str]) -> tuple[str, list[tuple[str, int]]]:
        """The text without its last brace, and where each of its lines was written."""
        body = "\n".join([*(f"  {x}" for x in self.lines), "  return " + ", ".join(results)])
        body = re.sub(r"\b[A-Za-z_]\w*", lambda m: self.renamed.get(m[0], m[0]), body)
        lines = [f"fusion {self.name} {{", body]
        places = [("", 0), *(line.place for line in self.lines), ("", 0)]
        return "\n".join(lines), places


def _current(what: str) -> _Trace:
    trace = _TRACE.get(None)
    if trace is None:
        raise RuntimeError(f"{what} is for functions that weir.fusion traces")
    return trace


def _parts(kind: str) -> tuple[str, str]:
    """ "f32" and "n, 4" of f32[n, 4]."""
    dtype, _, extents = kind.partition("[")
    return dtype, extents[:-1]


def _split(extents: str) -> list[str]:
    """Splits at the commas outside of parentheses and brackets."""
    found, depth, begin = [], 0, 0
    for k, c in enumerate(extents):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            found.append(extents[begin:k].strip())
            begin = k + 1
    return [*found, extents[begin:].strip()] if extents else []


# ---- values ----

def _text(value) -> str:
    if isinstance(value, Tensor):
        if value._trace is not _TRACE.get(None):
            raise ValueError(f"{value!r} belongs to another function that was traced")
        return value._id
    if isinstance(value, Extent):
        return value.text
    if isinstance(value, (bool, type(None))) or type(value).__name__ in ("bool_", "bool"):
        if value is None:
            raise TypeError("None cannot be an argument of an operation: leave the argument out")
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, str):
        return value
    name = getattr(value, "__name__", str(value)).rpartition(".")[2]  # numpy.float32, torch.float32, dtype('float32')
    if name in _DTYPES:
        return _DTYPES[name]
    raise TypeError(f"{value!r} cannot be an argument of an operation")


class Extent:
    """A length known when the program runs: x.shape[0]. Sums, products, // and % of extents and integers are extents."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return f"<weir extent {self.text}>"

    def __hash__(self):
        return hash(self.text)

    def _no_value(self, *_: Any) -> NoReturn:
        raise TypeError(f"the extent {self.text} is known when the program runs, and Python needs its value here: a type like "
                        "\"f32[n, 64]\" fixes extents")

    __bool__ = __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = __pow__ = _no_value

    def __eq__(self, other):
        if not isinstance(other, (Extent, numbers.Integral)):
            return NotImplemented
        return isinstance(other, Extent) and self.text == other.text or self._no_value()

    def __truediv__(self, other):
        raise TypeError(f"{self!r} is an integer: // divides it, and a tensor can be divided by it")

    __rtruediv__ = __truediv__

    def _with(self, sign, other, swapped=False):
        if not isinstance(other, (Extent, numbers.Integral)):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        return Extent(f"({_text(a)} {sign} {_text(b)})")

    def __add__(self, other):
        return self._with("+", other)

    def __radd__(self, other):
        return self._with("+", other, True)

    def __sub__(self, other):
        return self._with("-", other)

    def __rsub__(self, other):
        return self._with("-", other, True)

    def __mul__(self, other):
        return self._with("*", other)

    def __rmul__(self, other):
        return self._with("*", other, True)

    def __floordiv__(self, other):
        return self._with("/", other)

    def __rfloordiv__(self, other):
        return self._with("/", other, True)

    def __mod__(self, other):
        return self._with("%", other)


def _kind(value) -> str:
    """Describes what a traced function returned instead of a tensor, and what to do."""
    if value is None:
        return "None: is its return missing?"
    if hasattr(value, "__array__"):
        return "an array: arrays are used as parameters, whose values are not known yet"
    return f"{value!r}"


def _operand(value) -> str:
    """An operand as text: in an expression on tensors an extent is written as extent(...)."""
    return f"extent({value.text})" if isinstance(value, Extent) else _text(value)


def _binary(pattern: str, swapped: bool = False):
    def method(self, other):
        if hasattr(other, "__dlpack__") and other.shape == ():
            other = other.item()  # a number
        elif hasattr(other, "__dlpack__"):
            raise TypeError(f"{type(other).__name__} and a traced tensor: make the array a parameter")
        if not isinstance(other, (Tensor, Extent, numbers.Real)):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        return self._trace.add(pattern.format(_operand(a), _operand(b)))

    return method


def _operator(sign: str, swapped: bool = False):
    return _binary(f"{{}} {sign} {{}}", swapped)


def _function(op: str, swapped: bool = False):
    return _binary(f"{op}({{}}, {{}})", swapped)


class Tensor:
    """A tensor of a function that is traced: it has a name and no values. Operators, x[1:, 3], x.shape, x.dtype, and
    every operation as a method: x.sum(dims=[1]), x.reshape([n, 8])."""

    __slots__ = ("_trace", "_line", "_number", "_op", "_info")
    __hash__ = object.__hash__
    __array_priority__ = 1000  # NumPy's operators defer to those here

    def __init__(self, trace: _Trace, line: _Line, number: int, op: str = ""):
        self._trace = trace
        self._line = line
        self._number = number
        self._op = op
        self._info = None

    @property
    def _id(self) -> str:
        return self._line.names[self._number]

    @property
    def name(self) -> str:
        return self._trace.renamed.get(self._id, self._id)

    def named(self, name: str) -> Tensor:
        """Gives it a name, by which schedules and messages call it; returns it."""
        if not isinstance(name, str) or not _WORD.match(name) or name in _RESERVED:
            raise ValueError(f"{name!r} cannot be the name of a tensor: names are made of letters, digits and _, and are "
                             "no word of the language")
        if self._line.text.startswith(":"):
            raise ValueError(f"{self.name} is an input, which is called as the parameter")
        if self._id in self._trace.given:
            raise ValueError(f"{self!r} has a name already")
        self._trace.rename(self._id, name)
        return self

    def __repr__(self) -> str:
        return f"<weir tensor {self.name}>"

    def __bool__(self):
        raise TypeError("a traced tensor has no values to decide by: use weir.ops.where")

    def __iter__(self):
        """The results of an operation that has several: v, i = ops.topk(x, k=2)."""
        n = _results().get(self._op, 1)
        if n == 1:
            raise TypeError(f"{self!r} is one tensor, which cannot be taken apart")
        for k in range(len(self._line.names), n):
            self._line.names.append(self._trace.make(f"{self._line.names[0]}_{k}"))
            self._trace.makers[self._line.names[k]] = self._line
        return iter([self, *(Tensor(self._trace, self._line, k) for k in range(1, n))])

    # -- what it is --

    def _describe(self) -> tuple[str, tuple[int | None, ...]]:
        if self._info is None:
            dtype, extents = _parts(self._trace.type_of(self._id))
            self._info = dtype, tuple(int(n) if n.isdigit() else None for n in _split(extents))
        return self._info

    @property
    def dtype(self) -> str:
        return self._describe()[0]

    @property
    def ndim(self) -> int:
        return len(self._describe()[1])

    @property
    def shape(self) -> tuple[Extent | int, ...]:
        """Its extents: integers, where types and operations fix them."""
        return tuple(Extent(f"{self._id}.{k}") if n is None else n for k, n in enumerate(self._describe()[1]))

    @property
    def T(self) -> Tensor:
        """The last two dimensions change places."""
        return self._trace.add(f"transpose({self._id})")

    def __getitem__(self, index) -> Tensor:
        return _index(self, index if isinstance(index, tuple) else (index,))

    def __floordiv__(self, other) -> NoReturn:
        raise TypeError("there is no division of tensors that rounds down: weir.ops.floor(x / y) is of floats, and integers are "
                        "cast to f64 for it")

    __rfloordiv__ = __floordiv__

    def __setitem__(self, index, value) -> NoReturn:
        raise TypeError("a traced tensor is never changed: weir.ops.update, where and cat make another one")

    def __getattr__(self, op: str):
        if op.startswith("_"):
            raise AttributeError(op)
        return functools.partial(_method, op, self)

    # -- operators --

    __add__, __radd__ = _operator("+"), _operator("+", True)
    __sub__, __rsub__ = _operator("-"), _operator("-", True)
    __mul__, __rmul__ = _operator("*"), _operator("*", True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", True)
    __lt__, __le__, __gt__, __ge__ = _operator("<"), _operator("<="), _operator(">"), _operator(">=")
    __eq__, __ne__ = _operator("=="), _operator("!=")
    __pow__, __rpow__ = _function("pow"), _function("pow", True)
    __mod__, __rmod__ = _function("mod"), _function("mod", True)
    __and__, __or__, __xor__ = _function("and"), _function("or"), _function("xor")
    __matmul__ = _function("matmul")

    def __neg__(self):
        return self._trace.add(f"neg({self._id})")

    def __abs__(self):
        return self._trace.add(f"abs({self._id})")

    def __invert__(self):
        return self._trace.add(f"not({self._id})")


def _index(x: Tensor, index: tuple) -> Tensor:
    """x[1:-1, ..., 0, None]: a slice, then dimensions that are removed and added. Negative ends count from the end."""
    given = sum(i is not None and i is not Ellipsis for i in index)
    if sum(i is Ellipsis for i in index) > 1:
        raise IndexError("an index has one ellipsis at most")
    if given > x.ndim:
        raise IndexError(f"{x!r} has {x.ndim} dimensions, and {given} indices are given")
    at = next((k for k, i in enumerate(index) if i is Ellipsis), len(index))
    full = [*index[:at], *[slice(None)] * (x.ndim - given), *index[at + 1:]]
    starts, stops, steps, dropped, added, d, place = [], [], [], [], [], 0, 0
    for i in full:
        if i is None:
            added.append(place)
            place += 1
            continue
        start, stop, step = _range(x, d, i)
        starts.append(start), stops.append(stop), steps.append(step)
        if isinstance(i, slice):
            place += 1
        else:
            dropped.append(d)
        d += 1
    y = x
    if any(i is not None and not (isinstance(i, slice) and i == slice(None)) for i in full):
        words = f"slice({x._id}, starts={_text(starts)}, stops={_text(stops)}"
        y = x._trace.add(words + (f", steps={_text(steps)})" if any(s != 1 for s in steps) else ")"))
    if dropped:
        y = x._trace.add(f"squeeze({y._id}, dims={_text(dropped)})")
    if added:
        y = x._trace.add(f"broadcast({y._id}, {_text([k in added for k in range(place)])})")
    return y


def _range(x: Tensor, d: int, i) -> tuple:
    """Start, stop and step of one index. A position before the first one becomes 0, since in the language a start below
    0 counts from the end: with two positions, x[-3:] is both of them, and x[-3] is an empty slice."""
    def end(value, otherwise):
        if value is None:
            return otherwise
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return int(value) if value >= 0 else Extent(f"max({x._id}.{d} - {-int(value)}, 0)")
        if isinstance(value, Extent):
            return value
        raise TypeError(f"{value!r} cannot be an index: slices, integers, ... and None can, and ops.index_select takes a "
                        "tensor")

    if not isinstance(i, slice):
        start = end(i, None)
        if isinstance(i, numbers.Integral) and i < 0:
            return start, end(i + 1, None) if i < -1 else Extent(f"{x._id}.{d}"), 1
        return start, start + 1, 1
    if i.step is not None and not (isinstance(i.step, numbers.Integral) and i.step > 0):
        raise IndexError("a step is an integer of at least 1")
    return end(i.start, 0), end(i.stop, Extent(f"{x._id}.{d}")), int(i.step or 1)


# ---- operations ----

def _call(op: str, args, keywords) -> Tensor:
    if not _WORD.match(op):
        raise AttributeError(op)
    while args and args[-1] is None:
        args = args[:-1]
    words = [_text(a) for a in args] + [f"{k}={_text(v)}" for k, v in keywords.items() if v is not None]
    return _current(f"ops.{op}").add(f"{op}({', '.join(words)})", op)


def _method(op: str, x: Tensor, *args, **keywords) -> Tensor:
    """x.reshape(2, -1) is x.reshape([2, -1])."""
    if op in ("max", "min") and len(args) == 1 and isinstance(args[0], numbers.Integral):
        raise TypeError(f"x.a{op}(dims=[{args[0]}]) reduces an axis, weir.ops.{op}(x, {args[0]}) compares with a number: "
                        f"x.{op}({args[0]}) could be either")
    if op in ("reshape", "permute", "expand") and args and all(isinstance(a, (numbers.Integral, Extent)) for a in args):
        args = (list(args),)
    return _call(op, (x, *args), keywords)


@functools.cache
def _table_of_ops():
    """By name: how it is called, "sum(x, [dims=], keepdim=false, empty=error)"."""
    lines = [line for line in _weir.list("ops").splitlines() if line.strip()]
    return {line.split()[0]: line[line.index(line.split()[0] + "("):] for line in lines}


class _Ops:
    """Every operation of `weir list ops`: ops.matmul(a, b), ops.sum(x, dims=[1]), v, i = ops.topk(x, k=2)."""

    def __getattr__(self, op: str):
        if op.startswith("__"):
            raise AttributeError(op)

        def call(*args, **keywords) -> Tensor:
            if op == "cat" and args and isinstance(args[0], (list, tuple)):
                if len(args) == 2 and isinstance(args[1], numbers.Integral):  # the dimension
                    keywords = {"dim": args[1], **keywords}
                    args = args[:1]
                args = (*args[0], *args[1:])
            return _call(op, args, keywords)

        call.__name__ = op
        call.__doc__ = _table_of_ops().get(op)
        return call

    def __dir__(self):
        return list(_table_of_ops())


ops = _Ops()


# ---- programs ----

def _parse(name: str, text: str, places):
    """The parsed module; mistakes are reported at their places in Python."""
    from . import Diagnostic, ProgramError
    try:
        return _weir.Module(f"<{name}>", text)
    except ProgramError as error:
        lines, found, message = text.splitlines(), [], []
        for d in error.diagnostics:
            file, line = places[d.line - 1] if 0 < d.line <= len(places) else ("", 0)
            written = lines[d.line - 1] if 0 < d.line <= len(lines) else ""
            if line:
                d = Diagnostic(file, line, 0, d.severity, d.text, d.suggestion, d.rank)
            found.append(d)
            message.append(f"{d.file}:{d.line}: {d.severity}: {d.text}" + (f"\n    {written.strip()}" if line else ""))
        raise ProgramError(error.status, "\n".join(message) or error.message, found) from None


class Fusion:
    """A traced function: its text, and programs compiled from it."""

    def __init__(self, name: str, definition: str, places: list[tuple[str, int]], schedule: Schedule):
        self.name = name
        self._definition = definition  # without its last brace
        self._places = places
        meshes = [str(m) for m in schedule.meshes.values()]
        first, rest = definition.split("\n", 1)
        lines = [first, *(f"  {m}" for m in meshes), rest]
        where = [places[0], *[("", 0)] * len(meshes), *places[1:]]
        if schedule.statements:
            lines += ["  schedule {", *(f"    {x}" for x in schedule.statements), "  }"]
            where += [("", 0), *schedule.places, ("", 0)]
        self.text = "\n".join([*lines, "}", ""])
        self._module = _parse(name, self.text, where)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<weir.Fusion {self.name}>"

    def __call__(self, *arrays: Any, **options: Any) -> NoReturn:
        if any(isinstance(a, Tensor) for a in arrays):
            raise TypeError(f"{self.name} is traced already: functions that others call are written without weir.fusion")
        raise TypeError(f"{self.name} is not compiled: program = {self.name}.compile(), then program(...)")

    def scheduled(self, schedule: Schedule) -> Fusion:
        """The same definition with another schedule."""
        return Fusion(self.name, self._definition, self._places, schedule)

    def load(self) -> Module:
        """A Module with this program."""
        from . import load
        return load(self.text, self.name)

    def compile(self, **options: Any) -> Program:
        return self.load().compile(self.name, **options)


def _trace(function, meshes, schedule, types, capacities) -> Fusion:
    name = getattr(function, "__name__", "")
    trace = _Trace(name if _WORD.match(name) else "f")  # a lambda has no name
    arguments = {}
    for name, kind in _types(function, types).items():
        arguments[name] = trace.add_input(name, kind, _first_line(function))
    for name, most in (capacities or {}).items():
        trace.lines.append(_Line(["extent"], f"{name} <= {_text(most)}", _first_line(function)))
    token = _TRACE.set(trace)
    try:
        result = function(**arguments)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for t in results or [None]:
            if not isinstance(t, Tensor):
                raise TypeError(f"{trace.name} must return traced tensors, not {_kind(t)}")
        text, places = trace.program([_text(t) for t in results])
    finally:
        _TRACE.reset(token)
    return Fusion(trace.name, text, places, _schedule(meshes, schedule))


def _types(function, given: dict[str, str] | None) -> dict[str, str]:
    """The types of the parameters, which are given or annotated."""
    if given is None:
        parameters = inspect.signature(function).parameters
        found = {name: p.annotation for name, p in parameters.items()}
    elif isinstance(given, dict):
        found = given
    else:
        raise TypeError(f"types are given by name, as {{'x': 'f32[n, 64]'}}, not {given!r}")
    for name, kind in found.items():
        if not isinstance(kind, str):
            raise TypeError(f"{getattr(function, '__name__', 'the function')}: annotate {name} with its type as text, like "
                            "\"f32[n, 64]\"" + ("" if given is None else f", not {kind!r}"))
    return {name: kind.strip("'\"") for name, kind in found.items()}


def _first_line(function) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _schedule(meshes, schedule) -> Schedule:
    """From objects, or from text and meshes by name."""
    if isinstance(schedule, Schedule):
        result = schedule
    else:
        result = Schedule()
        for statement in (schedule or "").splitlines():
            if statement.strip():
                result.add(statement.strip())
    for mesh in [Mesh(k, *([v] if isinstance(v, int) else v)) for k, v in meshes.items()] if isinstance(meshes, dict) else meshes or ():
        result.use(mesh)
    return result


def fusion(function: Callable | None = None, *, types: dict[str, str] | None = None,
           meshes: dict[str, list[int]] | list[Mesh] | None = None, schedule: Schedule | str = "",
           capacities: dict[str, int] | None = None) -> Any:
    """Traces a function whose parameters are annotated with types; `types` gives them by name instead, and the function is
    then called with these names. `schedule`: a Schedule, or statements of the language as text, for which `meshes` declares
    device meshes: Mesh objects, or shapes by name. `capacities`: the most that extents can be, by name (Program.bucket)."""
    if function is None:
        return lambda f: _trace(f, meshes, schedule, types, capacities)
    return _trace(function, meshes, schedule, types, capacities)
