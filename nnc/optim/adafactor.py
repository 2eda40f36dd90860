"""Adafactor: second moments of matrices kept as sums of rows and of columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.accumulate import ema
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalars, is_trainable
from nnc.optim.base import GradientTransformation, chain, make_state, map_trainable, number, stateful, widen
from nnc.optim.clipping import clip_by_block_rms, rms, squared_magnitude
from nnc.optim.constraints import scale_by_size
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, scale, scale_by_learning_rate, zero_count

__all__ = ["FactoredState", "adafactor", "scale_by_factored_rms", "scale_by_param_block_rms"]


class FactoredState(NamedTuple):
    """Count of updates; means of squares over columns, over rows, and the squares of arrays that have no factors.

    Of the three, the ones that an array does not use have shape (1,).

    Attributes:
        count: how many updates were made, a 0-d integer.
        v_row: means of squares over columns.
        v_col: means of squares over rows.
        v: squares of arrays without factors.

    Example:
        >>> state = nnc.optim.scale_by_factored_rms().init(nnp.ones(2))
        >>> state.v
        Array([0., 0.], dtype=float32)
    """

    count: Any
    v_row: Any
    v_col: Any
    v: Any


def _factored_axes(shape: tuple[int, ...], factored: bool, least: int) -> tuple[int, int] | None:
    """Returns the second longest and the longest axis, where an array has factors."""
    if not factored or len(shape) < 2:
        return None
    second, first = (int(axis) for axis in np.argsort(shape)[-2:])
    return (second, first) if shape[second] >= least else None


@spelled
def scale_by_factored_rms(
    factored: bool = True, decay_rate: Scalar = 0.8, step_offset: int = 0, min_dim_size_to_factor: int = 128,
    epsilon: Scalar = 1e-30,
) -> GradientTransformation:  # fmt: skip
    """Divides by the root of a mean of squares that is kept as an outer product (Shazeer and Stern, "Adafactor", 2018).

    d(t) = 1 − t^(−decay_rate),    R ← d · R + (1 − d) · mean over columns of (|g|² + epsilon),    C likewise over rows
    u = g / sqrt(R · C / mean(R)),  and of arrays without factors  g / sqrt(v)

    Cost: rows + columns numbers of state in place of rows · columns.

    Args:
        factored: False keeps all second moments whole.
        decay_rate: exponent of the decay 1 − t^(−decay_rate).
        step_offset: subtracted from the count, for fine-tuning.
        min_dim_size_to_factor: arrays whose second longest axis is shorter have no factors.
        epsilon: added to the squares.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_factored_rms()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    where = "scale_by_factored_rms"
    check_scalars(where, decay_rate=decay_rate, epsilon=epsilon)

    def axes_of(p: Array) -> tuple[int, int] | None:
        return _factored_axes(p.shape, factored, min_dim_size_to_factor)

    def zeros(p: Array, shape: tuple[int, ...]) -> Array:
        return asarray(np.zeros(shape, dtypes.real_dtype(dtypes.accumulator(p.dtype))))

    def mean_over(p: Array, which: int) -> Array:
        axes = axes_of(p)
        return zeros(p, (1,) if axes is None else _without(p.shape, axes[which]))

    def init_fn(params: Any) -> FactoredState:
        return FactoredState(
            zero_count(),
            make_state(where, lambda p: mean_over(p, 1), params),
            make_state(where, lambda p: mean_over(p, 0), params),
            make_state(where, lambda p: zeros(p, (1,) if axes_of(p) else p.shape), params),
        )

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        t = astype(count - step_offset, dtypes.float64)
        decay = 1 - t ** -number(decay_rate, dtypes.float64)

        def one(g: Array, row: Array, col: Array, v: Array) -> tuple[Array, Array, Array, Array]:
            wide = widen(g)
            square = squared_magnitude(wide) + number(epsilon, row.dtype)
            d = number(decay, row.dtype)
            axes = axes_of(g)
            if axes is None:
                v = v * d + astype(square, v.dtype) * (1 - d)
                return astype(wide / nnp.sqrt(v), g.dtype), row, col, v
            second, first = axes
            row = row * d + astype(nnp.mean(square, axis=first), row.dtype) * (1 - d)
            col = col * d + astype(nnp.mean(square, axis=second), col.dtype) * (1 - d)
            mean = nnp.mean(row, axis=second - (second > first), keepdims=True)
            scaled = wide / nnp.expand_dims(nnp.sqrt(row / mean), first) / nnp.expand_dims(nnp.sqrt(col), second)
            return astype(scaled, g.dtype), row, col, v

        return _over_leaves(where, one, updates, state, params, count)

    return stateful(where, FactoredState, init_fn, update_fn, reads_params=True)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _over_leaves(
    where: str, one: Any, updates: Any, state: FactoredState, params: Any, count: Array
) -> tuple[Any, Any]:
    """Applies `one` to each trainable leaf and its three moments, whose shapes differ."""
    map_trainable(where, lambda g, p: g, "updates", updates, params=params)  # checks structure and shapes
    columns = [tree.leaves(part) for part in (updates, state.v_row, state.v_col, state.v)]
    if len({len(column) for column in columns}) > 1:
        raise tree.tree_mismatch(where, "updates", updates, "v", state.v)
    rows = [
        one(asarray(leaf), *rest) if is_trainable(leaf) else (leaf, *rest)
        for leaf, *rest in zip(*columns, strict=True)
    ]  # fmt: skip
    results = [tree.unflatten_like(updates, [row[i] for row in rows]) for i in range(4)]
    return results[0], FactoredState(count, *results[1:])


