"""Functions of square roots that are smooth in the numbers under them: (1 + r) exp(-r) of r = norm(x) has a second derivative at 0.

At r = 0 the second derivative of f(r) along any ray is f''(0), so the tangent of f(r) has the part f''(0) / 2 times the tangent of
r², beside the slope times the tangent of r. The chain rule misses it: it multiplies by the tangent of r, which is 0 by convention.
It only counts where a tangent is differentiated again, and where an element of the root is 0; only there is it computed.
A function of several roots has such a part along each. Elementwise commands on functions of roots make such functions again.
Tangents are whole behind every command, so that sums of many are right where their slopes cancel only together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import broadcast_to_shape
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.later import later
from nnc.commands import elementwise as ew
from nnc.commands.constants import full, full_like
from nnc.commands.rules import add_tangents, root_of
from nnc.commands.shape import reshape
from nnc.graph import bind, spec_of
from nnc.graph.builder import infer_specs
from nnc.graph.registry import derivative, scalar
from nnc.trace.core.powers import Bent, Curve, Operand, Origin, Root, Roots

_run_jvp = later(f"{__package__}.dual", "run_jvp")
_LINEAR = frozenset((ew.add, ew.sub, ew.neg, ew.copy, ew.select, ew.with_square))
"""Commands whose results bend as much as their operands do."""
_MOST = 8  # roots of which one value is known to be a function: the time of a sum of n of them is in n²


def _curves_of(x: Operand) -> tuple[Curve, ...]:
    """Returns the facts about an operand as a function of roots, of which it may be one itself."""
    if not isinstance(x.origin, Root):
        return x.origin.curves if isinstance(x.origin, Bent) else ()
    made = x.origin.made.command
    is_first = x.origin.n == 2 and ((made in root_of and made is not ew.with_square) or not x.origin.curves)
    zero = partial(full_like, x.primal, 0)
    itself = Curve(x, lambda: (full_like(x.primal, 1), zero()), zero)
    return (*x.origin.curves, itself) if is_first else x.origin.curves


def _along(x: Operand, base: Operand) -> Curve | None:
    """Returns an operand as a function of a root; None: it does not depend on it."""
    return next((curve for curve in _curves_of(x) if curve.base.equals(base)), None)


def _bases_of(roots: Roots) -> list[Operand]:
    """Returns the square roots that the operands of a command are functions of, if the result is known to be one of them."""
    if roots.command is ew.with_square and isinstance(roots.operands[0].origin, Root):
        return []  # which the square names, not the root that it is a multiple of
    found: list[Operand] = []
    for x in roots.operands:
        for curve in _curves_of(x):
            if not any(base.equals(curve.base) for base in found) and _may_be_zero(curve.base.primal):
                found.append(curve.base)
    if len(found) > _MOST or not (roots.moves or _is_elementwise(roots)):
        return []
    return [base for base in found if not roots.moves or _along(roots.operands[0], base) is not None]


def has_rule(roots: Roots) -> bool:
    """Whether the rules of powers hold for a command: all factors of its roots are roots, or functions of the same root."""
    return all(
        _is_made_of_roots(x, set()) or all(curve.base.equals(x.line()[0]) for curve in _curves_of(x))
        for x in roots.operands
    )


def _is_made_of_roots(x: Operand, seen: set[int]) -> bool:
    """Whether an operand is a product of roots; `seen` are the commands, by identity, of which that is known."""
    if not isinstance(x.origin, Root):
        return not _curves_of(x)
    made = x.origin.made
    if made.command in root_of or id(made) in seen:
        return True
    seen.add(id(made))
    return all(_is_made_of_roots(each, seen) for each in made.operands)


def _is_single(x: Operand) -> bool:
    return bool(x.primal.spec.size == 1)


def _is_elementwise(roots: Roots) -> bool:
    """Whether a command computes each element of its result of those of its operands, in the same dtype."""
    if getattr(roots.params.get("rule"), "is_elementwise", False):
        return True
    if roots.command not in scalar or getattr(derivative.get(roots.command), "jvp", None) is None:
        return False
    specs = tuple([x.primal.spec for x in roots.operands])
    (result,) = infer_specs(roots.command, specs, dict(roots.params), ())
    return all(result.dtype == x.primal.spec.dtype for x in roots.operands if x.origin is not None)


def _may_be_zero(x: Any) -> bool:
    """Whether some element may be 0, for all that is known."""
    while hasattr(x, "tangent"):
        x = x.primal
    return type(x) is not Array or bool(get_context().modes) or bool(np.any(x.data == 0))


def bend(
    roots: Roots, origin: Origin, outputs: Sequence[Any], tangents: Sequence[Any], is_smooth: bool
) -> tuple[list[Any], list[Origin]]:
    """Returns the tangents with the parts that the chain rule misses, and the facts about the results.

    Args:
        origin: other facts about the first result.
        is_smooth: whether a rule that knows it to be smooth has made its tangent.
    """
    found, origins = list(tangents), [origin, *[None] * (len(outputs) - 1)]
    bases = _bases_of(roots)
    if not bases and found[0] is not None:
        found[0] = add_tangents(found[0], _missing_of_dot(roots))
    curves: list[list[Curve]] = [[] for _ in outputs]
    for base in bases:
        moved = roots.moved(base) if roots.moves and not _is_single(base) else base
        slopes, parts = (
            cache(partial(_slopes, roots, base, outputs)),
            cache(partial(_parts, roots, base, outputs)),
        )
        for i, (output, t) in enumerate(zip(outputs, tangents, strict=True)):
            if t is None or not dtypes.is_inexact(spec_of(output).dtype):
                continue
            along = partial(_item, slopes, i)
            part: Callable[[], Any] = partial(_item, parts, i)
            if is_smooth:
                part = cache(partial(_half, along))
            elif not _is_linear(roots):
                lacks = cache(partial(_lacking, base, along, part, output, roots.command in root_of))
                found[i] = add_tangents(found[i], _missing(base, lacks, output))
                part = cache(partial(_sum, part, lacks))
            if _is_single(base) or spec_of(output).shape == moved.primal.spec.shape:
                curves[i].append(Curve(moved, along, part))
    for i, (made, kept) in enumerate(zip(origins, curves, strict=True)):
        if kept:
            origins[i] = made._replace(curves=tuple(kept)) if isinstance(made, Root) else Bent(roots, tuple(kept))
    return found, origins


def _is_linear(roots: Roots) -> bool:
    depends = [bool(_curves_of(x)) for x in roots.operands]
    scales = roots.command in (ew.mul, ew.safe_mul) or (roots.command is ew.div and depends[0])
    return roots.moves or roots.command in _LINEAR or (scales and sum(depends) == 1)


def _item(results: Any, i: int) -> Any:
    return results()[i]


def _half(slopes: Any) -> Any:
    return slopes()[1] * 0.5


def _sum(part: Any, more: Any) -> Any:
    return part() + more()


def _missing_of_dot(roots: Roots) -> Any:
    """Returns the part that the tangent lacks of a sum of products of functions of the same roots; None: nothing."""
    if not roots.is_paired_dot or all(isinstance(x.origin, Root) for x in roots.operands):
        return None
    x, y = roots.operands
    total = None
    for curve in _curves_of(x):
        base, other = curve.base, _along(y, curve.base)
        smooth = base.origin.tangent() if isinstance(base.origin, Root) else None
        if other is None or smooth is None or not _may_be_zero(base.primal):
            continue
        bent, zero = ew.mul(curve.slopes()[0], other.slopes()[0]), full_like(base.primal, 0)
        bent = ew.select(ew.equal(base.primal, zero), ew.select(ew.isfinite(bent), bent, zero), zero)
        pairs = [ew.safe_mul(smooth, bent), full_like(bent, 1)]
        total = add_tangents(total, bind(roots.command, pairs, dict(roots.params), ())[0])
    return total


def _lacking(base: Operand, slopes: Any, part: Any, output: Any, is_root: bool) -> Any:
    """Returns the factor of the tangent of a root's square that a tangent lacks where the root is 0."""
    first, second = slopes()
    zero = full_like(output, 0)
    bent = second * 0.5 - part()
    found = ew.select(ew.isfinite(bent), bent, zero)  # else it has a pole there
    return found if is_root else ew.select(ew.equal(first, zero), bent, found)


