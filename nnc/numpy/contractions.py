"""Sums of products: dot, tensordot, einsum and their kin, all by the one command `dot` (see nnc.commands.contract)."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array
from nnc.array.matmul import matmul
from nnc.array.promote import apply, promote
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import contract as commands
from nnc.commands.elementwise import conj, mul
from nnc.commands.reduce import reduce_or, reduce_sum
from nnc.commands.rules import check_axes
from nnc.commands.shape import broadcast_to, reshape, slice_, transpose
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.typing import ArrayLike

__all__ = [
    "dot", "einsum", "einsum_path", "inner", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot", "vecmat",
]  # fmt: skip

Label = Hashable
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@specialised(2)
def dot(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the dot product: of vectors, of matrices, by a number, or over the last axis of `a` and the last but one of `b`.

    Args:
        a: any shape.
        b: any shape; its only axis is summed where it is 1-d.

    Returns:
        the axes of `a` and then the axes of `b`, without the summed ones.

    Raises:
        ShapeError: the summed axes differ in size.

    Example:
        >>> dot(np.ones((2, 3), np.float32), np.ones((5, 3, 4), np.float32)).shape
        (2, 5, 4)
    """
    a, b = promote(a, b, where="dot")
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return apply(mul, a, b, where="dot")
    if np.ndim(b) <= 2:
        return _contract("dot", a, b, (np.ndim(a) - 1,), (0,))
    return _contract("dot", a, b, (np.ndim(a) - 1,), (np.ndim(b) - 2,))


@specialised(2)
def inner(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the sum of products over the last axes: out[i, j] = sum over k of a[i, k] · b[j, k].

    Args:
        a: (..., k), or a number.
        b: (..., k), or a number.

    Example:
        >>> inner(np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)).shape
        (2, 4)
    """
    a, b = promote(a, b, where="inner")
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return apply(mul, a, b, where="inner")
    return _contract("inner", a, b, (np.ndim(a) - 1,), (np.ndim(b) - 1,))


@specialised(2)
def outer(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns all products of an element of `a` with one of `b`, both flattened: out[i, j] = a[i] · b[j].

    Args:
        a: any shape, flattened.
        b: any shape, flattened.

    Example:
        >>> outer(np.ones(2, np.float32), np.ones(3, np.float32)).shape
        (2, 3)
    """
    a, b = promote(a, b, where="outer")
    m, n = spec_of(a).size, spec_of(b).size
    return mul(
        broadcast_to(reshape(a, shape=(m,)), shape=(m, n), axes=(0,)),
        broadcast_to(reshape(b, shape=(n,)), shape=(m, n), axes=(1,)),
    )


