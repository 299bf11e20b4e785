"""Schedules as objects: where tensors are, and when they are computed.

    d = weir.Mesh("d", 2)
    s = weir.Schedule()
    s["w"].on(d).outer_split(0, d).mark(0, d.x)
    s["x"].outer_split(0, 4).mark(0, weir.stream)
    program = mlp.scheduled(s).compile()

Each call adds a statement of the language (docs/schedule.md); str(s) shows them.
"""

from __future__ import annotations

import sys
from typing import NamedTuple, Sequence

_LETTERS = "xyz"


class MeshAxis(NamedTuple):
    """One axis of a mesh."""

    mesh: Mesh
    axis: str

    def __str__(self) -> str:
        return f"{self.mesh.name}.{self.axis}"


class Mesh:
    """Devices in a row or a grid: Mesh("d", 2), Mesh("g", 2, 4), Mesh("e", 3, devices=[5, 2, 4]). `.x` is the last axis,
    `.y` the one before it, `.z` the next, and `.axis(k)` any of them, counted from the last."""

    def __init__(self, name: str, *shape: int, devices: Sequence[int] | None = None):
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a mesh: names are made of letters, digits and _")
        if not shape or not all(isinstance(n, int) and n > 0 for n in shape):
            raise ValueError(f"mesh {name} needs sizes that are at least 1")
        self.name = name
        self.shape = shape
        self.devices = None if devices is None else tuple(devices)

    @property
    def size(self) -> int:
        """How many devices it has."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def axis(self, k: int) -> MeshAxis:
        if not 0 <= k < len(self.shape):
            raise ValueError(f"mesh {self.name} has {len(self.shape)} axes")
        return MeshAxis(self, _LETTERS[k] if k < len(_LETTERS) else str(k))

    @property
    def x(self) -> MeshAxis:
        return self.axis(0)

    @property
    def y(self) -> MeshAxis:
        return self.axis(1)

    @property
    def z(self) -> MeshAxis:
        return self.axis(2)

    def __str__(self) -> str:
        """The statement that declares it."""
        of = "" if self.devices is None else f" of {{{', '.join(map(str, self.devices))}}}"
        return f"mesh {self.name} = [{', '.join(map(str, self.shape))}]{of}"

    def __repr__(self) -> str:
        return f"<weir.{self}>"


def _axis_of(mesh) -> MeshAxis:
    """A mesh of one axis is that axis, too."""
    if isinstance(mesh, Mesh) and len(mesh.shape) == 1:
        return mesh.x
    if not isinstance(mesh, MeshAxis):
        raise TypeError(f"{mesh!r} is not an axis of a mesh: d.x is one of weir.Mesh('d', 2)")
    return mesh


class _Mark:
    """weir.stream, weir.serial; and forms of streams: weir.stream.ring."""

    def __init__(self, text: str, forms: tuple[str, ...] = ()):
        self._text = text
        for form in forms:
            setattr(self, form, _Mark(f"{text}.{form}"))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"weir.{self._text}"


stream = _Mark("stream", ("broadcast", "p2p", "offset", "ring", "own"))
serial = _Mark("serial")


def _place() -> tuple[str, int]:
    """File and line of the caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Schedule:
    """The schedule of a program: statements about its tensors, in order. schedule["x"] is the tensor called x."""

    def __init__(self):
        self.statements: list[str] = []
        self.places: list[tuple[str, int]] = []
        self.meshes: dict[str, Mesh] = {}

    def __getitem__(self, name: str) -> Scheduled:
        return Scheduled(self, str(getattr(name, "name", name)))

    def on(self, mesh: Mesh, *names: str) -> Schedule:
        """Puts tensors on a mesh."""
        for name in names:
            self[name].on(mesh)
        return self

    def add(self, statement: str) -> None:
        """A statement as text."""
        self.statements.append(statement)
        self.places.append(_place())

    def use(self, mesh: Mesh) -> str:
        """Adds a mesh, and returns its name; two meshes of a program have different names."""
        known = self.meshes.setdefault(mesh.name, mesh)
        if str(known) != str(mesh):
            raise ValueError(f"two meshes are called {mesh.name}: {known} and {mesh}")
        return mesh.name

    def __str__(self) -> str:
        return "\n".join(self.statements)


