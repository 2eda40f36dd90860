"""sort, argsort and top_k for CUDA.

Rows of up to 2,048 elements are sorted by one network each, several in a block where they are short. Longer rows are cut into such
tiles, whose words go to the workspace; passes merge pairs of runs, and the last one writes the results. Runs are cut off behind
the elements that are wanted. Values are read again at their positions, so that each keeps its bits.

Cost: log²(n) / 2 comparisons an element within a tile, and one pass over the words for each doubling behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.layout import at_least
from nnc.backends.cuda.kernels.merges import Merge, Runs, row_pair_tile
from nnc.backends.cuda.kernels.networks import MOST_ELEMENTS, Network, Words
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.base.target import GpuTarget, Grids
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, word_of
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.keys import Element, has_keys, store_element
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.stages import Step, View

_TILE = 2048  # words; two rooms for them fill most of a block's shared memory
_LONG_TILE = 1024  # of keys of 64 bits
_EACH = 4  # words of a thread


@dataclass(frozen=True)
class _Sort:
    """The sort of one step.

    Attributes:
        grids: the shapes of launches.
        x: the operand.
        axis: the axis along which rows lie.
        values: the result for the elements, and its position among the parameters; None: there is none.
        places: the same for the result of positions.
        wanted: elements of each row that are written.
        words: the keys by which elements are sorted.
    """

    grids: Grids
    x: View
    axis: int
    values: tuple[View, int] | None
    places: tuple[View, int] | None
    wanted: int
    words: Words

    @property
    def n(self) -> int:
        """Elements of a row."""
        return self.x.spec.shape[self.axis]

    @property
    def results(self) -> list[tuple[View, int]]:
        """The results with their positions among the parameters."""
        return [each for each in (self.values, self.places) if each is not None]

    @property
    def axes(self) -> Axes:
        """The other axes, of the operand and of the results."""
        strides = (self.x.strides, *(view.strides for view, _ in self.results))
        return Axes(self.x.spec.shape, strides).without(self.axis).ordered(0)


def _first_runs(n: int, wanted: int, words: Words, grids: Grids) -> Runs:
    """Returns the runs that networks sort."""
    tile = min(_TILE if len(words.kinds) == 1 else _LONG_TILE, at_least(n))
    kept = min(tile, wanted)
    return Runs(-(-n // tile), kept, kept, wanted, grids.threads)


def _print(sort: _Sort) -> DeviceKernel | None:
    rows = sort.axes.size
    if not rows or not sort.wanted:
        return DeviceKernel("", ())
    runs = _first_runs(sort.n, sort.wanted, sort.words, sort.grids)
    count = 1 + len(sort.results)
    printers = [_SortTiles(sort, runs)]
    texts, launches = [printers[0].text()], [printers[0].launch(count)]
    number, extent = 0, runs.extent
    while runs.count > 1:
        texts.append(_merge(sort, runs, number, extent))
        merged = runs.merged()
        grid = (rows * merged.count * merged.tiles, 1, 1)
        launches.append(Launch(f"@KERNEL_merge{number}", grid, (runs.threads, 1, 1), tuple(range(count + 1))))
        runs, number = merged, number + 1
    return DeviceKernel("\n".join(texts), tuple(launches))


def _buffer(code: GpuCode, sort: _Sort, extent: int, turn: int) -> list[str]:
    """Returns the arrays of words of one of the two buffers in the workspace."""
    words, count = sort.words, sort.axes.size * extent
    memory = code.offset(f"%p{1 + len(sort.results)}", turn * _aligned(count * words.nbytes))
    return words.arrays(code, memory, count)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def _write(code: GpuCode, sort: _Sort, places: list[str], number: Value, word: Element) -> None:
    """Writes the results of a word of a row; `places` are the row's addresses of the operand and of the results."""
    position = sort.words.position(code, word)
    for (view, _), target in zip(sort.results, places[1:], strict=True):
        place = code.offset(target, code.mul(number, code.integer(view.strides[sort.axis])))
        if sort.values is not None and view is sort.values[0]:
            bits = word_of(sort.x.spec.dtype)
            source = code.offset(places[0], code.mul(position, code.integer(sort.x.strides[sort.axis])))
            code.store(place, code.load(source, bits))
        else:
            code.store(place, position)


def _pointers(sort: _Sort, has_workspace: bool) -> list[str]:
    return ["noalias readonly"] + ["noalias"] * (len(sort.results) + has_workspace)


