"""Prints copies of strided boxes: whole rows by vector copies, transposed access in tiles that are turned in registers.

copy      copy[16, 1000]: float32 rows of another array   one memcpy for each row
transpose [1000, 1000]                                    tiles of 16 × 16, each turned by 4 rounds of shuffles
"""

from __future__ import annotations

from collections.abc import Sequence

from nnc.backends.printer import Bound, Part, Printer, grain_of, in_blocks, longest, minus, over, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, Shape, in_words, word_of
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.sizes import is_number

_UNROLLED = 512  # bytes; longer rows are memcpy's
_VECTOR = 64  # bytes
_PIECE = 16  # bytes within which processors mix elements at no extra cost
_FLOATS = {4: dtypes.float32, 8: dtypes.float64}  # words as `turn` likes them
_LARGE = 1 << 17  # words; tiles of whole cache lines pay for the time to compile them


def move_box(
    printer: Printer, spec: TensorSpec, source: str, source_strides: Shape, target: str, target_strides: Shape
) -> None:
    """Copies the elements of a box of `spec`, in threads where there are many."""
    shape, (s, t) = in_words(spec, source_strides, target_strides)
    plan = _CopyPlan.of(Axes(shape, (s, t)), word_of(spec.dtype))
    if not plan.axes.size:
        return
    axis, count = plan.split()
    grain = grain_of(count, spec.nbytes, printer.machine)
    printer.parts(count, grain, lambda code, begin, end: plan.print(code, source, target, (axis, begin, end)))


def fill_box(printer: Printer, spec: TensorSpec, value: str, target: str, target_strides: Shape) -> None:
    """Writes the element at `value` everywhere in a box of `spec`."""
    move_box(printer, spec, value, (0,) * spec.ndim, target, target_strides)


def copy_box(
    code: Code, spec: TensorSpec, source: str, source_strides: Shape, target: str, target_strides: Shape
) -> None:
    """Copies the elements of a box of `spec` at once."""
    shape, (s, t) = in_words(spec, source_strides, target_strides)
    plan = _CopyPlan.of(Axes(shape, (s, t)), word_of(spec.dtype))
    if plan.axes.size:
        plan.print(code, source, target, None)


def is_tiny(machine: Target, *specs: TensorSpec) -> bool:
    """Whether loops may take a copy of these in."""
    return sum(spec.nbytes for spec in specs) <= machine.threads.inline_bytes


