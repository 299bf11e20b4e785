"""Weir: tensor programs whose communication overlaps with computation.

    import numpy, weir
    f = weir.compile("fusion f { x : f32[n]; y = exp(x); return y }")
    y = f(numpy.ones(4, "float32"))

Arrays are taken by DLPack (NumPy, PyTorch, JAX, CuPy) and used where they are. See docs/python.md.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NamedTuple

from . import _weir

__all__ = ["Cancelled", "Diagnostic", "Error", "Module", "Pending", "Program", "ProgramError", "RawArray", "TensorInfo",
           "Weights", "World", "compile", "fusion", "launch_rank", "list_of", "load", "load_weights", "log_to", "ops", "torch_op",
           "version"]


# ---- errors ----

class Diagnostic(NamedTuple):
    """One message about a program. `file` is "" and line and column are 0 where it has no place; `suggestion` is what to
    write instead, or ""; `rank` is the rank that failed, or -1."""

    file: str
    line: int
    column: int
    severity: str
    text: str
    suggestion: str = ""
    rank: int = -1


class Error(RuntimeError):
    """A call of the library that failed: `status` ("BAD_PROGRAM"), the whole `message`, and `diagnostics`."""

    def __init__(self, status: str, message: str, diagnostics=()):
        super().__init__(message)
        self.status = status
        self.message = message
        self.diagnostics = [Diagnostic(*d) for d in diagnostics]

    def __reduce__(self):
        return type(self), (self.status, self.message, self.diagnostics)


class ProgramError(Error, ValueError):
    """The program, its options or the arrays given to it are wrong."""


class Cancelled(Error):
    """The run was cancelled."""


# In the order of weir_status.
_STATUSES = ("OK", "CHECK_FAILED", "BAD_USAGE", "BAD_PROGRAM", "BAD_INPUT", "OUT_OF_MEMORY", "UNAVAILABLE", "SYSTEM",
             "CANCELLED")
_CLASSES = {"BAD_USAGE": ProgramError, "BAD_PROGRAM": ProgramError, "CANCELLED": Cancelled}


def _error(status: int, message: str, diagnostics) -> Exception:
    name = _STATUSES[status]
    return _CLASSES.get(name, Error)(name, message, diagnostics)


_weir.set_error(_error)


def version() -> str:
    """The version of the library."""
    return _weir.version()


def launch_rank() -> int:
    """The rank of this process if mpirun or torchrun started it, else -1."""
    return _weir.launch_rank()


def list_of(kind: str) -> str:
    """What there is, as `weir list` prints it: "ops", "passes", "devices", "comms" or "options"."""
    return _weir.list(kind)


def log_to(text=None, progress=None) -> None:
    """Who is told while the library works: `text(str)` what it would write to standard error, `progress(what, done,
    total)` how far long work is. Called from any thread, and must not call the library. None: nobody."""
    _weir.log_to(text, progress)


# ---- worlds ----

class World:
    """Processes that run programs together, each of them one device: `weir.compile(..., world=world)`.

        World()                                     # of mpirun or torchrun; also what programs use without one
        World(mpi=MPI.COMM_WORLD)                   # of mpi4py
        World(nccl=address)                         # an ncclComm_t of the NCCL that this process has loaded
        World(exchange, rank=r, size=n)             # exchange(bytes) gives a list of the bytes of all ranks
        World.of_torch()                            # of torch.distributed, which is initialised

    All ranks make it, and compile programs for it, in the same order. It ends with the last program that uses it.
    """

    def __init__(self, exchange=None, *, rank: int = 0, size: int = 0, mpi=None, nccl: int = 0):
        address = 0
        if mpi is not None:
            from mpi4py import MPI
            address = MPI._addressof(mpi)
        self._core = _weir.World(exchange, rank, size, address, nccl)
        self.rank, self.size, self.local, self.carrier = self._core.describe()

    @classmethod
    def of_torch(cls, group=None) -> World:
        """The ranks of a process group of torch.distributed, the default one if none is given."""
        import torch.distributed as dist
        size = dist.get_world_size(group)

        def exchange(mine):
            every = [None] * size
            dist.all_gather_object(every, mine, group)
            return every

        return cls(exchange, rank=dist.get_rank(group), size=size)

    def __repr__(self) -> str:
        return f"<weir.World: rank {self.rank} of {self.size}, by {self.carrier}>"


# ---- programs ----

class TensorInfo(NamedTuple):
    name: str
    dtype: str
    rank: int


def _options(given: dict) -> dict:
    """Keyword arguments as the library's options: pass_through=True is --pass-through."""
    words = {True: "true", False: "false"}
    return {k.replace("_", "-"): words[v] if isinstance(v, bool) else str(v) for k, v in given.items()}


