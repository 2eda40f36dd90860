"""Muon: momentum whose matrices are made orthogonal before they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axis
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalar, spread
from nnc.optim.base import GradientTransformation, chain, leafwise, map_trainable, number, stateful, widen
from nnc.optim.clipping import norm
from nnc.optim.moments import check_decays, first_moment, unbiased_moments, zeros_state
from nnc.optim.optimizers import adamw
from nnc.optim.partition import multi_transform
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate, zero_count
from nnc.trace.core.vectorize import vmap
from nnc.typing import DTypeLike

__all__ = [
    "MuonDimensionNumbers",
    "MuonState",
    "muon",
    "orthogonalize_via_newton_schulz",
    "scale_by_muon",
    "scale_by_shape",
]

Coefficients = tuple[float, float, float]
QUINTIC: Coefficients = (3.4445, -4.7750, 2.0315)  # steepest at 0 among coefficients that keep singular values near 1
_PRESETS: dict[str, Any] = {
    "standard": QUINTIC,
    "dion": (  # one row for each iteration (Ahn et al., "Dion: distributed orthonormalized updates", 2025)
        (4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}  # fmt: skip
_PRECONDITIONINGS = ("frobenius", "spectral", "aol", "schatten")


class MuonDimensionNumbers(NamedTuple):
    """The axes of a weight that are the rows and the columns of the matrix that Muon makes orthogonal; the other axes hold more
    matrices.

    Attributes:
        reduction_axis: an axis or several, over which the weight is multiplied with its operand.
        output_axis: an axis or several of the result.

    Example:
        >>> kernels = nnc.optim.MuonDimensionNumbers(reduction_axis=(1, 2, 3), output_axis=0)  # of nnc.nn.Conv
        >>> optimizer = nnc.optim.muon(0.1, muon_weight_dimension_numbers=kernels)
        >>> weight = nnp.ones((8, 3, 2, 2))
        >>> optimizer.update(weight, optimizer.init(weight), weight)[0].shape
        (8, 3, 2, 2)
    """

    reduction_axis: int | Sequence[int] = 0
    output_axis: int | Sequence[int] = 1


@spelled
def orthogonalize_via_newton_schulz(
    x: Array, ns_coeffs: Coefficients | Sequence[Coefficients] = QUINTIC, ns_steps: int = 5, eps: Scalar = 1e-8, *,
    preconditioning: str = "frobenius", dimension_numbers: MuonDimensionNumbers | None = None,
) -> Array:  # fmt: skip
    """Returns a matrix with the singular vectors of `x` and singular values near 1, without a decomposition.

    x ← x / (‖x‖ + eps);    ns_steps times  x ← a x + (b A + c A²) x,  A = x xᵀ

    Args:
        x: (m, n), or of any shape with `dimension_numbers`.
        ns_coeffs: a, b, c; or a row of them for each iteration.
        ns_steps: iterations, three products of matrices each; not read where `ns_coeffs` has rows.
        eps: added to the norm by which `x` is divided.
        preconditioning: the norm: "frobenius"; "spectral", which takes a decomposition; "schatten", the square root of the norm of
            A (Grishina et al., 2025); or "aol", which scales rows of x by sums of rows of A (Boissin et al., "Turbo-Muon", 2025).
        dimension_numbers: the axes of rows and columns.

    Raises:
        ShapeError: x is no matrix.
        ArgumentError: an unknown preconditioning, or axes that do not fit.

    Example:
        >>> nnp.round(nnc.optim.orthogonalize_via_newton_schulz(nnp.asarray([[3.0, 0.0], [0.0, 5.0]]), ns_steps=12), 0)
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    where = "orthogonalize_via_newton_schulz"
    rows = _checked_coefficients(where, ns_coeffs, ns_steps)
    check_choice(where, "preconditioning", preconditioning, _PRECONDITIONINGS)
    if dimension_numbers is not None:
        order, shape = _as_matrices(where, x, dimension_numbers)
        turned = nnp.transpose(x, order)
        flat = turned.reshape(shape)
        found = vmap(lambda each: _orthogonal(each, rows, eps, preconditioning))(flat)
        return nnp.transpose(found.reshape(turned.shape), tuple(int(i) for i in np.argsort(order)))
    check_matrix(where, x)
    return _orthogonal(x, rows, eps, preconditioning)


def check_matrix(where: str, x: Array) -> None:
    """Raises ShapeError for arrays that are no matrices."""
    if x.ndim != 2:
        problem = f"x has {x.ndim} axes, it must be a matrix."
        fix = "use nnc.optim.muon, which gives other arrays to adamw, or pass dimension_numbers."
        raise user_error(ShapeError, where, problem, operands={"x": x.spec}, fix=fix)


