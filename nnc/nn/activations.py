"""Activation functions. Integers become the default float; NaN stays NaN."""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import apply, as_operand, astype, dtype_of, promote
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import constants, normalize
from nnc.commands import elementwise as ew
from nnc.commands import trigonometry as trig
from nnc.commands.multiply_add import multiply_add
from nnc.commands.rules import check_axis
from nnc.commands.special import erfc
from nnc.errors import ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import keeps_weakness, to_axes, to_value
from nnc.typing import ArrayLike

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "standardize",
    "tanh",
]


def to_float(x: ArrayLike, where: str) -> Array:
    """`x` as an array of a floating-point dtype."""
    value = promote(x, where=where, to=dtypes.to_float)[0]
    return to_value(value, where)


@specialised(1)
def relu(x: ArrayLike) -> Array:
    """Returns max(x, 0); the derivative at 0 is 0.

    Args:
        x: any shape.

    Example:
        >>> relu(np.array([-1.0, 2.0], np.float32))
        Array([0., 2.], dtype=float32)
    """
    x = to_value(x, "relu")
    return nnp.where(x <= 0, 0, x)


@specialised(1)
def relu6(x: ArrayLike) -> Array:
    """Returns min(max(x, 0), 6); the derivative at 0 and 6 is 0.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.relu6(nnp.asarray([-1.0, 2.0, 8.0]))
        Array([0., 2., 6.], dtype=float32)
    """
    x = to_value(x, "relu6")
    return nnp.where(x <= 0, 0, nnp.where(x >= 6, 6, x))


@specialised(1)
def elu(x: ArrayLike, alpha: float = 1.0) -> Array:
    """Returns x where it is positive, else alpha · (exp(x) - 1).

    Args:
        x: any shape.
        alpha: minus the limit for large negative x.

    Example:
        >>> nnc.nn.elu(nnp.asarray([-1.0, 2.0]))
        Array([-0.63212055,  2.        ], dtype=float32)
    """
    x = to_float(x, "elu")
    return nnp.where(x > 0, x, alpha * nnp.expm1(nnp.where(x > 0, 0, x)))


@specialised(1)
def celu(x: ArrayLike, alpha: float = 1.0) -> Array:
    """Returns x where it is positive, else alpha · (exp(x / alpha) - 1), which is smooth for every alpha.

    Args:
        x: any shape.
        alpha: minus the limit for large negative x.

    Example:
        >>> nnc.nn.celu(nnp.asarray([-1.0, 2.0]))
        Array([-0.63212055,  2.        ], dtype=float32)
    """
    x = to_float(x, "celu")
    return nnp.where(x > 0, x, alpha * nnp.expm1(nnp.where(x > 0, 0, x) / alpha))


@specialised(1)
def selu(x: ArrayLike) -> Array:
    """Returns the scaled elu that keeps mean 0 and variance 1 from layer to layer (Klambauer et al., 2017).

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.selu(nnp.asarray([-1.0, 2.0]))
        Array([-1.1113307,  2.101402 ], dtype=float32)
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@specialised(1)
def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Array:
    """Returns x where it is positive, else negative_slope · x.

    Args:
        x: any shape.
        negative_slope: slope below 0.

    Example:
        >>> nnc.nn.leaky_relu(nnp.asarray([-1.0, 2.0]))
        Array([-0.01,  2.  ], dtype=float32)
    """
    x = to_float(x, "leaky_relu")
    return nnp.where(x > 0, x, negative_slope * x)


@specialised(2)
def prelu(x: ArrayLike, negative_slope: ArrayLike, *, axis: int = 1) -> Array:
    """Returns x where it is positive, else negative_slope · x, with a slope that is learned (He et al., 2015).

    Args:
        x: any shape.
        negative_slope: a number, or (C,), one slope for each element of `axis`.
        axis: the channels.

    Raises:
        ShapeError: there are neither one slope nor as many as channels.

    Example:
        >>> prelu(np.array([[-1.0, 2.0], [-1.0, -1.0]], np.float32), np.array([0.5, 0.25], np.float32))
        Array([[-0.5 ,  2.  ],
               [-0.5 , -0.25]], dtype=float32)
    """
    x, slope = promote(x, negative_slope, where="prelu", to=dtypes.to_float)
    x, slope = to_value(x, "prelu"), to_value(slope, "prelu")
    if slope.size != 1:
        at = check_axis("prelu", axis, x.ndim)
        if slope.shape != (x.shape[at],):
            problem = f"negative_slope has shape {slope.shape}, axis {at} of x has {x.shape[at]} elements."
            operands = {"x": spec_of(x), "negative_slope": spec_of(slope)}
            fix = f"pass one slope, or {x.shape[at]} of them, or another axis."
            raise user_error(ShapeError, "prelu", problem, operands=operands, fix=fix)
        slope = nnp.reshape(slope, (-1,) + (1,) * (x.ndim - 1 - at))
    return nnp.where(x > 0, x, nnp.reshape(slope, ()) * x if slope.size == 1 else slope * x)


@specialised(1)
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Returns x · Φ(x), Φ the normal distribution (Hendrycks & Gimpel, 2016).

    Args:
        x: any shape.
        approximate: whether to compute it by tanh, with an error below 1e-3, instead of by erfc.

    Raises:
        ArgumentTypeError: approximate is no bool.

    Example:
        >>> nnc.nn.gelu(nnp.asarray([-1.0, 2.0]))
        Array([-0.158808 ,  1.9545978], dtype=float32)
    """
    if not isinstance(approximate, bool):
        fix = "pass approximate=True for the form with tanh, False for the exact one."
        raise user_error(ArgumentTypeError, "gelu", f"approximate={approximate!r} is no bool.", fix=fix)
    x = to_float(x, "gelu")
    if approximate:
        scale = math.sqrt(8 / math.pi)  # ½ + ½ tanh(u) is the sigmoid of 2u
        return x * ew.sigmoid(x * (scale + 0.044715 * scale * (x * x)))
    wide = astype(x, dtypes.accumulator(dtype_of(x)))
    return astype(wide * _normal_probability(wide), dtype_of(x))