class _SortTiles:
    """Prints the launch that sorts tiles, or whole rows where they fit.

    Args:
        runs: the runs that it makes.
    """

    def __init__(self, sort: _Sort, runs: Runs) -> None:
        self.sort, self.runs = sort, runs
        self.size = min(_TILE if len(sort.words.kinds) == 1 else _LONG_TILE, at_least(sort.n))
        self.each = min(_EACH, max(self.size // sort.grids.lanes, 1))
        self.members = self.size // self.each
        units = sort.axes.size * runs.count
        self.rows = max(min(sort.grids.threads // self.members, at_least(units)), sort.grids.lanes // self.members, 1)
        self.units = units

    def launch(self, count: int) -> Launch:
        """Describes the launch; `count`: operands and results."""
        operands = tuple(range(count + (self.runs.count > 1)))
        return Launch("@KERNEL_tiles", (-(-self.units // self.rows), 1, 1), (self.members * self.rows, 1, 1), operands)

    def text(self) -> str:
        """Returns the function."""
        sort, runs, is_whole = self.sort, self.runs, self.runs.count == 1
        code = GpuCode("KERNEL_tiles", _pointers(sort, not is_whole), self.members * self.rows)
        thread = code.special("tid.x")
        member = code.and_(thread, code.integer(self.members - 1))
        row = code.shr(thread, code.integer(self.members.bit_length() - 1))
        given = code.add(code.mul(code.special("ctaid.x"), code.integer(self.rows)), row)
        last = code.integer(self.units - 1)
        is_unit, unit = code.compare("le", given, last), code.intrinsic("smin", given, last)
        number, tile = code.div(unit, code.integer(runs.count)), code.rem(unit, code.integer(runs.count))
        places = sort.axes.at(code, [f"%p{i}" for i in range(1 + len(sort.results))], number)
        begin = code.mul(tile, code.integer(self.size))
        numbers = [code.add(member, code.integer(i * self.members)) for i in range(self.each)]
        held = [self._word(code, places[0], code.add(begin, each)) for each in numbers]
        held = Network(code, sort.grids.lanes, sort.words, self.members, self.rows, row, member).sort(held)
        target = [] if is_whole else _buffer(code, sort, runs.extent, 0)
        for i, word in zip(numbers, held, strict=True):
            with code.when(code.and_(is_unit, code.compare("lt", i, code.integer(runs.length)))):
                if is_whole:
                    _write(code, sort, places, i, word)
                else:
                    store_element(code, target, code.add(code.mul(unit, code.integer(runs.length)), i), word)
        code.ret()
        return code.module()

    def _word(self, code: GpuCode, source: str, position: Value) -> Element:
        sort, last = self.sort, code.integer(self.sort.n - 1)
        at = code.intrinsic("smin", position, last)
        place = code.offset(source, code.mul(at, code.integer(sort.x.strides[sort.axis])))
        return sort.words.of(code, code.load(place, sort.x.spec.dtype), position, code.compare("le", position, last))


def _merge(sort: _Sort, runs: Runs, turn: int, extent: int) -> str:
    """Returns the function of a pass that merges runs, which lie in one buffer, to the other one or to the results.

    `extent`: words between the rows of a buffer.
    """
    code = GpuCode(f"KERNEL_merge{turn}", _pointers(sort, True), runs.threads)
    row, pair, tile = row_pair_tile(code, runs)
    source, target = (_buffer(code, sort, extent, number % 2) for number in (turn, turn + 1))
    begin, merged = code.mul(row, code.integer(extent)), runs.merged()
    to = code.add(begin, code.mul(pair, code.integer(merged.length)))
    places = sort.axes.at(code, [f"%p{i}" for i in range(1 + len(sort.results))], row)

    def write(number: Value, word: Element) -> None:
        if merged.count == 1:
            _write(code, sort, places, number, word)
        else:
            store_element(code, target, code.add(to, number), word)

    Merge(code, sort.words, runs, source, begin, pair, tile).print(write)
    code.ret()
    return code.module()


# -- commands ----------------------------------------------------------------------------------------------------------


def _native(
    step: Step, machine: GpuTarget, values: int | None = None, places: int | None = None
) -> DeviceKernel | None:
    """Returns the kernel of a step whose outputs of these numbers are the sorted values and their places."""
    (x,), params = step.inputs, step.params
    axis = params.get("axis", -1) % x.spec.ndim
    of_values, of_places = (None if i is None else (step.outputs[i], i + 1) for i in (values, places))
    words = Words(x.spec.dtype, params.get("descending", True))
    return _print(_Sort(machine.grids, x, axis, of_values, of_places, params.get("k", x.spec.shape[axis]), words))


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: GpuTarget) -> int:
    """Returns the bytes of one buffer of words, or of two where there are several passes."""
    (x,) = specs
    n = x.shape[params.get("axis", x.ndim - 1)]
    wanted, words = params.get("k", n), Words(x.dtype, False)
    if not x.size or not wanted:
        return 0
    runs = _first_runs(n, wanted, words, machine.grids)
    buffers = min((runs.count - 1).bit_length(), 2)
    return buffers * _aligned(x.size // n * runs.extent * words.nbytes)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    (x,) = specs
    n = x.shape[params.get("axis", x.ndim - 1)]
    return dtypes.is_known(x.dtype) and has_keys(x.dtype) and n <= MOST_ELEMENTS


add_printed("sort", partial(_native, values=0), _supports, _workspace)
add_printed("argsort", partial(_native, places=0), _supports, _workspace)
add_printed("top_k", partial(_native, values=0, places=1), _supports, _workspace)