def _device_memory(given):
    """(alloc, free) for the memory of plans on GPUs: "torch" for PyTorch's caching allocator, or such a pair."""
    if given is None:
        return None, None
    if given != "torch":
        alloc, free = given
        return alloc, free
    import torch

    def alloc(gpu, size_bytes):
        try:
            return torch.cuda.caching_allocator_alloc(size_bytes, gpu)
        except torch.cuda.OutOfMemoryError:
            return 0

    return alloc, lambda gpu, block: torch.cuda.caching_allocator_delete(block)


class Module:
    """Parsed programs of one file or text."""

    def __init__(self, text: str, name: str = "<text>"):
        self._core = _weir.Module(name, text)
        self._lock = threading.RLock()  # the library has one thread at a time use a module

    @property
    def names(self) -> list[str]:
        """The programs in it: fusions and host programs."""
        return [name for name, _ in self._core.names()]

    def __str__(self) -> str:
        with self._lock:
            return self._core.print()

    def compile(self, name: str | None = None, **options) -> Program:
        """Compiles a program, the first one by default. Options are those of `weir list options`."""
        return Program(self, self.names[0] if name is None else name, options)


def load(source: str | os.PathLike, name: str | None = None) -> Module:
    """Parses a file, or text if `source` has a brace or a line break in it."""
    if isinstance(source, str) and ("{" in source or "\n" in source):
        return Module(source, name or "<text>")
    path = os.fspath(source)
    with open(path, encoding="utf-8") as file:
        return Module(file.read(), name or path)


def compile(source: str | os.PathLike, name: str | None = None, **options) -> Program:
    """load() and Module.compile() in one."""
    return load(source).compile(name, **options)


