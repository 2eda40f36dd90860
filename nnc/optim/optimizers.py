"""The optimizers: short chains of transformations that end with the learning rate."""

from __future__ import annotations

from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalar
from nnc.optim.base import GradientTransformation, chain
from nnc.optim.moments import scale_by_adam, scale_by_amsgrad, scale_by_rms, scale_by_stddev
from nnc.optim.partition import masked
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate, scale_by_trust_ratio, stepping, trace
from nnc.typing import DTypeLike

__all__ = ["adam", "adamw", "lamb", "lars", "rmsprop", "sgd"]


@spelled
def sgd(
    learning_rate: Scalar | Schedule, momentum: Scalar | None = None, nesterov: bool = False,
    accumulator_dtype: DTypeLike | None = None, *, dampening: Scalar = 0.0, weight_decay: Scalar = 0.0,
) -> GradientTransformation:  # fmt: skip
    """Stochastic gradient descent, with momentum (Sutskever et al., "On the importance of initialization and momentum", 2013).

    g ← g + weight_decay · p
    m ← momentum · m + (1 − dampening) · g
    p ← p − learning_rate · m,  or with nesterov  p − learning_rate · (g + momentum · m)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        momentum: in [0, 1); None keeps no m.
        nesterov: look ahead.
        accumulator_dtype: dtype of m.
        dampening: in [0, 1); the first m is g.
        weight_decay: L2 regularisation; `update` then needs the parameters.

    Raises:
        ArgumentError: nesterov or dampening without momentum.

    Example:
        >>> optimizer = nnc.optim.sgd(0.1, momentum=0.9)
        >>> state = optimizer.init(1.0)
        >>> for _ in range(2):
        ...     updates, state = optimizer.update(1.0, state)
        >>> updates
        Array(-0.19, dtype=float32)
    """
    check_rate("sgd", learning_rate)
    links = [scale_by_learning_rate(learning_rate)]
    if momentum is not None:
        check_scalar("sgd", "momentum", momentum, below=1.0)
        links.insert(0, trace(momentum, nesterov, accumulator_dtype, dampening=dampening))
    elif nesterov or (isinstance(dampening, (int, float)) and dampening):
        problem = f"{'nesterov' if nesterov else 'dampening'} changes momentum, and there is none."
        raise user_error(ArgumentError, "sgd", problem, fix="give momentum=0.9, or leave it out.")
    if not isinstance(weight_decay, (int, float)) or weight_decay:
        links.insert(0, add_decayed_weights(weight_decay))
    return chain(*links)


