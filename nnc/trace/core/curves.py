"""Functions of one square root that are smooth in the number under it: (1 + r) exp(-r) of r = norm(x) has a second derivative at 0.

At r = 0 the second derivative of f(r) along any ray is f''(0), so the tangent of f(r) has the part f''(0) / 2 times the tangent of
r², beside the slope times the tangent of r. The chain rule misses it: it multiplies by the tangent of r, which is 0 by convention.
It only counts where a tangent is differentiated again, and where an element of the root is 0; only there is it computed.
Elementwise commands on functions of the same root make such functions again, and every other command gets their whole tangents, so
that sums of many are right where their slopes cancel only together.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.base.context import get_context
from nnc.base.later import later
from nnc.commands import elementwise as ew
from nnc.commands.constants import full_like
from nnc.commands.rules import add_tangents, root_of
from nnc.graph import bind
from nnc.graph.builder import infer_specs
from nnc.graph.registry import derivative, scalar
from nnc.trace.core.powers import Curve, Operand, Origin, Root, Roots

_run_jvp = later(f"{__package__}.dual", "run_jvp")
_LINEAR = frozenset((ew.add, ew.sub, ew.neg, ew.copy, ew.select))
"""Commands whose results bend as much as their operands do."""


def curve_of(origin: Origin) -> Curve | None:
    """Returns the facts about a value as a function of a root."""
    return origin.curve if isinstance(origin, Root) else origin if isinstance(origin, Curve) else None


def with_missing(tangent: Any, origin: Origin) -> Any:
    """Returns a tangent of the chain rule with the part that it lacks where a root is 0."""
    curve = curve_of(origin)
    return tangent if curve is None or curve.missing is None else add_tangents(tangent, curve.missing())


def base_of(roots: Roots) -> Operand | None:
    """Returns the square root that all operands of a command are functions of, element by element, if it is one; others are
    constants.
    """
    if roots.command is ew.with_square:
        return None
    bases = [base for base in map(_base, roots.operands) if base is not None]
    if not bases or not all(bases[0].equals(base) for base in bases[1:]):
        return None
    if roots.moves:
        base = roots.moved(bases[0]) if _base(roots.operands[0]) is not None else None
    else:
        base = bases[0] if _is_elementwise(roots) else None
    return base if base is not None and _may_be_zero(base.primal) else None


def _is_elementwise(roots: Roots) -> bool:
    """Whether a command computes each element of its result of those of its operands, in the same dtype."""
    if getattr(roots.params.get("rule"), "is_elementwise", False):
        return True
    if roots.command not in scalar or getattr(derivative.get(roots.command), "jvp", None) is None:
        return False
    specs = tuple([x.primal.spec for x in roots.operands])
    (result,) = infer_specs(roots.command, specs, dict(roots.params), ())
    return all(result.dtype == x.primal.spec.dtype for x in roots.operands if x.origin is not None)


def _base(x: Operand) -> Operand | None:
    known = curve_of(x.origin)
    if known is not None:
        return known.base
    is_root = isinstance(x.origin, Root) and x.origin.n == 2
    return x.line()[0] if is_root else None


def _may_be_zero(x: Any) -> bool:
    """Whether some element may be 0, for all that is known."""
    while hasattr(x, "tangent"):
        x = x.primal
    return type(x) is not Array or bool(get_context().modes) or bool(np.any(x.data == 0))


def bend(roots: Roots, base: Operand, origin: Origin, output: Any, is_smooth: bool) -> Origin:
    """Returns the facts about a function of a root.

    Args:
        origin: other facts about it.
        is_smooth: whether a rule that knows it to be smooth has made its tangent.
    """
    curves = [curve for curve in (curve_of(x.origin) for x in roots.operands) if curve is not None]
    tracked = [_base(x) is not None for x in roots.operands]
    scales = (
        roots.command in (ew.mul, ew.safe_mul, ew.div)
        and sum(tracked) == 1
        and tracked != [False, roots.command is ew.div]
    )
    is_linear = roots.moves or roots.command in _LINEAR or scales
    if isinstance(origin, Root) and is_linear and not curves and sum(tracked) == 1:
        return origin  # a multiple of a root
    slopes = cache(lambda: _slopes(roots, base))
    if is_smooth:
        curve = Curve(roots, base, slopes, lambda: slopes()[1] * 0.5)
    else:
        lacks = not is_linear or any(curve.missing is not None for curve in curves)
        parts = cache(lambda: _usual_part(roots, base))
        missing = cache(lambda: _missing(base, slopes(), parts(), output, roots.command in root_of)) if lacks else None
        curve = Curve(roots, base, slopes, parts, missing)
    return origin._replace(curve=curve) if isinstance(origin, Root) else curve


def missing_of_dot(roots: Roots) -> Any:
    """Returns the part that the tangent lacks of a sum of products of functions of the same roots; None: nothing."""
    x, *others = roots.operands
    base = _base(x)
    if not roots.is_paired_dot or base is None or (isinstance(x.origin, Root) and isinstance(others[0].origin, Root)):
        return None
    other = _base(others[0])
    smooth = base.origin.tangent() if isinstance(base.origin, Root) else None
    if other is None or smooth is None or not base.equals(other) or not _may_be_zero(base.primal):
        return None
    along = [_slopes_of(y, base) for y in roots.operands]
    zero = full_like(base.primal, 0)
    bent = ew.mul(*(slopes[0] for slopes in along if slopes is not None))
    bent = ew.select(ew.equal(base.primal, zero), ew.select(ew.isfinite(bent), bent, zero), zero)
    return bind(roots.command, [ew.safe_mul(smooth, bent), full_like(bent, 1)], dict(roots.params), ())[0]


def _missing(base: Operand, slopes: tuple[Any, Any], part: Any, output: Any, is_root: bool) -> Any:
    """Returns the part that the tangent of a function of a root lacks where the root is 0; None: nothing."""
    smooth = base.origin.tangent() if isinstance(base.origin, Root) else None
    if smooth is None:
        return None
    first, second = slopes
    zero = full_like(output, 0)
    bent = second * 0.5 - part
    found = ew.select(ew.isfinite(bent), bent, zero)  # else it has a pole there
    found = found if is_root else ew.select(ew.equal(first, zero), bent, found)
    return ew.safe_mul(smooth, ew.select(ew.equal(base.primal, full_like(base.primal, 0)), found, zero))


def _slopes(roots: Roots, base: Operand) -> tuple[Any, Any]:
    """Returns the first and the second derivative of a command's result along a root."""
    if roots.moves:
        (x, *_) = roots.operands
        first, second = _slopes_of(x, _base(x) or base) or (full_like(x.primal, 0), full_like(x.primal, 0))
        return roots.move(first), roots.move(second)
    along = [_slopes_of(x, base) for x in roots.operands]

    def moved(t: Any) -> list[Any]:
        operands = [
            x.primal if found is None else x.primal + (found[0] + found[1] * t * 0.5) * t
            for x, found in zip(roots.operands, along, strict=True)
        ]
        return list(bind(roots.command, operands, dict(roots.params), roots.graphs))

    def slope(t: Any) -> list[Any]:
        return [_or_zero(_run_jvp(moved, [t], [full_like(t, 1)])[1][0], t)]

    first, second = _run_jvp(slope, [full_like(base.primal, 0)], [full_like(base.primal, 1)])
    return first[0], _or_zero(second[0], base.primal)


