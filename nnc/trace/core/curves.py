"""Functions of one square root that are smooth in the number under it: (1 + r) exp(-r) of r = norm(x) has a second derivative at 0.

Where a function's slope along r is 0 at r = 0, its tangent there is half of its second derivative along r, times the tangent of r².
The chain rule misses it: it finds 0, a sum of slopes that cancel, times the tangent of r, which is 0 by convention. It only counts
where a tangent is differentiated again, and is only computed there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from nnc.base.later import later
from nnc.commands import elementwise as ew
from nnc.commands.constants import full_like
from nnc.commands.rules import add_tangents
from nnc.commands.trigonometry import asinh, atan, sinh, tanh
from nnc.graph import bind
from nnc.graph.registry import derivative, scalar
from nnc.trace.core.powers import Curve, Operand, Root, Roots

_run_jvp = later(f"{__package__}.dual", "run_jvp")
_STEEP = frozenset((ew.exp, ew.expm1, ew.log, ew.log1p, ew.reciprocal, ew.neg, ew.copy, sinh, tanh, asinh, atan))
"""Functions of one operand whose slope is nowhere 0: their tangents have what their operand's has."""
_LINEAR = frozenset((ew.add, ew.sub, ew.mul, ew.div))


def base_of(roots: Roots, output: Any) -> Operand | None:
    """Returns the square root that all operands of an elementwise command are functions of, if it is one; others are constants."""
    bases = [base for base in map(_base, roots.operands) if base is not None]
    if roots.command not in scalar or not bases or getattr(derivative.get(roots.command), "jvp", None) is None:
        return None
    same = all(bases[0].equals(base) for base in bases[1:])
    return bases[0] if same and output.spec == bases[0].primal.spec else None


def _base(x: Operand) -> Operand | None:
    if isinstance(x.origin, Curve):
        return x.origin.base
    is_root = isinstance(x.origin, Root) and x.origin.n == 2
    return x.line()[0] if is_root else None


def curve(roots: Roots, base: Operand, output: Any, tangent: Any, is_smooth: bool) -> tuple[Any, Curve]:
    """Returns the tangent of a function of a root, with the part that the chain rule misses, and how the function came about.

    Args:
        tangent: that of the chain rule, or of a rule that knows the function to be smooth.
        is_smooth: whether it is the latter.
    """
    slopes = cache(lambda: _slopes(roots, base))
    smooth = base.origin.tangent() if isinstance(base.origin, Root) else None
    parts = cache(lambda: _usual_part(roots, base, output))
    tracked = sum(_base(x) is not None for x in roots.operands)
    if smooth is None or (not is_smooth and tracked == 1 and roots.command in _STEEP | _LINEAR):
        return tangent, Curve(roots, base, slopes, parts)

    def missing(known: Any) -> Any:
        first, second = slopes()
        zero = full_like(output, 0)
        found = ew.select(ew.equal(first, zero), second * 0.5 - known, zero)
        return ew.select(ew.equal(base.primal, zero), found, zero)

    if is_smooth:
        return tangent, Curve(roots, base, slopes, lambda: missing(full_like(output, 0)))
    more = missing(parts())
    return add_tangents(tangent, ew.safe_mul(smooth, more)), Curve(roots, base, slopes, lambda: parts() + more)


def _slopes(roots: Roots, base: Operand) -> tuple[Any, Any]:
    """Returns the first and the second derivative of a command's result along a root."""
    along = [_slopes_of(x, base) for x in roots.operands]

    def moved(t: Any) -> list[Any]:
        operands = [
            x.primal if found is None else x.primal + (found[0] + found[1] * t * 0.5) * t
            for x, found in zip(roots.operands, along, strict=True)
        ]
        return list(bind(roots.command, operands, dict(roots.params), ()))

    def slope(t: Any) -> list[Any]:
        return [_or_zero(_run_jvp(moved, [t], [full_like(t, 1)])[1][0], t)]

    first, second = _run_jvp(slope, [full_like(base.primal, 0)], [full_like(base.primal, 1)])
    return first[0], _or_zero(second[0], base.primal)


def _slopes_of(x: Operand, base: Operand) -> tuple[Any, Any] | None:
    """Returns the derivatives of an operand along a root; None where it does not depend on it."""
    if _base(x) is None:
        return None
    if isinstance(x.origin, Curve):
        return x.origin.slopes()
    if x.equals(base):
        return full_like(base.primal, 1), full_like(base.primal, 0)
    assert isinstance(x.origin, Root)
    return _slopes(x.origin.made, base)


def _usual_part(roots: Roots, base: Operand, output: Any) -> Any:
    """Returns the factor of the tangent of the root's square in the tangent that the chain rule finds."""
    primals = tuple(x.primal for x in roots.operands)
    parts = tuple(x.origin.part() if isinstance(x.origin, Curve) else None for x in roots.operands)
    rule = derivative[roots.command].jvp
    if rule is None or all(part is None for part in parts):
        return full_like(base.primal, 0)
    return _or_zero(rule(primals, parts, (output,), **roots.params)[0], base.primal)


def _or_zero(x: Any, like: Any) -> Any:
    return full_like(like, 0) if x is None else x


def is_nested(x: Any) -> bool:
    """Whether a primal is itself being differentiated, by a trace further out."""
    while x is not None and not hasattr(x, "tangent"):
        x = getattr(x, "value", None)  # of a tracer of rows
    return x is not None
