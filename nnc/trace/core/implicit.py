"""Solutions that an algorithm finds, differentiated by the equation that they solve and not through the algorithm's steps.

`linear_solve` is the command of a linear system A(x) = b. Its tangent solves A(dx) = db − dA(x), its transpose the system of the
transposed map, so both modes and every order exist, and the algorithm itself is never differentiated. `root` is the solution x of
f(x, values) = 0: its tangent solves the linear system ∂f/∂x dx = −∂f/∂values dvalues (Christianson, "Reverse accumulation and
implicit functions", 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnc.array.array import as_value
from nnc.commands.control import linear_solve as command
from nnc.commands.rules import is_differentiable, lead, not_linear, zeros
from nnc.graph import Graph, bind, spec_of
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Linear, Tangents, Value
from nnc.trace.core.axes import union, vary
from nnc.trace.core.backward import fill_cotangents, is_forward, transpose_graph
from nnc.trace.core.batching import run_batched
from nnc.trace.core.custom import custom_jvp
from nnc.trace.core.dual import run_apart, run_jvp, run_linearize
from nnc.trace.core.staging import Staged, axes_of, stage
from nnc.trace.core.subgraphs import bind_for_rows

Flat = Callable[..., list[Any]]
LinearMap = Callable[[Sequence[Any]], list[Any]]
# (A, the preconditioner or None, b, the first guess) -> (x, further results); all flat sequences of values
Solver = Callable[[LinearMap, Any, list[Any], list[Any]], tuple[list[Any], list[Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class SolveRule:
    """The functions of a system on flat values. Operands are b, the first guess, then the values that A and the solver read."""

    count: int  # of the values that b, and x, are made of
    solve: Flat  # (*b, *guess, *values) -> (*x, *further results)
    matvec: Flat  # (*x, *values) -> A(x)
    transposed: Callable[[], SolveRule]

    def apply(self, b: Sequence[Any], guess: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Returns x and the further results."""
        operands = [as_value(x) for x in (*b, *guess, *values)]
        staged = stage(self.solve, [spec_of(x) for x in operands], name="linear_solve", axes=axes_of(operands))
        return list(bind(command, [*operands, *staged.captured], {"rule": self}, (staged.graph,)))


