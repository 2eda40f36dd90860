"""The loop nest of a fused step: its expressions, its loops, and where each operand's elements lie.

A nest has outer loops and, where something is reduced, the loops of a row. One of these loops is the vector loop, whose
neighbouring iterations run in the lanes of a register: the loop along which the most bytes lie next to each other. Loops that lie
evenly in all operands become one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from nnc.base.bounded import remembered
from nnc.base.dtypes import accumulator
from nnc.base.size import decide
from nnc.base.target import Target
from nnc.commands.rules import reduction
from nnc.graph import Graph, Node, Symbol
from nnc.lower.kernels.domain import UNIT, Domain, Labels, is_counted, is_gather, is_reduction, is_view, keeps_order
from nnc.lower.kernels.row_phases import Phases
from nnc.lower.kernels.scalars import count_instructions
from nnc.lower.kernels.sizes import Numbers
from nnc.lower.plan.stages import View

Loops = tuple[int, ...]
Places = tuple[tuple[tuple[int, int], ...], ...]

_NEIGHBOURS = 16  # iterations in the lanes of a register, at most
_GATHERED = 4  # instructions for a vector of elements at computed places


def instructions(node: Node, transcendental: int) -> int:
    """About how many instructions a node takes for one vector of its elements, where a transcendental function takes so many."""
    if is_view(node):
        return 0
    if is_gather(node):
        return _GATHERED
    if node.command in reduction or is_counted(node):
        return 1
    return count_instructions(node.command, transcendental)


@dataclass(frozen=True, eq=False)
class Nest:
    """A fused graph with its loops.

    `sizes[l]` is how often loop l runs; `outer` and `row` list loops from the outside in, `vector` is one of them (None: there is
    no loop at all). `strides[i][l]` are the bytes by which operand i (inputs, then outputs) moves with loop l. `places[i]` are, of
    an operand of gathers, the size of each axis and the bytes by which the operand moves with it. `loop_of` gives the loop of a
    label. `numbers` are those among the sizes, strides and bits of `constants` that the kernel takes as numbers; None where it
    takes none.
    """

    machine: Target
    graph: Graph
    domain: Domain
    phases: Phases
    sizes: tuple[int, ...]
    outer: Loops
    row: Loops
    vector: int | None
    strides: tuple[tuple[int, ...], ...]
    loop_of: dict[int, int]
    places: Places
    numbers: Numbers | None = None
    constants: Mapping[Symbol, int] = field(default_factory=dict)

    @cached_property
    def operands(self) -> tuple[Symbol, ...]:
        """Inputs and outputs."""
        return (*self.graph.inputs, *self.graph.outputs)

    @property
    def in_row(self) -> bool:
        """Whether the vector loop is one of the row."""
        return self.vector in self.row

    @property
    def size(self) -> int:
        """The number of iterations of all loops."""
        return math.prod(self.sizes)

    @cached_property
    def work(self) -> int:
        """Instructions for one element, by estimate, without those that few rows need."""
        transcendental = self.machine.loops.transcendental_instructions
        usual = [node for node in self._of_elements if node.outputs[0] not in self.phases.guards]
        return sum(instructions(node, transcendental) for node in usual) + len(self.operands)

    @cached_property
    def _of_elements(self) -> list[Node]:
        """The nodes that compute something for each element; the others do so for each row."""
        return [node for node in self.graph.nodes if any(map(self.is_full, (*node.inputs, *node.outputs)))]

    def is_full(self, symbol: Symbol) -> bool:
        """Whether an output has an element for each iteration of all loops rather than one for each row."""
        return not self.row or not self._reduced.isdisjoint(self.domain.axes(symbol))

    @cached_property
    def _reduced(self) -> frozenset[int]:
        return self.domain.reduced

    @property
    def widest(self) -> int:
        """Bytes of the widest value of an element, or of a sum of them."""
        symbols = (*self.operands, *(node.outputs[0] for node in self._of_elements if not is_view(node)))
        return max((accumulator(symbol.dtype).itemsize for symbol in symbols), default=1)

    @property
    def is_flat(self) -> bool:
        """Whether all operands are traversed from the first byte to the last (or are one value), so that only the length
        tells such nests apart.
        """
        if self.row or len(self.outer) != 1 or not all(map(keeps_order, self.graph.nodes)):
            return False
        return all(s[0] in (0, x.dtype.itemsize) for s, x in zip(self.strides, self.operands, strict=True))


def make_nest(
    graph: Graph,
    inputs: Sequence[View],
    outputs: Sequence[View],
    machine: Target,
    neighbours: int = _NEIGHBOURS,
    guarded: bool = False,
) -> Nest:
    """Makes the loop nest of a fused graph on operands in these views.

    Args:
        machine: its loops have the tiles of transposed accesses.
        neighbours: iterations of the vector loop that run side by side; a longer loop is no faster. 1 where the lanes continue
            in the next loop, as the threads of a GPU do.
        guarded: whether loops of the row that few rows need are skipped by the others.
    """
    views, domain = (*inputs, *outputs), Domain.of(graph)
    return nest_of(graph, domain, loops_of(graph, domain, views, machine, neighbours), views, machine, guarded)


class Nesting(NamedTuple):
    """The loops of a nest (see there) and the bits of its constants; with those of the labels that tell how these lie in it."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    constants: tuple[int, ...]
    places: Places
    outer: Loops
    row: Loops
    vector: int | None
    loop_of: tuple[tuple[int, int], ...]
    axes: tuple[Labels, ...]

    @property
    def integers(self) -> tuple[Any, ...]:
        """The parts in which nests of one form may differ."""
        return self[:4]

    @property
    def form(self) -> tuple[Any, ...]:
        """The other parts."""
        return self[4:]