def _orthogonal(x: Array, rows: Sequence[Coefficients], eps: Scalar, preconditioning: str) -> Array:
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    if preconditioning in ("frobenius", "spectral"):
        size = norm(x) if preconditioning == "frobenius" else nnp.linalg.norm(x, ord=2)
        x = x / (size + number(eps, size.dtype))
    for i, (a, b, c) in enumerate(rows):
        gram = x @ nnp.conj(x.T)
        if not i and preconditioning in ("aol", "schatten"):
            size = nnp.sum(abs(gram), axis=1, keepdims=True) if preconditioning == "aol" else norm(gram)
            scale = 1 / nnp.sqrt(nnp.maximum(size, number(eps, size.dtype)))
            x, gram = x * scale, gram * scale * scale.T
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return x.T if tall else x


def _checked_coefficients(where: str, ns_coeffs: Any, ns_steps: int) -> list[Coefficients]:
    """Returns the coefficients of each iteration."""
    is_row = all(isinstance(x, (int, float)) for x in ns_coeffs)
    rows = [tuple(ns_coeffs)] * ns_steps if is_row else [tuple(row) for row in ns_coeffs]
    if not rows or any(len(row) != 3 for row in rows):
        fix = "give at least one step, and the three coefficients of x, x³ and x⁵, or a row of them for each step."
        raise user_error(ArgumentError, where, f"ns_steps is {ns_steps}, ns_coeffs is {ns_coeffs}.", fix=fix)
    return rows


