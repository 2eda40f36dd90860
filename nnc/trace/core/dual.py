"""Forward differentiation: values that carry a tangent.

In `jvp` tangents are values of the enclosing level. In `linearize` they are symbols of a linear graph that is recorded on the
side: operations of a jvp rule on primals alone go to the enclosing level, which runs them at once or, within `compile`, records
them; only their results that the linear graph reads are kept. Reverse
mode transposes that graph (Radul et al., "You only linearize once", 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnc.array.array import Array, as_value
from nnc.base import dtypes
from nnc.base.context import get_context, new_level, set_context
from nnc.base.source import user_source
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, Graph, TensorSpec, bind, spec_of
from nnc.graph.registry import derivative, effect
from nnc.trace.core.axes import align
from nnc.trace.core.backward import fill, fill_cotangents, push_graph
from nnc.trace.core.curves import bend, has_rule
from nnc.trace.core.dual_tracer import DualTracer, is_nested
from nnc.trace.core.powers import WATCHED, Operand, Origin, Root, Roots
from nnc.trace.core.square_roots import bind_with_squares
from nnc.trace.core.staging import Staged, StagingTrace

_FEW = 256  # elements of a constant that is compared with others: those of formulas


class DualTrace:
    """Runs commands on primals at the enclosing level and pushes tangents through their jvp rules."""

    differentiates = True

    def __init__(self, level: int, linear: StagingTrace | None) -> None:
        self.level, self.linear = level, linear
        self.dual = get_context().dual  # the level of the outermost derivative around this one
        self.alive = True
        self.numbers: dict[Any, Any] = {}  # of values, by their commands and the numbers of operands

    def split(self, value: Any) -> tuple[Any, Any]:
        """Primal and tangent of a value of this or an enclosing level."""
        if isinstance(value, DualTracer) and value.owner is self:
            return value.primal, value.tangent
        return as_value(value), None

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command on primals and pushes the tangents through its rule."""
        pairs = [self.split(arg) for arg in args]
        primals, tangents = tuple([p for p, _ in pairs]), tuple([t for _, t in pairs])
        origins = [arg.origin if type(arg) is DualTracer and arg.owner is self else None for arg in args]
        if graphs:
            are_roots = [isinstance(x, Root) and x.n == 2 for x in origins]
            results = bind_with_squares(command, args, params, graphs, are_roots)
            if results is not None:
                return results
        roots: Roots | None = None
        if command in WATCHED or any(origins):
            numbers = [self._number(arg) for arg in args]
            roots = Roots(command, tuple(map(Operand, primals, tangents, origins, numbers)), params, graphs)
        is_again = roots is not None and any(origins) and any(is_nested(x, self.dual) for x in primals)
        powers = None if is_again and roots is not None and not has_rule(roots) else roots
        source = get_context().source
        if source is not None and not graphs:
            outputs, out_tangents, is_smooth = self._push(command, primals, tangents, params, graphs, powers)
        else:
            source = source or user_source()
            within = self.dual if graphs and any(is_nested(x, self.dual) for x in primals) else 0
            with set_context(source=source, dual=within):
                outputs, out_tangents, is_smooth = self._push(command, primals, tangents, params, graphs, powers)
        made: list[Origin] = []
        if roots is not None and outputs:
            made = [roots.origin()]
            if is_again:
                out_tangents, made = bend(roots, made[0], outputs, out_tangents, is_smooth)
        results = [
            x
            if t is None or not dtypes.is_inexact(spec_of(x).dtype)
            else DualTracer(self, x, t, source, getattr(x, "weak", False))
            for x, t in zip(outputs, out_tangents, strict=True)
        ]
        for x, origin in zip(results, made, strict=False):
            if origin is not None and type(x) is DualTracer:
                x.origin = origin
        if self.dual and not graphs and command not in effect:
            self._count(command, args, params, results)
        return results

    def _number(self, value: Any) -> Any:
        """Returns an object that equal operands share; None where values are not numbered."""
        if not self.dual:
            return None
        if isinstance(value, DualTracer) and value.owner is self:
            if value.number is None:
                value.number = object()
            return value.number
        value = as_value(value)
        is_small = type(value) is Array and value.spec.size <= _FEW
        key = (value.spec, value.data.tobytes()) if is_small else id(value)
        return self.numbers.setdefault(key, (value, object()))[1]  # holds the value, so that no other gets its id

    def _count(self, command: Command, args: Sequence[Any], params: dict[str, Any], results: Sequence[Any]) -> None:
        """Gives the results the numbers that results of an equal computation have."""
        key = (command, *map(self._number, args), *params.items())
        known = self.numbers.setdefault(key, [object() for _ in results])
        for x, number in zip(results, known, strict=True):
            if type(x) is DualTracer:
                x.number = number

    def _push(
        self, command: Command, primals: tuple[Any, ...], tangents: tuple[Any, ...], params: dict[str, Any],
        graphs: tuple[Graph, ...], roots: Roots | None,
    ) -> tuple[Sequence[Any], Sequence[Any], bool]:  # fmt: skip
        """Returns the results, their tangents, and whether these are those of a function that is known to be smooth."""
        rule = derivative.get(command, None)
        static = {**params, "graphs": graphs} if graphs else params
        joint = None if rule is None else rule.push if self.linear is None else rule.linearize
        if joint is not None:
            return (*joint(primals, tangents, **static), False)
        outputs = bind(command, primals, params, graphs)
        if roots is not None and outputs:  # a callback has none
            tangent = roots.tangent(outputs[0])
            if tangent is not NotImplemented:
                return outputs, [tangent], True
        if rule is None or rule.jvp is None:
            if any(dtypes.is_inexact(spec_of(x).dtype) for x in outputs):
                problem = "this command has no derivative in this mode."
                operands = {f"input {i}": x.spec for i, x in enumerate(primals)}
                fix = "wrap its use in nnc.custom_jvp or nnc.custom_vjp, or its input in nnc.stop_gradient."
                raise user_error(UnsupportedError, command.name, problem, operands=operands, fix=fix)
            return outputs, [None] * len(outputs), False
        return outputs, rule.jvp(primals, tangents, tuple(outputs), **static), False


