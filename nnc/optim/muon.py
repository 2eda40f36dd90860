"""Muon: momentum whose matrices are made orthogonal before they are applied."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import dtypes, tree
from nnc.array import Array
from nnc.commands.promote import astype
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalar, check_state
from nnc.optim.base import GradientTransformation, chain, map_trainable, number, stateless, widen
from nnc.optim.clipping import norm
from nnc.optim.moments import Correction, check_decays, first_moment, zeros_state
from nnc.optim.optimizers import adamw
from nnc.optim.partition import multi_transform
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate, zero_count
from nnc.spelling import spelled
from nnc.typing import DTypeLike

Coefficients = tuple[float, float, float]
QUINTIC: Coefficients = (3.4445, -4.7750, 2.0315)  # steepest at 0 among coefficients that keep singular values near 1


@spelled
def orthogonalize_via_newton_schulz(
    x: Array, ns_coeffs: Coefficients = QUINTIC, ns_steps: int = 5, eps: Scalar = 1e-8
) -> Array:
    """A matrix with the singular vectors of `x` and singular values near 1, without a decomposition.

    x ← x / (‖x‖ + eps);    ns_steps times  x ← a x + (b A + c A²) x,  A = x xᵀ

    Args:
        x: (m, n).
        ns_coeffs: a, b, c.
        ns_steps: rounds, three products of matrices each.
        eps: added to the norm by which `x` is divided.

    Raises:
        ShapeError: x is no matrix.

    Example:
        >>> nnp.round(nnc.optim.orthogonalize_via_newton_schulz(nnp.asarray([[3.0, 0.0], [0.0, 5.0]]), ns_steps=12), 0)
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    if x.ndim != 2:
        raise user_error(
            ShapeError, "orthogonalize_via_newton_schulz", f"x has {x.ndim} axes, it must be a matrix.",
            operands={"x": x.spec}, fix="use nnc.optim.muon, which gives other arrays to adamw.",
        )  # fmt: skip
    a, b, c = ns_coeffs
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    size = norm(x)
    x = x / (size + number(eps, size.dtype))
    for _ in range(ns_steps):
        gram = x @ nnp.conj(x.T)
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return x.T if tall else x


class MuonState(NamedTuple):
    """Count of updates and momentum.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: momentum, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_muon().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any


@spelled
def scale_by_muon(
    ns_coeffs: Coefficients = QUINTIC, ns_steps: int = 5, beta: Scalar = 0.95, eps: Scalar = 1e-8,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = True, adaptive: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Orthogonalised momentum of matrices (Jordan et al., "Muon: an optimizer for hidden layers", 2024).

    m ← beta · m + (1 − beta) · g,    u = orthogonal(m̂)

    Args:
        ns_coeffs: a, b, c of `orthogonalize_via_newton_schulz`.
        ns_steps: its iterations.
        beta: in [0, 1).
        eps: added to the norm by which a matrix is divided.
        mu_dtype: dtype of m.
        nesterov: look ahead, as in `scale_by_adam`.
        adaptive: multiply by the inner product of m̂ and u.

    Raises:
        ShapeError (from update): a leaf is no matrix.

    Example:
        >>> transformation = nnc.optim.scale_by_muon()
        >>> params = nnp.asarray([[2.0, 0.0], [0.0, 3.0]])
        >>> updates, _ = transformation.update(params, transformation.init(params), params)
        >>> bool(abs(updates[0, 1]) < 1e-6)
        True
    """
    where = "scale_by_muon"
    check_decays(where, beta=beta)
    check_scalar(where, "eps", eps)
    if ns_steps < 1 or len(ns_coeffs) != 3:
        raise user_error(
            ArgumentError, where, f"ns_steps is {ns_steps}, ns_coeffs is {ns_coeffs}.",
            fix="give at least one step, and the three coefficients of x, x³ and x⁵.",
        )  # fmt: skip

    def init_fn(params: Any) -> MuonState:
        return MuonState(zero_count(), zeros_state(where, params, mu_dtype))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        check_state(where, state, MuonState)
        count = state.count + 1
        mu = first_moment(where, beta, updates, state.mu)
        correct = Correction(beta, count, updates if nesterov else mu)
        correct_next = Correction(beta, count + 1, *([mu] if nesterov else []))

        def step(g: Array, m: Array) -> Array:
            wide = widen(g)
            d = number(beta, wide.dtype)
            mean = correct_next(m) * d + correct(wide) * (1 - d) if nesterov else correct(m)
            u = orthogonalize_via_newton_schulz(mean, ns_coeffs, ns_steps, eps)
            return astype(u * nnp.sum(nnp.conj(mean) * u) if adaptive else u, g.dtype)

        return map_trainable(where, step, "updates", updates, mu=mu), MuonState(count, mu)

    return GradientTransformation(init_fn, update_fn)