def nest_of(
    graph: Graph, domain: Domain, loops: Nesting, views: Sequence[View], machine: Target, guarded: bool,
    numbers: Numbers | None = None,
) -> Nest:  # fmt: skip
    """Returns the nest with these loops, with numbers among their sizes and strides and the constants."""
    sizes, strides, constants, places, outer, row, vector, loop_of, _ = loops
    phases = Phases.of(graph, domain, guarded)
    known = dict(zip(graph.constants, constants, strict=True)) if numbers is not None else {}
    nest = Nest(
        machine, graph, domain, phases, sizes, outer, row, vector, strides, dict(loop_of), places, numbers, known
    )
    return nest if row or _indexed(graph, domain) else _tiled(nest, machine.loops.tiles)


def loops_of(
    graph: Graph, domain: Domain, views: Sequence[View], machine: Target, neighbours: int = _NEIGHBOURS
) -> Nesting:
    """Returns the loops of a fused graph on operands in these views."""
    operands = (*graph.inputs, *graph.outputs)
    axes = tuple([domain.axes(symbol) for symbol in operands])
    steps: list[dict[int, int]] = []
    for labels, view in zip(axes, views, strict=True):
        steps.append({label: step for label, step in zip(labels, view.strides, strict=True) if label != UNIT})
    indexed = set(_indexed(graph, domain))
    used = {label for symbol in _symbols(graph) for label in domain.axes(symbol)} - {UNIT}
    reduced = domain.reduced
    largest = max(range(len(operands)), key=lambda i: (len(steps[i]), i), default=None)

    def farness(label: int) -> tuple[int, int]:
        return -abs(steps[largest].get(label, 0)) if largest is not None else 0, label

    merged: dict[int, list[int]] = {}
    groups = []
    for chosen in (used - reduced, used & reduced):
        group: list[int] = []
        for label in sorted(chosen, key=farness):
            last = group[-1] if group else None
            if last is not None and last not in indexed and label not in indexed:
                n = domain.sizes[label]
                if all(s.get(merged[last][-1], 0) == s.get(label, 0) * n for s in steps):
                    merged[last].append(label)
                    continue
            group.append(label)
            merged[label] = [label]
        groups.append(group)
    heads = [*groups[0], *groups[1]]
    loop_of = tuple([(label, i) for i, head in enumerate(heads) for label in merged[head]])
    sizes = tuple(math.prod(domain.sizes[label] for label in merged[head]) for head in heads)
    strides = tuple(tuple(s.get(merged[head][-1], 0) for head in heads) for s in steps)
    outer = tuple(range(len(groups[0])))
    row = tuple(range(len(outer), len(heads)))
    units = tuple([symbol.dtype.itemsize for symbol in operands])
    vector = decide(_vector_loop, sizes, strides, units, row, neighbours, machine.loops.strided_instructions)
    if vector in outer:
        outer = (*(loop for loop in outer if loop != vector), vector)
    else:
        row = (*(loop for loop in row if loop != vector), *((vector,) if vector is not None else ()))
    constants = tuple([_bits(x.reshape(-1)[:1].tobytes()) for x in graph.constants.values()])
    gathers = {x for node in graph.nodes if is_gather(node) for x in node.inputs}
    places = tuple(
        [
            tuple(zip(view.spec.shape, view.strides, strict=True)) if operand in gathers else ()
            for operand, view in zip(operands, views, strict=True)
        ]
    )
    return Nesting(sizes, strides, constants, places, outer, row, vector, loop_of, (*axes, _indexed(graph, domain)))