class NamedDualTrace(DualTrace):
    """Differentiates within a named axis: operands of a command vary over the same axes."""

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Aligns the operands first, so that the linear part has the `pvary` nodes, too."""
        return super().process(command, args if graphs else align(command, args), params, graphs)


def _dual_trace(level: int, linear: StagingTrace | None) -> DualTrace:
    return (NamedDualTrace if get_context().axes else DualTrace)(level, linear)


def run_jvp(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Values and tangents of a flat function; a tangent that is None is zero."""
    trace = _dual_trace(new_level(), None)
    try:
        with set_context(level=trace.level, dual=trace.dual or trace.level):
            outputs = fun(*[_dual(trace, p, t) for p, t in zip(primals, tangents, strict=True)])
            pairs = [trace.split(x) for x in outputs]
    finally:
        trace.alive = False
    return [p for p, _ in pairs], [t for _, t in pairs]


def _dual(trace: DualTrace, primal: Any, tangent: Any) -> Any:
    primal = as_value(primal)
    return primal if tangent is None else DualTracer(trace, primal, tangent, get_context().source, primal.weak)


class Linearized(NamedTuple):
    """The linear map at a point: a graph from tangents of the inputs to tangents of the outputs.

    `staged.captured` are the values of the point that it reads; `nonzero` marks the outputs that it yields, the others'
    tangents are zero.
    """

    staged: Staged
    input_specs: tuple[TensorSpec, ...]
    nonzero: tuple[bool, ...]
    output_specs: tuple[TensorSpec, ...]

    def move(self, tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the outputs, None where zero; those of inactive inputs are None."""
        seeds = [t for t in tangents if t is not None]
        return fill(push_graph(self.staged.graph, [*seeds, *self.staged.captured]), self.nonzero)

    def push(self, tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the outputs; zero ones as zeros."""
        return list(fill_cotangents(self.output_specs, tuple(self.move(tangents))))


def run_linearize(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], active: Sequence[bool], forward: bool = False
) -> tuple[list[Any], Linearized]:
    """Values of a flat function and its linear map in the inputs that are `active`.

    Args:
        forward: the map is for tangents: it runs loops of unknown length again, and keeps no values of their iterations.
    """
    level = new_level()
    linear = StagingTrace("linear", linear=True, forward=forward)  # made second, so that it is the inner one
    trace = _dual_trace(level, linear)
    values = [as_value(p) for p in primals]
    try:
        with set_context(level=linear.level, dual=trace.dual or trace.level):
            seeds = [linear.input(v.spec) if on else None for v, on in zip(values, active, strict=True)]
            outputs = fun(*[_dual(trace, v, t) for v, t in zip(values, seeds, strict=True)])
            pairs = [trace.split(x) for x in outputs]
            staged = linear.finish([t for _, t in pairs if t is not None]).without_unread()
    finally:
        trace.alive = linear.alive = False
    specs = tuple(v.spec for v, on in zip(values, active, strict=True) if on)
    return [p for p, _ in pairs], Linearized(
        staged, specs, tuple(t is not None for _, t in pairs), tuple(p.spec for p, _ in pairs)
    )


def run_apart(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any], forward: bool = False
) -> tuple[list[Any], list[Any]]:
    """Returns the same as `run_jvp`. Primals do not depend on the commands on tangents, so where tangents are being recorded,
    these can be transposed.
    """
    outputs, linear = run_linearize(fun, primals, [t is not None for t in tangents], forward)
    seeds = [t for t in tangents if t is not None]
    moved = iter(push_graph(linear.staged.graph, [*seeds, *linear.staged.captured]))
    return outputs, [next(moved) if kept else None for kept in linear.nonzero]
