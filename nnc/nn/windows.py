"""Convolution as users write it: layouts, integers for pairs, "SAME" and "VALID". Pools read their arguments by the same rules.

The axes that a layout names are the last ones of the array; any number of batch axes may stand before them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.calls.specialise import specialised
from nnc.commands import conv as conv_commands
from nnc.commands.shape import invert_permutation
from nnc.commands.windows import Padding, Shape
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.typing import ArrayLike

__all__ = ["conv", "conv_transpose"]

Sizes = int | Sequence[int]
PaddingLike = str | int | Sequence[int] | Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of the channels: `order` maps the canonical order (channels, *spatial) to the axes of the layout."""

    order: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.order) - 1

    def to_canonical(self, x: Array) -> tuple[Array, Shape]:
        """x as (N, C, *spatial), and the sizes of the batch axes that N folds."""
        shape = spec_of(x).shape
        lead = len(shape) - len(self.order)
        x = _transpose(x, (*range(lead), *(lead + axis for axis in self.order)))
        return x if lead == 1 else nnp.reshape(x, (math.prod(shape[:lead]), *x.shape[lead:])), shape[:lead]

    def from_canonical(self, x: Array, lead: Shape) -> Array:
        """Undoes `to_canonical`."""
        x = x if len(lead) == 1 else nnp.reshape(x, (*lead, *x.shape[1:]))
        return _transpose(x, (*range(len(lead)), *(len(lead) + axis for axis in invert_permutation(self.order))))


def _transpose(x: Array, permutation: Shape) -> Array:
    return x if permutation == tuple(range(len(permutation))) else nnp.transpose(x, permutation)


def parse_layout(where: str, layout: str, rank: int | None = None) -> Layout:
    """Returns the layout that a string of axis letters names: N first, C, and a letter for each spatial axis, as in "NHWC".

    "NCHW" and "NHWC" also mean channels first and last where there are other than two spatial axes.

    Args:
        rank: how many spatial axes there are; None where the layout says it.

    Raises:
        ArgumentError: the string is no layout, or has another number of spatial axes.
    """
    letters = layout[1:]
    if not layout.startswith("N") or letters.count("C") != 1 or len(set(layout)) != len(layout):
        problem = f"{layout!r} is no layout."
        raise user_error(ArgumentError, where, problem, fix='write "NCHW", "NHWC", "NCW", "NWC", "NCDHW" or "NDHWC".')
    if rank is not None and len(letters) != rank + 1:
        if layout not in ("NCHW", "NHWC"):
            problem = f"layout {layout!r} has {len(letters) - 1} spatial axes, the window has {rank}."
            raise user_error(ArgumentError, where, problem, fix="write a letter for each axis.")
        return Layout((0, *range(1, rank + 1)) if layout == "NCHW" else (rank, *range(rank)))
    at = letters.index("C")
    return Layout((at, *(axis for axis in range(len(letters)) if axis != at)))


def per_axis(where: str, name: str, value: Sizes, rank: int) -> Shape:
    """Returns a size for each spatial axis.

    Raises:
        ArgumentError: another number of sizes.
        ArgumentTypeError: a size is no integer.
    """
    sizes: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if any(isinstance(size, bool) or not hasattr(size, "__index__") for size in sizes):
        problem = f"{name}={value!r} is no integer nor a sequence of integers."
        raise user_error(ArgumentTypeError, where, problem, fix=f"write {name}=2 or {name}=(2, 2).")
    if len(sizes) != rank:
        problem = f"{name}={value!r} has {len(sizes)} entries, there are {rank} spatial axes."
        raise user_error(ArgumentError, where, problem, fix=f"give {name} one number, or one for each spatial axis.")
    return tuple(int(size) for size in sizes)