class _CopyPlan:
    """The plan of copying a box: its axes in the order of the target's memory, and the work of the innermost loop."""

    def __init__(self, axes: Axes, word: DType, source_start: int, target_start: int) -> None:
        self.axes, self.word = axes, word
        self.starts = source_start, target_start
        self.turned = self._turned()

    @classmethod
    def of(cls, axes: Axes, word: DType) -> _CopyPlan:
        """The plan for a box; axes on which the target runs backwards are turned round."""
        source, target = (list(strides) for strides in axes.strides)
        starts = [0, 0]
        for axis, n in enumerate(axes.shape):
            if target[axis] < 0 or (target[axis] == 0 and source[axis] < 0):
                for k, strides in enumerate((source, target)):
                    starts[k] += (n - 1) * strides[axis]
                    strides[axis] = -strides[axis]
        return cls(Axes(axes.shape, (tuple(source), tuple(target))).ordered(1), word, *starts)

    def _turned(self) -> int | None:
        """Returns the axis along which the source's words are neighbours, where the target's are on the last axis."""
        (source, target), shape, size = self.axes.strides, self.axes.shape, self.word.itemsize
        if len(shape) < 2 or target[-1] != size or abs(source[-1]) <= size or shape[-1] < 4:
            return None
        return next((axis for axis in range(len(shape) - 1) if source[axis] == size and shape[axis] >= 4), None)

    @property
    def tile(self) -> int:
        """Rows and columns of a tile."""
        assert self.turned is not None
        large = self.word.itemsize == 4 and self.axes.size >= _LARGE
        most = 16 if large else 8
        shortest = int(min(self.axes.shape[self.turned], self.axes.shape[-1], most))
        return int(1 << (shortest.bit_length() - 1))

    def split(self) -> tuple[int, int]:
        """Returns the axis that threads share, and how many parts of it there are."""
        if self.turned is None:
            axis = longest(self.axes.shape)
            return axis, self.axes.shape[axis] if axis >= 0 else 1
        counts = [-(-n // self.tile) if axis == self.turned else n for axis, n in enumerate(self.axes.shape[:-1])]
        axis = longest(tuple(counts))
        return axis, counts[axis]

    def print(self, code: Code, source: str, target: str, part: Part | None) -> None:
        """The loops."""
        pointers = [code.offset(source, self.starts[0]), code.offset(target, self.starts[1])]
        last = len(self.axes.shape) - 1
        if last < 0:
            code.store(pointers[1], code.load(pointers[0], self.word))
        elif self.turned is not None:
            self._tiles(code, pointers, part)
        else:
            bounds = part[1:] if part is not None and part[0] == last else (0, self.axes.shape[last])
            with over(code, self.axes.without(last), pointers, part) as rows:
                source_step, target_step = (strides[last] for strides in self.axes.strides)
                row(code, self.word, rows[0], source_step, rows[1], target_step, bounds)

    def _tiles(self, code: Code, pointers: Sequence[str], part: Part | None) -> None:
        """Tile by tile; the last one of a row or column may lie over its neighbour, and moves the same words once more."""
        turned, last, tile, size = self.turned, len(self.axes.shape) - 1, self.tile, self.word.itemsize
        assert turned is not None
        word = _FLOATS.get(size, self.word)
        n, m = self.axes.shape[turned], self.axes.shape[last]
        bounds: tuple[Bound, Bound] = (0, -(-n // tile))
        outer = None
        if part is not None and part[0] == turned:
            bounds = part[1:]
        elif part is not None:
            outer = (part[0] - (part[0] > turned), part[1], part[2])
        steps = (size, self.axes.strides[1][turned]), (self.axes.strides[0][last], size)
        with over(code, self.axes.without(turned, last), pointers, outer) as rows, code.loop(*bounds) as i:
            rows = self._tile_at(code, rows, i, n, steps[0])
            with code.loop(0, -(-m // tile)) as j:
                source, target = self._tile_at(code, rows, j, m, steps[1])
                far = [step if isinstance(step, int) else code.integer(step) for step in (steps[1][0], steps[0][1])]
                vectors = [code.load(code.offset(source, times(code, far[0], k)), word, tile) for k in range(tile)]
                for k, vector in enumerate(turn(code, vectors)):
                    code.store(code.offset(target, times(code, far[1], k)), vector)

    def _tile_at(self, code: Code, pointers: Sequence[str], i: Value, n: int, steps: tuple[int, int]) -> list[str]:
        """Returns the start of tile `i` of an axis of size `n`."""
        first = code.mul(i, code.integer(self.tile))
        if is_number(n) or n % self.tile:
            first = code.intrinsic("smin", first, code.integer(n - self.tile))
        return [
            code.offset(pointer, code.mul(first, code.integer(step)))
            for pointer, step in zip(pointers, steps, strict=True)
        ]


def turn(code: Code, vectors: list[Value]) -> list[Value]:
    """Transposes a square of registers in rounds; each round mixes pairs of vectors (Eklundh, 1972).

    Processors mix within pieces of 16 bytes, and put such pieces together, in one instruction each. LLVM would look for better ones
    across rounds, which takes it five times as long as all the rest; between floats it is kept from it.
    """
    lanes, dtype = len(vectors), vectors[0].dtype
    piece = min(lanes, _PIECE // dtype.itemsize)
    starts, halves = range(0, lanes, piece), range(0, piece, piece // 2)
    zipped = [
        [at + half + k + other for at in starts for k in range(piece // 2) for other in (0, lanes)] for half in halves
    ]
    unzipped = [[at + k for at in range(odd, 2 * lanes, 2 * piece) for k in range(piece)] for odd in (0, piece)]
    rounds = [(1 << k, zipped) for k in reversed(range(piece.bit_length() - 1))]
    rounds += [(1 << k, unzipped) for k in range(piece.bit_length() - 1, lanes.bit_length() - 1)]
    for number, (distance, orders) in enumerate(rounds):
        if number and dtypes.is_float(dtype):
            vectors = [code.intrinsic("arithmetic.fence", vector) for vector in vectors]
        mixed = list(vectors)
        for i, x in enumerate(vectors):
            if not i & distance:
                y = vectors[i + distance]
                mixed[i], mixed[i + distance] = (code.shuffle(x, order, y) for order in orders)
        vectors = mixed
    return vectors


# -- rows --------------------------------------------------------------------------------------------------------------


def row(
    code: Code, word: DType, source: str, source_step: int, target: str, target_step: int, bounds: tuple[Bound, Bound]
) -> None:
    """Copies the positions `bounds` of one axis."""
    begin, end = bounds
    size = word.itemsize
    if target_step == size and source_step == size:
        skipped = times(code, begin, size)
        length = times(code, minus(code, end, begin), size)
        copy_bytes(code, code.offset(target, skipped), code.offset(source, skipped), length)
    elif target_step == size and source_step == 0:
        fill_row(code, target, code.load(source, word), begin, end)
    elif target_step == size and source_step == -size:
        _reversed_row(code, word, source, target, begin, end)
    else:
        with code.loop(begin, end) as i:
            value = code.load(code.offset(source, code.mul(i, code.integer(source_step))), word)
            code.store(code.offset(target, code.mul(i, code.integer(target_step))), value)


def copy_bytes(code: Code, target: str, source: str, length: Bound) -> None:
    """Copies neighbouring bytes; source and target are apart or the same."""
    if not isinstance(length, int) or length > _UNROLLED:
        code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        code.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, {code.integer(length).typed}, i1 false)"
        )
        return
    at = 0
    for width, kind in (
        (64, "<8 x i64>"),
        (32, "<4 x i64>"),
        (16, "<2 x i64>"),
        (8, "i64"),
        (4, "i32"),
        (2, "i16"),
        (1, "i8"),
    ):
        while length - at >= width:
            value = code.let(f"load {kind}, ptr {code.offset(source, at)}, align 1")
            code.line(f"store {kind} {value}, ptr {code.offset(target, at)}, align 1")
            at += width


def fill_row(code: Code, target: str, value: Value, begin: Bound, end: Bound) -> None:
    """Writes one value to neighbouring places."""
    size = value.dtype.itemsize

    def write(i: Value, lanes: int) -> None:
        code.store(code.offset(target, code.mul(i, code.integer(size))), code.splat(value, lanes))

    in_blocks(code, begin, end, _VECTOR // size, write)


def _reversed_row(code: Code, word: DType, source: str, target: str, begin: Bound, end: Bound) -> None:
    size = word.itemsize

    def write(i: Value, lanes: int) -> None:
        at = code.mul(i, code.integer(size))
        first = code.sub(code.integer(-(max(lanes, 1) - 1) * size), at)
        value = code.load(code.offset(source, first), word, lanes)
        if lanes:
            value = code.shuffle(value, range(lanes - 1, -1, -1))
        code.store(code.offset(target, at), value)

    in_blocks(code, begin, end, _VECTOR // size, write)
