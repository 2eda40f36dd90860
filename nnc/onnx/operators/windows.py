"""Sizes of windows that slide over axes: convolutions and pools ask for them alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node

MOST_PLACES = 1 << 27  # elements of all windows of an image, where these are taken apart


class Windows(NamedTuple):
    """A window for each spatial axis; `pads` are elements before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    is_ceiled: bool = False

    def spans(self) -> list[int]:
        """Returns how many elements a window reaches over, on each axis."""
        return [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True)]

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """Returns the number of windows on each axis. A last one that begins behind the elements is none."""
        found = []
        for size, span, stride, (low, high) in zip(sizes, self.spans(), self.strides, self.pads, strict=True):
            room = size + low + high - span
            if room + (stride if self.is_ceiled else 0) < 0:
                raise ValueError(f"a window reaches over {span} elements, its axis has {size + low + high}")
            count = (-(-room // stride) if self.is_ceiled else room // stride) + 1
            found.append(count - 1 if self.is_ceiled and (count - 1) * stride >= size + low else count)
        return found


def windows_of(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Reads a node's windows; where `auto_pad` chooses the padding, it depends on the sizes of the axes."""
    ones = [1] * len(sizes)
    strides, dilations = node.attributes.get("strides", ones), node.attributes.get("dilations", ones)
    found = Windows(tuple(kernel), tuple(strides), tuple(dilations), (), bool(node.attributes.get("ceil_mode", 0)))
    way = node.attributes.get("auto_pad", "NOTSET")
    if way in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + span - size, 0)
            for size, stride, span in zip(sizes, strides, found.spans(), strict=True)
        ]
        return found._replace(pads=tuple(_halves(total, way) for total in totals))
    given = node.attributes.get("pads") if way != "VALID" else None
    given = given or [0] * (2 * len(sizes))
    return found._replace(pads=tuple(zip(given[: len(sizes)], given[len(sizes) :], strict=True)))


def _halves(total: int, way: str) -> tuple[int, int]:
    less, more = total // 2, total - total // 2
    return (less, more) if way == "SAME_UPPER" else (more, less)


def take_windows(x: Any, windows: Windows, fill: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """Returns the elements of each window along a last axis, and their places in an array of one channel; padding is -1 there."""
    spatial = x.shape[2:]
    places = np.zeros((), np.int64)
    is_inside = np.ones((), bool)
    counts, rank = windows.counts(spatial), len(spatial)
    if math.prod(counts) * math.prod(windows.kernel) > MOST_PLACES:
        raise ValueError(f"windows of {windows.kernel} at {counts} places read too many elements")
    for axis, (size, count) in enumerate(zip(spatial, counts, strict=True)):
        begins = np.arange(count)[:, None] * windows.strides[axis] - windows.pads[axis][0]
        along = begins + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = along.shape
        places = places * size + np.clip(along, 0, max(size - 1, 0)).reshape(shape)
        is_inside = is_inside & ((along >= 0) & (along < size)).reshape(shape)
    wanted = (*counts, math.prod(windows.kernel))
    places, is_inside = (
        np.broadcast_to(places, (*counts, *windows.kernel)),
        np.broadcast_to(is_inside, (*counts, *windows.kernel)),
    )
    places, is_inside = places.reshape(wanted), is_inside.reshape(wanted)
    flat = nnp.reshape(nnp.asarray(x), (*x.shape[:2], -1))
    return nnp.where(is_inside, nnp.take(flat, places, axis=2), fill), np.where(is_inside, places, -1)
