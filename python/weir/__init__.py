"""Weir: tensor programs whose communication overlaps with computation.

    import numpy, weir
    f = weir.compile("fusion f { x : f32[n]; y = exp(x); return y }")
    y = f(numpy.ones(4, "float32"))

Arrays are taken by DLPack (NumPy, PyTorch, JAX, CuPy) and used in place where that is possible. See docs/python.md.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, Iterable, NamedTuple, Sequence

from . import _weir
from .arrays import DIRECT, KINDS, NUMBERS, Kind, RawArray, Shard, Shards, each, flat, kind_of, know_numbers, lead_of
from .arrays import number, numpy_kind
from .plain import PlainArray

__all__ = ["Cancelled", "Diagnostic", "Error", "Fusion", "Mesh", "Module", "Pending", "PlainArray", "Program", "ProgramError", "RawArray",
           "Schedule", "Shard", "Shards", "TensorInfo", "Weights", "World", "compile", "fusion", "launch_rank", "list_of",
           "load", "load_weights", "log_to", "ops", "serial", "stream", "torch_op", "version"]


# ---- errors ----

class Diagnostic(NamedTuple):
    """One message about a program. Without a place `file` is "" and line and column are 0. `suggestion` is what to write
    instead, or ""; `rank` is the rank that failed, or -1."""

    file: str
    line: int
    column: int
    severity: str
    text: str
    suggestion: str = ""
    rank: int = -1


class Error(RuntimeError):
    """A call of the library that failed: `status` ("BAD_PROGRAM"), the whole `message`, and `diagnostics`."""

    def __init__(self, status: str, message: str, diagnostics: Iterable[Sequence] = ()):
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
    """The lines of `weir list KIND`: "ops", "passes", "devices", "comms", "machines" or "options"."""
    return _weir.list(kind)


def log_to(text: Callable[[str], Any] | None = None,
           progress: Callable[[str, int, int], Any] | None = None) -> None:
    """Sets functions that the library calls while it works: `text(str)` with what it would write to standard error, and
    `progress(what, done, total)` during long work. They are called from any thread, and must not call the library.
    None: texts go to standard error, and progress is not shown."""
    _weir.log_to(text, progress)


# ---- worlds ----

class World:
    """Processes that run programs together, each of them one device: `weir.compile(..., world=world)`.

        World()                                     # of mpirun or torchrun; also what programs use without one
        World(mpi=MPI.COMM_WORLD)                   # of mpi4py
        World(nccl=address)                         # an ncclComm_t of the NCCL that this process has loaded
        World(exchange, rank=r, size=n)             # exchange(bytes) gives a list of the bytes of all ranks
        World.of_torch()                            # of torch.distributed, which is initialised

    All ranks must make their worlds, and compile the programs for them, in the same order. A world ends with the last
    program that uses it. `rank`, `size`, `local` (the number among the ranks of this machine) and `carrier` ("mpi" or
    "tcp") describe it.
    """

    def __init__(self, exchange: Callable[[bytes], Sequence[bytes]] | None = None, *, rank: int = 0, size: int = 0,
                 mpi: Any = None, nccl: int = 0):
        address = 0
        if mpi is not None:
            from mpi4py import MPI
            address = MPI._addressof(mpi)
        self._core = _weir.World(exchange, rank, size, address, nccl)
        self.rank, self.size, self.local, self.carrier = self._core.describe()

    @classmethod
    def of_torch(cls, group: Any = None) -> World:
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

Donated = dict[str, str | None] | Sequence[str] | str | None  # inputs, and the outputs that take their memory


class TensorInfo(NamedTuple):
    """`type` is as the program has it: "f32[n, 4]"."""

    name: str
    dtype: str
    rank: int
    type: str


_ELSEWHERE = {"seed": "program(..., seed=…)", "donate": "program(..., donate=…)", "define": "shapes of arrays, or verify(n=4096)",
              "input": "program(x, …)", "output": "program(..., out=…)", "fusion": "compile(name)",
              "check": "program.definition(...)", "repeat": "program(...), several times", "stats": "program(..., profile=True)",
              "trace": "program(..., profile=True) and program.trace(path)"}


def _options(given: dict) -> dict:
    """Keyword arguments as the library's options: memory_limit=8 is --memory-limit=8, disable=["cse", "order"] two of them."""
    for name in given:
        if name in _ELSEWHERE:
            raise TypeError(f"{name} is no option of a program in Python: {_ELSEWHERE[name]} is for that")

    def text(v):
        if isinstance(v, bool):
            return "true" if v else "false"
        return ",".join(map(str, v)) if isinstance(v, (list, tuple)) else os.fsdecode(v) if isinstance(v, os.PathLike) else str(v)

    return {k.replace("_", "-"): text(v) for k, v in given.items() if v is not None}