class Program:
    """A compiled program. Call it with arrays; it returns arrays of the same kind."""

    def __init__(self, module: Module, name: str, options: dict):
        self.module = module
        self.name = name
        alloc, free = _device_memory(options.pop("device_memory", None))
        self.world = options.pop("world", None)
        self.options = _options(options)
        with module._lock:
            inputs, outputs = module._core.signature(name)
            self._core = module._core.compile(name, self.options, alloc, free, self.world._core if self.world else None)
        self.inputs = [TensorInfo(*t) for t in inputs]
        self.outputs = [TensorInfo(*t) for t in outputs]
        self._shapes: dict = {}
        self._run = self._core.run

    def __repr__(self) -> str:
        return f"<weir.Program {self.name} on {self.device}>"

    @property
    def device(self) -> str:
        """What executes it: "cpu", "cuda", "sim", or "ref", the reference evaluator."""
        return self._core.device()

    @property
    def devices(self) -> tuple[int, int, int]:
        """Of the program's devices the first in this process, how many are, and how many there are in all."""
        return self._core.devices()

    # -- running --

    def shapes(self, *inputs) -> list[tuple[int, ...]]:
        """The outputs' shapes for shapes of the inputs."""
        found = self._shapes.get(inputs)
        if found is None:
            with self.module._lock:
                found = self.module._core.shapes(self.name, inputs)
            if len(self._shapes) < 1024:
                self._shapes[inputs] = found
        return found

    def _prepare(self, arrays, out):
        if len(arrays) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise TypeError(f"{self.name} takes {len(self.inputs)} arrays ({names}), but {len(arrays)} are given")
        kind = (_KINDS.get(type(arrays[0])) or _kind_of(arrays[0])) if arrays else _numpy_kind()
        if out is None:
            shapes = self.shapes(*(tuple(a.shape) for a in arrays))
            out = tuple(kind.empty(s, t.dtype, arrays) for s, t in zip(shapes, self.outputs))
        elif not isinstance(out, (tuple, list)):
            out = (out,)
        return kind, tuple(out)

    def __call__(self, *arrays, out=None, seed=0, stream=None, profile=False, _as_definition=False):
        """Runs it. `out`: arrays to write to, else new ones are made.

        Arrays of a GPU are ordered by its stream: `stream`, a handle as an int, or else PyTorch's current stream
        or the default one; the call then returns when the run is issued.
        """
        kind, out = self._prepare(arrays, out)
        for_dlpack, streams = kind.order(arrays, out, stream)
        try:
            self._run(arrays, out, seed, _as_definition, profile, for_dlpack, streams)
        except (BufferError, TypeError):  # not exported as they are
            inputs, outputs = tuple(map(kind.readable, arrays)), tuple(map(kind.writable, out))
            if all(a is b for a, b in zip(inputs + outputs, arrays + out)):
                raise
            self._run(inputs, outputs, seed, _as_definition, profile, for_dlpack, streams)
        if kind.gives:
            out = tuple(map(kind.give, out))
        return out[0] if len(out) == 1 else out

    def run_async(self, *arrays, out=None, seed=0, stream=None, callback=None) -> Pending:
        """Begins a run and returns at once. Runs of one program are executed in the order of the calls; `callback` is
        called without arguments, on another thread, when this one has ended."""
        kind, out = self._prepare(arrays, out)
        for_dlpack, streams = kind.order(arrays, out, stream)
        try:
            core = self._core.start(arrays, out, seed, for_dlpack, streams, callback)
        except (BufferError, TypeError):
            inputs, outputs = tuple(map(kind.readable, arrays)), tuple(map(kind.writable, out))
            if all(a is b for a, b in zip(inputs + outputs, arrays + out)):
                raise
            core = self._core.start(inputs, outputs, seed, for_dlpack, streams, callback)
        return Pending(core, out, kind)

    def prepare(self, *shapes, **extents) -> None:
        """Does what the first run for shapes of the inputs, or extents by name, would do besides running: binds,
        compiles and loads kernels, allocates memory."""
        with self.module._lock:
            self._core.prepare(self.module._core, self.name, extents if extents else shapes)

    def definition(self, *arrays, out=None, seed=0, stream=None):
        """What the definition says: the reference evaluator, which accumulates in f64. Slow."""
        return self(*arrays, out=out, seed=seed, stream=stream, _as_definition=True)

    # -- asking --

    def lower(self, style: str = "weir") -> str:
        """The host program as text: "weir", which parses back, or "nvfuser"."""
        with self.module._lock:
            return self.module._core.lower(self.name, self.options, style)

    def why(self, *names: str, **extents) -> str:
        """Where tensors and communications come from, and what they cost for these extents."""
        with self.module._lock:
            return self.module._core.why(self.name, self.options, extents or None, names)

    def verify(self, *shapes, **extents) -> str:
        """Proves the plan for shapes of the inputs, or extents by name: no race, no deadlock. Raises Error with all
        findings if it is not safe, and otherwise returns the report."""
        with self.module._lock:
            return self._core.verify(self.module._core, self.name, extents if extents else shapes)

    def bound(self, *shapes, machine: str = "threads", **extents) -> dict:
        """The least time in which the devices of a machine (`weir list machines`, or a file) could do what the program
        asks for, what the simulator predicts, and the communications that it waits for: seconds."""
        options = {**self.options, "device": "sim", "machine": machine}
        with self.module._lock:
            core = self.module._core.compile(self.name, {**options, "comm": "inproc"}, None, None, None)
            return core.bound(self.module._core, self.name, extents if extents else shapes)

    @property
    def stats(self) -> dict | None:
        """Of the last run with profile=True: times in ns, bytes, counts."""
        return self._core.stats()

    def trace(self, path: str | os.PathLike) -> None:
        """Writes a timeline of the last run with profile=True: .json for Perfetto, .html or .svg."""
        self._core.trace(self.name, os.fspath(path))


