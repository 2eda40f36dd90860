"""Rules of `simplify` on moves of elements: views, joins, padding, reductions of nothing, products of moved operands.

Two moves become one, a move that changes nothing goes, and a product takes its operands as they lie in memory.
"""

# ruff: noqa: D103  (a rule is an equation, which says more than words)

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from nnc.commands import reduce as rd
from nnc.commands.contract import dot
from nnc.commands.shape import broadcast_axes, broadcast_to, concatenate, flip, pad, reshape, slice_, transpose
from nnc.graph import Command, RewriteRule, Sample, TensorSpec, rewrite_rule, sample
from nnc.graph.rules import Value
from nnc.lower.passes.simplify.algebra import REALS, spec

Axes = tuple[int, ...]
AxesPair = tuple[Axes, Axes]
MATRIX, CUBE = spec((2, 3), "float32"), spec((2, 3, 4), "float32")

# -- moving elements ---------------------------------------------------------------------------------------------------


@rewrite_rule(root=reshape, samples=[sample(MATRIX, shape=(2, 3))], when=lambda x, shape: x.shape == shape)
def reshape_to_itself(x: Value, *, shape: Axes) -> Any:
    return reshape(x, shape=shape), x


@rewrite_rule(
    root=reshape, samples=[sample(MATRIX, first=(6,), second=(3, 2)), sample(MATRIX, first=(6,), second=(2, 3))]
)
def reshape_twice(x: Value, *, first: Axes, second: Axes) -> Any:
    return reshape(reshape(x, shape=first), shape=second), x if x.shape == second else reshape(x, shape=second)


@rewrite_rule(
    root=transpose, samples=[sample(CUBE, permutation=(0, 1, 2))], when=lambda x, permutation: _is_identity(permutation)
)
def transpose_nothing(x: Value, *, permutation: Axes) -> Any:
    return transpose(x, permutation=permutation), x


def _is_identity(permutation: Axes) -> bool:
    return tuple(permutation) == tuple(range(len(permutation)))


@rewrite_rule(root=transpose, samples=[sample(CUBE, p=(1, 2, 0), q=(2, 0, 1)), sample(CUBE, p=(1, 2, 0), q=(0, 2, 1))])
def transpose_twice(x: Value, *, p: Axes, q: Axes) -> Any:
    both = tuple(p[axis] for axis in q)
    left = transpose(transpose(x, permutation=p), permutation=q)
    return left, x if _is_identity(both) else transpose(x, permutation=both)


def _moves_only_ones(x: TensorSpec, permutation: Axes) -> bool:
    moved = [axis for axis in permutation if x.shape[axis] != 1]
    return moved == sorted(moved)


@rewrite_rule(
    root=transpose,
    samples=[sample(spec((1, 3, 1, 2), "float32"), permutation=(1, 0, 3, 2))],
    when=lambda x, permutation: _moves_only_ones(x, permutation),
)
def transpose_ones(x: Value, *, permutation: Axes) -> Any:
    moved = tuple(x.shape[axis] for axis in permutation)
    return transpose(x, permutation=permutation), x if moved == x.shape else reshape(x, shape=moved)


def _spread(x: Value, shape: Axes, axes: Axes | None) -> Value:
    return broadcast_to(x, shape=shape) if axes is None else broadcast_to(x, shape=shape, axes=axes)


@rewrite_rule(
    root=broadcast_to,
    samples=[sample(MATRIX, shape=(2, 3)), sample(MATRIX, shape=(2, 3), axes=(0, 1))],
    when=lambda x, shape, axes=None: x.shape == shape,
)
def broadcast_to_itself(x: Value, *, shape: Axes, axes: Axes | None = None) -> Any:
    return _spread(x, shape, axes), x


@rewrite_rule(
    root=broadcast_to,
    samples=[sample(spec((2, 1), "float32"), shape=(2, 3), axes=(0, 1))],
    when=lambda x, shape, axes: axes == tuple(range(len(shape))),
)
def broadcast_along_all_axes(x: Value, *, shape: Axes, axes: Axes) -> Any:
    return broadcast_to(x, shape=shape, axes=axes), broadcast_to(x, shape=shape)