@spelled
def scale_by_param_block_rms(min_scale: Scalar = 1e-3) -> GradientTransformation:
    """Multiplies each array's update by the root mean square of its parameters, at least min_scale.

    Args:
        min_scale: least root mean square that counts.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_param_block_rms()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 2)
        Array([ 3.54, -7.07], dtype=float32)
    """
    return scale_by_size("scale_by_param_block_rms", min_scale, rms)


@spelled
def adafactor(
    learning_rate: Scalar | Schedule | None = None, min_dim_size_to_factor: int = 128, decay_rate: Scalar = 0.8,
    decay_offset: int = 0, multiply_by_parameter_scale: bool = True, clipping_threshold: Scalar | None = 1.0,
    momentum: Scalar | None = None, dtype_momentum: Any = None, weight_decay_rate: Scalar | None = None,
    eps: Scalar = 1e-30, factored: bool = True, weight_decay_mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adafactor, with less memory than its parameters take (Shazeer and Stern, "Adafactor: adaptive learning rates with
    sublinear memory cost", 2018), as in Optax; see `scale_by_factored_rms`.

    u = clip(g / sqrt(v̂)),    p ← p − learning_rate · max(rms(p), 1e-3) · u − weight_decay_rate · p

    Args:
        learning_rate: a number, a 0-d array or a schedule; None leaves it out.
        min_dim_size_to_factor: shorter arrays keep whole second moments.
        decay_rate: exponent of the decay of second moments, as for `scale_by_factored_rms`.
        decay_offset: subtracted from the count, for fine-tuning.
        multiply_by_parameter_scale: steps in proportion to the parameters.
        clipping_threshold: largest root mean square of a step; None: no clipping.
        momentum: decay of a mean of steps.
        dtype_momentum: dtype of that mean.
        weight_decay_rate: not multiplied by the learning rate.
        eps: added to the squares.
        factored: False keeps all second moments whole.
        weight_decay_mask: where weights decay, as for `adamw`. torch.optim.Adafactor(lr=a) is `adafactor(lambda t:
            nnp.minimum(a, 1 / nnp.sqrt(t + 1.0)), 1)`.

    Raises:
        ArgumentTypeError (from update): params were not given.
        ArgumentError: min_dim_size_to_factor is not positive.

    Example:
        >>> optimizer = nnc.optim.adafactor(0.1)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.1], dtype=float32)
    """
    if min_dim_size_to_factor < 1:
        problem = f"min_dim_size_to_factor is {min_dim_size_to_factor}; it must be at least 1."
        raise user_error(ArgumentError, "adafactor", problem, fix="pass factored=False to keep whole second moments.")
    links = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        links.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        check_rate("adafactor", learning_rate)
        links.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        links.append(scale_by_param_block_rms())
    if momentum is not None:
        links.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        links.append(add_decayed_weights(weight_decay_rate, weight_decay_mask))
    return chain(*links, scale(-1.0))
