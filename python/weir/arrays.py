"""Arrays of other packages: how they are made, ordered by streams and exported; and the parts of tensors on devices."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, NamedTuple

from .plain import PlainArray

_NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i8": "int8",
          "u8": "uint8", "bool": "bool"}


class Kind:
    """How arrays of a package are made and ordered. This one is for NumPy, with RawArray for dtypes that NumPy lacks."""

    gives = False  # give() converts outputs
    is_fixed = False  # arrays must not be written to

    def empty(self, shape, dtype, arrays):
        import numpy
        return RawArray(numpy.empty(shape, "u2"), dtype) if dtype == "bf16" else numpy.empty(shape, _NUMPY[dtype])

    def order(self, arrays, out, stream):
        return None, ()

    def writable(self, array):
        """NumPy does not export bfloat16 of ml_dtypes, and older versions no bool: ("bool", its bytes) is exported instead."""
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        name = getattr(getattr(array, "dtype", None), "name", None)
        if name == "bool":
            return ("bool", array.view("u1"))
        return ("bf16", array.view("u2")) if name == "bfloat16" and hasattr(array, "flags") else array

    def readable(self, array):
        """NumPy does not export read-only arrays and its numbers either: they are copied."""
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        if type(array).__module__ == "numpy" and not hasattr(array, "__dlpack__") and hasattr(array, "dtype"):
            import numpy
            array = numpy.array(array)
        flags = getattr(array, "flags", None)
        return self.writable(array.copy() if flags is not None and not flags.writeable else array)

    def give(self, array):
        return array


class _Plain(Kind):
    def empty(self, shape, dtype, arrays):
        return PlainArray(shape, dtype)


class _Torch(Kind):
    def empty(self, shape, dtype, arrays):
        torch = sys.modules["torch"]
        names = dict(_NUMPY, bf16="bfloat16")
        return torch.empty(shape, dtype=getattr(torch, names[dtype]), device=arrays[0].device)

    def order(self, arrays, out, stream):
        try:
            gpus = {a.get_device() for a in arrays + out}
        except AttributeError:  # some are arrays of other packages
            gpus = {a.get_device() for a in arrays + out if getattr(a, "is_cuda", False)}
        gpus.discard(-1)
        if not gpus:
            return None, ()
        return -1, tuple((g, stream if stream is not None else self.current(g)) for g in gpus)

    @staticmethod
    def current(gpu):
        """The handle of PyTorch's current stream; without making an object for it, if PyTorch can."""
        torch = sys.modules["torch"]
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return raw(gpu) if raw else torch.cuda.current_stream(gpu).cuda_stream

    def writable(self, array):
        return array

    def readable(self, array):
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        return array.detach() if getattr(array, "requires_grad", False) else array


class _DLPack(Kind):
    """Any other package: ordered by the default stream of a GPU; outputs are NumPy arrays, which are converted for JAX."""

    def order(self, arrays, out, stream):
        gpus = set()
        for a in arrays + out:
            device = getattr(a, "__dlpack_device__", None)
            kind, index = device() if device else (1, 0)
            if kind == 2:
                gpus.add(index)
        return (stream or 1, tuple((g, stream or 0) for g in gpus)) if gpus else (None, ())


class _Jax(_DLPack):
    gives = True
    is_fixed = True

    def give(self, array):
        if type(array) is RawArray:
            array = array.bits.view(sys.modules["jax"].numpy.bfloat16)
        return sys.modules["jax"].numpy.asarray(array) if type(array).__module__ == "numpy" else array


class RawArray:
    """Values of a dtype that NumPy lacks, bf16, in an array of integers of the same size."""

    def __init__(self, bits: Any, dtype: str = "bf16"):
        self.bits = bits
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    def __getitem__(self, index: Any) -> RawArray:
        return RawArray(self.bits[index], self.dtype)

    def __repr__(self) -> str:
        return f"<weir.RawArray {self.dtype}{list(self.shape)}>"


NUMBERS = {bool, int, float}


