"""Rows that a loop writes only for other loops to read: fewer of them, where the reading iterations can compute the others anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.commands.properties import is_view
from nnc.commands.roles import NodeRoles, Read, Yield, take_loop
from nnc.graph import Graph, Node, Symbol
from nnc.graph.graph import NDArray
from nnc.graph.registry import effect, scalar, weight
from nnc.graph.remake import OncePerGraph, with_renamed
from nnc.lower.passes.loops.all_iterations import total_bytes
from nnc.lower.plan.min_cut import INFINITE, MinCut

# The cost of computing a value anew, where 64 times its bytes are the cost of keeping it: a cheap command is hidden behind the
# memory that the iteration reads anyway, so many of them may save one row; the others are so expensive that four may.
_KEPT, _CHEAP, _DEAR = 64, 2, 16


def rematerialize_residuals(graph: Graph, options: Options) -> Graph:
    """Writes fewer bytes of rows (stacked, or on tapes) in loops whose rows other loops read element by element.

    A reading iteration rematerializes the results of elementwise commands and views from rows that are kept, elements of the
    sequences of the loop that wrote them, captured values and the iteration's number: σ·(1 - σ) from σ, tanh(c) from c. The kept
    rows are found by a minimum cut. It counts the bytes of rows, and for sequences and rows that would otherwise be dead by then
    theirs; a command that is run again counts as a part of its row's bytes, so that a row is kept rather than made by many, or by
    several expensive, commands.

    Ensures: the same values bit for bit. A loop whose rows take no fewer bytes stays as it is.

    Example:
        scan … {yield s, 1 - s}; scan(a, b) … {c = a * b}  →  scan … {yield s}; scan(a) … {b = 1 - a; c = a * b}
    """
    return _Chooser().graph(graph)


class _Chooser(OncePerGraph):
    def rewrite(self, graph: Graph) -> Graph:
        if not any(node.graphs for node in graph.nodes):
            return graph
        nodes = [self.renew(node, {}) for node in graph.nodes]
        uses = _Uses(graph, nodes)
        for position, node in enumerate(nodes):
            loop = take_loop(node)
            if loop is not None:
                plan = _plan(uses, loop)
                if plan is not None:
                    nodes[position] = plan.writer()
                    for place, loop in plan.readers.items():
                        nodes[place] = plan.reader(loop)
                    uses = _Uses(graph, nodes)
        if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
            return graph
        return graph.update(nodes=tuple(nodes))


class _Uses:
    """The readers of each symbol of a graph, and the last node that reads it."""

    def __init__(self, graph: Graph, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.places: dict[Symbol, list[int]] = {}
        bases: dict[Symbol, Symbol] = {}
        self.last: dict[Symbol, int] = dict.fromkeys((*graph.inputs, *graph.constants), len(nodes))
        for i, node in enumerate(nodes):
            for symbol in node.inputs:
                self.places.setdefault(symbol, []).append(i)
                base = bases.get(symbol, symbol)
                self.last[base] = max(i, self.last.get(base, 0))
            if is_view(node):
                bases[node.outputs[0]] = bases.get(node.inputs[0], node.inputs[0])
        self.last.update((bases.get(symbol, symbol), len(nodes)) for symbol in graph.outputs)
        self.bases = bases
        self.results = frozenset(graph.outputs)

    def readers(self, symbol: Symbol) -> dict[int, NodeRoles] | None:
        """Returns the loops that read a tensor, by place, if nothing else reads it, and they do so only element by element."""
        if symbol in self.results:
            return None
        loops: dict[int, NodeRoles] = {}
        for place in self.places.get(symbol, ()):
            loop = take_loop(self.nodes[place])
            if loop is None or symbol in _read_whole(loop):
                return None
            loops[place] = loop
        return loops

    def lives_until(self, symbol: Symbol, place: int) -> bool:
        """Whether the memory that shows a tensor is read at a place or after it."""
        return self.last.get(self.bases.get(symbol, symbol), -1) >= place


def _read_whole(loop: NodeRoles) -> list[Symbol]:
    """Returns the operands of a loop that are no sequences."""
    return [*loop.lead, *(x.operand for x in loop.carries), *(x.operand for x in loop.captured)]


class _RowPlan(NamedTuple):
    """The plan of saved rows: `kept` are the rows to write, some of them new; `tensors` is where symbols of the iterations lie."""

    loop: NodeRoles
    kept: tuple[Yield, ...]
    dropped: Mapping[Symbol, Symbol]  # the result of a row, and the symbol of the iteration that it held
    tensors: Mapping[Symbol, Symbol]
    readers: Mapping[int, NodeRoles]
    producers: Mapping[Symbol, Node]

    def writer(self) -> Node:
        """Returns the loop with the rows that are kept."""
        results = {*self.dropped, *(row.result for row in self.kept)}
        rows = (*(row for row in self.loop.rows if row.result not in results), *self.kept)
        return self.loop.update(rows=rows).join()

    def reader(self, loop: NodeRoles) -> Node:
        """Returns a loop that read rows, and now computes those anew that are not there."""
        (body,), (written,) = loop.graphs, self.loop.graphs
        same = {x.inner[0]: x.operand for x in self.loop.captured}
        values: dict[Symbol, Symbol] = dict(zip(self.loop.counter, loop.counter, strict=True))
        sequences = [x for x in loop.sequences if x.operand not in self.dropped]
        captured, constants, nodes = list(loop.captured), dict(body.constants), list[Node]()

        def read(reads: list[Read], operand: Symbol, symbol: Symbol) -> Symbol:
            """Returns the input by which the iteration reads an operand."""
            for x in reads:
                if x.operand is operand:
                    return x.inner[0]
            reads.append(Read(operand, (Symbol(symbol.spec, symbol.name),)))
            return reads[-1].inner[0]

        def leaf(symbol: Symbol) -> bool:
            if symbol in self.tensors:
                values[symbol] = read(sequences, self.tensors[symbol], symbol)
            elif symbol in same:
                values[symbol] = read(captured, same[symbol], symbol)
            elif symbol in written.constants:
                values[symbol] = Symbol(symbol.spec, symbol.name)
                constants[values[symbol]] = written.constants[symbol]
            return symbol in values

        todo = [self.dropped[x.operand] for x in loop.sequences if x.operand in self.dropped]
        while todo:
            symbol = todo[-1]
            if symbol in values or leaf(symbol):
                todo.pop()
                continue
            node = self.producers[symbol]
            missing = [s for s in node.inputs if s not in values]
            todo += missing
            if not missing:
                values[symbol] = Symbol(symbol.spec, symbol.name)
                nodes.append(node.update(inputs=tuple(values[s] for s in node.inputs), outputs=(values[symbol],)))
        renamed = {x.inner[0]: values[self.dropped[x.operand]] for x in loop.sequences if x.operand in self.dropped}
        return _reading(loop, sequences, captured, nodes, constants, renamed).join()


def _reading(
    loop: NodeRoles, sequences: list[Read], captured: list[Read], nodes: list[Node], constants: dict[Symbol, NDArray],
    renamed: dict[Symbol, Symbol],
) -> NodeRoles:  # fmt: skip
    """Makes the loop that reads these operands, and computes `nodes` first instead of reading the renamed symbols."""
    (body,) = loop.graphs

    later = [with_renamed(node, renamed) for node in body.nodes]
    return loop.update(
        graphs=(body.update(nodes=(*nodes, *later), constants=constants),),
        sequences=tuple(sequences),
        carries=tuple(x._replace(following=renamed.get(x.following, x.following)) for x in loop.carries),
        captured=tuple(captured),
        rows=tuple(x._replace(inner=tuple(renamed.get(s, s) for s in x.inner)) for x in loop.rows),
    )


def _plan(uses: _Uses, loop: NodeRoles) -> _RowPlan | None:
    """Returns the rows to keep of a loop; None where there is nothing to gain."""
    if loop.node.params.get("handles", ()):  # the tapes of a batch of loops
        return None
    found = {row.result: readers for row in loop.rows if (readers := uses.readers(row.result))}
    if not found:
        return None
    places = {place: reader for readers in found.values() for place, reader in readers.items()}
    body = loop.graphs[0]
    read = [row for row in loop.rows if row.result in found]
    tensors = {x.inner[0]: x.operand for x in loop.sequences}
    tensors.update((row.inner[0], row.result) for row in loop.rows if row.result not in found)
    free = {*loop.counter, *(x.inner[0] for x in loop.captured), *body.constants}
    free.update(inner for inner, tensor in tensors.items() if uses.lives_until(tensor, max(places)))
    producers = {node.outputs[0]: node for node in body.nodes if _may_repeat(node)}
    kept = _cheapest([row.inner[0] for row in read], free, producers)
    if total_bytes(kept) >= total_bytes(row.inner[0] for row in read):
        return None
    tensors = {inner: tensor for inner, tensor in tensors.items() if inner in free or inner in kept}
    rows: list[Yield] = []
    old = {row.inner[0]: row for row in reversed(read)}
    for inner in kept:
        if inner not in tensors:
            rows.append(old.get(inner) or Yield((inner,), _stack(read[0], inner)))
            tensors[inner] = rows[-1].result
    same = {row.result for row in rows}
    dropped = {row.result: row.inner[0] for row in read if row.result not in same}
    return _RowPlan(loop, tuple(rows), dropped, tensors, places, producers)


def _stack(row: Yield, inner: Symbol) -> Symbol:
    """Makes the result of one more row: a tape like the other rows' tapes, or a tensor of as many rows."""
    spec = row.result.spec
    return Symbol(spec if spec.dtype == TAPE else inner.spec.update(shape=(spec.shape[0], *inner.shape)), inner.name)