@rewrite_rule(
    root=broadcast_to,
    samples=[
        sample(spec((3,), "float32"), first=(1, 3), second=(4, 2, 3)),
        sample(spec((3,), "float32"), first=(3, 2), second=(4, 3, 2), inner=(0,)),
        sample(spec((3,), "float32"), first=(2, 3), second=(2, 4, 3), outer=(0, 2)),
        sample(spec((3,), "float32"), first=(3, 2), second=(3, 4, 2), inner=(0,), outer=(0, 2)),
    ],
)
def broadcast_twice(
    x: Value, *, first: Axes, second: Axes, inner: Axes | None = None, outer: Axes | None = None
) -> Any:
    """The axes of the first are found among the axes of the second."""
    a, b = broadcast_axes(len(x.shape), first, inner), broadcast_axes(len(first), second, outer)
    left = _spread(_spread(x, first, inner), second, outer)
    return left, broadcast_to(x, shape=second, axes=tuple(b[axis] for axis in a))


def _inserted(x: TensorSpec, middle: Axes) -> Axes | None:
    """Returns the places of the axes of x in `middle`, if that differs by axes of size 1 only; None where one of size 1 leaves."""
    axes, at = [], 0
    for n in x.shape:
        while at < len(middle) and middle[at] != n and middle[at] == 1:
            at += 1
        if at == len(middle) or middle[at] != n:
            return None
        axes.append(at)
        at += 1
    return tuple(axes) if all(n == 1 for n in middle[at:]) else None


@rewrite_rule(
    root=broadcast_to,
    samples=[sample(spec((2, 4), "float32"), middle=(2, 1, 4), shape=(2, 3, 4))],
    when=lambda x, middle, shape: _inserted(x, middle) is not None,
)
def broadcast_inserted_axes(x: Value, *, middle: Axes, shape: Axes) -> Any:
    where = broadcast_axes(len(middle), shape, None)
    left = broadcast_to(reshape(x, shape=middle), shape=shape)
    return left, broadcast_to(x, shape=shape, axes=tuple(where[axis] for axis in _inserted(x, middle) or ()))


@rewrite_rule(
    root=slice_,
    samples=[sample(CUBE, start=(0, 0, 0), limit=(2, 3, 4), stride=(1, 1, 1))],
    when=lambda x, start, limit, stride: limit == x.shape and not any(start) and all(s == 1 for s in stride),
)
def slice_everything(x: Value, *, start: Axes, limit: Axes, stride: Axes) -> Any:
    return slice_(x, start=start, limit=limit, stride=stride), x


@rewrite_rule(
    root=slice_,
    samples=[sample(spec((18,), "float32"), a=(1,), b=(17,), s=(2,), c=(3,), d=(8,), t=(4,))],
)
def slice_twice(x: Value, *, a: Axes, b: Axes, s: Axes, c: Axes, d: Axes, t: Axes) -> Any:
    left = slice_(slice_(x, start=a, limit=b, stride=s), start=c, limit=d, stride=t)
    start = tuple(i + j * k for i, j, k in zip(a, c, s, strict=True))
    limit = tuple(min(m, i + j * k) for m, i, j, k in zip(b, a, d, s, strict=True))
    stride = tuple(i * j for i, j in zip(s, t, strict=True))
    return left, slice_(x, start=tuple(map(min, start, limit)), limit=limit, stride=stride)


@rewrite_rule(
    root=flip, samples=[sample(MATRIX, axes=())], when=lambda x, axes: all(x.shape[axis] == 1 for axis in axes)
)
def flip_nothing(x: Value, *, axes: Axes) -> Any:
    return flip(x, axes=axes), x


@rewrite_rule(root=flip, samples=[sample(MATRIX, axes=(1,))])
def flip_twice(x: Value, *, axes: Axes) -> Any:
    return flip(flip(x, axes=axes), axes=axes), x


@rewrite_rule(root=concatenate, samples=[sample(MATRIX, axis=1)])
def join_nothing(x: Value, *, axis: int) -> Any:
    return concatenate(x, axis=axis), x


@rewrite_rule(
    root=pad,
    samples=[sample(MATRIX, spec((), "float32"), low=(0, 0), high=(0, 0), interior=(0, 0))],
    when=lambda x, value, low, high, interior: _pads_nothing(x, low, high, interior),
)
def pad_nothing(x: Value, value: Value, *, low: Axes, high: Axes, interior: Axes) -> Any:
    return pad(x, value, low=low, high=high, interior=interior), x


def _pads_nothing(x: TensorSpec, low: Axes, high: Axes, interior: Axes) -> bool:
    return not any((*low, *high)) and all(gap == 0 or n < 2 for gap, n in zip(interior, x.shape, strict=True))


# -- reductions and products -------------------------------------------------------------------------------------------


