"""A tensor in blocks, the way libraries want the weights that they multiply by, as a command, so that nothing is blocked unseen.

A blocked layout is written "64x32x3x3:Acdb16a": the sizes of the tensor's axes a, b, c, d, then the order in which these are gone
through, from the slowest to the fastest, and behind them the blocks, likewise: here 16 elements of a lie next to each other, a
capital letter says that its axis has blocks. Axes are filled up with zeros to whole blocks. The notation is oneDNN's.

A packed tensor is a row of elements as they lie, padding included, whose spec names the layout: `float32[18432]:64x32x3x3:Acdb16a`.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import numpy as np

from nnc.base.records import record
from nnc.commands.windows import Shape
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import STRIDED, Command, TensorSpec, register
from nnc.graph.rules import Rules

# Commands whose second input may be packed; the parameter `packed` then names its layout.
PACKABLE = frozenset({"conv", "conv_input_grad"})
_FORM = re.compile(r"(?P<sizes>\d+(?:x\d+)*):(?P<order>[a-zA-Z]+)(?P<blocks>(?:\d+[a-z])*)")


@record
class Blocks:
    """A blocked layout: the sizes of the axes, their order from the slowest on, and (axis, size) of each block behind them."""

    sizes: Shape
    order: Shape
    blocks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, layout: str) -> Blocks:
        """Returns the layout of that name.

        Raises:
            ArgumentError: it names none.

        Example:
            >>> Blocks.of("6x3:aB4b")
            Blocks(sizes=(6, 3), order=(0, 1), blocks=((1, 4),))
        """
        return _parse(layout)

    @property
    def tag(self) -> str:
        """The part of the layout's name behind the sizes."""
        blocked = {axis for axis, _ in self.blocks}
        order = "".join(chr(ord("A" if axis in blocked else "a") + axis) for axis in self.order)
        return order + "".join(f"{size}{chr(ord('a') + axis)}" for axis, size in self.blocks)

    @property
    def name(self) -> str:
        """The layout's name."""
        return f"{'x'.join(map(str, self.sizes))}:{self.tag}"

    @property
    def padded(self) -> Shape:
        """The sizes with the axes filled up to whole blocks."""
        return tuple(-(-n // step) * step for n, step in zip(self.sizes, self._steps(), strict=True))

    @property
    def row(self) -> Shape:
        """The shape of a packed tensor."""
        return (math.prod(self.padded),)

    def _steps(self) -> Shape:
        return tuple(math.prod(n for at, n in self.blocks if at == axis) for axis in range(len(self.sizes)))

    def _split(self) -> tuple[Shape, Shape]:
        """Returns the padded axes taken apart into their number of blocks and the parts of one, and the order in which all
        these lie.
        """
        shape: list[int] = []
        first, inner = [], {}
        for axis, (n, step) in enumerate(zip(self.padded, self._steps(), strict=True)):
            first.append(len(shape))
            shape.append(n // step)
            for place, (at, size) in enumerate(self.blocks):
                if at == axis:
                    inner[place] = len(shape)
                    shape.append(size)
        return tuple(shape), (*(first[axis] for axis in self.order), *(inner[i] for i in range(len(self.blocks))))

    def pack(self, x: Any) -> Any:
        """Returns the elements of a NumPy array of these sizes in this layout, as a row."""
        split, order = self._split()
        filled = np.zeros(self.padded, x.dtype)
        filled[tuple(map(slice, self.sizes))] = x.reshape(self.sizes)
        return filled.reshape(split).transpose(order).reshape(-1)

    def unpack(self, row: Any) -> Any:
        """Undoes `pack`."""
        split, order = self._split()
        moved = row.reshape(tuple(split[i] for i in order)).transpose(tuple(map(int, np.argsort(order))))
        return moved.reshape(self.padded)[tuple(map(slice, self.sizes))]


@lru_cache(maxsize=1024)
def _parse(layout: str) -> Blocks:
    found = _FORM.fullmatch(layout)
    if found is not None:
        sizes = tuple(map(int, found["sizes"].split("x")))
        order = tuple(ord(letter) - ord("a") for letter in found["order"].lower())
        blocks = tuple((ord(letter) - ord("a"), int(n)) for n, letter in re.findall(r"(\d+)([a-z])", found["blocks"]))
        made = Blocks(sizes, order, blocks)
        sound = sorted(order) == list(range(len(sizes))) and all(axis in order and n for axis, n in blocks)
        if sound and made.name == layout:
            return made
    raise user_error(
        ArgumentError, "pack", f"{layout!r} is no blocked layout.", fix="write sizes, order and blocks: 64x32:aB16b."
    )


def _infer(x: TensorSpec, *, layout: str) -> TensorSpec:
    blocks = Blocks.of(layout)
    if x.layout != STRIDED or _joined(blocks.sizes, x.ndim) != x.shape:
        problem = f"the layout is one of a tensor of shape {blocks.sizes}."
        fix = "pass a strided tensor of that shape; its first axis may be two in the layout."
        raise user_error(ShapeError, "pack", problem, operands={"x": x}, fix=fix)
    return x.update(shape=blocks.row, layout=layout)


def _joined(sizes: Shape, ndim: int) -> Shape:
    """Sizes with the first two axes made one, where there is one too many."""
    return (sizes[0] * sizes[1], *sizes[2:]) if len(sizes) == ndim + 1 else sizes


def packed_shape(layout: str, ndim: int) -> Shape:
    """Returns the shape of a tensor of `ndim` axes that was packed so; the layout may have its first axis as two, groups and
    shares.
    """
    return _joined(Blocks.of(layout).sizes, ndim)


# Made by the pass `pack`, behind all transforms, so that it has no rules for those.
pack: Command = register(
    "pack",
    Rules(
        infer=_infer,
        reference=lambda x, *, layout: Blocks.of(layout).pack(x),
        cost=lambda x, *, layout: 0,
    ),
)
