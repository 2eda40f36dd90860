"""Optimizers that are settings of Adam's relatives: NAdamW, AdaMaxW and AMSGrad."""

from __future__ import annotations

from nnc.calls.spelling import spelled
from nnc.optim.adam_family import scale_by_adamax
from nnc.optim.arguments import Mask, Scalar
from nnc.optim.base import GradientTransformation
from nnc.optim.moments import scale_by_amsgrad
from nnc.optim.optimizers import adamw
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping
from nnc.typing import DTypeLike

__all__ = ["adamaxw", "amsgrad", "nadamw"]


@spelled
def nadamw(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None, weight_decay: Scalar | Schedule = 1e-4, mask: Mask = None, *,
    nesterov: bool = True,
) -> GradientTransformation:  # fmt: skip
    """NAdam with decoupled weight decay, `adamw(..., nesterov=True)` (Dozat, "Incorporating Nesterov momentum into Adam", 2016;
    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).

    p ← p − learning_rate · (m̂ / (sqrt(v̂ + eps_root) + eps) + weight_decay · p)
    m̂ = b1 · m / (1 − b1ᵗ⁺¹) + (1 − b1) · g / (1 − b1ᵗ)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.
        nesterov: False makes it `adamw`.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.nadamw(0.1, weight_decay=0.5)
        >>> optimizer.update(nnp.zeros(1), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.05], dtype=float32)
    """
    return adamw(learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov=nesterov)


@spelled
def adamaxw(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8,
    weight_decay: Scalar | Schedule = 1e-4, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """AdaMax with decoupled weight decay (Kingma and Ba, "Adam", 2015, section 7; Loshchilov and Hutter, "Decoupled weight decay
    regularization", 2019).

    m ← b1 · m + (1 − b1) · g,    v ← max(b2 · v, |g| + eps),    p ← p − learning_rate · (m̂ / v + weight_decay · p)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the maximum, in [0, 1).
        eps: added to |g|.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.adamaxw(0.1, weight_decay=0.5)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.15], dtype=float32)
    """
    return stepping("adamaxw", learning_rate, scale_by_adamax(b1, b2, eps), add_decayed_weights(weight_decay, mask))


@spelled
def amsgrad(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None, bias_correction_mu: bool = True, bias_correction_nu: bool = True,
) -> GradientTransformation:  # fmt: skip
    """AMSGrad, Adam whose divisor never falls (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018).

    n ← max(n, v̂),    p ← p − learning_rate · m̂ / (sqrt(n + eps_root) + eps)

    `adam(..., amsgrad=True)` is torch.optim's, which corrects the greatest v.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        bias_correction_mu: False takes m in place of m̂.
        bias_correction_nu: False takes v in place of v̂.

    Example:
        >>> optimizer = nnc.optim.amsgrad(0.1)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0], 3)
        Array([-0.1], dtype=float32)
    """
    moments = scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu)
    return stepping("amsgrad", learning_rate, moments)
