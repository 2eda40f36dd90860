"""Checks for users' own functions and rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc import tree
from nnc.array.array import Array, as_value
from nnc.array.promote import dtype_of, is_weak
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.device import CPU
from nnc.errors import ArgumentError, user_error
from nnc.trace.core.differentiate import jvp, vjp
from nnc.trace.core.flat import FlatTree
from nnc.trace.core.on_device import device_put

Fun = Callable[..., Any]
NDArray = np.ndarray[Any, Any]

_ACCURACY = {  # the step, and the bound that rounding and the step allow together
    dtypes.float64: (1e-5, 1e-6),
    dtypes.float32: (1e-2, 2e-2),
    dtypes.float16: (0.125, 4e-2),
    dtypes.bfloat16: (0.25, 1.5e-1),
}


def check_grads(
    f: Fun,
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """Compares derivatives of `f` at `args` with central differences along random directions.

    Args:
        f: function of pytrees; integers and leaves that are no numbers stay as they are.
        args: tuple of arguments; give float64 for tight bounds.
        order: how many derivatives to check; for the second, derivatives of the derivative are compared, and so on.
        modes: "fwd", "rev".
        eps: step.
        atol: absolute bound; the default fits the dtype.
        rtol: relative bound; the default fits the dtype (1e-6 in float64).
        seed: the seed of the directions.

    Raises:
        AssertionError: a derivative is wrong; the message says which, and by how much.
        ArgumentError: unknown mode.

    Example:
        >>> nnc.testing.check_grads(nnp.sin, (np.float64(0.3),), order=2)
    """
    if isinstance(modes, str):
        modes = (modes,)
    if not set(modes) <= {"fwd", "rev"}:
        raise user_error(
            ArgumentError, "check_grads", f'modes are "fwd" and "rev", not {modes!r}.', fix="pass one or both of them."
        )
    rng = np.random.default_rng(seed)
    moving = {dtypes.real_dtype(dtype_of(x)) for x in tree.leaves(tuple(args)) if _moves(x)}
    step, bound = max((_ACCURACY[dtype] for dtype in moving), default=_ACCURACY[dtypes.float64])
    eps = step if eps is None else eps
    bounds = {"atol": bound if atol is None else atol, "rtol": bound if rtol is None else rtol}
    _check(f, tuple(args), order, tuple(modes), eps, bounds, rng, "derivative 1")


def _check(
    f: Fun, args: tuple[Any, ...], order: int, modes: tuple[str, ...], eps: float, bounds: dict[str, float],
    rng: np.random.Generator, name: str,
) -> None:  # fmt: skip
    direction = tree.map(lambda x: _random(x, rng), args)
    expected = central_difference(f, args, direction, eps)
    if "fwd" in modes:
        _, moved = jvp(f, args, direction)
        _compare(f"{name}, forward mode", moved, expected, bounds)
    if "rev" in modes:
        result, pull = vjp(f, *args)
        ct = tree.map(lambda x: _random(x, rng), result)
        left, right = inner_product(pull(ct), direction), inner_product(ct, expected)
        scale = 1 + abs(right)
        if not abs(left - right) <= (bounds["atol"] + bounds["rtol"]) * scale:
            raise AssertionError(f"{name}, reverse mode: <pull(ct), t> = {left!r}, central differences give {right!r}")
    if order > 1:
        following = f"derivative {int(name.split()[1]) + 1}"
        if "fwd" in modes:
            fixed = direction
            _check(lambda *xs: jvp(f, xs, fixed)[1], args, order - 1, modes, eps, bounds, rng, following)
        if "rev" in modes:
            ct = tree.map(lambda x: _random(x, rng), vjp(f, *args)[0])  # with the dtypes that it has in a trace
            _check(lambda *xs: vjp(f, *xs)[1](ct), args, order - 1, modes, eps, bounds, rng, following)


def _moves(x: Any) -> bool:
    return tree.is_array(x) and dtypes.is_inexact(dtype_of(x))


def _random(x: Any, rng: np.random.Generator) -> Any:
    if not tree.is_array(x):
        return x
    spec = as_value(x).spec
    if not dtypes.is_inexact(spec.dtype):
        return _beside(x, np.zeros(spec.shape, spec.dtype))
    noise = rng.standard_normal(spec.shape)
    if dtypes.is_complex(spec.dtype):
        noise = noise + 1j * rng.standard_normal(spec.shape)
    return _beside(x, np.asarray(noise).astype(spec.dtype))


def _beside(x: Any, elements: NDArray) -> Any:
    """An array on the device of `x`, or where host arrays are sent; weak as `x` is."""
    ambient = get_context().device
    default = CPU if ambient is None else ambient.device.name
    return device_put(Array(elements, weak=is_weak(x)), x.device if isinstance(x, Array) else default)


def central_difference(f: Fun, args: tuple[Any, ...], direction: tuple[Any, ...], eps: float) -> Any:
    """(f(x + h t) - f(x - h t)) / 2h with Richardson's extrapolation to fourth order, in float64 where `args` are.

    Args:
        f: function of arrays.
        args: where the derivative is taken, a tuple of pytrees.
        direction: the direction of the derivative, a tuple like `args`.
        eps: the step h.

    Example:
        >>> x = nnp.asarray(np.asarray([1.0, 2.0]))
        >>> derivative = central_difference(lambda x: x**3, (x,), (nnp.ones_like(x),), 1e-3)
        >>> np.round(derivative, 6)
        array([ 3., 12.])
    """

    def at(step: float) -> Any:
        moved = tree.map(lambda x, t: _step(x, t, step), args, direction)
        return tree.map(lambda y: np.asarray(as_value(y).concrete("check_grads")) if tree.is_array(y) else y, f(*moved))

    def combine(a: Any, b: Any, c: Any, d: Any) -> Any:
        if not tree.is_array(a):
            return a
        if a.dtype.kind in "biu":
            return np.zeros(a.shape)
        wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b, c, d)]
        return (8 * (wide[1] - wide[2]) - (wide[0] - wide[3])) / (12 * eps)

    return tree.map(combine, at(2 * eps), at(eps), at(-eps), at(-2 * eps))


def _step(x: Any, t: Any, step: float) -> Any:
    if not _moves(x):
        return x
    value = as_value(x)
    return _beside(x, np.asarray(value.concrete("x") + value.spec.dtype.type(step) * t.concrete("t")))


def inner_product(a: Any, b: Any) -> float:
    """The real inner product of two trees, in float64; JAX's convention: no conjugate.

    Args:
        a: a pytree.
        b: a pytree of the same structure.

    Example:
        >>> inner_product([np.asarray([1.0, 2.0])], [np.asarray([3.0, 4.0])])
        11.0
    """
    total = 0.0
    for x, y in zip(FlatTree(a).dynamic, FlatTree(b).dynamic, strict=True):
        u, v = np.asarray(as_value(x).concrete("x")), np.asarray(as_value(y).concrete("y"))
        wide = np.complex128 if "c" in (u.dtype.kind, v.dtype.kind) else np.float64
        total += float(np.real(np.sum(u.astype(wide) * v.astype(wide))))
    return total


def _compare(name: str, found: Any, expected: Any, bounds: dict[str, float]) -> None:
    for i, (x, y) in enumerate(zip(FlatTree(found).dynamic, FlatTree(expected).dynamic, strict=True)):
        value = np.asarray(as_value(x).concrete("tangent"))
        value = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        scale = 1 + np.max(np.abs(y), initial=0.0)
        worst = np.max(np.abs(value - y), initial=0.0)
        if not worst <= bounds["atol"] + bounds["rtol"] * scale:
            raise AssertionError(
                f"{name}: result leaf {i} differs from central differences by {worst:.3g}: {value} against {y}"
            )