@spelled
def adam(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = False, amsgrad: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015).

    m ← b1 · m + (1 − b1) · g,    v ← b2 · v + (1 − b2) · |g|²
    p ← p − learning_rate · m̂ / (sqrt(v̂ + eps_root) + eps),    m̂ = m / (1 − b1ᵗ),  v̂ = v / (1 − b2ᵗ)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: in [0, 1).
        b2: in [0, 1).
        eps: outside the root.
        eps_root: inside, where the step itself is differentiated.
        mu_dtype: dtype of m.
        nesterov: NAdam.
        amsgrad: v̂ is the greatest v so far / (1 − b2ᵗ) (Reddi et al., 2018), as in torch.optim; `scale_by_amsgrad` is
            Optax's.

    Raises:
        ArgumentError: nesterov and amsgrad together.

    Example:
        >>> optimizer = nnc.optim.adam(0.1)
        >>> params = nnp.asarray([1.0, -2.0])
        >>> updates, state = optimizer.update(params, optimizer.init(params))
        >>> nnc.optim.apply_updates(params, updates)
        Array([ 0.9, -1.9], dtype=float32)
    """
    if nesterov and amsgrad:
        raise user_error(ArgumentError, "adam", "nesterov and amsgrad exclude each other.", fix="choose one of them.")
    if amsgrad:
        moments = scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, correct_greatest=True)
    else:
        moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return stepping("adam", learning_rate, moments)


@spelled
def adamw(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None, weight_decay: Scalar | Schedule = 1e-4, mask: Mask = None, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).

    p ← p − learning_rate · (m̂ / (sqrt(v̂ + eps_root) + eps) + weight_decay · p)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.
        nesterov: look ahead, as in `scale_by_adam`.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.adamw(0.1, weight_decay=0.5)
        >>> updates, state = optimizer.update(nnp.zeros(1), optimizer.init(nnp.ones(1)), nnp.ones(1))
        >>> updates
        Array([-0.05], dtype=float32)
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return stepping("adamw", learning_rate, moments, add_decayed_weights(weight_decay, mask))


@spelled
def rmsprop(
    learning_rate: Scalar | Schedule, decay: Scalar = 0.9, eps: Scalar = 1e-8, initial_scale: float = 0.0,
    eps_in_sqrt: bool = True, centered: bool = False, momentum: Scalar | None = None, nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformation:  # fmt: skip
    """RMSProp (Tieleman and Hinton, lecture 6.5, 2012), centred by choice (Graves, 2013).

    v ← decay · v + (1 − decay) · |g|²,    u = g / sqrt(v + eps),    p ← p − learning_rate · u

    With `momentum` the scaled steps are accumulated: m ← momentum · m − learning_rate · u,  p ← p + m.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        decay: the decay of the running mean.
        eps: added to the mean of squares.
        initial_scale: v before the first step.
        eps_in_sqrt: False divides by sqrt(v) + eps instead.
        centered: divide by the standard deviation.
        momentum: in [0, 1).
        nesterov: look ahead.
        bias_correction: use v / (1 − decayᵗ). torch.optim.RMSprop has decay=0.99 and eps_in_sqrt=False.

    Example:
        >>> optimizer = nnc.optim.rmsprop(0.1, decay=0.75)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0]
        Array([-0.2], dtype=float32)
    """
    check_rate("rmsprop", learning_rate)
    moments = scale_by_stddev if centered else scale_by_rms
    links = [moments(decay, eps, initial_scale, eps_in_sqrt, bias_correction), scale_by_learning_rate(learning_rate)]
    if momentum is not None:
        check_scalar("rmsprop", "momentum", momentum, below=1.0)
        links.append(trace(momentum, nesterov))
    elif nesterov:
        problem = "nesterov changes momentum, and there is none."
        raise user_error(ArgumentError, "rmsprop", problem, fix="give momentum=0.9.")
    return chain(*links)


@spelled
def lamb(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-6, eps_root: Scalar = 0.0,
    weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """LAMB, Adam with a trust ratio for each array (You et al., "Large batch optimization for deep learning", 2020).

    u = m̂ / (sqrt(v̂ + eps_root) + eps) + weight_decay · p,    p ← p − learning_rate · ‖p‖ / ‖u‖ · u

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.lamb(0.1)
        >>> optimizer.update(nnp.ones(4), optimizer.init(nnp.ones(4)), nnp.ones(4))[0]
        Array([-0.1, -0.1, -0.1, -0.1], dtype=float32)
    """
    moments = scale_by_adam(b1, b2, eps, eps_root)
    return stepping("lamb", learning_rate, moments, add_decayed_weights(weight_decay, mask), scale_by_trust_ratio())


@spelled
def lars(
    learning_rate: Scalar | Schedule, weight_decay: Scalar | Schedule = 0.0, weight_decay_mask: Mask = True,
    trust_coefficient: Scalar = 1e-3, eps: Scalar = 0.0, trust_ratio_mask: Mask = True, momentum: Scalar = 0.9,
    nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """LARS, momentum with a trust ratio for each array (You, Gitman and Ginsburg, "Large batch training of convolutional
    networks", 2017).

    u = g + weight_decay · p,    m ← momentum · m − learning_rate · trust_coefficient · ‖p‖ / (‖u‖ + eps) · u,    p ← p + m

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        weight_decay: multiple of the parameters that is added to the gradient.
        weight_decay_mask: a tree of bools, or a function from parameters to one: where weights decay; biases and norms
            often do not.
        trust_coefficient: factor of the trust ratio.
        eps: added to its divisor.
        trust_ratio_mask: a tree of bools, or a function from parameters to one: where steps are scaled.
        momentum: in [0, 1).
        nesterov: look ahead.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.lars(1.0, trust_coefficient=0.5)
        >>> optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.ones(2)), nnp.asarray([6.0, 8.0]))[0]
        Array([-3., -4.], dtype=float32)
    """
    check_rate("lars", learning_rate)
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps), trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )
