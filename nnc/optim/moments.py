"""Transformations that divide updates by running estimates of their moments: Adam, AMSGrad, RMSProp.

Moments are kept in the parameter's dtype, or in float32 for 16-bit floats, whose own precision loses the small changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_scalar, check_scalars, is_trainable
from nnc.optim.base import GradientTransformation, make_state, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.transforms import zero_count, zeros_for
from nnc.typing import DTypeLike

__all__ = [
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByRmsState",
    "ScaleByStddevState",
    "scale_by_adam",
    "scale_by_amsgrad",
    "scale_by_rms",
    "scale_by_stddev",
]


class ScaleByAdamState(NamedTuple):
    """Count of updates, first and second moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: first moments, a tree like the parameters.
        nu: second moments, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_adam().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any


class ScaleByAmsgradState(NamedTuple):
    """Count of updates, first and second moment, the greatest second moment so far.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: first moments, a tree like the parameters.
        nu: second moments, a tree like the parameters.
        nu_max: the greatest second moments so far.

    Example:
        >>> state = nnc.optim.scale_by_amsgrad().init(nnp.ones(2))
        >>> state.nu_max
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any
    nu_max: Any


class ScaleByRmsState(NamedTuple):
    """Count of updates and second moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        nu: second moments, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_rms().init(nnp.ones(2))
        >>> state.nu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    nu: Any


