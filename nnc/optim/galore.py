"""GaLore: the state of any optimizer in a small subspace of the gradients of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_count
from nnc.optim.arguments import Mask, Scalar, check_params, check_scalar, is_trainable, spread
from nnc.optim.base import GradientTransformation, check_transformation, number, run_update, stateful, widen
from nnc.optim.conditions import run_if
from nnc.optim.moments import scale_by_adam
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping, zero_count

__all__ = ["GaLoreDimensionNumbers", "GaLoreState", "galore", "scale_by_galore"]


class GaLoreDimensionNumbers(NamedTuple):
    """Axes of an array that are the rows and the columns of its matrix.

    Attributes:
        reduction_axis: axes of the rows, inputs of a layer.
        output_axis: axes of the columns, its outputs.

    Example:
        >>> nnc.optim.GaLoreDimensionNumbers()
        GaLoreDimensionNumbers(reduction_axis=0, output_axis=1)
    """

    reduction_axis: int | Sequence[int] = 0
    output_axis: int | Sequence[int] = 1


class GaLoreState(NamedTuple):
    """Count of updates, the state of the base optimizer in the subspaces, and their bases.

    Attributes:
        count: how many updates were made, a 0-d integer.
        base_optimizer_state: state of the base optimizer, of the projected gradients.
        projector: an orthonormal basis for each matrix; without elements for other arrays.

    Example:
        >>> state = nnc.optim.scale_by_galore(rank=1).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any
    base_optimizer_state: Any
    projector: Any


class _Layout(NamedTuple):
    """An array as a matrix."""

    order: tuple[int, ...]
    shape: tuple[int, ...]  # of the transposed array
    rows: int
    columns: int

    def matrix(self, x: Array) -> Array:
        return nnp.reshape(nnp.transpose(x, self.order), (self.rows, self.columns))

    def array(self, matrix: Array) -> Array:
        back = tuple(int(i) for i in np.argsort(self.order))
        return nnp.transpose(nnp.reshape(matrix, self.shape), back)


def _layout(x: Array, axes: GaLoreDimensionNumbers | None) -> _Layout | None:
    """Returns the matrix of an array; None for an array that is not projected.

    Raises:
        ShapeError: the axes are not those of the array, each once.
    """
    if axes is None or x.ndim < 2 or x.size == 0:
        return None
    groups = [(group,) if isinstance(group, int) else tuple(group) for group in axes]
    order = tuple(axis % x.ndim for group in groups for axis in group)
    if sorted(order) != list(range(x.ndim)):
        problem = f"{axes} do not name each of {x.ndim} axes once."
        fix = "give each axis to the rows or to the columns, or leave the array out by None."
        raise user_error(ShapeError, "scale_by_galore", problem, operands={"leaf": x.spec}, fix=fix)
    shape = tuple(x.shape[axis] for axis in order)
    rows = math.prod(shape[: len(groups[0])])
    return _Layout(order, shape, rows, math.prod(shape[len(groups[0]) :]))


def _basis(matrix: Array, rank: int) -> Array:
    """Returns the singular vectors of the greatest singular values, on the longer side."""
    u, _, vh = nnp.linalg.svd(widen(matrix), full_matrices=False)
    return u[:, :rank] if matrix.shape[0] >= matrix.shape[1] else nnp.conj(vh[:rank].T)