def to_padding(
    where: str, padding: PaddingLike, spatial: Shape, window: Shape, stride: Shape, dilation: Shape
) -> Padding:
    """Pairs (before, after) for each spatial axis.

    "VALID" is no padding; with "SAME" the output has ceil(size / stride) elements, and an odd one goes after.

    Raises:
        ArgumentError: `padding` is another string, or has another number of entries.
    """
    rank = len(spatial)
    if isinstance(padding, str):
        kind = padding.upper()
        if kind not in ("SAME", "VALID"):
            problem = f"padding={padding!r} is unknown."
            raise user_error(ArgumentError, where, problem, fix='write "SAME", "VALID", a number or pairs of them.')
        if kind == "VALID":
            return ((0, 0),) * rank
        totals = [
            max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
            for n, k, s, d in zip(spatial, window, stride, dilation, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, (tuple, list)) and any(isinstance(pair, (tuple, list)) for pair in padding):
        pairs = tuple(per_axis(where, "padding", pair, 2) for pair in padding)
        if len(pairs) != rank:
            problem = f"padding={padding!r} has {len(pairs)} pairs, there are {rank} spatial axes."
            raise user_error(ArgumentError, where, problem, fix="give one pair for each spatial axis.")
        return tuple((low, high) for low, high in pairs)
    return tuple((n, n) for n in per_axis(where, "padding", padding, rank))  # type: ignore[arg-type]


def check_rank(where: str, x: Array, layout: Layout) -> None:
    """Raises ShapeError where x has not the axes that the layout names, or the layout names no spatial one."""
    if layout.rank < 1:
        problem = f"the input has {spec_of(x).ndim} axes, none of which is a spatial one behind N and C."
        fix = "pass an input (N, C, *spatial), or give a size for each spatial axis."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x)}, fix=fix)
    if spec_of(x).ndim < layout.rank + 1:
        problem = f"the input has {spec_of(x).ndim} axes; channels and {layout.rank} spatial axes are needed."
        fix = "pass an input with batch axes (any number), channels and spatial axes."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x)}, fix=fix)


# -- convolution -------------------------------------------------------------------------------------------------------