class Scheduled:
    """A tensor in a schedule. Each method adds a statement and returns the tensor, so that calls can be chained. An axis is
    a position in the tensor's loop domain as the statements before have made it."""

    def __init__(self, schedule: Schedule, name: str):
        self._schedule = schedule
        self.name = name

    def _add(self, statement: str) -> Scheduled:
        self._schedule.add(f"{self.name}{statement}")
        return self

    def _by(self, factor) -> str:
        if isinstance(factor, Mesh):
            return self._schedule.use(factor)
        if isinstance(factor, MeshAxis):
            self._schedule.use(factor.mesh)
        if isinstance(factor, (list, tuple)) and not isinstance(factor, MeshAxis):
            return f"[{', '.join(map(str, factor))}]"
        return str(factor)

    def on(self, mesh: Mesh) -> Scheduled:
        """Puts the tensor on the mesh."""
        return self._add(f" on {self._schedule.use(mesh)}")

    def split(self, axis: int, factor) -> Scheduled:
        """Splits an axis: [n] becomes [ceildiv(n, factor), factor]. A factor is a number, an extent, a mesh or one of its
        axes."""
        return self._add(f".split({axis}, {self._by(factor)})")

    def outer_split(self, axis: int, factor) -> Scheduled:
        """Splits an axis: [n] becomes [factor, ceildiv(n, factor)]. A list of lengths cuts it into such chunks."""
        return self._add(f".outer_split({axis}, {self._by(factor)})")

    def merge(self, axis: int) -> Scheduled:
        """Merges an axis with the next one."""
        return self._add(f".merge({axis})")

    def reorder(self, moves: dict[int, int]) -> Scheduled:
        """Moves axes to new places: {from: to}."""
        return self._add(f".reorder({', '.join(f'{a} -> {b}' for a, b in moves.items())})")

    def swizzle(self, axis: int, mesh_axis: MeshAxis | Mesh) -> Scheduled:
        """Makes each device begin at its own position of the axis."""
        mesh_axis = _axis_of(mesh_axis)
        self._schedule.use(mesh_axis.mesh)
        return self._add(f".swizzle({axis}, mesh.{mesh_axis.axis})")

    def mark(self, axis: int, mark) -> Scheduled:
        """Marks an axis: one position per device (an axis of a mesh), one slice per iteration (weir.stream), or neither
        (weir.serial)."""
        if isinstance(mark, (Mesh, MeshAxis)):
            mark = _axis_of(mark)
            self._schedule.use(mark.mesh)
            mark = f"mesh.{mark.axis}"
        return self._add(f"[{axis}] = {mark}")

    def shard(self, axis: int, mesh_axis: MeshAxis | Mesh) -> Scheduled:
        """Cuts an axis evenly over an axis of a mesh: on(), outer_split() and mark() in one call."""
        mesh_axis = _axis_of(mesh_axis)
        factor = mesh_axis.mesh if len(mesh_axis.mesh.shape) == 1 else mesh_axis
        return self.on(mesh_axis.mesh).outer_split(axis, factor).mark(axis, mesh_axis)

    def memory(self, kind: str) -> Scheduled:
        """Sets the kind of memory: "global" or "symmetric"."""
        return self._add(f".memory({kind})")

    def allocate(self, order: list[int]) -> Scheduled:
        """Sets the order of dimensions in memory, outermost first."""
        return self._add(f".allocate([{', '.join(map(str, order))}])")

    def allocate_as_loop(self) -> Scheduled:
        return self._add(".allocate_as_loop()")

    def contiguity(self, dense: list[bool]) -> Scheduled:
        return self._add(f".contiguity([{', '.join('true' if d else 'false' for d in dense)}])")

    def rfactor(self, axes: list[int], name: str) -> Scheduled:
        """Reduces in two steps: first along `axes`, into a new tensor called `name`, which is returned."""
        self._schedule.add(f"{name} = {self.name}.rfactor([{', '.join(map(str, axes))}])")
        return Scheduled(self._schedule, name)