@spelled
def vdot(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the sum of conj(a) · b over all elements, both flattened.

    Args:
        a: any shape; complex elements are conjugated.
        b: an array with as many elements as `a`.

    Raises:
        ShapeError: the numbers of elements differ.

    Example:
        >>> nnp.vdot(nnp.asarray([1j, 2.0]), nnp.asarray([1j, 1.0]))
        Array(3.+0.j, dtype=complex64)
    """
    a, b = promote(a, b, where="vdot")
    a = conj(a) if dtypes.is_complex(spec_of(a).dtype) else a
    left, right = (reshape(x, shape=(spec_of(x).size,)) for x in (a, b))
    return _contract("vdot", left, right, (0,), (0,))


@spelled
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Returns the sum of conj(x1) · x2 over `axis`; the other axes broadcast.

    Args:
        x1: (..., k) with k at `axis`; complex elements are conjugated.
        x2: (..., k) with k at `axis`.
        axis: axis of both that is summed.

    Raises:
        ShapeError: the axis differs in size, or the others do not broadcast.

    Example:
        >>> vecdot(np.ones((5, 3), np.float32), np.ones(3, np.float32)).shape
        (5,)
    """
    a, b = promote(x1, x2, where="vecdot")
    a = conj(a) if dtypes.is_complex(spec_of(a).dtype) else a
    moved = []
    for x in (a, b):
        at = check_axes("vecdot", (axis,), np.ndim(x))[0]
        rest = [i for i in range(np.ndim(x)) if i != at]
        moved.append(transpose(x, permutation=(*rest, at)) if at != np.ndim(x) - 1 else x)
    m, n = (spec_of(x).shape[-1] for x in moved)
    if m != n:
        problem = f"summed sizes differ: left axis {axis} is {m}, right axis {axis} is {n}."
        fix = "pass vectors of one length."
        raise user_error(ShapeError, "vecdot", problem, operands={"left": spec_of(a), "right": spec_of(b)}, fix=fix)
    return einsum("...i,...i->...", *moved)


@spelled
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the products of matrices, in the last two axes of `x1`, with vectors in the last axis of `x2`.

    Args:
        x1: (..., m, k).
        x2: (..., k).

    Returns:
        (..., m).

    Example:
        >>> matvec(np.ones((5, 2, 3)), np.ones(3)).shape
        (5, 2)
    """
    return einsum("...mn,...n->...m", x1, x2)


@spelled
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the products of vectors, conjugated, in the last axis of `x1` with matrices in the last two axes of `x2`.

    Args:
        x1: (..., k); complex elements are conjugated.
        x2: (..., k, n).

    Returns:
        (..., n).

    Example:
        >>> vecmat(np.ones(2), np.ones((5, 2, 3))).shape
        (5, 3)
    """
    a, b = promote(x1, x2, where="vecmat")
    return einsum("...n,...nm->...m", conj(a) if dtypes.is_complex(spec_of(a).dtype) else a, b)


@specialised(2)
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int | Sequence[int]] = 2) -> Array:
    """Returns the sum of products over pairs of axes.

    Args:
        a: any shape.
        b: any shape.
        axes: a number n (the last n axes of `a` with the first n of `b`), or a pair of axes or of sequences of axes,
            (of `a`, of `b`).

    Returns:
        the other axes of `a`, then the other axes of `b`.

    Raises:
        ShapeError: paired axes differ in size or do not exist.
        ArgumentError: `axes` names unequal numbers of axes.

    Example:
        >>> tensordot(np.ones((2, 3, 4), np.float32), np.ones((4, 3, 5), np.float32), axes=((1, 2), (1, 0))).shape
        (2, 5)
    """
    a, b = promote(a, b, where="tensordot")
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(np.ndim(a), np.ndim(b)):
            problem = f"axes={axes} is more than the operands have, or negative."
            fix = "sum over at most as many axes as either operand has."
            raise user_error(ArgumentError, "tensordot", problem, operands={"a": spec_of(a), "b": spec_of(b)}, fix=fix)
        left, right = range(np.ndim(a) - int(axes), np.ndim(a)), range(int(axes))
        return _contract("tensordot", a, b, tuple(left), tuple(right))
    of_a, of_b = (tuple(side) if isinstance(side, Sequence) else (operator.index(side),) for side in axes)
    return _contract("tensordot", a, b, of_a, of_b)