def _missing(base: Operand, lacking: Any, output: Any) -> Any:
    """Returns the part that a tangent lacks where a root is 0; None: nothing."""
    smooth = base.origin.tangent() if isinstance(base.origin, Root) else None
    if smooth is None:
        return None
    at_zero = ew.equal(base.primal, full_like(base.primal, 0))
    found = ew.select(_spread(at_zero, output), lacking(), full_like(output, 0))
    return ew.safe_mul(_spread(_converted(smooth, output), output), found)


def _converted(x: Any, output: Any) -> Any:
    dtype = spec_of(output).dtype
    return x if spec_of(x).dtype == dtype else ew.convert(x, dtype=dtype)


def _spread(x: Any, output: Any) -> Any:
    """Returns a value at each element of an output that depends on it."""
    shape = spec_of(output).shape
    if spec_of(x).size == 1 and spec_of(x).shape not in ((), shape):
        x = reshape(x, shape=())
    return broadcast_to_shape(x, shape)


def _slopes(roots: Roots, base: Operand, outputs: Sequence[Any]) -> list[Any]:
    """Returns the first and the second derivative of a command's results along a root."""
    along = [_along(x, base) for x in roots.operands]
    if roots.moves:
        assert along[0] is not None
        return [tuple([roots.move(x) for x in along[0].slopes()])]
    known = [None if curve is None else curve.slopes() for curve in along]
    like = full(shape=(), dtype=base.primal.spec.dtype, value=0) if _is_single(base) else full_like(base.primal, 0)

    def moved(t: Any) -> list[Any]:
        operands = [
            x.primal if found is None else x.primal + (found[0] + found[1] * (at := _at(t, x)) * 0.5) * at
            for x, found in zip(roots.operands, known, strict=True)
        ]
        return list(bind(roots.command, operands, dict(roots.params), roots.graphs))

    def slope(t: Any) -> list[Any]:
        return _or_zeros(_run_jvp(moved, [t], [full_like(t, 1)])[1], outputs)

    first, second = _run_jvp(slope, [like], [full_like(like, 1)])
    pairs = zip(first, _or_zeros(second, outputs), strict=True)
    if roots.command not in root_of or roots.command is ew.with_square:
        return list(pairs)
    zero = full_like(outputs[0], 0)  # where the root is 0, it is a root of its own
    return [tuple([ew.select(ew.equal(outputs[0], zero), zero, x) for x in pair]) for pair in pairs]


def _at(t: Any, x: Operand) -> Any:
    return _spread(_converted(t, x.primal), x.primal)


def _parts(roots: Roots, base: Operand, outputs: Sequence[Any]) -> list[Any]:
    """Returns the factors of the tangent of the root's square in the tangents that the chain rule finds."""
    primals = tuple(x.primal for x in roots.operands)
    curves = [_along(x, base) for x in roots.operands]
    parts = tuple(None if curve is None else curve.part() for curve in curves)
    if roots.moves:
        return [roots.move(parts[0])]
    rule = derivative[roots.command]
    joint = rule.push
    if joint is not None:
        static = {**roots.params, "graphs": roots.graphs} if roots.graphs else roots.params
        return _or_zeros(joint(primals, parts, **static)[1], outputs)
    assert rule.jvp is not None
    return _or_zeros(rule.jvp(primals, parts, tuple(outputs), **roots.params), outputs)


def _or_zeros(found: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    return [full_like(y, 0) if x is None else x for x, y in zip(found, outputs, strict=True)]