def _device_memory(given):
    """(alloc, free) for the memory of plans on GPUs: "torch" for PyTorch's caching allocator, or such a pair."""
    if given is None:
        return None, None
    if given != "torch":
        if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(map(callable, given)):
            raise TypeError(f"device_memory is \"torch\" or a pair of functions (alloc, free), not {given!r}")
        return tuple(given)
    import torch

    def alloc(gpu, size_bytes):
        try:
            return torch.cuda.caching_allocator_alloc(size_bytes, gpu)
        except torch.cuda.OutOfMemoryError:
            return 0

    return alloc, lambda gpu, block: torch.cuda.caching_allocator_delete(block)


class Module:
    """The programs of one file or text: fusions and host programs. load() makes one."""

    def __init__(self, text: str, name: str = "<text>"):
        self._core = _weir.Module(name, text)
        self._lock = threading.RLock()  # a module of the library is used by one thread at a time

    @property
    def names(self) -> list[str]:
        """The names of its programs, in order."""
        return [name for name, _ in self._core.names()]

    def __str__(self) -> str:
        with self._lock:
            return self._core.print()

    def compile(self, name: str | None = None, **options: Any) -> Program:
        """Compiles a program, the first one by default. Options are those of `weir list options` (`memory_limit=8` is
        --memory-limit=8), `world`, and `device_memory` ("torch", or a pair of functions)."""
        return Program(self, self.names[0] if name is None else name, options)


def load(source: str | os.PathLike, name: str | None = None) -> Module:
    """Parses a file, or text if `source` has a brace or a line break in it."""
    if isinstance(source, str) and ("{" in source or "\n" in source):
        return Module(source, name or "<text>")
    path = os.fspath(source)
    with open(path, encoding="utf-8") as file:
        return Module(file.read(), name or path)


def compile(source: str | os.PathLike, name: str | None = None, **options: Any) -> Program:
    """load(source).compile(name, **options)."""
    return load(source).compile(name, **options)


def _exported(kind, arrays, out) -> tuple[tuple, tuple]:
    """Arrays converted to a form that their package can export. To be called while an exception is handled, which is
    raised again if there is nothing to convert."""
    inputs, outputs = each(kind.readable, arrays), each(kind.writable, out)
    if all(a is b for a, b in zip(flat(inputs + outputs), flat(arrays + out))):
        raise
    return inputs, outputs