def _reduction_of_ones(command: Command, names: Iterable[str]) -> RewriteRule:
    """Replaces a reduction of single elements by its operand. Sums are not among them: the sum of a single -0.0 is 0.0."""

    def rule(x: Value, *, axes: Axes) -> Any:
        out = command(x, axes=axes)
        return out, reshape(x, shape=out.shape) if axes else x

    rule.__name__ = f"{command.name}_of_one_element"
    variables = [spec((2, 1, 3, 1), name) for name in names]
    cases = enumerate(product(variables, ((1, 3), ())))
    samples = [Sample((x,), {"axes": axes}, form=i == 0) for i, (x, axes) in cases]
    return rewrite_rule(root=command, samples=samples, when=lambda x, axes: all(x.shape[axis] == 1 for axis in axes))(
        rule
    )


REDUCTIONS_OF_ONES = (
    *(_reduction_of_ones(command, REALS) for command in (rd.reduce_prod, rd.reduce_max, rd.reduce_min)),
    *(_reduction_of_ones(command, ("bool", "int32")) for command in (rd.reduce_and, rd.reduce_or)),
)


def _free_stay(x: TensorSpec, permutation: Axes, used: Axes) -> bool:
    """Whether the axes of a transposed operand that a product leaves free have the order that they have in x."""
    free = [permutation[axis] for axis in range(x.ndim) if axis not in used]
    return free == sorted(free)


def _moved(axes: Axes, permutation: Axes) -> Axes:
    return tuple(permutation[axis] for axis in axes)


@rewrite_rule(
    root=dot,
    samples=[
        sample(MATRIX, spec((4, 2), "float32"), p=(1, 0), contract=((1,), (1,))),
        sample(CUBE, CUBE, p=(0, 2, 1), contract=((1,), (2,)), batch=((0,), (0,))),
    ],
    when=lambda x, y, p, contract, batch=((), ()): _free_stay(x, p, (*contract[0], *batch[0])),
)
def product_of_transpose(x: Value, y: Value, *, p: Axes, contract: AxesPair, **batch: AxesPair) -> Any:
    left = dot(transpose(x, permutation=p), y, contract=contract, **batch)
    moved = {name: (_moved(axes[0], p), axes[1]) for name, axes in batch.items()}
    return left, dot(x, y, contract=(_moved(contract[0], p), contract[1]), **moved)


@rewrite_rule(
    root=dot,
    samples=[
        sample(spec((4, 2), "float32"), MATRIX, p=(1, 0), contract=((1,), (1,))),
        sample(CUBE, CUBE, p=(0, 2, 1), contract=((2,), (1,)), batch=((0,), (0,))),
    ],
    when=lambda x, y, p, contract, batch=((), ()): _free_stay(y, p, (*contract[1], *batch[1])),
)
def product_with_transpose(x: Value, y: Value, *, p: Axes, contract: AxesPair, **batch: AxesPair) -> Any:
    left = dot(x, transpose(y, permutation=p), contract=contract, **batch)
    moved = {name: (axes[0], _moved(axes[1], p)) for name, axes in batch.items()}
    return left, dot(x, y, contract=(contract[0], _moved(contract[1], p)), **moved)


def _changes_places(x: TensorSpec, y: TensorSpec, contract: AxesPair, batch: AxesPair, p: Axes) -> bool:
    """Whether a permutation of a product's axes puts the free axes of `y` before the free axes of `x`, and does nothing else."""
    shared = len(batch[0])
    first, last = (range(shared, operand.ndim - len(contract[0])) for operand in (x, y))
    of_y = [len(first) + axis for axis in last]
    return tuple(p) == (*range(shared), *of_y, *first)


@rewrite_rule(
    root=transpose,
    samples=[
        sample(MATRIX, spec((3, 4), "float32"), contract=((1,), (0,)), batch=((), ()), p=(1, 0)),
        sample(CUBE, spec((2, 3, 5), "float32"), contract=((0, 1), (0, 1)), batch=((), ()), p=(1, 0)),
        sample(spec((4, 3, 2, 5), "float32"), CUBE, contract=((1,), (1,)), batch=((2,), (0,)), p=(0, 3, 1, 2)),
    ],
    when=_changes_places,
    sole=True,
)
def transpose_of_product(x: Value, y: Value, *, contract: AxesPair, batch: AxesPair, p: Axes) -> Any:
    """Each element is the same sum; the operands just change places."""
    left = transpose(dot(x, y, contract=contract, batch=batch), permutation=p)
    return left, dot(y, x, contract=(contract[1], contract[0]), batch=(batch[1], batch[0]))


MOVES: tuple[RewriteRule, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, RewriteRule)),
    *REDUCTIONS_OF_ONES,
)
