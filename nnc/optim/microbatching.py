"""Functions of large batches that run on one part of the batch after the other, in less memory; names of optax.microbatching."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import dtypes, tree
from nnc.array import Array, asarray
from nnc.commands.promote import astype
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.spelling import spelled
from nnc.trace.core.differentiate import value_and_grad
from nnc.trace.core.specs import eval_shape
from nnc.trace.core.vectorize import vmap
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import scan

__all__ = ["AccumulationType", "IndividualOutputs", "micro_grad", "micro_vmap", "microbatch"]

Function = Callable[..., Any]


class AccumulationType(enum.Enum):
    """The ways to make one result of the results of the parts.

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


class IndividualOutputs(NamedTuple):
    """Results for each row of a batch.

    Attributes:
        values: of the function.
        metrics: of the gradients, by `metrics_fn`.
        aux: of the function, None without `has_aux`.

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
        accumulator: an AccumulationType, or a tree of them that begins as the results of `fun` do.
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
    if microbatch_size < 1:
        raise user_error(
            ArgumentError,
            "microbatch",
            f"microbatch_size is {microbatch_size!r}; it must be at least 1.",
            fix="write 32, or None.",
        )
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
    """The length that all batch axes have, which is checked."""
    lengths = {asarray(x).shape[axis] for value, axis in batched for x in tree.leaves(value)}
    if len(lengths) != 1:
        raise user_error(
            ShapeError, "microbatch", f"the batch axes have lengths {sorted(lengths)}, which must be one.",
            fix="name the arguments that have a batch axis in argnums and argnames, and the axes in in_axes.",
        )  # fmt: skip
    (rows,) = lengths
    if rows % size or not rows:
        raise user_error(
            ShapeError,
            "microbatch",
            f"microbatch_size {size} does not divide the {rows} rows.",
            fix="pad the batch.",
        )
    return rows


def _part(value: Any, axis: int, i: Any, parts: int) -> Any:
    """The rows i, i + parts … of each leaf along its batch axis."""

    def rows(x: Any) -> Array:
        x = asarray(x)
        at = axis % x.ndim
        split = nnp.reshape(x, (*x.shape[:at], -1, parts, *x.shape[at + 1 :]))
        return nnp.take(split, i, axis=at + 1)

    return tree.map(rows, value)


def _accumulate(part: Function, parts: int, accumulator: Any, real: Any) -> Any:
    """The results of all parts as one."""
    specs = eval_shape(part, nnp.asarray(0, dtypes.int64))
    leaves, kinds = tree.leaves(specs), tree.broadcast_prefix(accumulator, specs)
    structure = tree.structure(specs)
    for spec, kind in zip(leaves, kinds, strict=True):
        if kind in _MEANS and not dtypes.is_inexact(spec.dtype):
            raise user_error(
                DTypeError, "microbatch", f"the mean of a result of {spec.dtype} is no {spec.dtype}.",
                fix="let the function return floats, or add results up: AccumulationType.SUM.",
            )  # fmt: skip

    def zeros() -> list[Array]:
        return [nnp.zeros(spec.shape, spec.dtype) for spec in leaves]

    def run(totals: list[Any], i: Any) -> Any:
        def values() -> list[Array]:
            return [asarray(x) for x in tree.leaves(part(i))]

        found = values() if real is None else cond(i < real, values, zeros)
        pairs = list(zip(totals, found, kinds, strict=True))
        sums = [None if kind is AccumulationType.CONCAT else total + x for total, x, kind in pairs]
        return sums, [x if kind is AccumulationType.CONCAT else None for _, x, kind in pairs]

    start = [None if kind is AccumulationType.CONCAT else x for x, kind in zip(zeros(), kinds, strict=True)]
    totals, rows = scan(run, start, nnp.arange(parts))
    ran = parts if real is None else nnp.clip(real, 1, parts)

    def finish(total: Any, stacked: Any, kind: AccumulationType) -> Array:
        if kind is AccumulationType.CONCAT:
            return nnp.reshape(nnp.moveaxis(stacked, 0, 1), (-1, *stacked.shape[2:]))
        if kind is AccumulationType.SUM:
            return total
        return total / (parts if kind is AccumulationType.MEAN else astype(asarray(ran), total.dtype))

    return tree.unflatten(structure, [finish(*each) for each in zip(totals, rows, kinds, strict=True)])


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
        fun: of single rows.
        in_axes: the batch axis of each argument, None where it has none; keyword arguments have theirs first.
        out_axes: 0.
        microbatch_size: rows in a part; None: all at once.
        vmap_fn: maps each part, as `nnc.vmap` does.
        accumulator: an AccumulationType, or a tree of them that begins as the results of `fun` do.
        num_real_microbatches: parts from this number on are not run.

    Raises:
        ArgumentError: out_axes is not 0.

    Example:
        >>> nnc.optim.microbatching.micro_vmap(lambda x: x**2, microbatch_size=2)(nnp.arange(4))
        Array([0, 1, 4, 9], dtype=int64)
    """
    if out_axes != 0:
        raise user_error(
            ArgumentError, "micro_vmap", f"out_axes is {out_axes!r}; it must be 0.", fix="move axes of the result."
        )

    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = (in_axes,) * len(args) if isinstance(in_axes, int) else tuple(in_axes)

        def of_part(*args: Any, kwargs: Any) -> Any:
            out = vmap_fn(lambda args, kwargs: fun(*args, **kwargs), (axes, 0), 0)(args, kwargs)
            kinds = tree.broadcast_prefix(accumulator, out)
            found = [_reduce(x, kind) for x, kind in zip(tree.leaves(out), kinds, strict=True)]
            return tree.unflatten(tree.structure(out), found)

        places = [i for i, axis in enumerate(axes) if axis is not None]
        of_axes = [axis for axis in axes if axis is not None] + [0]
        inner = microbatch(
            of_part, places, microbatch_size, accumulator, argnames="kwargs", in_axes=of_axes,
            num_real_microbatches=num_real_microbatches,
        )  # fmt: skip
        return inner(*args, kwargs=kwargs)

    return mapped


def _reduce(x: Array, kind: AccumulationType) -> Array:
    """The results of the rows of a part as one."""
    if kind is AccumulationType.CONCAT:
        return x
    return nnp.sum(x, axis=0) if kind is AccumulationType.SUM else nnp.mean(x, axis=0)


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
    """Makes a function of gradients of single rows, which are transformed and then added up: clipped ones, say, or their moments.

    Args:
        fun: a loss of parameters and a batch.
        has_aux: whether `fun` returns (loss, aux).
        argnums: places of the arguments to differentiate.
        batch_argnums: places of the arguments with a batch axis, their first.
        keep_batch_dim: `fun` gets batches of one row; False: rows.
        microbatch_size: rows whose gradients are there at once; None: all.
        accumulator: how the transformed gradients become one, an AccumulationType or a tree of them.
        transform_fn: of the gradient of one row.
        metrics_fn: of the gradient of one row; its results are returned for each row.
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