def _bits(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _indexed(graph: Graph, domain: Domain) -> Labels:
    """Returns the labels whose positions are read as values."""
    counted = [node for node in graph.nodes if is_counted(node)]
    return tuple([domain.axes(node.outputs[0])[node.params["axis"]] for node in counted])


def _tiled(nest: Nest, tiles: Sequence[int]) -> Nest:
    """Returns a nest in which operands lie in one another's transposed order, cut so that the lines of the cache that a vector
    of strided elements touches are used up by the next iterations: a loop along which such an operand is dense is cut into
    tiles, within which it runs inside of the vector loop.
    """
    vector = nest.vector
    sizes = [symbol.dtype.itemsize for symbol in nest.operands]
    across = [
        s for s, unit in zip(nest.strides, sizes, strict=True) if vector is not None and s[vector] not in (0, unit)
    ]
    for loop in nest.outer:
        dense = any(s[loop] == unit for s, unit in zip(nest.strides, sizes, strict=True) if s in across)
        tile = next((tile for tile in tiles if nest.sizes[loop] % tile == 0), None)
        if loop != vector and dense and tile is not None and vector is not None:
            inner = len(nest.sizes)
            counts = [*nest.sizes, tile]
            counts[loop] //= tile
            strides = tuple((*(x * tile if i == loop else x for i, x in enumerate(s)), s[loop]) for s in nest.strides)
            outer = (*(x for x in nest.outer if x not in (loop, vector)), loop, vector, inner)
            return replace(nest, sizes=tuple(counts), strides=strides, outer=outer)
    return nest


def _symbols(graph: Graph) -> Sequence[Symbol]:
    return (*graph.inputs, *(node.outputs[0] for node in graph.nodes))


def _vector_loop(
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    units: Sequence[int],
    row: Sequence[int],
    neighbours: int,
    strided: int,
) -> int | None:
    """Returns the loop along which the fewest elements must be gathered, which take `strided` instructions each; of equals one
    of the row, then the longest. `units` are the bytes of elements.
    """
    if not sizes:
        return None

    def badness(loop: int) -> tuple[float, bool, int]:
        gathered = 0.0
        for steps, unit in zip(strides, units, strict=True):
            elements = math.prod(n for n, step in zip(sizes, steps, strict=True) if step)
            gathered += elements * (strided if steps[loop] not in (0, unit) else 1)
        return gathered / max(min(sizes[loop], neighbours), 1), loop not in row, -sizes[loop]

    return min(range(len(sizes)), key=badness)


# -- keys of equal kernels ---------------------------------------------------------------------------------------------


def flat_length(graph: Graph, views: Sequence[View]) -> int | None:
    """Returns the number of elements, if all operands are traversed from the first byte to the last, or are one value."""
    shape: tuple[int, ...] | None = None
    for view in views:
        if any(step for n, step in zip(view.spec.shape, view.strides, strict=True) if n > 1):
            if not view.is_dense or shape not in (None, view.spec.shape):
                return None
            shape = view.spec.shape
    if shape is None or any(view.spec.shape != shape for view in views[len(graph.inputs) :]):
        return None
    for node in graph.nodes:
        spec = node.outputs[0].spec
        if (spec.shape != shape and spec.size != 1) or not keeps_order(node) or is_reduction(node):
            return None
    return math.prod(shape)


def generic_form(graph: Graph, views: Sequence[View], least: int) -> tuple[int, Any] | None:
    """`flat_length`, and a key of the work on each element at any length; None where the length is less than `least`, or None."""
    length = flat_length(graph, views)
    if length is None or length < least:
        return None
    single = tuple(not any(step for n, step in zip(v.spec.shape, v.strides, strict=True) if n > 1) for v in views)
    return length, (graph_key(graph, False), single)


@remembered  # equal kernels share a graph
def graph_key(graph: Graph, with_shapes: bool) -> Any:
    """Returns a key of a fused graph, apart from its symbols; without shapes for flat graphs, which treat every element alike."""
    number: dict[Symbol, int] = {}
    for symbol in graph.symbols():
        number[symbol] = len(number)
    constants = tuple((number[s], value.dtype, value.tobytes()) for s, value in graph.constants.items())
    nodes = []
    for node in graph.nodes:
        name, spec, given = node.command.name, node.outputs[0].spec, node.params
        params = tuple(given.items()) if with_shapes or not is_view(node) else ()
        params = tuple(item for item in params if item[0] != "value" and (with_shapes or item[0] != "shape"))
        value = repr(given["value"]) if "value" in given else ""  # repr tells -0 from 0, and NaN equals itself
        shape = spec.shape if with_shapes else spec.size == 1
        nodes.append((name, tuple([number[s] for s in node.inputs]), params, value, spec.dtype, shape))
    return (
        tuple(symbol.dtype for symbol in graph.inputs),
        constants,
        tuple(nodes),
        tuple(number[s] for s in graph.outputs),
    )