def _as_matrices(where: str, x: Array, numbers: MuonDimensionNumbers) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Returns the order of axes and the shape (batch, rows, columns) in which a weight is a batch of matrices."""
    into, out = (
        tuple(axes) if isinstance(axes, Sequence) else (axes,) for axes in (numbers.reduction_axis, numbers.output_axis)
    )
    into, out = (tuple(check_axis(where, axis, x.ndim) for axis in axes) for axes in (into, out))
    if len({*into, *out}) < len(into) + len(out) or not into or not out:
        problem = f"{numbers} names an axis twice, or none."
        fix = "name each axis of rows and of columns once."
        raise user_error(ArgumentError, where, problem, operands={"x": x.spec}, fix=fix)
    rest = tuple(axis for axis in range(x.ndim) if axis not in (*into, *out))
    sizes = (prod(x.shape[axis] for axis in axes) for axes in (rest, into, out))
    return (*rest, *into, *out), tuple(sizes)  # type: ignore[return-value]


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
    ns_coeffs: Coefficients | Sequence[Coefficients] = QUINTIC, ns_steps: int = 5, beta: Scalar = 0.95, eps: Scalar = 1e-8,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = True, adaptive: bool = False,
    preconditioning: str = "frobenius", weight_dimension_numbers: MuonDimensionNumbers | None = None,
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
        preconditioning: see `orthogonalize_via_newton_schulz`.
        weight_dimension_numbers: the axes of rows and columns of all leaves; None: they are matrices.

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
    _checked_coefficients(where, ns_coeffs, ns_steps)

    def init_fn(params: Any) -> MuonState:
        return MuonState(zero_count(), zeros_state(where, params, mu_dtype))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment(where, beta, updates, state.mu)
        mean_of, _ = unbiased_moments(beta, 0.0, count, updates, mu, (), nesterov)  # there are no second moments

        def step(g: Array, m: Array) -> Array:
            mean = mean_of(g, m)
            u = orthogonalize_via_newton_schulz(
                mean,
                ns_coeffs,
                ns_steps,
                eps,
                preconditioning=preconditioning,
                dimension_numbers=weight_dimension_numbers,
            )
            return astype(u * nnp.sum(nnp.conj(mean) * u) if adaptive else u, g.dtype)

        return map_trainable(where, step, "updates", updates, mu=mu), MuonState(count, mu)

    return stateful(where, MuonState, init_fn, update_fn)


@spelled
def scale_by_shape(
    consistent_rms: Scalar | None = None,
    *,
    output_axis: int = 1,
    weight_dimension_numbers: MuonDimensionNumbers | None = None,
) -> GradientTransformation:
    """Fits orthogonal updates to their shape: times sqrt(max(1, out / in)).

    Args:
        consistent_rms: a number r makes it r · sqrt(max(in, out)) instead; 0.2 gives steps of the size of `adamw`'s.
        output_axis: 1 where matrices lie (in, out), 0 where (out, in).
        weight_dimension_numbers: the axes of arrays that are no matrices.

    Example:
        >>> transformation = nnc.optim.scale_by_shape()
        >>> transformation.update(nnp.ones((1, 4)), transformation.init(nnp.ones((1, 4))))[0]
        Array([[2., 2., 2., 2.]], dtype=float32)
    """

    def rescale(u: Array) -> Array:
        if weight_dimension_numbers is not None:
            _, (_, into, out) = _as_matrices("scale_by_shape", u, weight_dimension_numbers)
        else:
            check_matrix("scale_by_shape", u)
            into, out = u.shape if output_axis % 2 else u.shape[::-1]
        wide = widen(u)
        if consistent_rms is None:
            return astype(wide * max(1.0, out / max(into, 1)) ** 0.5, u.dtype)
        return astype(wide * (number(consistent_rms, dtypes.real_dtype(wide.dtype)) * max(into, out) ** 0.5), u.dtype)

    return leafwise("scale_by_shape", rescale)


@spelled
def muon(
    learning_rate: Scalar | Schedule, ns_coeffs: Coefficients | Sequence[Coefficients] | str = QUINTIC, ns_steps: int = 5,
    beta: Scalar = 0.95,
    eps: Scalar = 1e-8, weight_decay: Scalar = 0.0, weight_decay_mask: Mask = None, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = True, adaptive: bool = False, adam_b1: Scalar = 0.9, adam_b2: Scalar = 0.999,
    adam_eps_root: Scalar = 0.0, adam_weight_decay: Scalar = 0.0, adam_learning_rate: Scalar | Schedule | None = None,
    consistent_rms: Scalar | None = None, output_axis: int = 1, preconditioning: str = "frobenius",
    muon_weight_dimension_numbers: Any = None,
) -> GradientTransformation:  # fmt: skip
    """Muon for matrices, AdamW for all other arrays, with the same `nesterov` (Jordan et al., 2024), as in Optax's contrib.

    p ← p − learning_rate · (sqrt(max(1, out / in)) · orthogonal(m̂) + weight_decay · p)

    torch.optim.Muon does not correct the mean at the start, and orthogonalises in bfloat16.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        ns_coeffs: a, b, c of `orthogonalize_via_newton_schulz`, a row of them for each iteration, "standard" or "dion".
        ns_steps: its iterations.
        beta: decay of the momentum of matrices, in [0, 1).
        eps: added to divisors, of matrices and of other arrays.
        weight_decay: the weight decay of matrices, multiplied by the learning rate.
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
        preconditioning: see `orthogonalize_via_newton_schulz`.
        muon_weight_dimension_numbers: `MuonDimensionNumbers` of the arrays that Muon updates, None for those of AdamW: a tree
            like the parameters or a part of it from the root, or a function from parameters to one. By default all matrices.

    Raises:
        ArgumentTypeError (from update): params were not given.
        ArgumentError: unknown coefficients or preconditioning.

    Example:
        >>> optimizer = nnc.optim.muon(0.1)
        >>> params = {"w": nnp.asarray([[2.0, 0.0], [0.0, 1.0]]), "b": nnp.ones(2)}
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)
        >>> nnp.round(updates["w"], 1)
        Array([[-0.1, -0. ],
               [-0. , -0.1]], dtype=float32)
    """
    check_rate("muon", learning_rate)
    if isinstance(ns_coeffs, str):
        check_choice("muon", "ns_coeffs", ns_coeffs, _PRESETS)
    coefficients = _PRESETS[ns_coeffs] if isinstance(ns_coeffs, str) else ns_coeffs

    def matrices(numbers: MuonDimensionNumbers | None) -> GradientTransformation:
        return chain(
            scale_by_muon(
                coefficients, ns_steps, beta, eps, mu_dtype, nesterov=nesterov, adaptive=adaptive, preconditioning=preconditioning,
                weight_dimension_numbers=numbers,
            ),
            scale_by_shape(consistent_rms, output_axis=output_axis, weight_dimension_numbers=numbers),
            add_decayed_weights(weight_decay, weight_decay_mask),
            scale_by_learning_rate(learning_rate),
        )  # fmt: skip

    others = adamw(
        learning_rate if adam_learning_rate is None else adam_learning_rate, adam_b1, adam_b2, eps, adam_eps_root,
        mu_dtype, adam_weight_decay, nesterov=nesterov,
    )  # fmt: skip
    if muon_weight_dimension_numbers is None:
        return multi_transform(
            {"muon": matrices(None), "adam": others},
            lambda params: tree.map(lambda p: "muon" if getattr(p, "ndim", 0) == 2 else "adam", params),
        )

    def by_numbers(params: Any) -> GradientTransformation:
        """Muon for each kind of weights, AdamW for the rest."""
        chosen = muon_weight_dimension_numbers
        chosen = chosen(params) if callable(chosen) else chosen
        found = spread(
            "muon", "muon_weight_dimension_numbers", tree.map(_named, chosen, is_leaf=_is_numbers), params, _is_choice,
            "MuonDimensionNumbers or None", "give them for each leaf, or for a whole sub-tree.",
        )  # fmt: skip
        named = {f"muon {tuple(each)}": each for each in found if isinstance(each, MuonDimensionNumbers)}
        labels = [f"muon {tuple(each)}" if isinstance(each, MuonDimensionNumbers) else "adam" for each in found]
        transforms = {name: matrices(numbers) for name, numbers in named.items()}
        return multi_transform({**transforms, "adam": others}, tree.unflatten(tree.structure(params), labels))

    return GradientTransformation(
        lambda params: by_numbers(params).init(params),
        lambda updates, state, params=None: by_numbers(updates).update(updates, state, params),
    )


def _is_numbers(here: Any) -> bool:
    return here is None or isinstance(here, MuonDimensionNumbers)


def _named(here: Any) -> Any:
    """Returns a choice, wrapped so that None differs from a leaf without a choice."""
    return "adam" if here is None else here


def _is_choice(here: Any) -> bool:
    return here == "adam" or isinstance(here, MuonDimensionNumbers)