def _slopes_of(x: Operand, base: Operand) -> tuple[Any, Any] | None:
    """Returns the derivatives of an operand along a root; None where it does not depend on it."""
    if _base(x) is None:
        return None
    curve = curve_of(x.origin)
    if curve is not None:
        return curve.slopes()
    if x.equals(base):
        return full_like(base.primal, 1), full_like(base.primal, 0)
    assert isinstance(x.origin, Root)
    return _slopes(x.origin.made, base)


def _usual_part(roots: Roots, base: Operand) -> Any:
    """Returns the factor of the tangent of the root's square in the tangent that the chain rule finds."""
    primals = tuple(x.primal for x in roots.operands)
    curves = [curve_of(x.origin) for x in roots.operands]
    parts = tuple(None if curve is None else curve.part() for curve in curves)
    if all(part is None for part in parts):
        return full_like(base.primal, 0)
    if roots.moves:
        return roots.move(parts[0])
    rule = derivative[roots.command]
    if rule.push is not None:
        return _or_zero(rule.push(primals, parts, graphs=roots.graphs, **roots.params)[1][0], base.primal)
    assert rule.jvp is not None
    outputs = tuple(bind(roots.command, list(primals), dict(roots.params), ()))
    return _or_zero(rule.jvp(primals, parts, outputs, **roots.params)[0], base.primal)


def _or_zero(x: Any, like: Any) -> Any:
    return full_like(like, 0) if x is None else x