class Program:
    """A compiled program. Call it with arrays; it returns one array, or a tuple of them, of the same package. Several
    threads may call it; their runs take turns. `name`, `inputs`, `outputs` and `options` describe it."""

    def __init__(self, module: Module, name: str, options: dict):
        self.module = module
        self.name = name
        alloc, free = _device_memory(options.pop("device_memory", None))
        self.world = options.pop("world", None)
        if not isinstance(self.world, (World, type(None))):
            raise TypeError(f"world is a weir.World, not {self.world!r}")
        self.options = _options(options)
        with module._lock:
            inputs, outputs = module._core.signature(name)
            self._core = module._core.compile(name, self.options, alloc, free, self.world._core if self.world else None)
        self.inputs = [TensorInfo(*t) for t in inputs]
        self.outputs = [TensorInfo(*t) for t in outputs]
        self._shapes: dict = {}
        self._bound: dict = {}
        self._whole: set = set()  # shapes for which every rank has all of every output
        self._spread = self.devices[1] < self.devices[2]
        self._run = self._core.run
        self._direct = self._core.direct
        self._n_inputs = len(inputs)
        know_numbers()

    def __repr__(self) -> str:
        return f"<weir.Program {self.name} on {self.device}>"

    @property
    def device(self) -> str:
        """The device that runs it: "cpu", "cuda", "sim", "null"; "ref" is the reference evaluator."""
        return self._core.device()

    @property
    def devices(self) -> tuple[int, int, int]:
        """(first, count, all): the first device of the program in this process, how many are in this process, and how many
        it has in all processes."""
        return self._core.devices()

    # -- running --

    def shapes(self, *inputs: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the outputs, for these shapes of all inputs."""
        found = self._shapes.get(inputs)
        if found is None:
            with self.module._lock:
                found = self.module._core.shapes(self.name, inputs)
            if len(self._shapes) < 1024:
                self._shapes[inputs] = found
        return found

    def _ready(self, arrays, out, donate, whole, extents):
        """How arrays are passed to the library, the outputs, and what it needs to know about shards and donated inputs."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise TypeError(f"{self.name} takes {len(self.inputs)} arrays ({names}), but {len(arrays)} are given")
        if out is not None:
            out = out if isinstance(out, tuple) else tuple(out) if type(out) is list else (out,)
            self._check_writable(out)
        if donate or extents or not whole or Shards in map(type, arrays) or (out and Shards in map(type, out)):
            return self._ready_parts(arrays, out, donate, whole, extents)
        lead = lead_of(arrays) if arrays else None
        kind = numpy_kind() if lead is None else KINDS.get(type(lead)) or kind_of(lead)
        if out is None:
            given = self._extents(arrays)
            shapes = self.shapes(*given)
            if self._spread:
                self._check_whole(self._bind(given, {}))
            out = tuple(kind.empty(s, t.dtype, (lead,)) for s, t in zip(shapes, self.outputs))
        return kind, out, None

    def _check_writable(self, out) -> None:
        for i, a in enumerate(out):
            for x in flat((a,)):
                if kind_of(x).is_fixed:
                    name = self.outputs[i].name if i < len(self.outputs) else i
                    raise TypeError(f"output {name}: a JAX array cannot be written to: leave `out` out")

    def _extents(self, arrays) -> tuple:
        """The shapes of arrays, None for shards."""
        try:
            return tuple(None if type(a) is Shards else tuple(a.shape) for a in arrays)
        except AttributeError:
            pass
        t, a = next((t, a) for t, a in zip(self.inputs, arrays) if type(a) is not Shards and not hasattr(a, "shape"))
        raise TypeError(f"{t.name} is given as {type(a).__name__}: an array that has __dlpack__ is needed"
                        + ("" if t.rank else ", or a number"))

    def _numbers(self, arrays) -> tuple:
        """Numbers of Python and NumPy as arrays without dimensions, for inputs that have none."""
        return tuple(number(a, t) if type(a) in NUMBERS and t.rank == 0 else a for t, a in zip(self.inputs, arrays))

    def _ready_parts(self, arrays, out, donate, whole, extents):
        """The same if tensors are shards or inputs are donated."""
        lead = lead_of(flat(arrays))
        kind = numpy_kind() if lead is None else kind_of(lead)
        shapes = self._bind(self._extents(arrays), extents or {})
        donated = self._donated(donate, shapes) if donate else None
        if out is None:
            out = self._empty(kind, arrays, shapes, donated, whole)
        return kind, out, (shapes, donated)

    def _check_whole(self, shapes, donated=None) -> None:
        """A rank that holds a part of an output cannot return all of it."""
        if (shapes, donated) in self._whole:
            return
        for i, t in enumerate(self.outputs):
            for d in range(self.devices[2]) if not donated or donated[i] < 0 else ():
                part = self._core.shard(shapes, True, i, d)
                if part is not None and part[1] != part[2]:
                    raise ValueError(f"output {t.name} is cut over the ranks, and none of them has all of it: ask for the parts "
                                     "(whole=False), or have the schedule put it on its mesh without a cut")
        self._whole.add((shapes, donated))

    def _empty(self, kind, arrays, shapes, donated, whole) -> tuple:
        """Outputs: donated inputs, new arrays, or a new one for each device."""
        first, count, _ = self.devices
        every = (lead_of(flat(arrays)),)
        of = next((a for a in arrays if type(a) is Shards), [None] * count)  # a part is made where the device's others are
        with self.module._lock:
            extents = self.module._core.shapes(self.name, shapes)
        if whole and self._spread:
            self._check_whole(shapes, donated)
        out = []
        for i, t in enumerate(self.outputs):
            if donated and donated[i] >= 0:
                out.append(arrays[donated[i]])
            elif whole:
                out.append(kind.empty(extents[i], t.dtype, every))
            else:
                parts = [self._core.shard(shapes, True, i, first + d) for d in range(count)]
                out.append(Shards(*(p and kind.empty(p[1], t.dtype, every if of[d] is None else (of[d],))
                                    for d, p in enumerate(parts))))
        return tuple(out)

    def _bind(self, shapes: tuple, extents: dict, complete: bool = True):
        """Extents of whole tensors, from shapes of some inputs and values by name."""
        if not isinstance(extents, dict):
            raise TypeError(f"extents are given by name, as {{'n': 32}}, not {extents!r}")
        key = (shapes, tuple(sorted(extents.items())), complete)
        found = self._bound.get(key)
        if found is None:
            with self.module._lock:
                found = self.module._core.bind(self.name, shapes, extents, complete)
            if len(self._bound) < 1024:
                self._bound[key] = found
        return found

    def _number(self, name: str, side: list, what: str) -> int:
        for i, t in enumerate(side):
            if t.name == name:
                return i
        raise ValueError(f"{self.name} has no {what} called {name!r}: it has {', '.join(t.name for t in side)}")

    def _donated(self, donate, shapes) -> tuple:
        """For each output the number of the input whose memory it is given, or -1."""
        if not isinstance(donate, (str, dict, list, tuple, set)):
            raise TypeError(f"donate is the name of an input, several, or {{input: output}}, not {donate!r}")
        pairs = donate if isinstance(donate, dict) else dict.fromkeys([donate] if isinstance(donate, str) else donate)
        result = [-1] * len(self.outputs)
        for given, wanted in pairs.items():
            i = self._number(given, self.inputs, "input")
            o = self._alike(i, shapes) if wanted is None else self._number(wanted, self.outputs, "output")
            if result[o] >= 0:
                raise ValueError(f"two inputs are donated to output {self.outputs[o].name}")
            result[o] = i
        return tuple(result)

    def _alike(self, i: int, shapes) -> int:
        """The only output of the dtype and shape of input i."""
        with self.module._lock:
            extents = self.module._core.shapes(self.name, shapes)
            mine = self.inputs[i].dtype, self.module._core.shapes(self.name, shapes, True)[i]
        found = [o for o, t in enumerate(self.outputs) if (t.dtype, extents[o]) == mine]
        if len(found) != 1:
            raise ValueError(f"{len(found)} outputs have the dtype and shape of {self.inputs[i].name}: "
                             f"name one, as donate={{{self.inputs[i].name!r}: output}}")
        return found[0]

    def shard(self, name: str, *shapes: Sequence[int] | None, device: int | None = None, **extents: int) -> Shard | None:
        """The part of an input or output that a device holds (by default the first device of this process); None: it holds
        none. `shapes` are those of the inputs, None for unknown ones; or give `extents` by name. Only those are needed
        on which the part depends."""
        side, is_output = self.inputs, False
        if name not in (t.name for t in side) and name in (t.name for t in self.outputs):
            side, is_output = self.outputs, True
        number = self._number(name, side, "input or output")
        if device is not None and not 0 <= device < self.devices[2]:
            raise ValueError(f"{self.name} has {self.devices[2]} devices, and no device {device}")
        bound = self._bind(shapes or (None,) * len(self.inputs), extents, complete=False)
        part = self._core.shard(bound, is_output, number, self.devices[0] if device is None else device)
        return None if part is None else Shard(*part)

    def cut(self, name: str, array: Any, **extents: int) -> Shards:
        """Cuts a whole array for input `name` into the parts that the devices of this process hold: views of it."""
        number = self._number(name, self.inputs, "input")
        if not hasattr(array, "shape"):
            raise TypeError(f"{name} is given as {type(array).__name__}: an array is needed")
        shapes = tuple(tuple(array.shape) if i == number else None for i in range(len(self.inputs)))
        first, count, _ = self.devices
        parts = [self.shard(name, *shapes, device=first + d, **extents) for d in range(count)]
        return Shards(*(None if p is None else array[p.index] for p in parts))

    def __call__(self, *arrays: Any, out: Any = None, seed: int = 0, stream: int | None = None, profile: bool = False,
                 donate: Donated = None, whole: bool = True, extents: dict[str, int] | None = None,
                 _as_definition: bool = False) -> Any:
        """Runs the program on one array per input; an input without dimensions may be a number.

        out      arrays to write to; by default new ones are made
        seed     of `uniform`
        stream   for arrays on a GPU: the stream that orders the run, a handle as an int; by default PyTorch's current
                 stream, or the default stream. The call returns when the run is issued
        profile  True: records what ran when (`stats`, `trace()`)
        donate   inputs whose memory outputs take: {input: output}, or names of inputs
        whole    False: outputs are Shards. Inputs and `out` may be Shards in any case
        extents  extents of whole tensors that the shapes of the arrays do not determine
        """
        if not NUMBERS.isdisjoint(map(type, arrays)) and len(arrays) == self._n_inputs:
            arrays = self._numbers(arrays)
        if out is not None and type(arrays[0] if arrays else None) in DIRECT and len(arrays) == self._n_inputs and whole and not (
                profile or donate or extents or _as_definition):
            given = self._direct(arrays, out, seed, stream)
            if given is not None:
                return given
        kind, out, rest = self._ready(arrays, out, donate, whole, extents)
        for_dlpack, streams = kind.order(*((arrays, out) if rest is None else (flat(arrays), flat(out))), stream)
        try:
            self._run(arrays, out, seed, _as_definition, profile, for_dlpack, streams, rest)
        except (BufferError, TypeError):  # not exported as they are
            inputs, outputs = _exported(kind, arrays, out)
            self._run(inputs, outputs, seed, _as_definition, profile, for_dlpack, streams, rest)
        if kind.gives:
            out = each(kind.give, out)
        return out[0] if len(out) == 1 else out

    def run_async(self, *arrays: Any, out: Any = None, seed: int = 0, stream: int | None = None,
                  callback: Callable[[], Any] | None = None, donate: Donated = None, whole: bool = True,
                  extents: dict[str, int] | None = None) -> Pending:
        """Begins a run and returns at once; arguments are as for a call. Runs of one program are executed in the order of
        the calls. `callback()` is called on another thread when this run has ended."""
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is a function without arguments, not {callback!r}")
        if not NUMBERS.isdisjoint(map(type, arrays)) and len(arrays) == self._n_inputs:
            arrays = self._numbers(arrays)
        kind, out, rest = self._ready(arrays, out, donate, whole, extents)
        for_dlpack, streams = kind.order(flat(arrays), flat(out), stream)
        try:
            core = self._core.start(arrays, out, seed, for_dlpack, streams, callback, rest)
        except (BufferError, TypeError):
            inputs, outputs = _exported(kind, arrays, out)
            core = self._core.start(inputs, outputs, seed, for_dlpack, streams, callback, rest)
        return Pending(core, out, kind)

    def prepare(self, *shapes: Sequence[int], **extents: int) -> None:
        """Prepares runs for these shapes of the inputs, extents by name, or both, and runs nothing: binds the program, compiles
        and loads kernels, allocates memory."""
        with self.module._lock:
            self._core.prepare(self.module._core, self.name, shapes or None, extents)

    def settle(self) -> None:
        """Waits for runs on streams of a GPU that may still find an index out of range, and raises their error."""
        self._core.settle()

    def definition(self, *arrays: Any, out: Any = None, seed: int = 0, stream: int | None = None) -> Any:
        """Evaluates the definition with the reference evaluator, which accumulates in f64. Slow."""
        return self(*arrays, out=out, seed=seed, stream=stream, _as_definition=True)

    # -- asking --

    def lower(self, style: str = "weir") -> str:
        """The host program as text: "weir", which parses back, or "nvfuser"."""
        with self.module._lock:
            return self.module._core.lower(self.name, self.options, style)

    def why(self, *names: str, **extents: int) -> str:
        """Explains tensors and communications by name: where they are and why, and their cost for these extents."""
        with self.module._lock:
            return self.module._core.why(self.name, self.options, extents or None, names)

    def verify(self, *shapes: Sequence[int], **extents: int) -> str:
        """Proves the plan for shapes of the inputs, extents by name, or both: no race, no deadlock. Returns the report; raises
        Error with all findings if the plan is not safe."""
        with self.module._lock:
            return self._core.verify(self.module._core, self.name, shapes or None, extents)

    def bound(self, *shapes: Sequence[int], machine: str = "threads", **extents: int) -> dict:
        """The least time in which the devices of a machine (one of `weir list machines`, or a file) could do the work of the
        program, the time that the simulator predicts, and the communications that it waits for, in seconds."""
        options = {**self.options, "device": "sim", "machine": machine}
        with self.module._lock:
            core = self.module._core.compile(self.name, {**options, "comm": "inproc"}, None, None, None)
            return core.bound(self.module._core, self.name, shapes or None, extents)

    def bucket(self, extent: str, length: int) -> int:
        """For an extent with a capacity: the length that arrays must have for a run that uses `length` positions. All
        lengths of a bucket have the same one, so the program is bound once per bucket."""
        return self._core.bucket(extent, length)

    @property
    def counts(self) -> dict[str, int]:
        """Counts since the program was compiled: runs; bindings and loads of plans; allocations; donated inputs that were
        overwritten in place, or copied; evicted plans. And how many plans are kept now, and their bytes."""
        return self._core.counts()

    @property
    def note(self) -> str | None:
        """Notes about the last run, one per line, or None: marked streams that were not used, movements of many bytes that
        another mark would avoid."""
        return self._core.note()

    @property
    def stats(self) -> dict | None:
        """Statistics of the last run with profile=True: times in ns, bytes, counts. None: there was no such run."""
        return self._core.stats()

    def trace(self, path: str | os.PathLike) -> None:
        """Writes a timeline of the last run with profile=True: .json for Perfetto, .html or .svg."""
        self._core.trace(self.name, os.fspath(path))


class Pending:
    """A run that was begun by run_async(): wait() for its outputs, or await it."""

    def __init__(self, core: _weir.Pending, out: tuple, kind: Kind):
        self._core = core
        self._out = out
        self._kind = kind

    def done(self) -> bool:
        """True if the run has ended. Does not wait."""
        return self._core.poll(0.0)

    def cancel(self) -> None:
        """Asks the run to stop: it starts no further steps, and wait() raises Cancelled unless it had already ended."""
        self._core.cancel()

    def wait(self, timeout: float | None = None) -> Any:
        """Waits for the run and returns its outputs, as a call does. Raises the run's error; TimeoutError after `timeout`
        seconds. Ctrl-C cancels the run."""
        try:
            ended = self._core.poll(-1.0 if timeout is None else max(0.0, float(timeout)))
        except KeyboardInterrupt:
            self._core.cancel()
            raise
        if not ended:
            raise TimeoutError(f"the run did not end within {timeout} s")
        self._core.result()
        out = each(self._kind.give, self._out)
        return out[0] if len(out) == 1 else out

    def __await__(self):
        import asyncio
        yield from asyncio.get_running_loop().run_in_executor(None, self._core.poll, -1.0).__await__()
        return self.wait()


from .torch_op import torch_op  # noqa: E402
from .schedules import Mesh, Schedule, serial, stream  # noqa: E402
from .tracing import Fusion, fusion, ops  # noqa: E402
from .weights import Weights, load_weights  # noqa: E402
