"""Functions of large batches that run on one part of the batch after the other, in less memory; names of optax.microbatching."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.errors.errors import check_count, shorten
from nnc.trace.core.differentiate import value_and_grad
from nnc.trace.core.specs import eval_shape
from nnc.trace.core.vectorize import vmap
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import scan

__all__ = [
    "AccumulationType", "Accumulator", "IndividualOutputs", "micro_grad", "micro_vmap", "microbatch", "reshape_batch_axis",
]  # fmt: skip

Function = Callable[..., Any]


class AccumulationType(enum.Enum):
    """The ways to combine the results of the parts to one result.

    Example:
        >>> total = microbatch(lambda x: nnp.sum(x), 0, 2, AccumulationType.SUM)
        >>> total(nnp.arange(4.0))
        Array(6., dtype=float32)
    """

    MEAN = enum.auto()
    """Their mean."""
    SUM = enum.auto()
    """Their sum."""
    RUNNING_MEAN = enum.auto()
    """The mean of the parts that are run, by `num_real_microbatches`."""
    CONCAT = enum.auto()
    """All of them along axis 0, in the order of the rows."""


_MEANS = (AccumulationType.MEAN, AccumulationType.RUNNING_MEAN)


@dataclass(frozen=True)
class Accumulator:
    """A way of your own to combine the results of the parts, where no AccumulationType fits, such as their maximum.

    carry = init(spec);    for each part i:  carry = update(carry, result, i);    finalize(carry)

    Args:
        init: makes the first carry, given a `ShapeDtypeStruct` in place of each array of the result of one part.
        update: makes the next carry of the carry, the result of a part, and its number.
        finalize: makes the result of the last carry.
        aggregate: for `micro_vmap` and `micro_grad`, makes the result of a part of the results of its rows, stacked along axis 0.

    Example:
        >>> largest = Accumulator(
        ...     init=lambda spec: nnp.full_like(spec, -nnp.inf),
        ...     update=lambda carry, value, i: nnp.maximum(carry, value),
        ...     finalize=lambda carry: carry,
        ...     aggregate=lambda values: nnp.max(values, axis=0),
        ... )
        >>> microbatch(nnp.max, 0, 2, largest)(nnp.asarray([1.0, 4.0, 2.0, 3.0]))
        Array(4., dtype=float32)
    """

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], Any]
    finalize: Callable[[Any], Any]
    aggregate: Callable[[Any], Any]


class IndividualOutputs(NamedTuple):
    """Results for each row of a batch.

    Attributes:
        values: the values of the function.
        metrics: the results of `metrics_fn` for the gradients.
        aux: the auxiliary results of the function; None without `has_aux`.

    Example:
        >>> IndividualOutputs(nnp.ones(2), {}, None).values
        Array([1., 1.], dtype=float32)
    """

    values: Any
    metrics: Any
    aux: Any


@spelled
def microbatch(
    fun: Function,
    argnums: int | Sequence[int],
    microbatch_size: int | None,
    accumulator: Any = AccumulationType.SUM,
    *,
    argnames: str | Sequence[str] = (),
    in_axes: int | Sequence[int] = 0,
    num_real_microbatches: Any = None,
) -> Function:
    """Wraps a function of a batch so that it runs on parts of the batch, in a loop.

    Part i of k has the rows i, i + k, i + 2k …, as in Optax.

    Args:
        fun: any function.
        argnums: places of the arguments that have a batch axis, pytrees.
        microbatch_size: rows in a part; divides the rows of the batch. None: `fun` itself.
        accumulator: an AccumulationType or an Accumulator, or a tree of them that begins as the results of `fun` do.
        argnames: names of keyword arguments that have a batch axis.
        in_axes: where the batch axis is: an int for all, or one for each of argnums and argnames.
        num_real_microbatches: an int or a 0-d array: parts from this number on are not run, and count as 0.

    Returns:
        A function of the same arguments.

    Raises:
        ShapeError: lengths of batch axes differ, or microbatch_size does not divide them.
        DTypeError: a mean of integers.
        ArgumentError: microbatch_size is not positive.

    Example:
        >>> kind = nnc.optim.microbatching.AccumulationType
        >>> f = nnc.optim.microbatch(lambda x: (x + 1, nnp.sum(3 * x)), 0, 2, (kind.CONCAT, kind.SUM))
        >>> f(nnp.asarray([1, 2, 3, 4]))
        (Array([2, 3, 4, 5], dtype=int64), Array(30, dtype=int64))
    """
    if microbatch_size is None:
        return fun
    check_count("microbatch", "microbatch_size", microbatch_size, "write 32, or None.")
    size = microbatch_size
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    axes = (in_axes,) * (len(places) + len(names)) if isinstance(in_axes, int) else tuple(in_axes)
    of_places, of_names = dict(zip(places, axes, strict=False)), dict(zip(names, axes[len(places) :], strict=True))

    def in_parts(*args: Any, **kwargs: Any) -> Any:
        batched = [(args[i], axis) for i, axis in of_places.items()] + [
            (kwargs[k], axis) for k, axis in of_names.items()
        ]
        parts = _rows(batched, size) // size

        def part(i: Any) -> Any:
            some = [_part(x, of_places[at], i, parts) if at in of_places else x for at, x in enumerate(args)]
            named = {k: _part(x, of_names[k], i, parts) if k in of_names else x for k, x in kwargs.items()}
            return fun(*some, **named)

        return _accumulate(part, parts, accumulator, num_real_microbatches)

    return in_parts


def _rows(batched: list[tuple[Any, int]], size: int) -> int:
    """Returns the length that all batch axes have, which is checked."""
    lengths = {asarray(x).shape[axis] for value, axis in batched for x in tree.leaves(value)}
    if len(lengths) != 1:
        problem = f"the batch axes have lengths {sorted(lengths)}, which must be one."
        fix = "name the arguments that have a batch axis in argnums and argnames, and the axes in in_axes."
        raise user_error(ShapeError, "microbatch", problem, fix=fix)
    (rows,) = lengths
    if rows % size or not rows:
        problem = f"microbatch_size {size} does not divide the {rows} rows."
        raise user_error(ShapeError, "microbatch", problem, fix="pad the batch.")
    return rows


def _part(value: Any, axis: int, i: Any, parts: int) -> Any:
    """Returns the rows i, i + parts … of each leaf along its batch axis."""
    return tree.map(lambda x: nnp.take(_split(asarray(x), axis, parts), i, axis=axis % asarray(x).ndim + 1), value)


def _split(x: Array, axis: int, parts: int) -> Array:
    """`x` with its batch axis as two: the rows of a part, and the parts."""
    at = axis % x.ndim
    return nnp.reshape(x, (*x.shape[:at], -1, parts, *x.shape[at + 1 :]))


@spelled
def reshape_batch_axis(batch: Any, microbatch_size: int, axis: int = 0) -> Any:
    """Splits the batch axis of each leaf into parts and the rows of a part, as `microbatch` does: (parts, microbatch_size).

    Args:
        batch: arrays with a batch axis, a pytree.
        microbatch_size: rows in a part; divides the rows of the batch.
        axis: the batch axis.

    Raises:
        ShapeError: the batch axes have different lengths, or microbatch_size does not divide them.

    Example:
        >>> reshape_batch_axis(nnp.arange(4), 2)
        Array([[0, 2],
               [1, 3]], dtype=int64)
    """
    parts = _rows([(batch, axis)], microbatch_size) // microbatch_size

    def leaf(x: Any) -> Array:
        at = axis % asarray(x).ndim
        return nnp.moveaxis(_split(asarray(x), axis, parts), at + 1, at)

    return tree.map(leaf, batch)


def _accumulate(part: Function, parts: int, accumulator: Any, real: Any) -> Any:
    """Returns the results of all parts as one."""
    specs: Any = eval_shape(part, nnp.asarray(0, dtypes.int64))
    kinds, whole = _kinds_of(accumulator, specs)
    ways = [_accumulator_of(kind, parts, parts if real is None else nnp.clip(real, 1, parts)) for kind in kinds]
    shapes: list[Any] = whole.flatten_up_to(specs)

    def run(carries: list[Any], i: Any) -> Any:
        def update() -> Any:
            values = whole.flatten_up_to(part(i))
            updated = [None if w is None else w.update(c, x, i) for w, c, x in zip(ways, carries, values, strict=True)]
            return updated, [x if w is None else None for w, x in zip(ways, values, strict=True)]

        def skip() -> Any:
            return carries, [_zeros(x) if w is None else None for w, x in zip(ways, shapes, strict=True)]

        return update() if real is None else cond(i < real, update, skip)

    start = [None if w is None else w.init(x) for w, x in zip(ways, shapes, strict=True)]
    carries, rows = scan(run, start, nnp.arange(parts))
    ends = zip(ways, carries, rows, strict=True)
    return whole.unflatten([tree.map(_joined, xs) if w is None else w.finalize(c) for w, c, xs in ends])


def _is_kind(x: Any) -> bool:
    return isinstance(x, (Accumulator, AccumulationType))


def _kinds_of(accumulator: Any, results: Any) -> tuple[list[Any], tree.TreeDef]:
    """Returns the accumulators of a tree, and its structure, with which results begin.

    Raises:
        TreeError: results have another structure.
        ArgumentTypeError: a leaf is no accumulator.
    """
    tree.broadcast_prefix(accumulator, results, _is_kind, where="microbatch")  # which checks it
    kinds, whole = tree.flatten(accumulator, _is_kind)
    for kind in kinds:
        if not _is_kind(kind):
            problem = f"accumulator has {shorten(kind)}, of type {type(kind).__name__}."
            fix = "use AccumulationType.SUM, MEAN, RUNNING_MEAN or CONCAT, or an Accumulator."
            raise user_error(ArgumentTypeError, "microbatch", problem, fix=fix)
    return kinds, whole


def _zeros(specs: Any) -> Any:
    return tree.map(lambda spec: nnp.zeros(spec.shape, spec.dtype), specs)


def _joined(stacked: Array) -> Array:
    """Interleaves the parts: part i holds rows i, i + k, i + 2k and so on."""
    return nnp.reshape(nnp.moveaxis(stacked, 0, 1), (-1, *stacked.shape[2:]))


def _accumulator_of(kind: Any, parts: int, ran: Any) -> Accumulator | None:
    """Returns the accumulator of a kind; None for CONCAT, whose parts the loop itself stacks."""
    if isinstance(kind, Accumulator) or kind is AccumulationType.CONCAT:
        return kind if isinstance(kind, Accumulator) else None
    count = ran if kind is AccumulationType.RUNNING_MEAN else parts

    def init(specs: Any) -> Any:
        for spec in tree.leaves(specs):
            if kind in _MEANS and not dtypes.is_inexact(spec.dtype):
                problem = f"the mean of a result of {spec.dtype} is no {spec.dtype}."
                fix = "let the function return floats, or add results up: AccumulationType.SUM."
                raise user_error(DTypeError, "microbatch", problem, fix=fix)
        return _zeros(specs)

    def finalize(totals: Any) -> Any:
        if kind is AccumulationType.SUM:
            return totals
        return tree.map(lambda total: total / astype(asarray(count), total.dtype), totals)

    def update(totals: Any, values: Any, _: Any) -> Any:
        return tree.map(lambda total, x: total + x, totals, values)

    return Accumulator(init, update, finalize, lambda values: _reduce(values, kind))


@spelled
def micro_vmap(
    fun: Function,
    in_axes: int | Sequence[int | None] = 0,
    out_axes: int = 0,
    *,
    microbatch_size: int | None = None,
    vmap_fn: Function = vmap,
    accumulator: Any = AccumulationType.CONCAT,
    num_real_microbatches: Any = None,
) -> Function:
    """Maps a function over a batch axis, part by part, and may add results up or average them on the way.

    `nnc.vmap(f, chunk_size=)` does the same where all results are wanted.

    Args:
        fun: a function of single rows.
        in_axes: the batch axis of each argument, None where it has none; keyword arguments have theirs first.
        out_axes: 0.
        microbatch_size: rows in a part; None: all at once.
        vmap_fn: maps each part, as `nnc.vmap` does.
        accumulator: an AccumulationType or an Accumulator, or a tree of them that begins as the results of `fun` do.
        num_real_microbatches: parts from this number on are not run.

    Raises:
        ArgumentError: out_axes is not 0.

    Example:
        >>> nnc.optim.microbatching.micro_vmap(lambda x: x**2, microbatch_size=2)(nnp.arange(4))
        Array([0, 1, 4, 9], dtype=int64)
    """
    if out_axes != 0:
        problem = f"out_axes is {out_axes!r}; it must be 0."
        raise user_error(ArgumentError, "micro_vmap", problem, fix="move axes of the result.")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = (in_axes,) * len(args) if isinstance(in_axes, int) else tuple(in_axes)

        def of_part(*args: Any, kwargs: Any) -> Any:
            out = vmap_fn(lambda args, kwargs: fun(*args, **kwargs), (axes, 0), 0)(args, kwargs)
            kinds, whole = _kinds_of(accumulator, out)
            return whole.unflatten([_reduce(x, kind) for x, kind in zip(whole.flatten_up_to(out), kinds, strict=True)])

        places = [i for i, axis in enumerate(axes) if axis is not None]
        of_axes = [axis for axis in axes if axis is not None] + [0]
        inner = microbatch(
            of_part, places, microbatch_size, accumulator, argnames="kwargs", in_axes=of_axes,
            num_real_microbatches=num_real_microbatches,
        )  # fmt: skip
        return inner(*args, kwargs=kwargs)

    return mapped


def _reduce(values: Any, kind: Any) -> Any:
    """Returns the results of the rows of a part as one."""
    if isinstance(kind, Accumulator):
        return kind.aggregate(values)
    if kind is AccumulationType.CONCAT:
        return values
    reduction = nnp.sum if kind is AccumulationType.SUM else nnp.mean
    return tree.map(lambda x: reduction(x, axis=0), values)


@spelled
def micro_grad(
    fun: Function,
    has_aux: bool = False,
    argnums: int | Sequence[int] = 0,
    *,
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    microbatch_size: int | None = None,
    accumulator: Any = AccumulationType.SUM,
    transform_fn: Callable[[Any], Any] = lambda x: x,
    metrics_fn: Callable[[Any], Any] = lambda x: None,
    num_real_microbatches: Any = None,
) -> Callable[..., tuple[Any, IndividualOutputs]]:
    """Makes a function of gradients of single rows, which are transformed and then added up: for example clipped ones, or their
    moments.

    Args:
        fun: a loss of parameters and a batch.
        has_aux: whether `fun` returns (loss, aux).
        argnums: places of the arguments to differentiate.
        batch_argnums: places of the arguments with a batch axis, their first.
        keep_batch_dim: `fun` gets batches of one row; False: rows.
        microbatch_size: rows whose gradients are there at once; None: all.
        accumulator: how the transformed gradients become one, as of `micro_vmap`.
        transform_fn: a function of the gradient of one row.
        metrics_fn: a function of the gradient of one row; its results are returned for each row.
        num_real_microbatches: parts from this number on are not run.

    Returns:
        A function that returns the accumulated gradients, and IndividualOutputs.

    Example:
        >>> def loss(p, x, y):
        ...     return 0.5 * nnp.mean((x @ p - y) ** 2)
        >>> micro = nnc.optim.microbatching
        >>> mean = micro.AccumulationType.MEAN
        >>> f = micro.micro_grad(loss, batch_argnums=(1, 2), accumulator=mean, transform_fn=lambda g: (g, g**2))
        >>> (first, second), outputs = f(nnp.zeros(1), nnp.ones((4, 1)), nnp.asarray([0.0, 2.0, 4.0, 6.0]))
        >>> first, second, outputs.values
        (Array([-3.], dtype=float32), Array([14.], dtype=float32), Array([ 0.,  2.,  8., 18.], dtype=float32))
    """
    batched = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    of_batch: Any = value_and_grad(fun, argnums, has_aux=has_aux)

    def of_row(*args: Any, **kwargs: Any) -> tuple[Any, IndividualOutputs]:
        if keep_batch_dim:
            args = tuple(tree.map(lambda x: x[None], x) if i in batched else x for i, x in enumerate(args))
        out, gradient = of_batch(*args, **kwargs)
        value, aux = out if has_aux else (out, None)
        return transform_fn(gradient), IndividualOutputs(value, metrics_fn(gradient), aux)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = [0 if i in batched else None for i in range(len(args))]
        inner = micro_vmap(
            of_row, axes, microbatch_size=microbatch_size, accumulator=(accumulator, AccumulationType.CONCAT),
            num_real_microbatches=num_real_microbatches,
        )  # fmt: skip
        return inner(*args, **kwargs)

    return mapped
