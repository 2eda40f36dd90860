"""Functions within a named axis: how one is traced for a place along it, and how axes are found by their names.

The function is traced once, for one place, and not for all rows: then the trace knows of each value whether it is the same at all
places, the graph can be run by `vmap` for all of them, and a graph with no `vmap` around it is the program of one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import as_value
from nnc.array.promote import is_weak
from nnc.base.context import get_context, set_context
from nnc.commands.collective import INDEX
from nnc.errors import ArgumentError, ArgumentTypeError, TraceError, UnboundAxisError, user_error
from nnc.graph import Graph
from nnc.trace.core.axes import NOWHERE, Axes, NamedAxis, collectives_over, names_of, union, varying_over
from nnc.trace.core.staging import NamedStagingTrace, Staged


def check_axis_name(where: str, name: Any) -> None:
    """Raises unless `name` is a name for an axis, or None."""
    if name is not None and (not isinstance(name, str) or not name):
        fix = 'give a name such as axis_name="i".'
        raise user_error(ArgumentTypeError, where, f"axis_name must be a string, it is {name!r}.", fix=fix)


def stage_named(
    fun: Callable[..., Sequence[Any]], name: str, size: int, values: Sequence[Any], mapped: Sequence[bool],
    means: bool = False, stride: int = 0,
) -> tuple[Staged, NamedAxis]:  # fmt: skip
    """Traces `fun` for one place along an axis.

    Args:
        fun: a function from flat sequences of values to flat sequences of values.
        size: the number of places along the axis.
        values: the arguments; a mapped one has the rows of all places.
        mapped: which arguments are mapped.
        means: whether the gradient of a value that varies over the axis is that of its mean over the places.
        stride: the distance between the ranks of neighbouring places, if they are processes (nnc.commands.collective).

    Returns:
        the graph, whose inputs are the number of the place, the mapped arguments and the captured values; and the axis.
    """
    trace = NamedStagingTrace(name)
    with trace.recording() as context:
        index = trace.named_input(INDEX, False, NOWHERE)
        axis = NamedAxis(name, size, index, trace.level, means, stride=stride)
        trace.note_axes(index, frozenset((axis,)))
        arguments = []
        for x, on in zip(values, mapped, strict=True):
            if on:
                row = as_value(x)
                spec = row.spec.update(shape=row.spec.shape[1:])
                x = trace.named_input(spec, is_weak(row), union((varying_over(row), frozenset((axis,)))))
            arguments.append(x)
        with set_context(axes=(*context.axes, axis)):
            return trace.finish(fun(*arguments)), axis


def refuse_parts(graph: Graph, axis: NamedAxis, chunk: int) -> None:
    """Raises where a graph joins the values of all rows, since only `chunk` rows are run at a time."""
    for node in collectives_over(graph, frozenset((axis,))):
        joins = f"{node.command.name} over {axis.name!r} needs all at once"
        problem = f"chunk_size={chunk} runs {axis.size} rows in parts, but {joins}."
        operands = {"called": f"at {node.source.describe()}" if node.source else "by a derivative"}
        raise user_error(ArgumentError, "nnc.vmap", problem, operands=operands, fix="leave chunk_size out.")


def refuse_joins(where: str, choice: str, graphs: Sequence[Graph], axes: Axes) -> None:
    """Raises where sub-graphs that some places skip, or run more often than others, contain collectives.

    Args:
        where: the public function, for messages.
        choice: the name of the value that decides, for messages.
        axes: the axes over which that value varies.
    """
    if not axes:
        return
    for node in (node for graph in graphs for node in collectives_over(graph, axes)):
        name = node.params["axis_name"]
        problem = f"{choice} varies over {names_of(axes)}, so places would not all reach {node.command.name} over {name!r} within."
        operands = {"called": f"at {node.source.describe()}"} if node.source else {}
        fix = f"make {choice} the same at all places, for example with nnc.pmax({choice.split()[-1]}, {name!r})."
        raise user_error(TraceError, where, problem, operands=operands, fix=fix)


def find_axes(where: str, axis_name: Any) -> list[NamedAxis]:
    """Returns the axes of one name, or of a tuple of names in its order.

    Raises:
        UnboundAxisError: the function is not mapped over an axis of that name.
    """
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    if not names or not all(isinstance(name, str) for name in names):
        problem = f"axis_name must be a name or a tuple of names, it is {axis_name!r}."
        fix = 'give the name that was given to nnc.vmap, such as "i".'
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    bound = {axis.name: axis for axis in get_context().axes}
    for name in names:
        if name not in bound:
            listed = f"bound are {', '.join(map(repr, bound))}" if bound else "none is bound"
            fix = f"call it within a function that is mapped with nnc.vmap(f, axis_name={name!r})."
            raise user_error(UnboundAxisError, where, f"there is no axis {name!r} here; {listed}.", fix=fix)
    if len(set(names)) < len(names):
        raise user_error(ArgumentError, where, f"axis_name {names!r} names one axis twice.", fix="name each axis once.")
    return [bound[name] for name in names]
