"""Weights from safetensors files, mapped into memory: a tensor is read when a program touches it, and only the part
that it touches.

    weights = weir.load_weights("model.safetensors")            # or model.safetensors.index.json, or the folder
    y = program(x, weights["mlp.up.weight"])
    part = weights.slice("mlp.up.weight", 0, rank * rows, rows)  # a view: no other rows are read
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Mapping
from typing import Any

# The dtypes of the format, and those of NumPy.
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
           "U8": "<u1", "BOOL": "?"}
_LARGEST_HEADER = 100 << 20


def _header(path: str) -> tuple[dict, int]:
    """The table of a file, and where its data begins."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise ValueError(f"{path}: this is no safetensors file, or it is cut off")
        try:
            table = json.loads(file.read(length))
        except ValueError as why:
            raise ValueError(f"{path}: the header is no JSON: {why}") from None
    if not isinstance(table, dict):
        raise ValueError(f"{path}: the header is no table of tensors")
    table.pop("__metadata__", None)
    for name, entry in table.items():
        _check(path, name, entry, size - 8 - length)
    return table, 8 + length


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check(path: str, name: str, entry: dict, room: int) -> None:
    import numpy
    if not isinstance(entry, dict) or not all(_are_counts(entry.get(k)) for k in ("shape", "data_offsets")) or \
            len(entry["data_offsets"]) != 2 or "dtype" not in entry:
        raise ValueError(f"{path}: {name} has no dtype, shape and data_offsets as tensors have them")
    begin, end = entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{path}: {name} has dtype {entry['dtype']}, which is not supported")
    count = 1
    for extent in entry["shape"]:
        count *= extent
    if not 0 <= begin <= end <= room or end - begin != count * numpy.dtype(_DTYPES[entry["dtype"]]).itemsize:
        raise ValueError(f"{path}: {name} has {end - begin} bytes at {begin}, which do not fit its shape or the file")


def _map(path: str):
    """Maps a file. Its pages are used until they are written to; no memory is reserved for that case. The mapping is
    writable because NumPy exports only writable memory without a copy."""
    unreserved = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | unreserved, mmap.PROT_READ | mmap.PROT_WRITE)


class Weights(Mapping):
    """Tensors by name: NumPy arrays, or weir.RawArray for bf16. Writing to one does not change the file."""

    def __init__(self, paths: list[str]):
        self._where: dict[str, tuple[str, dict, int]] = {}
        self._maps: dict = {}
        for path in paths:
            table, start = _header(path)
            self._where.update((name, (path, entry, start)) for name, entry in table.items())

    def __getitem__(self, name: str) -> Any:
        import numpy

        from . import RawArray
        path, entry, start = self._where[name]
        if path not in self._maps:
            self._maps[path] = numpy.frombuffer(_map(path), "u1")
        begin, end = entry["data_offsets"]
        whole = self._maps[path][start + begin:start + end]
        dtype = numpy.dtype(_DTYPES[entry["dtype"]])
        if (start + begin) % dtype.itemsize:
            whole = whole.copy()  # not aligned to its elements
        array = numpy.asarray(whole).view(dtype).reshape(entry["shape"])
        return RawArray(array) if entry["dtype"] == "BF16" else array

    def __iter__(self):
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; its data is not read."""
        return tuple(self._where[name][1]["shape"])

    def slice(self, name: str, axis: int, begin: int, length: int) -> Any:
        """A view of `length` positions of an axis."""
        shape = self.shape(name)
        if not 0 <= axis < len(shape) or not 0 <= begin <= begin + length <= shape[axis]:
            raise IndexError(f"{name} has shape {list(shape)}: there are no positions {begin} to {begin + length} of axis {axis}")
        index = [slice(None)] * len(shape)
        index[axis] = slice(begin, begin + length)
        return self[name][tuple(index)]


def load_weights(path: str | os.PathLike) -> Weights:
    """Loads one file, the files of an index (model.safetensors.index.json), or all files in a folder."""
    path = os.fspath(path)
    if os.path.isdir(path):
        files = sorted(f for f in os.listdir(path) if f.endswith(".safetensors"))
        if not files:
            raise FileNotFoundError(f"{path}: there is no .safetensors file in it")
        return Weights([os.path.join(path, f) for f in files])
    if not path.endswith(".json"):
        return Weights([path])
    with open(path, encoding="utf-8") as file:
        names = sorted(set(json.load(file)["weight_map"].values()))
    return Weights([os.path.join(os.path.dirname(path), n) for n in names])
