"""Sequences packed one behind the other: the keys that each token of a segment may attend to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands.sort import searchsorted
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import known_or_none

_PADDING = 2**63 - 1  # the number of padding, which stands behind all segments


class Segments(NamedTuple):
    """The keys of each query.

    Attributes:
        ranges: (..., 1, T, 2), int32: the first key and the one behind the last.
        in_order: (..., 1, 1, 1), whether segments stand one behind the other. False only of numbers that are not known while a
            function is traced: known ones raise.
    """

    ranges: Array
    in_order: Array


def read_segments(
    where: str, segment_ids: Any, cumulative_lengths: Any, lead: tuple[int, ...], sizes: tuple[int, int], is_causal: bool,
    window: tuple[int, int] | None,
) -> Segments | None:  # fmt: skip
    """Returns the keys of each query, within its segment; None where neither of the two says the segments.

    Args:
        where: the name of the function, for errors.
        segment_ids: see `dot_product_attention`.
        cumulative_lengths: see `dot_product_attention`.
        lead: the axes of batches.
        sizes: the numbers of queries and of keys.
        is_causal: keys are not behind the query, counted from the beginnings of their segments.
        window: how far keys may stand before the query and behind it, counted likewise.
    """
    if segment_ids is None and cumulative_lengths is None:
        return None
    if segment_ids is not None and cumulative_lengths is not None:
        fix = "pass one of them."
        raise user_error(ArgumentError, where, "segment_ids and cumulative_lengths are both given.", fix=fix)
    given, read = (segment_ids, _read_ids) if segment_ids is not None else (cumulative_lengths, _read_lengths)
    pair = _pair(given)
    (query, is_right), (key, are_right) = (read(where, x, lead, n) for x, n in zip(pair, sizes, strict=True))
    begin, end = (searchsorted(key, query, side=side) for side in ("left", "right"))
    if is_causal or window is not None:
        first = searchsorted(query, query, side="left")
        at = begin + nnp.arange(sizes[0]) - first  # the key in the place of the query within its segment
        before, after = (None, 0) if window is None else window
        if before is not None:
            begin = nnp.maximum(begin, at - before)
        end = nnp.minimum(end, at + (1 if is_causal else after + 1))
    in_order = nnp.reshape(is_right & are_right, (*lead, 1, 1, 1))
    is_padding = (query == _PADDING)[..., None, :, None]
    ranges = nnp.where(is_padding, 0, nnp.stack([begin, end], axis=-1)[..., None, :, :])
    ranges = nnp.where(in_order, ranges, np.asarray([0, sizes[1]]))  # so that keys of NaN reach all
    return Segments(ranges.astype(dtypes.int32), in_order)


def _pair(given: Any) -> tuple[Array, Array]:
    """Returns the arrays of the queries and of the keys, which may be the same."""
    if isinstance(given, tuple) and len(given) == 2 and (query := nnp.asarray(given[0])).ndim:
        return query, nnp.asarray(given[1])
    both = nnp.asarray(given)
    return both, both


def _read_ids(where: str, given: Array, lead: tuple[int, ...], size: int) -> tuple[Array, Array]:
    """Returns numbers that rise from segment to segment, the greatest of padding; and whether they do rise."""
    fix = "pass one for each token, or a pair: those of the queries and those of the keys."
    ids = _integers(where, "segment_ids", given, (*lead, size), fix)
    numbers = nnp.where(ids < 0, _PADDING, ids)
    in_order = _is_rising(numbers)
    if _is_false(in_order):
        fix = "give the tokens of a segment one number, higher than that of the segment before; and -1 the padding behind them."
        problem = "segment_ids fall, or padding does not stand at the end."
        raise user_error(ArgumentError, where, problem, operands={"segment_ids": spec_of(ids)}, fix=fix)
    return numbers, in_order


def _read_lengths(where: str, given: Array, lead: tuple[int, ...], size: int) -> tuple[Array, Array]:
    """Returns such numbers of cumulative lengths."""
    fix = "pass 0 and, for each segment, the number of tokens up to its end; or a pair: of the queries and of the keys."
    count = given.shape[-1] if given.ndim else 0
    ends = _integers(where, "cumulative_lengths", given, (*lead, max(count, 1)), fix)
    in_order = (ends[..., 0] == 0) & _is_rising(ends) & (ends[..., -1] <= size)
    if _is_false(in_order):
        problem = f"cumulative_lengths must begin with 0, not fall, and end with {size} or less."
        raise user_error(ArgumentError, where, problem, operands={"cumulative_lengths": spec_of(ends)}, fix=fix)
    places = nnp.broadcast_to(nnp.arange(size), (*lead, size))
    return nnp.where(places < ends[..., -1:], searchsorted(ends, places, side="right"), _PADDING), in_order


def _integers(where: str, name: str, x: Array, shape: tuple[int, ...], fix: str) -> Array:
    """Returns integers, broadcast to a shape."""
    if not dtypes.is_integer(x.dtype):
        problem = f"{name} hold {x.dtype.name}, not integers."
        raise user_error(DTypeError, where, problem, operands={name: spec_of(x)}, fix=fix)
    fits = 0 < x.ndim <= len(shape) and x.shape[-1] == shape[-1]
    if not fits or any(n not in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False)):
        problem = f"{name} have shape {x.shape}, which does not broadcast to {shape}."
        raise user_error(ShapeError, where, problem, operands={name: spec_of(x)}, fix=fix)
    return nnp.broadcast_to(nnp.astype(x, dtypes.int64), shape)


def _is_rising(x: Array) -> Array:
    """Whether no number is less than the one before, (...)."""
    return nnp.all(x[..., 1:] >= x[..., :-1], axis=-1)


def _is_false(x: Array) -> bool:
    """Whether one of the bools is known to be False."""
    values = known_or_none(x)
    return values is not None and not values.all()
