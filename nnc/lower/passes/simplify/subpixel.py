"""Transposed convolutions to few channels, whose neighbouring results become channels of another convolution.

A library's vectors hold channels: where there are few, as in gradients of pictures and in the last layers of generators of
pictures, most of a vector is idle. But where the stride is s, the results of a block of s places an axis read the same places by
different elements of the kernel, so that one convolution finds all of a block as if they were channels: it has no stride, and a
kernel that is s times as small (Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel
convolutional neural network", 2016).
"""

# ruff: noqa: D103  (a rule is an equation, which says more than words)

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from nnc.base.options import Options
from nnc.commands.conv import conv, conv_input_grad
from nnc.commands.shape import flip, pad, reshape, slice_axis, transpose
from nnc.commands.windows import Padding, Shape
from nnc.device import CPU, kind_of
from nnc.graph import Command, Graph, TensorSpec, apply_rules, find_kernel, rewrite_rule, sample
from nnc.graph.rules import Value
from nnc.lower.passes.simplify.algebra import spec

Params = Mapping[str, Any]

_LONGEST = 16  # channels; as many fill all vectors there are
_COPY = 8  # products of vectors that take as long as to put an element of a weight or of a result in its place


def subpixel(graph: Graph, options: Options) -> Graph:
    """Computes transposed convolutions to few channels as convolutions to blocks of places, in sub-graphs, too.

    It does so where fewer products of vectors make up for the copies; `Kernel.lanes` says how many channels a vector holds. At
    places that only some results of a block read, the others have weights of 0: values differ by rounding, and infinities and NaNs
    may spread over a block.

    Programs for other devices than CPUs stay: the rule asks kernels of the CPU.

    Ensures: the same values as said above. Groups, dilated kernels, and gradients with more padding than kernel stay.

    Example:
        x = conv_input_grad(ct, w){stride=(2,), spatial=(8,)}  (w: 64x3x4)
        →  v = rearranged w  (6x64x2); y = conv(ct, v){stride=(1,)}; x = reshape(transpose(reshape(y)))
    """
    return apply_rules(graph, RULES) if kind_of(options.device) == CPU else graph


# -- cost model --------------------------------------------------------------------------------------------------------


def _is_open(channels: int, params: Params) -> bool:
    """Whether a convolution may leave lanes idle, and its kernel goes over neighbours of all features."""
    return channels % _LONGEST > 0 and params["groups"] == max(params["dilation"]) == 1


def _lanes(target: Command, x: TensorSpec, w: TensorSpec, params: Params) -> int:
    """Returns the number of channels that a vector of the kernel holds; 0 where it holds something else."""
    kernel = find_kernel(target, (x, w), params)
    return kernel.lanes((x, w), params) if kernel is not None else 0