_BEYOND = 40.0  # where e^(-x²/2) is 0
_REST = 4.833646656726457e-17  # of -√½ behind its 53 bits


def _normal_probability(x: Array) -> Array:
    """The normal distribution: ½ erfc(-x / √2), where the rounding error of x / √2 counts as often as x² is large."""
    factor = float(dtype_of(x).type(-math.sqrt(0.5)))
    rest = _REST if dtype_of(x) == dtypes.float64 else -math.sqrt(0.5) - factor
    y, still = x * factor, ew.stop_gradient(x)
    error = multiply_add(still, constants.full_like(still, factor), -ew.stop_gradient(y)) + still * rest
    lost, half = nnp.where(abs(still) < _BEYOND, 2 * factor * error * still, 0), 0.5 * erfc(y)
    return ew.with_slope(half * (1 - nnp.where(still < 0, lost, 0)), half * (1 - lost))  # the density has two tails


@specialised(1)
def sigmoid(x: ArrayLike) -> Array:
    """Returns 1 / (1 + exp(-x)), without overflow.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.sigmoid(nnp.asarray([0.0, 2.0]))
        Array([0.5     , 0.880797], dtype=float32)
    """
    return apply(ew.sigmoid, x, where="sigmoid", to=dtypes.to_float)


@specialised(1)
@keeps_weakness
def log_sigmoid(x: ArrayLike) -> Array:
    """Returns log(sigmoid(x)), without overflow.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.log_sigmoid(nnp.asarray([0.0, 2.0]))
        Array([-0.6931472, -0.126928 ], dtype=float32)
    """
    return -softplus(-to_float(x, "log_sigmoid"))


@specialised(1)
def silu(x: ArrayLike) -> Array:
    """Returns x · sigmoid(x), also called swish.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.silu(nnp.asarray([-1.0, 2.0]))
        Array([-0.2689414,  1.761594 ], dtype=float32)
    """
    x = to_float(x, "silu")
    return x * ew.sigmoid(x)


@specialised(1)
def tanh(x: ArrayLike) -> Array:
    """Returns the hyperbolic tangent of x.

    Args:
        x: any shape.

    Example:
        >>> tanh(nnp.asarray([0.0, 100.0]))
        Array([0., 1.], dtype=float32)
    """
    return apply(trig.tanh, x, where="tanh", to=dtypes.to_float)


@specialised(1)
@keeps_weakness
def softplus(x: ArrayLike) -> Array:
    """Returns log(1 + exp(x)), without overflow.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.softplus(nnp.asarray([0.0, 2.0]))
        Array([0.6931472, 2.126928 ], dtype=float32)
    """
    x = to_float(x, "softplus")
    return ew.logaddexp(x, constants.full_like(x, 0))


@specialised(1)
@keeps_weakness
def mish(x: ArrayLike) -> Array:
    """Returns x · tanh(softplus(x)) (Misra, 2019).

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.mish(nnp.asarray([-1.0, 2.0]))
        Array([-0.30340147,  1.9439589 ], dtype=float32)
    """
    x = to_float(x, "mish")
    return x * nnp.tanh(softplus(x))


@specialised(1)
def soft_sign(x: ArrayLike) -> Array:
    """Returns x / (1 + |x|).

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.soft_sign(nnp.asarray([-1.0, 3.0]))
        Array([-0.5 ,  0.75], dtype=float32)
    """
    if dtypes.is_complex(dtype_of(as_operand(x, "soft_sign"))):
        return x / (1 + nnp.abs(x))
    return apply(ew.soft_sign, x, where="soft_sign", to=dtypes.to_float)


@specialised(1)
def hard_tanh(x: ArrayLike) -> Array:
    """Returns x between -1 and 1, which bound it.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.hard_tanh(nnp.asarray([-4.0, 0.5, 4.0]))
        Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    x = to_value(x, "hard_tanh")
    return nnp.where(x <= -1, -1, nnp.where(x >= 1, 1, x))


@specialised(1)
def hard_sigmoid(x: ArrayLike) -> Array:
    """Returns relu6(x + 3) / 6.

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.hard_sigmoid(nnp.asarray([-4.0, 0.0, 4.0]))
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    return relu6(to_float(x, "hard_sigmoid") + 3) / 6


