"""Named sizes: which axes of a compiled function's arguments vary from call to call, and which of them are equal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nnc.compiled.signature import Key, is_spec
from nnc.errors import ArgumentError, ArgumentTypeError, AxisError, ShapeError, user_error
from nnc.trace.core.flat import name_of

__all__ = ["Dim", "DynamicAxes", "dim"]


@dataclass(frozen=True, slots=True)
class Dim:
    """A named size; made by `nnc.dim`.

    Attributes:
        name: axes with one name have one size in each call.
        min: smaller sizes have a program of their own each.
        max: larger sizes are an error; None: there is no limit.

    Example:
        >>> nnc.dim("tokens", max=4096).max
        4096
    """

    name: str
    min: int = 2
    max: int | None = None


def dim(name: str, *, min: int = 2, max: int | None = None) -> Dim:
    """Names a size that varies from call to call, for `nnc.compile(dynamic_axes=)`.

    Args:
        name: axes with one name have one size in each call.
        min: smaller sizes have a program of their own each, since broadcasting treats 1 in another way.
        max: larger sizes are an error; None: there is no limit.

    Returns:
        the name with its limits.

    Raises:
        ArgumentError: the limits hold no size.
        ArgumentTypeError: the name is no string, or a limit no int.

    Example:
        >>> tokens = nnc.dim("tokens", max=4096)
        >>> total = nnc.compile(nnp.sum, dynamic_axes={"x": {0: tokens}})
        >>> total(nnp.ones(5)).item(), total(nnp.ones(7)).item()
        (5.0, 7.0)
    """
    fix = 'write for example nnc.dim("tokens", max=4096).'
    if not isinstance(name, str):
        raise user_error(ArgumentTypeError, "nnc.dim", f"the name is {name!r}, not a string.", fix=fix)
    for limit, value in (("min", min), ("max", max)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise user_error(ArgumentTypeError, "nnc.dim", f"{limit} is {value!r}, not an int.", fix=fix)
    if min < 0 or (max is not None and max < min):
        raise user_error(ArgumentError, "nnc.dim", f"no size is between min={min} and max={max}.", fix=fix)
    return Dim(name, min, max)


Axes = Mapping[str, Mapping[int, str | Dim]]


class Named(NamedTuple):
    """An axis of a parameter, and the name of its size."""

    parameter: str
    axis: int
    dim: Dim


class DynamicAxes(NamedTuple):
    """The named axes of a function's parameters."""

    named: tuple[Named, ...]

    def places(self, key: Key, fun: Callable[..., Any]) -> dict[tuple[int, int], Dim]:
        """Returns the named axes of a call: the leaf and its axis.

        Raises:
            AxisError: an array has no such axis.
        """
        found: dict[tuple[int, int], Dim] = {}
        for i, (path, leaf) in enumerate(zip(key.paths(fun), key.leaves, strict=True)):
            for parameter, axis, size in self.named:
                is_within = path == parameter or path.startswith((f"{parameter}[", f"{parameter}."))
                if not is_within or not is_spec(leaf):
                    continue
                spec = leaf[0]
                if not -spec.ndim <= axis < spec.ndim:
                    problem = f"dynamic_axes names axis {axis} of {path} {size.name!r}, which has {spec.ndim} axes."
                    fix = f"pass an array with that axis for {path}, or leave it out of dynamic_axes."
                    raise user_error(AxisError, name_of(fun), problem, operands={path: spec}, fix=fix)
                found[i, axis % spec.ndim] = size
        return found

    def check(self, key: Key, fun: Callable[..., Any]) -> bool:
        """Checks the sizes of a call; returns whether all of them are at least as large as their names say.

        Raises:
            AxisError: an array has no such axis.
            ShapeError: axes of one name have two sizes, or a size is larger than it may be.
        """
        sizes: dict[str, tuple[int, str]] = {}
        are_large = True
        paths = key.paths(fun)
        for (i, axis), size in self.places(key, fun).items():
            count, where = key.leaves[i][0].shape[axis], f"axis {axis} of {paths[i]}"
            known, first = sizes.setdefault(size.name, (count, where))
            if known != count:
                problem = f"{size.name!r} has two sizes: {first} is {known}, {where} is {count}."
                fix = "pass arrays of one size along these axes, or give the axes different names in dynamic_axes."
                raise user_error(ShapeError, name_of(fun), problem, fix=fix)
            if size.max is not None and count > size.max:
                problem = f"{where} is {count}, and {size.name!r} is {size.max} at most."
                fix = f"pass fewer, or make the name with nnc.dim({size.name!r}, max={count})."
                raise user_error(ShapeError, name_of(fun), problem, fix=fix)
            are_large = are_large and count >= size.min
        return are_large


def read_axes(axes: Axes, fun: Callable[..., Any], parameters: Collection[str]) -> DynamicAxes:
    """Reads the argument of `nnc.compile`.

    Raises:
        ArgumentError: `fun` has no such parameter, or one name has two limits.
        ArgumentTypeError: a part of the argument is of another type.
    """
    found: list[Named] = []
    dims: dict[str, Dim] = {}  # those of names that are given as strings have the limits of another axis, if it has any
    fix = 'name axes by parameter and number: dynamic_axes={"x": {0: "batch"}}.'
    _check(isinstance(axes, Mapping), f"dynamic_axes is {axes!r}.", fix)
    for names in axes.values():
        if isinstance(names, Mapping):
            dims |= {name.name: name for name in names.values() if isinstance(name, Dim)}
    for parameter, names in axes.items():
        if parameter not in parameters:
            problem = f"dynamic_axes names {parameter!r}, which {name_of(fun)} does not take."
            operands = {"parameters": ", ".join(parameters)}
            raise user_error(
                ArgumentError, "nnc.compile", problem, operands=operands, fix="name one of its parameters."
            )
        _check(isinstance(names, Mapping), f"dynamic_axes[{parameter!r}] is {names!r}.", fix)
        for axis, name in names.items():
            what = f"dynamic_axes[{parameter!r}] has {axis!r}: {name!r}."
            _check(isinstance(axis, int) and isinstance(name, (str, Dim)), what, fix)
            size = name if isinstance(name, Dim) else dims.get(name, Dim(name))
            known = dims.setdefault(size.name, size)
            if known != size:
                problem = f"dynamic_axes gives {size.name!r} two limits: {known} and {size}."
                raise user_error(ArgumentError, "nnc.compile", problem, fix="make one nnc.dim, and use it twice.")
            found.append(Named(parameter, axis, size))
    return DynamicAxes(tuple(found))


def _check(holds: bool, problem: str, fix: str) -> None:
    if not holds:
        raise user_error(ArgumentTypeError, "nnc.compile", problem, fix=fix)