@spelled
def scale_by_shape(consistent_rms: Scalar | None = None, *, output_axis: int = 1) -> GradientTransformation:
    """Fits orthogonal updates to their shape: times sqrt(max(1, out / in)).

    Args:
        consistent_rms: a number r makes it r · sqrt(max(in, out)) instead; 0.2 gives steps of the size of `adamw`'s.
        output_axis: 1 where matrices lie (in, out), 0 where (out, in).

    Example:
        >>> transformation = nnc.optim.scale_by_shape()
        >>> transformation.update(nnp.ones((1, 4)), transformation.init(nnp.ones((1, 4))))[0]
        Array([[2., 2., 2., 2.]], dtype=float32)
    """

    def rescale(u: Array) -> Array:
        into, out = u.shape if output_axis % 2 else u.shape[::-1]
        wide = widen(u)
        if consistent_rms is None:
            return astype(wide * max(1.0, out / max(into, 1)) ** 0.5, u.dtype)
        return astype(wide * (number(consistent_rms, dtypes.real_dtype(wide.dtype)) * max(into, out) ** 0.5), u.dtype)

    return stateless(
        "scale_by_shape", lambda updates, params: map_trainable("scale_by_shape", rescale, "updates", updates)
    )


@spelled
def muon(
    learning_rate: Scalar | Schedule, ns_coeffs: Coefficients = QUINTIC, ns_steps: int = 5, beta: Scalar = 0.95,
    eps: Scalar = 1e-8, weight_decay: Scalar = 0.0, weight_decay_mask: Mask = None, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = True, adaptive: bool = False, adam_b1: Scalar = 0.9, adam_b2: Scalar = 0.999,
    adam_eps_root: Scalar = 0.0, adam_weight_decay: Scalar = 0.0, adam_learning_rate: Scalar | Schedule | None = None,
    consistent_rms: Scalar | None = None, output_axis: int = 1,
) -> GradientTransformation:  # fmt: skip
    """Muon for matrices, AdamW for all other arrays, with the same `nesterov` (Jordan et al., 2024), as in Optax's contrib.

    p ← p − learning_rate · (sqrt(max(1, out / in)) · orthogonal(m̂) + weight_decay · p)

    torch.optim.Muon does not correct the mean at the start, and orthogonalises in bfloat16.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        ns_coeffs: a, b, c of `orthogonalize_via_newton_schulz`.
        ns_steps: its iterations.
        beta: decay of the momentum of matrices, in [0, 1).
        eps: added to divisors, of matrices and of other arrays.
        weight_decay: of matrices, multiplied by the learning rate.
        weight_decay_mask: where matrices decay, as for `adamw`.
        mu_dtype: dtype of m.
        nesterov: look ahead, for all arrays.
        adaptive: multiply by the inner product of m̂ and u.
        adam_b1: `b1` of `adamw`, for the other arrays.
        adam_b2: `b2` of `adamw`.
        adam_eps_root: `eps_root` of `adamw`.
        adam_weight_decay: weight decay of the other arrays.
        adam_learning_rate: learning rate of the other arrays; `learning_rate` by default.
        consistent_rms: see `scale_by_shape`.
        output_axis: 1 where matrices lie (in, out), as in `x @ w`; 0 for nnc.nn's (out, in).

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.muon(0.1)
        >>> params = {"w": nnp.asarray([[2.0, 0.0], [0.0, 1.0]]), "b": nnp.ones(2)}
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)
        >>> nnp.round(updates["w"], 1)
        Array([[-0.1, -0. ],
               [-0. , -0.1]], dtype=float32)
    """
    check_rate("muon", learning_rate)
    matrices = chain(
        scale_by_muon(ns_coeffs, ns_steps, beta, eps, mu_dtype, nesterov=nesterov, adaptive=adaptive),
        scale_by_shape(consistent_rms, output_axis=output_axis),
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_learning_rate(learning_rate),
    )
    others = adamw(
        learning_rate if adam_learning_rate is None else adam_learning_rate, adam_b1, adam_b2, eps, adam_eps_root,
        mu_dtype, adam_weight_decay, nesterov=nesterov,
    )  # fmt: skip
    return multi_transform(
        {"muon": matrices, "adam": others},
        lambda params: tree.map(lambda p: "muon" if getattr(p, "ndim", 0) == 2 else "adam", params),
    )