def know_numbers() -> None:
    """Adds the types of NumPy's numbers to NUMBERS, once NumPy is imported."""
    numpy = sys.modules.get("numpy")
    if numpy is None or numpy.float64 in NUMBERS:
        return
    kinds = (numpy.bool_, numpy.integer, numpy.floating)
    NUMBERS.update(t for t in numpy.sctypeDict.values() if issubclass(t, kinds) and t is not numpy.longdouble)


def number(value: Any, of: Any) -> Any:
    """The array for a number; a number of NumPy's that has the input's dtype is passed as it is."""
    name = getattr(getattr(value, "dtype", None), "name", None)
    if name is None:
        return Number(value, of)
    return value if name == _NUMPY.get(of.dtype) else Number(value.item(), of)


class Number(PlainArray):
    """A Python number for an input without dimensions."""

    def __init__(self, value: Any, of: Any):
        if of.dtype == "bool" and type(value) is not bool or of.dtype[0] in "iu" and type(value) is float:
            raise TypeError(f"{of.name} is {of.dtype}, and cannot be the {type(value).__name__} {value}")
        if of.dtype in ("f16", "bf16"):
            raise TypeError(f"{of.name} is {of.dtype}: an array that has __dlpack__ is needed")
        bits = int(of.dtype[1:]) if of.dtype[0] in "iu" else 0
        least = -(1 << bits - 1) if of.dtype[0] == "i" else 0
        if bits and not least <= value < least + (1 << bits):
            raise OverflowError(f"{of.name} is {of.dtype}, which cannot hold {value}")
        super().__init__((), of.dtype, [value])


KINDS: dict = {PlainArray: _Plain()}
DIRECT: set = set()  # types for which the extension gets views and the current stream from their package itself


def numpy_kind() -> Kind:
    """The kind for outputs of programs without inputs."""
    return KINDS[PlainArray] if importlib.util.find_spec("numpy") is None else KINDS.setdefault("numpy", Kind())


def lead_of(arrays) -> Any:
    """The array whose package makes the outputs: the first that is not a number; None: there is none."""
    if arrays and type(arrays[0]) is not Number:
        return arrays[0]
    return next((a for a in arrays if type(a) is not Number), None)


def kind_of(array) -> Kind:
    kind = KINDS.get(type(array))
    if kind is None:
        package = {m.__module__.split(".")[0] for m in type(array).__mro__}
        make = _Torch if "torch" in package else Kind if package & {"numpy", "weir"} else \
            _Jax if package & {"jax", "jaxlib"} else _DLPack
        kind = KINDS[type(array)] = make()
        if make is _Torch:
            DIRECT.add(type(array))
    return kind


class Shard(NamedTuple):
    """The part of a tensor that a device holds: a box in the whole tensor; or, if `scattered`, positions that are not one
    range of each dimension, in order, the first at `begin`. `owner`: the first device that holds the same part."""

    begin: tuple[int, ...]
    extents: tuple[int, ...]
    whole: tuple[int, ...]
    owner: int
    scattered: bool

    @property
    def index(self) -> tuple[slice, ...]:
        """The index for a whole array: array[shard.index] is this part."""
        if self.scattered:
            raise ValueError("the device holds scattered positions, which are no slice of the tensor")
        return tuple(slice(b, b + n) for b, n in zip(self.begin, self.extents))


class Shards(list):
    """The parts of a tensor that the devices of this process hold: an array for each device, in order; None for one that
    holds nothing. Shards(a) if the process has one device."""

    def __init__(self, *parts: Any):
        super().__init__(parts)

    def __repr__(self) -> str:
        return f"weir.Shards({', '.join(map(repr, self))})"


def flat(arrays) -> tuple:
    """All arrays, those of shards included."""
    every = []
    for a in arrays:
        if type(a) is Shards:
            every += [x for x in a if x is not None]
        else:
            every.append(a)
    return tuple(every)


def each(function, arrays) -> tuple:
    """function(array) for all arrays, those of shards included."""
    return tuple(Shards(*(x if x is None else function(x) for x in a)) if type(a) is Shards else function(a)
                 for a in arrays)