@spelled
def scale_by_galore(
    rank: int = 128, update_proj_gap: int = 200, scale: Scalar = 1.0, base_optimizer: GradientTransformation | None = None,
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:  # fmt: skip
    """Hands a transformation the gradients of matrices in subspaces of low rank (Zhao et al., "GaLore: memory-efficient LLM
    training by gradient low-rank projection", 2024).

    P = the first `rank` singular vectors of g, every `update_proj_gap` updates;    u = scale · P · base(Pᵀ g)

    Args:
        rank: dimension of the subspaces, at most the shorter side.
        update_proj_gap: how many updates use one subspace.
        scale: factor of updates of matrices.
        base_optimizer: a transformation; None: `scale_by_adam()`. It gets no parameters.
        weight_dimension_numbers: a GaLoreDimensionNumbers for all arrays of at least two axes, a tree of them with None for arrays
            that are not projected, or a function from parameters to one; None projects matrices.

    Raises:
        ArgumentError: rank or update_proj_gap is no positive int.
        ShapeError (from init): axes do not fit an array.

    Example:
        >>> transformation = nnc.optim.scale_by_galore(rank=1)
        >>> params = nnp.ones((3, 2))
        >>> transformation.update(params, transformation.init(params), params)[0].shape
        (3, 2)
    """
    where = "scale_by_galore"
    check_count(where, "rank", rank, "choose another rank.")
    check_count(where, "update_proj_gap", update_proj_gap, "choose another update_proj_gap.")
    check_scalar(where, "scale", scale)
    base = scale_by_adam() if base_optimizer is None else base_optimizer
    check_transformation(where, "base_optimizer", base)

    def layouts(values: Any) -> list[_Layout | None]:
        leaves = tree.leaves(values)
        if weight_dimension_numbers is None:
            plain = GaLoreDimensionNumbers()
            chosen = [plain if is_trainable(x) and asarray(x).ndim == 2 else None for x in leaves]
        else:
            chosen = spread(
                where, "weight_dimension_numbers", weight_dimension_numbers, values,
                lambda here: here is None or isinstance(here, GaLoreDimensionNumbers), "GaLoreDimensionNumbers or None",
                "give GaLoreDimensionNumbers(reduction_axis=0, output_axis=1) or None for each leaf.",
            )  # fmt: skip
        return [_layout(asarray(x), axes) if is_trainable(x) else None for x, axes in zip(leaves, chosen, strict=True)]

    def init_fn(params: Any) -> GaLoreState:
        check_params(where, params)
        proxies: list[Any] = []
        bases: list[Any] = []
        for leaf, form in zip(tree.leaves(params), layouts(params), strict=True):
            if form is None:
                proxies.append(leaf)
                bases.append(asarray(np.zeros((0, 0), np.float32)) if is_trainable(leaf) else ())
                continue
            least = min(rank, form.rows, form.columns)
            tall, kind = form.rows >= form.columns, widen(asarray(leaf)).dtype
            proxies.append(
                asarray(np.zeros((least, form.columns) if tall else (form.rows, least), asarray(leaf).dtype))
            )
            bases.append(asarray(np.zeros((max(form.rows, form.columns), least), kind)))
        inner = base.init(tree.unflatten_like(params, proxies))
        return GaLoreState(zero_count(), inner, tree.unflatten_like(params, bases))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        forms, leaves, kept = layouts(updates), tree.leaves(updates), iter(tree.leaves(state.projector))
        due = state.count % update_proj_gap == 0
        bases: list[Any] = []
        small: list[Any] = []
        for leaf, form in zip(leaves, forms, strict=True):
            old: Any = next(kept) if is_trainable(leaf) else ()
            if form is not None:
                g = form.matrix(asarray(leaf))
                old = _renewed(due, g, old)
                inside = nnp.conj(old.T) @ widen(g) if form.rows >= form.columns else widen(g) @ old
                leaf = astype(inside, g.dtype)
            bases.append(old)
            small.append(leaf)
        moved, inner = run_update(base, tree.unflatten_like(updates, small), state.base_optimizer_state, None, {})
        whole = [
            leaf if form is None else _expanded(asarray(leaf), basis, form, scale)
            for leaf, basis, form in zip(tree.leaves(moved), bases, forms, strict=True)
        ]
        projector = tree.unflatten_like(updates, bases)
        return tree.unflatten_like(updates, whole), GaLoreState(state.count + 1, inner, projector)

    return stateful(where, GaLoreState, init_fn, update_fn)


def _renewed(due: Array, g: Array, old: Array) -> Any:
    return run_if(due, lambda: _basis(g, old.shape[1]), lambda: old)


def _expanded(u: Array, basis: Array, form: _Layout, scale: Scalar) -> Array:
    wide = widen(u)
    full = basis @ wide if form.rows >= form.columns else wide @ nnp.conj(basis.T)
    return astype(form.array(full * number(scale, full.dtype)), u.dtype)


@spelled
def galore(
    learning_rate: Scalar | Schedule, rank: int = 128, update_proj_gap: int = 200, scale: Scalar = 1.0,
    base_optimizer: GradientTransformation | None = None, weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:  # fmt: skip
    """GaLore, AdamW with moments of matrices in subspaces of low rank (Zhao et al., "GaLore: memory-efficient LLM training by
    gradient low-rank projection", 2024); see `scale_by_galore`.

    p ← p − learning_rate · (scale · P · base(Pᵀ g) + weight_decay · p)

    Memory of an m × n matrix: about rank · (m + 2 n) numbers for m ≥ n, in place of Adam's 2 · m · n.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        rank: dimension of the subspaces, at most the shorter side.
        update_proj_gap: how many updates use one subspace.
        scale: factor of updates of matrices.
        base_optimizer: a transformation without a learning rate; None: `scale_by_adam()`.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.
        weight_dimension_numbers: the matrices of arrays, as for `scale_by_galore`; None: of those with two axes.

    Raises:
        ArgumentError: rank or update_proj_gap is no positive int.
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.galore(0.1, rank=1)
        >>> params = nnp.zeros((3, 2))
        >>> [x.shape for x in nnc.tree.leaves(optimizer.init(params)) if x.ndim]  # two moments and the basis
        [(1, 2), (1, 2), (3, 1)]
    """
    projected = scale_by_galore(rank, update_proj_gap, scale, base_optimizer, weight_dimension_numbers)
    return stepping("galore", learning_rate, projected, add_decayed_weights(weight_decay, mask))
