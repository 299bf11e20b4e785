"""Arrays for use without NumPy: they own their memory, which programs use by DLPack.

    x = weir.PlainArray((2, 3), "f32", [1, 2, 3, 4, 5, 6])
    weir.compile("fusion f { x : f32[n, m]; y = x * 2; return y }")(x).tolist()
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Iterable, Sequence

# For each dtype its type in ctypes, and its code and bits in DLPack.
_DTYPES = {"f64": (ctypes.c_double, 2, 64), "f32": (ctypes.c_float, 2, 32), "i64": (ctypes.c_int64, 0, 64),
           "i32": (ctypes.c_int32, 0, 32), "i8": (ctypes.c_int8, 0, 8), "u8": (ctypes.c_uint8, 1, 8),
           "bool": (ctypes.c_bool, 6, 8)}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_held: dict = {}  # arrays that capsules refer to, by the address of the capsule


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _release(capsule):
    _held.pop(capsule, None)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class PlainArray:
    """An array of `shape` and `dtype`, with values in row-major order, or zeros."""

    def __init__(self, shape: Sequence[int], dtype: str = "f32", values: Iterable | None = None):
        if dtype not in _DTYPES:
            raise TypeError(f"a PlainArray is of {', '.join(_DTYPES)}, not {dtype}")
        kind, code, bits = _DTYPES[dtype]
        self.shape = tuple(shape)
        self.dtype = dtype
        n = math.prod(self.shape)
        given = [] if values is None else list(values)
        if values is not None and len(given) != n:
            raise ValueError(f"{len(given)} values are given for a shape of {n}")
        self._data = (kind * max(n, 1))(*given)
        self._extents = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        self._managed = _Managed(_Tensor(ctypes.addressof(self._data), 1, 0, len(self.shape), code, bits, 1,
                                         ctypes.cast(self._extents, ctypes.POINTER(ctypes.c_int64)), None, 0), None, None)

    def __dlpack__(self, **keywords: Any) -> Any:
        capsule = _new_capsule(ctypes.addressof(self._managed), b"dltensor", ctypes.cast(_release, ctypes.c_void_p))
        _held[id(capsule)] = self
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __len__(self) -> int:
        return self.shape[0]

    def values(self) -> list:
        """All values, in row-major order."""
        return list(self._data)[:math.prod(self.shape)]

    def tolist(self) -> Any:
        """The values as nested lists, as NumPy's tolist() gives them."""
        found: Any = self.values()
        for n in reversed(self.shape[1:]):
            found = [found[i:i + n] for i in range(0, len(found), n)] if n else [[] for _ in range(math.prod(self.shape[:-1]))]
        return found if self.shape else found[0]

    def __repr__(self) -> str:
        return f"<weir.PlainArray {self.dtype}{list(self.shape)}>"