@specialised(1)
def hard_silu(x: ArrayLike) -> Array:
    """Returns x · hard_sigmoid(x).

    Args:
        x: any shape.

    Example:
        >>> nnc.nn.hard_silu(nnp.asarray([-4.0, 0.0, 4.0]))
        Array([-0.,  0.,  4.], dtype=float32)
    """
    x = to_float(x, "hard_silu")
    return x * hard_sigmoid(x)


@specialised(1)
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """Returns the first half of x along `axis`, gated by the sigmoid of the second half.

    Args:
        x: any shape, of an even size along `axis`.
        axis: axis to halve.

    Raises:
        ShapeError: the axis has an odd size.

    Example:
        >>> nnc.nn.glu(nnp.asarray([1.0, 2.0, 0.0, 0.0]))
        Array([0.5, 1. ], dtype=float32)
    """
    x = to_float(x, "glu")
    size = spec_of(x).shape[check_axis("glu", axis, spec_of(x).ndim)]
    if size % 2:
        problem = f"axis {axis} of x has the odd size {size}."
        fix = "pass an x whose axis has two halves: values and gates."
        raise user_error(ShapeError, "glu", problem, operands={"x": spec_of(x)}, fix=fix)
    left, right = nnp.split(x, 2, axis=axis)
    return left * ew.sigmoid(right)


# -- over an axis ------------------------------------------------------------------------------------------------------


def _widened(x: Any, mask: Any, where: str) -> tuple[Array, dtypes.DType]:
    """x in the dtype that its sums need, -inf where the mask is False; and its own dtype."""
    x = to_float(x, where)
    wide = nnp.astype(x, dtypes.accumulator(dtype_of(x)))
    return (wide if mask is None else nnp.where(mask, wide, -math.inf)), dtype_of(x)


def _shifted(x: Array, axis: int | tuple[int, ...] | None, where: str) -> tuple[Array, Array]:
    """Returns the exponentials of x minus its greatest element, and their sum, which is made 1 where all elements are -inf."""
    to_axes(where, axis, x.ndim)  # so that no other function's name stands in an error
    top = ew.stop_gradient(nnp.max(x, axis=axis, keepdims=True))
    exponentials = nnp.exp(x - nnp.where(abs(top) == math.inf, 0, top))
    total = nnp.sum(exponentials, axis=axis, keepdims=True)
    return exponentials, nnp.where(total == 0, 1, total)


@specialised(1)
@keeps_weakness
def softmax(x: ArrayLike, axis: int | tuple[int, ...] | None = -1, where: ArrayLike | None = None) -> Array:
    """Returns exp(x) divided by its sum over `axis`, without overflow.

    An element of -inf has probability 0; where all are -inf (or masked) the result is 0, with gradient 0.

    Args:
        x: logits.
        axis: the axes that sum to 1.
        where: a mask; elements where it is False take no part.

    Example:
        >>> softmax(np.array([0.0, 0.0, -np.inf], np.float32))
        Array([0.5, 0.5, 0. ], dtype=float32)
    """
    wide, dtype = _widened(x, where, "softmax")
    exponentials, total = _shifted(wide, axis, "softmax")
    return nnp.astype(exponentials / total, dtype)


@specialised(1)
@keeps_weakness
def log_softmax(x: ArrayLike, axis: int | tuple[int, ...] | None = -1, where: ArrayLike | None = None) -> Array:
    """Returns log(softmax(x)), without overflow; -inf where the probability is 0.

    Args:
        x: logits.
        axis: axes that sum to 1.
        where: a mask; elements where it is False take no part.

    Example:
        >>> nnc.nn.log_softmax(nnp.asarray([0.0, 0.0]))
        Array([-0.6931472, -0.6931472], dtype=float32)
    """
    wide, dtype = _widened(x, where, "log_softmax")
    return nnp.astype(normalize.log_softmax(wide, axes=to_axes("log_softmax", axis, wide.ndim)), dtype)


@specialised(1)
@keeps_weakness
def standardize(x: ArrayLike, axis: int | tuple[int, ...] | None = -1, eps: float = 1e-5) -> Array:
    """Returns x with mean 0 and variance 1 over `axis`; 16-bit floats are computed in float32.

    Args:
        x: any shape.
        axis: axes over which the mean is 0; None all.
        eps: added to the variance.

    Example:
        >>> standardize(nnp.asarray([1.0, 3.0]), eps=0.0)
        Array([-1.,  1.], dtype=float32)
    """
    x = to_float(x, "standardize")
    wide = x.astype(dtypes.accumulator(dtype_of(x)))
    centred = wide - nnp.mean(wide, axis=axis, keepdims=True)
    spread = nnp.mean(centred * centred, axis=axis, keepdims=True)
    return (centred * ew.rsqrt(spread + eps)).astype(x.dtype)