def _cost(lanes: int, w: Shape, places: int, copied: int = 0) -> int:
    """Products of vectors by a weight (channels, features, *kernel) at so many places, and as many more as the copies take time."""
    return -(-w[0] // lanes) * math.prod(w[1:]) * places + _COPY * copied


def _plain(rank: int, padding: Padding, stride: Shape = ()) -> Params:
    """Returns the parameters of a convolution, without stride if none is given."""
    ones = (1,) * rank
    return {"stride": stride or ones, "padding": padding, "dilation": ones, "groups": 1}


# -- transposed convolutions -------------------------------------------------------------------------------------------


class _BlockedAxis(NamedTuple):
    """An axis of `size` results as blocks of `stride`; the first begins `shift` places before the axis."""

    size: int
    stride: int
    shift: int
    blocks: int
    taps: int  # of the new kernel
    zeros: tuple[int, int]  # before and behind the old kernel, which is then `stride` times as large as the new one
    padding: tuple[int, int]

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, low: int, windows: int, shift: int) -> _BlockedAxis:
        """Returns the axis of the transpose of a convolution with so many windows, and padding `low` in front.

        Result x = stride · b + p - shift reads window v by element x + low - stride · v = stride · m + p + low - shift of the
        kernel, where m = b - v; over all places p of a block, m goes from -first to last.
        """
        blocks = -(-(size + shift) // stride)
        first, last = -((shift - low) // stride), (kernel - 1 + shift - low) // stride
        taps = first + last + 1
        before = stride * first + shift - low
        zeros = before, stride * taps - kernel - before
        return cls(size, stride, shift, blocks, taps, zeros, (last, blocks + first - windows))


def _axes(
    ct: TensorSpec, w: TensorSpec, spatial: Shape, stride: Shape, padding: Padding
) -> tuple[_BlockedAxis, ...] | None:
    """Finds how to take the spatial axes apart with the least work; None where the operand would have to be cut."""
    chosen = []
    for size, kernel, s, (low, _), windows in zip(spatial, w.shape[2:], stride, padding, ct.shape[2:], strict=True):
        ways = [_BlockedAxis.of(size, kernel, s, low, windows, shift) for shift in range(s)]
        able = [way for way in ways if min(way.padding) >= 0]
        if not able:
            return None
        chosen.append(min(able, key=lambda way: way.taps * way.blocks))
    return tuple(chosen)


def _small_shape(w: Shape, axes: tuple[_BlockedAxis, ...]) -> Shape:
    """Returns the shape of the weight of the convolution to blocks."""
    return (w[1] * math.prod(axis.stride for axis in axes), w[0], *(axis.taps for axis in axes))


def _blocks_pay(ct: TensorSpec, w: TensorSpec, *, spatial: Shape, **params: Any) -> bool:
    strided = _is_open(w.shape[1], params) and max(params["stride"]) > 1
    axes = _axes(ct, w, spatial, params["stride"], params["padding"]) if strided else None
    if axes is None or 0 in (ct.size, w.size):
        return False
    small = _small_shape(w.shape, axes)
    plain = _plain(len(axes), tuple(axis.padding for axis in axes))
    lanes = (
        _lanes(conv_input_grad, ct, w, {"spatial": spatial, **params}),
        _lanes(conv, ct, w.update(shape=small), plain),
    )
    if 0 in lanes:
        return False
    batch, features, *windows = ct.shape
    copied = math.prod(small) + batch * w.shape[1] * math.prod(spatial)
    after = _cost(lanes[1], small, batch * math.prod(axis.blocks for axis in axes), copied)
    return after < _cost(lanes[0], (w.shape[1], features, *w.shape[2:]), batch * math.prod(windows))


_SIGNALS = spec((2, 16, 5), "float32"), spec((16, 1, 4), "float32")
_MAPS = spec((1, 16, 6, 5), "float32"), spec((16, 1, 5, 4), "float32")


@rewrite_rule(
    root=conv_input_grad,
    exact=False,
    when=_blocks_pay,
    samples=[
        sample(*_SIGNALS, spatial=(10,), stride=(2,), padding=((1, 1),), dilation=(1,), groups=1),
        sample(*_MAPS, spatial=(12, 12), stride=(2, 3), padding=((2, 2), (1, 3)), dilation=(1, 1), groups=1),
    ],
)
def blocks_as_channels(
    ct: Value, w: Value, *, spatial: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    left = conv_input_grad(ct, w, spatial=spatial, stride=stride, padding=padding, dilation=dilation, groups=groups)
    axes = _axes(ct.spec, w.spec, spatial, stride, padding)
    assert axes is not None  # a condition of the rule
    return left, _by_blocks(ct, w, axes)


def _by_blocks(ct: Value, w: Value, axes: tuple[_BlockedAxis, ...]) -> Value:
    """Returns the convolution to blocks, with its results put in their places."""
    rank, (features, channels) = len(axes), w.shape[:2]
    taps, stride, blocks = zip(*[(axis.taps, axis.stride, axis.blocks) for axis in axes], strict=True)
    parted = reshape(
        _zeros_around(w, [axis.zeros for axis in axes]), shape=(features, channels, *_in_turn(taps, stride))
    )
    turned = transpose(parted, permutation=(1, *range(3, 3 + 2 * rank, 2), 0, *range(2, 2 + 2 * rank, 2)))
    flipped = flip(turned, axes=tuple(range(2 + rank, 2 + 2 * rank)))
    small = reshape(flipped, shape=_small_shape(w.shape, axes))
    results = conv(ct, small, **_plain(rank, tuple(axis.padding for axis in axes)))
    parted = reshape(results, shape=(ct.shape[0], channels, *stride, *blocks))
    turned = transpose(parted, permutation=(0, 1, *_in_turn(range(2 + rank, 2 + 2 * rank), range(2, 2 + rank))))
    whole = reshape(turned, shape=(ct.shape[0], channels, *(axis.blocks * axis.stride for axis in axes)))
    for i, axis in enumerate(axes, start=2):
        whole = slice_axis(whole, i, axis.shift, axis.shift + axis.size)
    return whole


def _zeros_around(w: Value, zeros: Iterable[tuple[int, int]]) -> Value:
    """Returns a weight with so many zeros before and behind its spatial axes."""
    low, high = zip((0, 0), (0, 0), *zeros, strict=True)
    return pad(w, np.zeros((), w.dtype), low=low, high=high, interior=(0,) * len(low))


def _in_turn(first: Iterable[int], second: Iterable[int]) -> Iterator[int]:
    """The first of both, the second of both, and so on."""
    return chain.from_iterable(zip(first, second, strict=True))


RULES = (blocks_as_channels,)
