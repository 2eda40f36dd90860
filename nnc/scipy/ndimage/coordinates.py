"""Elements of an array at coordinates between its indices, which nnc.scipy.ndimage shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, UnsupportedError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import broadcast_arrays
from nnc.numpy.operands import to_values
from nnc.trace.core.differentiate import stop_gradient
from nnc.typing import ArrayLike

Node = tuple[Any, Any]  # an index, and its weight


def _mirrored(index: Any, n: int) -> Any:
    """Continues indices as d c b | a b c d | c b a."""
    period = max(2 * n - 2, 1)
    place = el.remainder(index, period)
    return el.minimum(place, period - place) if n > 1 else place * 0


def _reflected(index: Any, n: int) -> Any:
    """Continues indices as d c b a | a b c d | d c b a."""
    place = el.remainder(index, 2 * n)
    return el.minimum(place, 2 * n - 1 - place)


# mode: how an index outside of the array is moved into it; None where coordinates are treated before
_INDICES: dict[str, Callable[[Any, int], Any] | None] = {
    "constant": None, "grid-constant": None, "nearest": lambda i, n: el.clip(i, 0, n - 1), "mirror": _mirrored,
    "reflect": _reflected, "grid-mirror": _reflected, "grid-wrap": el.remainder, "wrap": None,
}  # fmt: skip


@spelled
def map_coordinates(
    input: ArrayLike, coordinates: Any, order: int, mode: str = "constant", cval: ArrayLike = 0.0
) -> Array:  # fmt: skip
    """Returns the elements of an array at coordinates between its indices.

    Modes are SciPy's; some of them differ from jax.scipy's: its "constant" is "grid-constant" here, its "wrap" is "grid-wrap".

    Args:
        input: any shape.
        coordinates: (ndim, ...), or a sequence of one array for each axis, which broadcast: the places in units of indices. With
            order 1 they have a derivative.
        order: 0 takes the nearest element, 1 interpolates linearly.
        mode: the treatment of coordinates outside of the array: "constant": `cval`; "grid-constant": the array is surrounded by
            `cval`; "nearest": the element at the edge; "mirror": c b | a b c | b a; "reflect" and "grid-mirror": b a | a b c |
            c b; "grid-wrap": b c | a b c | a b; "wrap": as that, but the last element coincides with the first.
        cval: the number outside.

    Returns:
        The shape of a coordinate; dtype of input, to which results for integers are rounded.

    Raises:
        ShapeError: there is not one coordinate for each axis.
        ArgumentError: there is no such mode.
        UnsupportedError: the order is above 1.

    Example:
        >>> map_coordinates(np.asarray([[0.0, 1.0], [2.0, 3.0]]), [[0.5, 1.0], [0.5, 0.25]], order=1)
        Array([1.5 , 2.25], dtype=float64)
    """
    where = "map_coordinates"
    listed = isinstance(coordinates, (list, tuple))
    given = coordinates if listed else [coordinates]
    x, *given = to_values(where, input=input, **{f"coordinates {i}": part for i, part in enumerate(given)})
    check_choice(where, "mode", mode, _INDICES)
    if order not in (0, 1):
        raise user_error(UnsupportedError, where, f"order is {order!r}; there are no splines.", fix="use 0 or 1.")
    parts = given if listed else given[0]
    if len(parts) != x.spec.ndim or not x.spec.size:
        problem = f"there are {len(parts)} coordinates for {x.spec.ndim} axes of {x.spec.size} elements."
        fix = "pass an array of coordinates for each axis of an array that is not empty."
        raise user_error(ShapeError, where, problem, operands={"input": x.spec}, fix=fix)
    places = promote(*parts, where=where, to=dtypes.to_float) if x.spec.ndim else []
    places = broadcast_arrays(*places) if places else []
    return _interpolated(x, places, order, mode, cval)


def _interpolated(x: Array, places: Sequence[Array], order: int, mode: str, cval: Any) -> Array:
    own = x.spec.dtype
    wide = own if dtypes.is_inexact(own) else dtypes.to_float(own)
    outside: Any = False
    axes: list[list[Node]] = []
    for place, n in zip(places, x.spec.shape, strict=True):
        if mode == "constant":
            outside = outside | (place < 0) | (place > n - 1)
        elif mode == "wrap":  # a period of n - 1
            inside = el.remainder(place, n - 1) if n > 1 else place * 0
            inside = el.where((place < 0) & (inside == 0), inside + (n - 1), inside)  # where both ends lie, as in SciPy
            place = el.where((place < 0) | (place > n - 1), inside, place)
        elif order == 0 and _INDICES[mode] in (_mirrored, _reflected):
            place = _folded(place, n, _INDICES[mode] is _reflected)
        axes.append(_nodes(place, order))
    total: Any = 0
    for nodes in itertools.product(*axes):
        index, missing, weight = [], False, 1
        for (i, w), n in zip(nodes, x.spec.shape, strict=True):
            if mode == "grid-constant":
                missing = missing | (i < 0) | (i > n - 1)
            moved = _INDICES[mode]
            index.append(el.clip(i if moved is None else moved(i, n), 0, n - 1))  # NaN have indices, too
            weight = weight * w
        element = astype(x[tuple(index)], wide)
        if mode == "grid-constant":
            element = el.where(missing, cval, element)
        total = total + element * weight
    total = el.where(outside, cval, total) if mode == "constant" else total
    if dtypes.is_inexact(own):
        return astype(total, own)
    return astype(el.sign(total) * el.floor(el.abs(total) + 0.5), own)


def _folded(place: Array, n: int, repeats: bool) -> Array:
    """Coordinates moved into the array before they are rounded, so that a mirrored half is rounded up, too, as in SciPy.

    Args:
        repeats: whether the element at the edge appears twice.
    """
    far = el.where(place < 0, -1 - place, place) if repeats else el.abs(place)
    period = 2 * n if repeats else max(2 * n - 2, 1)
    inside = el.remainder(far, period)
    turns_at = n if repeats else el.where(place < 0, n - 1, n)  # between n - 1 and n SciPy rounds first
    return el.where(inside >= turns_at, (period - 1 if repeats else period) - inside, inside)


def _nodes(place: Array, order: int) -> list[Node]:
    """Returns the indices beside a coordinate, and their weights."""
    if order == 0:
        return [(astype(el.floor(stop_gradient(place) + 0.5), dtypes.int64), 1)]
    low = el.floor(stop_gradient(place))
    share = place - low
    index = astype(low, dtypes.int64)
    return [(index, 1 - share), (index + 1, share)]