class ScaleByStddevState(NamedTuple):
    """Count of updates, first and second moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: first moments, a tree like the parameters.
        nu: second moments, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_stddev().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any


# -- moments -----------------------------------------------------------------------------------------------------------


def zeros_state(where: str, params: Any, dtype: DTypeLike | None = None) -> Any:
    """Zeros for each trainable leaf, where means of gradients are kept."""
    return make_state(where, lambda p: zeros_for(p, dtype), params)


def filled_squares(where: str, params: Any, value: float) -> Any:
    """Real arrays of `value` for each trainable leaf, where squares or magnitudes are kept."""

    def fill(p: Array) -> Array:
        return asarray(np.full(p.shape, value, dtypes.real_dtype(dtypes.accumulator(p.dtype))))

    return make_state(where, fill, params)


def first_moment(where: str, decay: Scalar, updates: Any, mu: Any) -> Any:
    """Returns the next first moment, decay · mu + (1 − decay) · g."""
    return map_trainable(where, lambda m, g: average(decay, widen(asarray(g)), m), "mu", mu, updates=updates)


def second_moment(where: str, decay: Scalar, updates: Any, nu: Any) -> Any:
    """Returns the next second moment, decay · nu + (1 − decay) · |g|²."""

    def square(v: Array, g: Any) -> Array:
        return average(decay, squared_magnitude(widen(asarray(g))), v)

    return map_trainable(where, square, "nu", nu, updates=updates)


def average(decay: Scalar, x: Array, moment: Array) -> Array:
    """decay · moment + (1 − decay) · x, in the dtype of `moment`."""
    wide = widen(moment)
    d = number(decay, wide.dtype)
    return astype(wide * d + astype(x, wide.dtype) * (1 - d), moment.dtype)


class Correction:
    """The bias correction of moments that started at zero, 1 − decayᵗ, without cancellation, computed once for each dtype.

    Args:
        decay: the decay of the moments.
        count: t, the number of updates.
        moments: trees of all that is going to be corrected.
    """

    def __init__(self, decay: Scalar, count: Array, *moments: Any) -> None:
        found = [_real_dtype(asarray(leaf)) for leaf in tree.leaves(moments) if is_trainable(leaf)]
        self._factors = {dtype: bias_factor(decay, count, dtype) for dtype in dict.fromkeys(found)}

    def __call__(self, moment: Array) -> Array:
        """Returns the moment without its bias."""
        return widen(moment) / self._factors[_real_dtype(moment)]


def _real_dtype(moment: Array) -> dtypes.DType:
    return dtypes.real_dtype(dtypes.accumulator(moment.dtype))


def bias_factor(decay: Scalar, count: Array, dtype: dtypes.DType) -> Any:
    """1 − decayᵗ, without cancellation."""
    t = astype(count, dtype)
    if not isinstance(decay, (int, float)):
        return 1 - number(decay, dtype) ** t
    return -nnp.expm1(t * math.log(decay)) if decay > 0 else 1.0


def first_state(where: str, kind: Any, mu_dtype: DTypeLike | None = None) -> Callable[[Any], Any]:
    """Returns the function that makes the first state of a count, first moments and second moments."""
    return lambda params: kind(zero_count(), zeros_state(where, params, mu_dtype), filled_squares(where, params, 0.0))


def unbiased_moments(
    b1: Scalar, b2: Scalar, count: Array, updates: Any, mu: Any, nu: Any, nesterov: bool
) -> tuple[Callable[[Array, Array], Array], Correction]:
    """Returns the function of a gradient and its first moment that takes the moment's bias away, and looks ahead as Nesterov, and
    the correction of second moments.
    """
    correct_mu, correct_nu = Correction(b1, count, updates if nesterov else mu), Correction(b2, count, nu)
    correct_next = Correction(b1, count + 1, *([mu] if nesterov else []))

    def mean(g: Array, m: Array) -> Array:
        if not nesterov:
            return correct_mu(m)
        wide = widen(g)
        d = number(b1, wide.dtype)
        return correct_next(m) * d + correct_mu(wide) * (1 - d)

    return mean, correct_nu


def check_decays(where: str, **decays: Scalar) -> None:
    """Raises unless each is a scalar in [0, 1)."""
    for name, value in decays.items():
        check_scalar(where, name, value, below=1.0)


# -- Adam --------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_adam(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Divides the mean of past gradients by their root mean square (Kingma and Ba, "Adam", 2015).

    m ← b1 · m + (1 − b1) · g,    v ← b2 · v + (1 − b2) · |g|²
    u = m̂ / (sqrt(v̂ + eps_root) + eps),    m̂ = m / (1 − b1ᵗ),  v̂ = v / (1 − b2ᵗ)

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m.
        nesterov: look ahead, m̂ = b1 · m / (1 − b1ᵗ⁺¹) + (1 − b1) · g / (1 − b1ᵗ) (Dozat, "Incorporating Nesterov
            momentum into Adam", 2016).

    Example:
        >>> transformation = nnc.optim.scale_by_adam()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    check_decays("scale_by_adam", b1=b1, b2=b2)
    check_scalars("scale_by_adam", eps=eps, eps_root=eps_root)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment("scale_by_adam", b1, updates, state.mu)
        nu = second_moment("scale_by_adam", b2, updates, state.nu)
        mean, correct_nu = unbiased_moments(b1, b2, count, updates, mu, nu, nesterov)

        def step(g: Array, m: Array, v: Array) -> Array:
            return divide(mean(g, m), correct_nu(v), eps, eps_root, g.dtype)

        u = map_trainable("scale_by_adam", step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByAdamState(count, mu, nu)

    init = first_state("scale_by_adam", ScaleByAdamState, mu_dtype)
    return stateful("scale_by_adam", ScaleByAdamState, init, update_fn)


def divide(m: Array, v: Array, eps: Scalar, eps_root: Scalar, dtype: dtypes.DType) -> Array:
    """Returns m / (sqrt(v + eps_root) + eps)."""
    if not isinstance(eps_root, (int, float)) or eps_root:
        v = v + number(eps_root, v.dtype)
    return astype(m / (nnp.sqrt(v) + number(eps, v.dtype)), dtype)


@spelled
def scale_by_amsgrad(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None,
    bias_correction_mu: bool = True, bias_correction_nu: bool = True, *, correct_greatest: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam whose divisor never falls (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018).

    As `scale_by_adam`, with the greatest v̂ so far in place of v̂, or with `correct_greatest` the greatest v so far / (1 − b2ᵗ).

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        bias_correction_mu: False takes m in place of m̂.
        bias_correction_nu: False takes v in place of v̂.
        correct_greatest: take the greatest of the second moments as they are kept and correct that, as in torch.optim;
            else of the corrected ones.

    Example:
        >>> transformation = nnc.optim.scale_by_amsgrad()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    check_decays("scale_by_amsgrad", b1=b1, b2=b2)
    check_scalars("scale_by_amsgrad", eps=eps, eps_root=eps_root)

    def init_fn(params: Any) -> ScaleByAmsgradState:
        squares = [filled_squares("scale_by_amsgrad", params, 0.0) for _ in range(2)]
        return ScaleByAmsgradState(zero_count(), zeros_state("scale_by_amsgrad", params, mu_dtype), *squares)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment("scale_by_amsgrad", b1, updates, state.mu)
        nu = second_moment("scale_by_amsgrad", b2, updates, state.nu)
        correct_mu = Correction(b1, count, mu) if bias_correction_mu else widen
        correct_nu = Correction(b2, count, nu) if bias_correction_nu else widen

        def greatest(v: Array, peak: Array) -> Array:
            return nnp.maximum(v if correct_greatest else correct_nu(v), peak)

        def step(g: Array, m: Array, peak: Array) -> Array:
            peak = correct_nu(peak) if correct_greatest else peak
            return divide(correct_mu(m), peak, eps, eps_root, g.dtype)

        nu_max = map_trainable("scale_by_amsgrad", greatest, "nu", nu, nu_max=state.nu_max)
        u = map_trainable("scale_by_amsgrad", step, "updates", updates, mu=mu, nu_max=nu_max)
        return u, ScaleByAmsgradState(count, mu, nu, nu_max)

    return stateful("scale_by_amsgrad", ScaleByAmsgradState, init_fn, update_fn)


# -- RMSProp -----------------------------------------------------------------------------------------------------------


def _rms(variance: Array, g: Array, eps: Scalar, eps_in_sqrt: bool) -> Array:
    inside, outside = (eps, 0.0) if eps_in_sqrt else (0.0, eps)
    joint = dtypes.complex_dtype(variance.dtype) if dtypes.is_complex(g.dtype) else variance.dtype
    return divide(astype(widen(g), joint), variance, outside, inside, g.dtype)


@spelled
def scale_by_rms(
    decay: Scalar = 0.9, eps: Scalar = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Divides by the root of the running mean of squares (Tieleman and Hinton, lecture 6.5, 2012).

    v ← decay · v + (1 − decay) · |g|²,    u = g / sqrt(v + eps),  or  g / (sqrt(v) + eps) where eps_in_sqrt is False

    Args:
        decay: the decay of the mean of squares, in [0, 1).
        eps: added to the mean.
        initial_scale: v before the first step.
        eps_in_sqrt: False adds eps to the root instead.
        bias_correction: use v / (1 − decayᵗ).

    Example:
        >>> transformation = nnc.optim.scale_by_rms()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([ 3.162, -3.162], dtype=float32)
    """
    check_decays("scale_by_rms", decay=decay)
    check_scalar("scale_by_rms", "eps", eps)

    def init_fn(params: Any) -> ScaleByRmsState:
        return ScaleByRmsState(zero_count(), filled_squares("scale_by_rms", params, initial_scale))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        nu = second_moment("scale_by_rms", decay, updates, state.nu)
        correct = Correction(decay, count, *([nu] if bias_correction else []))

        def step(g: Array, v: Array) -> Array:
            return _rms(correct(v) if bias_correction else v, g, eps, eps_in_sqrt)

        return map_trainable("scale_by_rms", step, "updates", updates, nu=nu), ScaleByRmsState(count, nu)

    return stateful("scale_by_rms", ScaleByRmsState, init_fn, update_fn)


