"""Convolutions as one product of matrices each, of columns that hold the windows, for devices that have kernels of products alone
(Chellapilla et al., "High performance convolutional neural networks for document processing", 2006).

Padding is zeros there: beside an infinity or NaN of the other operand it makes NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from nnc.commands import constants
from nnc.commands.contract import dot
from nnc.commands.shape import concatenate, flip, pad, reshape, slice_, slice_axis, transpose
from nnc.commands.windows import Padding, Shape
from nnc.graph.rules import Value

MOST_PLACES = 64  # of a window: each is a copy, and a launch


def channels_first(x: Value, channels_last: bool) -> Value:
    """Returns an activation as (N, C, *spatial)."""
    ndim = x.spec.ndim
    return transpose(x, permutation=(0, ndim - 1, *range(1, ndim - 1))) if channels_last else x


def as_asked(x: Value, channels_last: bool) -> Value:
    """Undoes `channels_first`."""
    return transpose(x, permutation=(0, *range(2, x.spec.ndim), 1)) if channels_last else x


def conv_formula(
    x: Value, w: Value, *, stride: Shape, padding: Padding, dilation: Shape, groups: int, out: Shape
) -> Value:
    """Returns the convolution of x (N, C, *spatial) with w (O, C / groups, *kernel): (N, O, *out)."""
    kernel, count = w.spec.shape[2:], x.spec.shape[0]
    columns = _columns(_padded(x, padding), kernel, stride, dilation, out, groups, places_first=False)
    depth = w.spec.shape[1] * math.prod(kernel)
    weight = reshape(w, shape=(groups, w.spec.shape[0] // groups, depth))
    found = dot(
        weight,
        reshape(columns, shape=(groups, depth, count * math.prod(out))),
        contract=((2,), (1,)),
        batch=((0,), (0,)),
    )
    return _examples_first(reshape(found, shape=(w.spec.shape[0], count, *out)))


def input_grad_formula(
    ct: Value, w: Value, *, spatial: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Value:
    """Returns the cotangent of the input, (N, C, *spatial): a convolution of the spread cotangent with the turned kernel."""
    kernel, around = w.spec.shape[2:], []
    for size, windows, k, s, d, (low, _) in zip(
        spatial, ct.spec.shape[2:], kernel, stride, dilation, padding, strict=True
    ):
        around.append((d * (k - 1) - low, size + low - (windows - 1) * s - 1))
    spread = _padded(ct, tuple(around), tuple(s - 1 for s in stride))
    features, own = w.spec.shape[:2]
    parted = reshape(w, shape=(groups, features // groups, own, *kernel))
    turned = flip(
        transpose(parted, permutation=(0, 2, 1, *range(3, parted.spec.ndim))), axes=tuple(range(3, parted.spec.ndim))
    )
    turned = reshape(turned, shape=(groups * own, features // groups, *kernel))
    ones = (1,) * len(kernel)
    plain = ((0, 0),) * len(kernel)
    return conv_formula(spread, turned, stride=ones, padding=plain, dilation=dilation, groups=groups, out=spatial)


def weight_grad_formula(
    x: Value, ct: Value, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Value:
    """Returns the cotangent of the weight, (O, C / groups, *kernel).

    Places come before channels in its columns: equal ones would be kept from the forward pass, many times as large as x.
    """
    features, own, places = ct.spec.shape[1], x.spec.shape[1] // groups, math.prod(kernel)
    columns = _columns(_padded(x, padding), kernel, stride, dilation, ct.spec.shape[2:], groups, places_first=True)
    windows = ct.spec.size // features
    rows = reshape(_examples_first(ct), shape=(groups, features // groups, windows))
    depth = reshape(columns, shape=(groups, places * own, windows))
    found = dot(rows, depth, contract=((2,), (2,)), batch=((0,), (0,)))
    parted = reshape(found, shape=(features, places, own))
    return reshape(transpose(parted, permutation=(0, 2, 1)), shape=(features, own, *kernel))


def _examples_first(x: Value) -> Value:
    """Returns the first two axes exchanged."""
    return transpose(x, permutation=(1, 0, *range(2, x.spec.ndim)))


def _padded(x: Value, padding: Padding, interior: Sequence[int] = ()) -> Value:
    """x with zeros around and between its spatial elements; negative padding cuts elements off."""
    between = (0, 0, *(interior or (0,) * len(padding)))
    low, high = ((0, 0, *(max(pair[side], 0) for pair in padding)) for side in (0, 1))
    if any((*low, *high, *between)):
        zero = constants.full(shape=(), dtype=x.spec.dtype, value=0)
        x = pad(x, zero, low=low, high=high, interior=between)
    for axis, (before, behind) in enumerate(padding, 2):
        if before < 0 or behind < 0:
            x = slice_axis(x, axis, max(-before, 0), x.spec.shape[axis] - max(-behind, 0))
    return x


def _columns(
    x: Value, kernel: Shape, stride: Shape, dilation: Shape, out: Shape, groups: int, places_first: bool
) -> Value:
    """(groups, C / groups, places of the kernel, N, *out), or with the places before the channels, of a padded x."""
    count, channels = x.spec.shape[:2]
    turned = _examples_first(x)
    shape = (groups, channels // groups, 1, count, *out)
    if places_first:
        shape = (groups, 1, channels // groups, count, *out)
    parts = []
    for place in itertools.product(*map(range, kernel)):
        start = [d * k for d, k in zip(dilation, place, strict=True)]
        limit = [a + s * (n - 1) + 1 for a, s, n in zip(start, stride, out, strict=True)]
        part = slice_(turned, start=(0, 0, *start), limit=(channels, count, *limit), stride=(1, 1, *stride))
        parts.append(reshape(part, shape=shape))
    return concatenate(*parts, axis=1 if places_first else 2) if len(parts) > 1 else parts[0]