class Pending:
    """A run under way: wait() for its outputs, or await it."""

    def __init__(self, core, out, kind):
        self._core = core
        self._out = out
        self._kind = kind

    def done(self) -> bool:
        """Has it ended?"""
        return self._core.poll(0.0)

    def cancel(self) -> None:
        """Asks it to end: no further steps are begun, and wait() raises Cancelled unless it had ended before."""
        self._core.cancel()

    def wait(self, timeout: float | None = None):
        """The outputs, as the program returns them. Raises what the run failed with, and TimeoutError after `timeout`
        seconds. Ctrl-C cancels the run."""
        try:
            ended = self._core.poll(-1.0 if timeout is None else float(timeout))
        except KeyboardInterrupt:
            self._core.cancel()
            raise
        if not ended:
            raise TimeoutError(f"the run did not end within {timeout} s")
        self._core.result()
        out = tuple(map(self._kind.give, self._out))
        return out[0] if len(out) == 1 else out

    def __await__(self):
        import asyncio
        yield from asyncio.get_running_loop().run_in_executor(None, self._core.poll, -1.0).__await__()
        return self.wait()


# ---- arrays of other packages ----

_NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i8": "int8",
          "u8": "uint8", "bool": "bool"}


class _Kind:
    """How arrays of a package are made and ordered; this one is NumPy's."""

    gives = False  # outputs become something else

    def empty(self, shape, dtype, arrays):
        import numpy
        if dtype not in _NUMPY:
            raise TypeError(f"NumPy has no {dtype}; give `out` as a PyTorch tensor")
        return numpy.empty(shape, _NUMPY[dtype])

    def order(self, arrays, out, stream):
        return None, ()

    def writable(self, array):
        """Older NumPy does not export bool: ("bool", its bytes) does."""
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        return ("bool", array.view("u1")) if getattr(array, "dtype", None) == bool else array

    def readable(self, array):
        """Nor arrays that are read-only."""
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        flags = getattr(array, "flags", None)
        return self.writable(array.copy() if flags is not None and not flags.writeable else array)

    def give(self, array):
        return array


class _Torch(_Kind):
    def empty(self, shape, dtype, arrays):
        torch = sys.modules["torch"]
        names = dict(_NUMPY, bf16="bfloat16")
        return torch.empty(shape, dtype=getattr(torch, names[dtype]), device=arrays[0].device)

    def order(self, arrays, out, stream):
        for a in arrays + out:
            if getattr(a, "is_cuda", False):
                break
        else:
            return None, ()
        gpus = {a.device.index for a in arrays + out if getattr(a, "is_cuda", False)}
        current = sys.modules["torch"].cuda.current_stream
        return -1, tuple((g, stream if stream is not None else current(g).cuda_stream) for g in gpus)

    def writable(self, array):
        return array

    def readable(self, array):
        if isinstance(array, RawArray):
            return (array.dtype, array.bits)
        return array.detach() if getattr(array, "requires_grad", False) else array


class _DLPack(_Kind):
    """Any package: on a GPU by the default stream; outputs are NumPy's, or, for JAX, become its own."""

    def order(self, arrays, out, stream):
        gpus = set()
        for a in arrays + out:
            device = getattr(a, "__dlpack_device__", None)
            kind, index = device() if device else (1, 0)
            if kind == 2:
                gpus.add(index)
        return (1, tuple((g, stream or 0) for g in gpus)) if gpus else (None, ())


class _Jax(_DLPack):
    gives = True

    def give(self, array):
        return sys.modules["jax"].numpy.asarray(array) if type(array).__module__ == "numpy" else array


class RawArray:
    """Values of a dtype that NumPy lacks, bf16, in an array of integers of the same size."""

    def __init__(self, bits, dtype: str = "bf16"):
        self.bits = bits
        self.dtype = dtype

    @property
    def shape(self):
        return self.bits.shape

    def __getitem__(self, index):
        return RawArray(self.bits[index], self.dtype)

    def __repr__(self) -> str:
        return f"<weir.RawArray {self.dtype}{list(self.shape)}>"


_KINDS: dict = {}


def _numpy_kind() -> _Kind:
    return _KINDS.setdefault("numpy", _Kind())


def _kind_of(array) -> _Kind:
    kind = _KINDS.get(type(array))
    if kind is None:
        package = {m.__module__.split(".")[0] for m in type(array).__mro__}
        make = _Torch if "torch" in package else _Kind if package & {"numpy", "weir"} else \
            _Jax if package & {"jax", "jaxlib"} else _DLPack
        kind = _KINDS[type(array)] = make()
    return kind


from .torch_op import torch_op  # noqa: E402
from .tracing import fusion, ops  # noqa: E402
from .weights import Weights, load_weights  # noqa: E402