@spelled
def scale_by_stddev(
    decay: Scalar = 0.9, eps: Scalar = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Divides by the running standard deviation (Graves, "Generating sequences with recurrent neural networks", 2013).

    m ← decay · m + (1 − decay) · g,    v ← decay · v + (1 − decay) · |g|²,    u = g / sqrt(v − |m|² + eps)

    Args:
        decay: the decay of both means, in [0, 1).
        eps: added to the variance.
        initial_scale: v before the first step.
        eps_in_sqrt: False adds eps to the root instead.
        bias_correction: divide both means by 1 − decayᵗ.

    Example:
        >>> transformation = nnc.optim.scale_by_stddev()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([ 3.333, -3.333], dtype=float32)
    """
    check_decays("scale_by_stddev", decay=decay)
    check_scalar("scale_by_stddev", "eps", eps)

    def init_fn(params: Any) -> ScaleByStddevState:
        nu = filled_squares("scale_by_stddev", params, initial_scale)
        return ScaleByStddevState(zero_count(), zeros_state("scale_by_stddev", params), nu)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment("scale_by_stddev", decay, updates, state.mu)
        nu = second_moment("scale_by_stddev", decay, updates, state.nu)
        correct = Correction(decay, count, *([mu, nu] if bias_correction else []))

        def step(g: Array, m: Array, v: Array) -> Array:
            mean, square = (correct(m), correct(v)) if bias_correction else (m, v)
            variance = nnp.maximum(square - squared_magnitude(mean), 0)
            return _rms(variance, g, eps, eps_in_sqrt)

        u = map_trainable("scale_by_stddev", step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByStddevState(count, mu, nu)

    return stateful("scale_by_stddev", ScaleByStddevState, init_fn, update_fn)