@specialised(2)
def conv(
    x: ArrayLike,
    w: ArrayLike,
    *,
    stride: Sizes = 1,
    padding: PaddingLike = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Array:
    """Returns the convolution (without flipping) of x with w, for any number of spatial axes.

    out[n, o, p] = sum over c, k of x[n, c, stride · p + dilation · k - padding] · w[o, c, k]

    Args:
        x: (N, C, *spatial), or as `layout` says; N is any number of batch axes.
        w: (O, C / groups, *kernel) in every layout.
        stride: the stride of the windows; a number, or one for each spatial axis.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        dilation: distance of the elements of a window; a number, or one for each spatial axis.
        groups: share g of O sees share g of C only.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Returns:
        (N, O, *out) in the layout of x, of the promoted dtype.

    Raises:
        ShapeError: the channels differ, or the kernel is bigger than the padded input.

    Example:
        >>> conv(np.ones((1, 8, 8, 3), np.float32), np.ones((4, 3, 3, 3), np.float32), padding="SAME", layout="NHWC").shape
        (1, 8, 8, 4)
    """
    x, w = promote(x, w, where="conv")
    rank = _spatial_rank("conv", x, w, "(O, C / groups, *kernel)")
    form = parse_layout("conv", layout, rank)
    check_rank("conv", x, form)
    canonical, lead = form.to_canonical(x)
    kernel, spatial = spec_of(w).shape[2:], canonical.shape[2:]
    strides, dilations = per_axis("conv", "stride", stride, rank), per_axis("conv", "dilation", dilation, rank)
    pads = to_padding("conv", padding, spatial, kernel, strides, dilations)
    ends_flat = rank > 1 and spatial[-1] == kernel[-1] == 1 and pads[-1] == (0, 0)
    if ends_flat:  # libraries have vectors along the last axis; one of size 1 leaves them empty
        canonical, w = nnp.squeeze(canonical, -1), nnp.squeeze(w, -1)
        strides, pads, dilations = strides[:-1], pads[:-1], dilations[:-1]
    out = conv_commands.conv(canonical, w, stride=strides, padding=pads, dilation=dilations, groups=groups)
    return form.from_canonical(nnp.expand_dims(out, -1) if ends_flat else out, lead)


@specialised(2)
def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    *,
    stride: Sizes = 1,
    padding: PaddingLike = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Array:
    """Returns the transposed convolution: the map of cotangents under `conv` with the same parameters.

    out[n, c, stride · p + dilation · k - padding] += x[n, i, p] · w[i, c, k]

    Args:
        x: (N, I, *spatial), or as `layout` says.
        w: (I, O / groups, *kernel).
        stride: as in `conv`.
        padding: number of elements cut off the output on either side; with "SAME" the output has size · stride elements.
        output_padding: number of elements added at the end of each axis of the output, less than the stride or the dilation.
        dilation: as in `conv`.
        groups: as in `conv`.
        layout: as in `conv`.

    Returns:
        (N, O, *out), out = (size - 1) · stride + dilation · (kernel - 1) + 1 + output_padding - padding on both sides.

    Raises:
        ArgumentError: output_padding is not below the stride or the dilation, or the padding is negative.
        ShapeError: the channels differ, or the padding cuts off more than the output has.

    Example:
        >>> conv_transpose(np.ones((1, 3, 4), np.float32), np.ones((3, 2, 2), np.float32), stride=2).shape
        (1, 2, 8)
    """
    where = "conv_transpose"
    x, w = promote(x, w, where=where)
    rank = _spatial_rank(where, x, w, "(I, O / groups, *kernel)")
    form = parse_layout(where, layout, rank)
    check_rank(where, x, form)
    canonical, lead = form.to_canonical(x)
    kernel, sizes = spec_of(w).shape[2:], canonical.shape[2:]
    strides, dilations = per_axis(where, "stride", stride, rank), per_axis(where, "dilation", dilation, rank)
    extra = per_axis(where, "output_padding", output_padding, rank)
    if any(not 0 <= more < max(s, d) for more, s, d in zip(extra, strides, dilations, strict=True)):
        problem = f"output_padding={output_padding!r} is not below stride={stride!r} or dilation={dilation!r}."
        raise user_error(ArgumentError, where, problem, fix="use a smaller output_padding, or pad the result.")
    _check_channels(where, canonical, w, groups)
    grown = tuple(n * s for n, s in zip(sizes, strides, strict=True))
    pads = to_padding(where, padding, grown, kernel, strides, dilations)
    if isinstance(padding, str) and padding.upper() == "SAME":
        spatial, zeros = grown, (0,) * rank
    else:
        whole = tuple(
            (n - 1) * s + d * (k - 1) + 1 + more
            for n, s, d, k, more in zip(sizes, strides, dilations, kernel, extra, strict=True)
        )
        _check_cut(sizes, whole, pads)
        # more than a convolution can leave over
        beyond = [max(0, more - s + 1) for more, s in zip(extra, strides, strict=True)]
        zeros = tuple(max(0, n - high) for n, (_, high) in zip(beyond, pads, strict=True))
        spatial = tuple(n - low - high - z for n, (low, high), z in zip(whole, pads, zeros, strict=True))
        pads = tuple((low, max(0, high - n)) for n, (low, high) in zip(beyond, pads, strict=True))
    out = conv_commands.conv_input_grad(
        canonical, w, spatial=spatial, stride=strides, padding=pads, dilation=dilations, groups=groups
    )
    if any(zeros):
        out = nnp.pad(out, ((0, 0), (0, 0), *((0, n) for n in zeros)))
    return form.from_canonical(out, lead)


def _spatial_rank(where: str, x: Array, w: Array, form: str) -> int:
    """Returns the number of the weight's spatial axes; raises ShapeError where it has none."""
    ndim = spec_of(w).ndim
    if ndim < 3:
        problem = f"the weight has {ndim} axes; two for channels and one or more spatial axes are needed."
        fix = f"pass a weight of shape {form}."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x), "w": spec_of(w)}, fix=fix)
    return ndim - 2


def _check_cut(sizes: Shape, whole: Shape, padding: Padding) -> None:
    """Checks that the padding of a transposed convolution leaves something of each axis of its output, or nothing."""
    for axis, (n, size, (low, high)) in enumerate(zip(sizes, whole, padding, strict=True)):
        if n == 0:
            fix = "pass an input with elements."
            raise user_error(ShapeError, "conv_transpose", f"spatial axis {axis} of the input is empty.", fix=fix)
        if min(low, high) < 0:
            problem = f"padding ({low}, {high}) of spatial axis {axis} has a negative entry."
            raise user_error(ArgumentError, "conv_transpose", problem, fix="pad the result to make it larger.")
        if low + high > size:
            problem = f"padding ({low}, {high}) cuts {low + high} elements off spatial axis {axis} of the output, which has {size}."
            fix = f"use a padding of {size} or less in total, or a larger kernel or stride."
            raise user_error(ShapeError, "conv_transpose", problem, fix=fix)


def _check_channels(where: str, x: Array, w: Array, groups: int) -> None:
    first = spec_of(w).shape[0]
    if x.shape[1] != first:
        problem = f"channels differ: the input has {x.shape[1]}, weight axis 0 is {first}."
        fix = f"pass a weight of shape ({x.shape[1]}, O / groups, *kernel)."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x), "w": spec_of(w)}, fix=fix)