def _may_repeat(node: Node) -> bool:
    """Whether a node is elementwise or a view, so that a fused kernel computes it anew on the way."""
    if node.graphs or len(node.outputs) != 1 or node.command in effect or node.outputs[0].spec.dtype == TAPE:
        return False
    return node.command in scalar or is_view(node)


def _cheapest(wanted: Sequence[Symbol], free: set[Symbol], producers: Mapping[Symbol, Node]) -> list[Symbol]:
    """Finds the cheapest symbols to keep of each iteration, so that wanted ones can be computed from them and from free ones.

    Each symbol is two things of a minimum cut, its computation and its use. A symbol whose use is second and whose computation is
    not is kept; where the computation is second as well, the symbol is computed anew.
    """
    order: dict[Symbol, int] = {}
    todo = list(wanted)
    while todo:
        symbol = todo.pop()
        if symbol not in order and symbol not in free:
            order[symbol] = 2 * len(order)
            todo += producers[symbol].inputs if symbol in producers else ()
    cut = MinCut(2 * len(order))
    for symbol, made in order.items():
        used, nbytes = made + 1, symbol.spec.nbytes
        cut.cost_if(made, used, _KEPT * nbytes)
        node = producers.get(symbol)
        if node is None:
            cut.cost_of_second(made, INFINITE)
        else:
            if not is_view(node):
                cut.cost_of_second(made, (_CHEAP if node.command in weight else _DEAR) * nbytes)
            for source in node.inputs:
                if source in order:
                    cut.cost_if(order[source] + 1, made, INFINITE)
        if symbol in wanted:
            cut.cost_of_first(used, INFINITE)
    second = cut.second()
    return [symbol for symbol, made in order.items() if second[made + 1] and not second[made]]