def linear_solve(
    solver: Solver, matvec: LinearMap, b: Sequence[Any], *, guess: Sequence[Any] | None = None,
    precondition: LinearMap | None = None,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Returns the solution x of A(x) = b and the solver's further results, which have no derivative.

    Args:
        solver: the algorithm. For the transposed system it is called with the transposed maps.
        matvec: A, a linear function of flat values.
        b: values of a floating-point dtype; x has their specs.
        guess: the first guess; zeros by default.
        precondition: approximates the inverse of A; it does not affect derivatives.
    """
    b = [as_value(x) for x in b]
    specs = [spec_of(x) for x in b]
    count = len(b)
    maps: list[Any] = []
    values: list[Any] = []
    b, mapped = _stage_settled(lambda *xs: matvec(xs), b, "matvec")
    preconditioned = None
    if precondition is not None:
        b, preconditioned = _stage_settled(lambda *xs: precondition(xs), b, "matvec")
    for staged in (mapped, preconditioned):
        maps.append(None if staged is None else (staged.graph, len(values)))
        values += () if staged is None else staged.captured
    rule = _make_rule(solver, maps, count)
    guess = [zeros(spec) for spec in specs] if guess is None else guess
    found = rule.apply(b, guess, values)
    return found[:count], found[count:]


def _stage_settled(fun: Flat, values: Sequence[Any], name: str) -> tuple[list[Any], Staged]:
    """Returns the graph of a function whose results are like its arguments, and the arguments, which vary over the named axes
    over which the results do.
    """
    specs, axes = [spec_of(x) for x in values], axes_of(values)
    while True:
        staged = stage(fun, specs, name=name, axes=axes)
        if axes is None:
            return list(values), staged
        following = [union(pair) for pair in zip(axes, staged.axes, strict=True)]
        if following == axes:
            return [vary(x, over) for x, over in zip(values, axes, strict=True)], staged
        axes = following


def _make_rule(solver: Solver, maps: Sequence[Any], count: int) -> SolveRule:
    """Returns the rule of a system whose A and preconditioner are graphs, each with the number of its first value; None for no
    graph.
    """

    def own(entry: tuple[Graph, int], values: Sequence[Any]) -> tuple[Graph, Sequence[Any]]:
        graph, start = entry
        return graph, values[start : start + len(graph.inputs) - count]

    def forward(entry: tuple[Graph, int], values: Sequence[Any]) -> LinearMap:
        graph, read = own(entry, values)
        return lambda xs: graph.evaluate([*xs, *read])

    def backward(entry: tuple[Graph, int], values: Sequence[Any]) -> LinearMap:
        graph, read = own(entry, values)
        specs = [s.spec for s in graph.inputs[:count]]
        return lambda ys: list(fill_cotangents(specs, tuple(transpose_graph(graph, count, read, ys))))

    def rule(make: Callable[[Any, Sequence[Any]], LinearMap], other: Callable[[], SolveRule]) -> SolveRule:
        def solve(*operands: Any) -> list[Any]:
            values = operands[2 * count :]
            precondition = None if maps[1] is None else make(maps[1], values)
            x, rest = solver(
                make(maps[0], values), precondition, list(operands[:count]), list(operands[count : 2 * count])
            )
            return [*x, *rest]

        def matvec(*operands: Any) -> list[Any]:
            return make(maps[0], operands[count:])(operands[:count])

        return SolveRule(count, solve, matvec, other)

    return rule(forward, lambda: rule(backward, lambda: _make_rule(solver, maps, count)))


# -- rules of the command ----------------------------------------------------------------------------------------------


def _moved(
    rule: SolveRule, graphs: tuple[Graph, ...], primals: tuple[Value, ...], tangents: Tangents,
    push: Callable[[Flat, Sequence[Any], Tangents], Sequence[Any]],
) -> tuple[list[Value], Tangents]:  # fmt: skip
    """Returns the results and their tangents; `push` gives the tangents of a function of the values at x."""
    count = rule.count
    outputs = list(bind(command, primals, {"rule": rule}, graphs))
    x, values = outputs[:count], primals[2 * count :]
    right = list(tangents[:count])
    if any(t is not None for t in tangents[2 * count :]):
        for i, t in enumerate(push(lambda *vs: rule.matvec(*x, *vs), values, tangents[2 * count :])):
            if t is not None:
                right[i] = -t if right[i] is None else right[i] - t
    rest = [None] * (len(outputs) - count)
    if all(t is None for t in right):
        return outputs, (*[None] * count, *rest)
    filled = [zeros(spec_of(y)) if t is None else t for y, t in zip(x, right, strict=True)]
    operands = [*filled, *(zeros(spec_of(y)) for y in x), *values]
    return outputs, (*bind(command, operands, {"rule": rule}, graphs)[:count], *rest)


def _push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], rule: SolveRule
) -> tuple[list[Value], Tangents]:
    return _moved(rule, graphs, primals, tangents, lambda fun, vs, ts: run_jvp(fun, vs, ts)[1])


def _linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], rule: SolveRule
) -> tuple[list[Value], Tangents]:
    push = lambda fun, vs, ts: run_apart(fun, vs, ts, is_forward(tangents))[1]
    return _moved(rule, graphs, primals, tangents, push)


def _transpose(cotangents: Tangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], rule: SolveRule) -> Tangents:
    count = rule.count
    if any(isinstance(x, Linear) for x in operands[count:]):
        moving = {f"operand {i}": x.spec for i, x in enumerate(operands) if isinstance(x, Linear)}
        raise not_linear("linear_solve", "in the map and the right-hand side together", moving)
    specs = [x.spec for x in operands[:count]]
    cts = fill_cotangents(specs, cotangents[:count])
    found = rule.transposed().apply(cts, [zeros(spec) for spec in specs], operands[2 * count :])[:count]
    pulled = (ct if isinstance(x, Linear) else None for ct, x in zip(found, operands, strict=False))
    return (*pulled, *[None] * (len(operands) - count))


def _batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], graphs: tuple[Graph, ...], rule: SolveRule
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    flags = [b or i < 2 * rule.count for i, b in enumerate(batched)]
    rows = [lead(size, x, b) if on else x for x, b, on in zip(operands, batched, flags, strict=True)]
    params = {"rule": _for_rows(size, rule, flags)}
    return bind_for_rows(command, size, rows, flags, params, graphs[0])


def _for_rows(size: int, rule: SolveRule, flags: Sequence[bool]) -> SolveRule:
    """Returns the rule of the systems of all rows; operands behind those of `flags` belong to sub-graphs that are not called."""

    def rows(fun: Flat, flags: Sequence[bool]) -> Flat:
        def batched(*operands: Any) -> list[Any]:
            outputs, out_batched = run_batched(fun, size, operands[: len(flags)], flags)
            return [lead(size, x, b) for x, b in zip(outputs, out_batched, strict=True)]

        return batched

    solve, matvec = rows(rule.solve, flags), rows(rule.matvec, flags[rule.count :])
    return SolveRule(rule.count, solve, matvec, lambda: _for_rows(size, rule.transposed(), flags))


derivative.set(command, Derivative(push=_push, linearize=_linearize, transpose=_transpose))
batch.set(command, _batch)


# -- roots -------------------------------------------------------------------------------------------------------------


def root(fun: Flat, find: Flat, solver: Solver, guess: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the solution x of fun(*x) = 0 and the algorithm's further results, which have no derivative.

    Derivatives with regard to the values that `fun` reads from outside are those of the equation; `guess` has none.

    Args:
        fun: maps x to as many values of the same specs.
        find: the algorithm: maps the guess to x and further results.
        solver: solves the linear systems of the derivatives.
        guess: the values where `find` begins, of a floating-point dtype.
    """
    guess = [as_value(x) for x in guess]
    specs = [spec_of(x) for x in guess]
    guess, equation = _stage_settled(fun, guess, "root")
    algorithm = stage(find, specs, name="find", axes=axes_of(guess))
    count = len(guess)

    @custom_jvp
    def solution(values: list[Any], others: list[Any], start: list[Any]) -> list[Any]:
        return list(algorithm.graph.evaluate([*start, *others]))

    @solution.defjvp
    def push_root(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        found = solution(*primals)
        x, values = found[:count], primals[0]
        moving = [t if is_differentiable(spec_of(v)) else None for v, t in zip(values, tangents[0], strict=True)]
        _, right = run_apart(lambda *vs: list(equation.graph.evaluate([*x, *vs])), values, moving, is_forward(moving))
        filled = [zeros(spec) if t is None else -t for spec, t in zip(specs, right, strict=True)]
        _, jacobian = run_linearize(lambda *xs: list(equation.graph.evaluate([*xs, *values])), x, [True] * count)
        moved, _ = linear_solve(solver, jacobian.push, filled)
        return found, [*moved, *(zeros(spec_of(y)) for y in found[count:])]

    found = solution(list(equation.captured), list(algorithm.captured), guess)
    return found[:count], found[count:]