def _contract(where: str, a: Array, b: Array, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> Array:
    left, right = spec_of(a), spec_of(b)
    operands = {"left": left, "right": right}
    if len(of_a) != len(of_b):
        problem = f"{len(of_a)} axes of the left operand are paired with {len(of_b)} of the right one."
        raise user_error(ArgumentError, where, problem, operands=operands, fix="name as many axes of either operand.")
    of_a, of_b = check_axes(where, of_a, left.ndim), check_axes(where, of_b, right.ndim)
    for i, j in zip(of_a, of_b, strict=True):
        if left.shape[i] != right.shape[j]:
            problem = f"contracting sizes differ: left axis {i} is {left.shape[i]}, right axis {j} is {right.shape[j]}."
            fix = "pair axes of equal size; transpose an operand with `.T` where its axes are swapped."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return commands.dot(a, b, contract=(of_a, of_b), batch=((), ()))


# -- einsum ------------------------------------------------------------------------------------------------------------


@specialised(0)
def einsum(subscripts: Any, /, *operands: ArrayLike, optimize: bool | str = True) -> Array:
    """Returns the sum of products that Einstein's notation describes: a letter for each axis, equal ones multiply together.

    Letters that the output lacks are summed; without `->` the output has the letters that occur once, in alphabetical order.
    `...` stands for any axes, which broadcast. A letter twice in one operand takes the diagonal. More than two operands are
    contracted in pairs, in the order that numpy.einsum_path finds.

    Args:
        subscripts: such as "bij,bjk->bik"; or `einsum(x, [0, 1], y, [1, 2], [0, 2])`, a list of numbers for each
            operand and last, if wanted, for the output.
        *operands: an array for each term of the subscripts, with an axis for each of its letters.
        optimize: how the order is chosen: True, "greedy" or "optimal"; False contracts from left to right.

    Raises:
        ArgumentError: the subscripts are malformed or do not match the operands.
        ShapeError: a letter's sizes differ.

    Example:
        >>> einsum("ij,jk->ki", np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)).shape
        (4, 2)
    """
    if isinstance(subscripts, str):
        inputs, output = _parse(subscripts, len(operands))
    else:
        interleaved = (subscripts, *operands)
        pairs = len(interleaved) // 2
        operands = interleaved[0 : 2 * pairs : 2]
        inputs = [_from_list(labels) for labels in interleaved[1 : 2 * pairs : 2]]
        output = _from_list(interleaved[-1]) if len(interleaved) % 2 else None
        subscripts = "einsum with lists"
    values = promote(*operands, where="einsum")
    labels, result = _expand(subscripts, inputs, output, [np.ndim(x) for x in values])
    sizes = _sizes(subscripts, values, labels)
    terms = [_Term(x, names).normal(sizes) for x, names in zip(values, labels, strict=True)]
    for pair in _path(terms, result, sizes, optimize):
        rest = [term for i, term in enumerate(terms) if i not in pair]
        done = terms[pair[0]].only(_needed(result, [*rest, *(terms[i] for i in pair[1:])]))
        for step, i in enumerate(pair[1:], start=2):
            needed = _needed(result, [*rest, *(terms[j] for j in pair[step:])])
            done = _multiply(done, terms[i].only(needed | set(done.labels)), needed)
        terms = [*rest, done]
    final = terms[0].only(set(result))
    return _permute(final.value, tuple(final.labels.index(label) for label in result))


def _bad(subscripts: str, problem: str, fix: str) -> ArgumentError:
    return user_error(ArgumentError, "einsum", f"{subscripts!r}: {problem}", fix=fix)


def _parse(subscripts: str, count: int) -> tuple[list[list[Label]], list[Label] | None]:
    """Returns the labels of each operand and of the output; Ellipsis stands for itself."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != count:
        raise _bad(
            subscripts,
            f"it describes {len(parts)} operands, {count} were given.",
            "separate one group per operand by commas.",
        )
    return [_letters(part, subscripts) for part in parts], _letters(right, subscripts) if arrow else None


def _letters(part: str, subscripts: str) -> list[Label]:
    head, dots, tail = part.partition("...")
    for letter in head + tail:
        if not letter.isalpha():
            raise _bad(subscripts, f"{letter!r} is no letter.", "use letters, commas, '...' and one '->'.")
    return [*head, ..., *tail] if dots else [*head]


def _from_list(labels: Any) -> list[Label]:
    if not isinstance(labels, (list, tuple)):
        problem = f"labels are given as {labels!r} ({type(labels).__name__}), not as a list."
        fix = "pass a string of subscripts first, or a list of numbers after each operand."
        raise user_error(ArgumentTypeError, "einsum", problem, fix=fix)
    return [label if label is Ellipsis else operator.index(label) for label in labels]


def _expand(
    subscripts: str, inputs: list[list[Label]], output: list[Label] | None, ndims: list[int]
) -> tuple[list[list[Label]], list[Label]]:
    """Replaces each Ellipsis by labels of its own, counted from the right, and completes the output."""
    expanded, longest = [], 0
    for i, (labels, ndim) in enumerate(zip(inputs, ndims, strict=True)):
        covered = ndim - sum(label is not ... for label in labels)
        if covered < 0 or (covered and ... not in labels):
            raise _bad(
                subscripts, f"operand {i} has {ndim} axes, its labels name {ndim - covered}.",
                "give a label for each axis, or '...' for the rest.",
            )  # fmt: skip
        longest = max(longest, covered)
        expanded.append(_replace_dots(labels, covered))
    named = [label for labels in inputs for label in labels if label is not ...]
    if output is None:
        once = sorted(
            {label for label in named if named.count(label) == 1}, key=lambda label: (str(type(label)), label)
        )
        output = [..., *once]
    elif longest and ... not in output:
        raise _bad(
            subscripts, "the output has no '...'.", "write '...' in the output, too, or name the axes to sum them."
        )
    result = _replace_dots(output, longest)
    for label in output:
        if output.count(label) > 1 or (label is not ... and label not in named):
            raise _bad(
                subscripts, f"output label {label!r} stands there twice or in no operand.",
                "name each output axis once, with a label of an operand.",
            )  # fmt: skip
    return expanded, result


def _replace_dots(labels: list[Label], covered: int) -> list[Label]:
    if ... not in labels:
        return labels
    at = labels.index(...)
    return [*labels[:at], *(("...", k) for k in reversed(range(covered))), *labels[at + 1 :]]


def _sizes(subscripts: str, values: list[Array], labels: list[list[Label]]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    for i, (x, names) in enumerate(zip(values, labels, strict=True)):
        for label, n in zip(names, spec_of(x).shape, strict=True):
            known = sizes.get(label, 1)
            if n != known and 1 not in (n, known):
                shown = "'...'" if isinstance(label, tuple) else repr(label)
                problem = f"{subscripts!r}: label {shown} has size {known} and, in operand {i}, size {n}."
                operands = {f"operand {j}": spec_of(v) for j, v in enumerate(values)}
                fix = "give axes that share a label one size (or size 1, which broadcasts)."
                raise user_error(ShapeError, "einsum", problem, operands=operands, fix=fix)
            sizes[label] = n if known == 1 else known
    return sizes


class _Term(NamedTuple):
    """An operand and the label of each axis."""

    value: Array
    labels: list[Label]

    def normal(self, sizes: dict[Label, int]) -> _Term:
        """Without axes that broadcast and without repeated labels."""
        x, labels = self
        shape = spec_of(x).shape
        kept = [i for i, label in enumerate(labels) if shape[i] == sizes[label]]
        if len(kept) < len(labels):
            x, labels = reshape(x, shape=tuple(shape[i] for i in kept)), [labels[i] for i in kept]
        for label in dict.fromkeys(labels):
            while labels.count(label) > 1:
                first = labels.index(label)
                second = labels.index(label, first + 1)
                rest = [i for i in range(len(labels)) if i not in (first, second)]
                x, labels = _diagonal(_permute(x, (*rest, first, second))), [*(labels[i] for i in rest), label]
        return _Term(x, labels)

    def only(self, needed: set[Label]) -> _Term:
        """Summed over the axes that nothing else needs."""
        axes = tuple(i for i, label in enumerate(self.labels) if label not in needed)
        if not axes:
            return self
        add = reduce_or if dtypes.is_bool(spec_of(self.value).dtype) else reduce_sum
        return _Term(add(self.value, axes=axes), [label for label in self.labels if label in needed])


def _needed(result: list[Label], others: list[_Term]) -> set[Label]:
    return {*result, *(label for term in others for label in term.labels)}


def _diagonal(x: Array) -> Array:
    """(*rest, n, n) -> (*rest, n), as a view: every (n + 1)-th of the flattened matrix."""
    *rest, n, _ = spec_of(x).shape
    flat = reshape(x, shape=(*rest, n * n))
    return slice_(flat, start=(0,) * (len(rest) + 1), limit=(*rest, n * n), stride=(*(1 for _ in rest), n + 1))


def _permute(x: Array, permutation: tuple[int, ...]) -> Array:
    if permutation == tuple(range(len(permutation))):
        return x if hasattr(x, "spec") else reshape(x, shape=np.shape(x))
    return transpose(x, permutation=permutation)


def _multiply(x: _Term, y: _Term, needed: set[Label]) -> _Term:
    """One pair: shared labels that nothing else needs are contracted, the other shared ones are batch axes."""
    shared = [label for label in x.labels if label in y.labels]
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    left = [label for label in x.labels if label not in shared]
    right = [label for label in y.labels if label not in shared]
    labels = [*batch, *left, *right]
    if not summed:  # a product without a sum is no matrix product
        return _Term(mul(_spread(x, y, labels), _spread(y, x, labels)), labels)
    value = commands.dot(
        x.value,
        y.value,
        contract=(tuple(map(x.labels.index, summed)), tuple(map(y.labels.index, summed))),
        batch=(tuple(map(x.labels.index, batch)), tuple(map(y.labels.index, batch))),
    )
    return _Term(value, labels)


def _spread(x: _Term, other: _Term, labels: list[Label]) -> Array:
    """`x` with the axes `labels`, broadcast along the ones that only `other` has."""
    size = dict(zip(x.labels, spec_of(x.value).shape, strict=True))
    size_of_other = dict(zip(other.labels, spec_of(other.value).shape, strict=True))
    own = [label for label in labels if label in size]
    ordered = _permute(x.value, tuple(map(x.labels.index, own)))
    if len(own) == len(labels):
        return ordered
    shape = tuple(size[label] if label in size else size_of_other[label] for label in labels)
    return broadcast_to(ordered, shape=shape, axes=tuple(map(labels.index, own)))


def _path(
    terms: list[_Term], result: list[Label], sizes: dict[Label, int], optimize: bool | str
) -> list[tuple[int, ...]]:
    """Returns the pairs to contract, by their places among the terms that are left; the product goes to the end."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))]
    known = [label for label in sizes if label in result or any(label in term.labels for term in terms)]
    if not optimize or len(known) > len(LETTERS):
        return [(0, 1), *((len(terms) - step, 0) for step in range(2, len(terms)))]
    letter = dict(zip(known, LETTERS, strict=False))
    text = ",".join("".join(letter[label] for label in term.labels) for term in terms)
    text += "->" + "".join(letter[label] for label in result)
    shapes = [tuple(max(1, sizes[label]) for label in term.labels) for term in terms]
    stand_ins = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    kind = optimize if isinstance(optimize, str) else "greedy"
    unlimited = math.prod(max(1, n) for n in sizes.values())
    path = np.einsum_path(text, *stand_ins, optimize=(kind, unlimited))[0]
    return [tuple(step) for step in path[1:]]


@spelled
def einsum_path(subscripts: str, /, *operands: ArrayLike, optimize: Any = "greedy") -> tuple[list[Any], str]:
    """Returns the order in which `einsum` would contract the operands in pairs, and a description; see numpy.einsum_path.

    Args:
        subscripts: as for `einsum`.
        *operands: as for `einsum`; their shapes alone count.
        optimize: how the order is chosen, as for `einsum`.

    Example:
        >>> path, text = einsum_path("ij,jk,kl->il", nnp.ones((2, 3)), nnp.ones((3, 4)), nnp.ones((4, 5)))
        >>> path
        ['einsum_path', (1, 2), (0, 1)]
    """
    shapes = [spec_of(x).shape for x in promote(*operands, where="einsum_path")]
    path, text = np.einsum_path(subscripts, *(np.broadcast_to(np.float64(0), s) for s in shapes), optimize=optimize)
    return path, text
