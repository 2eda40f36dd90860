"""Attaches elementwise commands on a product to the product, so that its elements need not go through memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from nnc.base.options import Options
from nnc.base.target import Target
from nnc.commands.control import fused, with_epilogue
from nnc.commands.properties import takes_epilogue
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, find_kernel, register_pass
from nnc.graph.passes import Fact
from nnc.lower.kernels.epilogue import Epilogue
from nnc.lower.passes.memory.order import ByIteration, Description, overwritable


@register_pass("epilogue", requires=[Fact.KERNELS])
def epilogue(graph: Graph, options: Options) -> Graph:
    """Makes one `with_epilogue` node of a product and the `fused` node that reads it, in sub-graphs, too.

    The product runs in the place of the fused node: no node reads it before, and the operands that are kept until then fit into
    memory. The backend of the product must take such an epilogue, and the fused node must go over the elements of the
    product; if others read the product later, it is one more result.

    Requires: later passes keep the order of symbols that share memory.
    Ensures:  the same values, up to roundings of the product; the largest live set does not grow.

    Example:
        p = dot(x, w); y = fused(p, b) {exp(%0 + %1)}  →  y = with_epilogue(x, w, b) {%3 = dot(%0, %1); exp(%3 + %2)}
    """
    if not options.native:
        return graph
    attacher = _Attacher(machine_of(options))
    return attacher.attached(graph, 0, lambda: Description.of_program(graph, options))


class _Attacher(ByIteration):
    def __init__(self, machine: Target) -> None:
        super().__init__()
        self._joins = _Joins(machine)

    def attached(self, graph: Graph, before: int, description: Callable[[], Description]) -> Graph:
        """Returns a graph with products joined."""
        return _Attached(graph, before, description, self._joins).result(self.inner)

    def iteration(self, graph: Graph, carried: tuple[Symbol, ...], before: int) -> Graph:
        """See the base."""
        return self.attached(graph, before, lambda: Description(graph, carried=carried, before=before))


class _Attached:
    """One graph, in which products are joined one after the other."""

    def __init__(self, graph: Graph, before: int, description: Callable[[], Description], joins: _Joins) -> None:
        self.graph, self.before, self.description, self.joins = graph, before, description, joins
        self.nodes: list[Node | None] = list(graph.nodes)
        self.writer = {symbol: i for i, node in enumerate(graph.nodes) for symbol in node.outputs}
        self.readers: dict[Symbol, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            for symbol in set(node.inputs):
                self.readers.setdefault(symbol, []).append(i)

    @cached_property
    def memory(self) -> _LiveBytes:
        """Live bytes at each node, computed at the first request."""
        return _LiveBytes(self.description())

    def result(self, inner: Callable[[Node], Node]) -> Graph:
        """Returns the graph with all products and kernels joined that can be."""
        for at, node in enumerate(self.graph.nodes):
            if node.command is fused:
                self._attach(at, node)
        read = {*self.graph.outputs}.union(*(node.inputs for node in self.nodes if node is not None))
        kept = (node for node in self.nodes if node is not None and (not _is_view(node) or node.outputs[0] in read))
        return self.graph.update(nodes=tuple(map(inner, kept)))

    def _attach(self, at: int, node: Node) -> None:
        """Joins a fused node with the last product that it reads, if one can be."""
        products = [(self.writer[s], i) for i, s in enumerate(node.inputs) if s in self.writer]
        for place, operand in sorted(products, reverse=True):
            product = self.nodes[place]
            if product is None or not takes_epilogue(product.command) or (place < self.before) != (at < self.before):
                continue
            readers = self.readers[product.outputs[0]]
            if readers[0] != at:
                continue
            stays = len(readers) > 1 or product.outputs[0] in self.graph.outputs
            joined = self.joins.joined(product, node, operand, stays, [self._view(symbol) for symbol in node.inputs])
            if joined is not None and self.memory.move(product, node, operand, stays, joined):
                self.nodes[place], self.nodes[at] = None, joined
                return

    def _view(self, symbol: Symbol) -> Node | None:
        """Returns the `broadcast_to` node that makes this symbol."""
        node = self.graph.nodes[self.writer[symbol]] if symbol in self.writer else None
        return node if node is not None and _is_view(node) else None


def _is_view(node: Node) -> bool:
    return node.command.name == "broadcast_to"


class _Joins:
    """Makes nodes of products and fused nodes that read them; the result for equal products with the same sub-graph is found
    once. `machine` has the kernels that are asked.
    """

    def __init__(self, machine: Target) -> None:
        self._machine = machine
        self._known: dict[Any, tuple[Graph, Mapping[str, Any]] | None] = {}

    def joined(self, product: Node, node: Node, operand: int, stays: bool, views: Sequence[Node | None]) -> Node | None:
        """Returns the node that computes a product and the fused node that reads it as this operand; None where no backend
        takes that.

        Args:
            stays: whether the product is a result as well.
            views: for each operand of the fused node, the `broadcast_to` node that makes it. It becomes part of the node, so
                that backends see along which axes the operand varies.
        """
        stretched = tuple([view and (view.inputs[0].spec, tuple(view.params.items())) for view in views])
        specs, how = tuple([s.spec for s in product.inputs]), tuple(product.params.items())
        key = product.command, specs, how, node.graphs, node.params["overwrite"], operand, stays, stretched
        if key not in self._known:
            self._known[key] = _form(product, node, operand, stays, views, self._machine)
        form = self._known[key]
        if form is None:
            return None
        whole, params = form
        others = [s if view is None else view.inputs[0] for s, view in zip(node.inputs, views, strict=True)]
        inputs = (*product.inputs, *others[:operand], *others[operand + 1 :])
        outputs = (*node.outputs, *product.outputs) if stays else node.outputs
        return Node(with_epilogue, inputs, outputs, params, (whole,), product.source)


def _form(
    product: Node, node: Node, operand: int, stays: bool, views: Sequence[Node | None], machine: Target
) -> tuple[Graph, Mapping[str, Any]] | None:
    """Returns the sub-graph and the parameters of `_Joins.joined`."""
    specs = tuple([symbol.spec for symbol in product.inputs])
    alone = find_kernel(product.command, specs, product.params, machine)
    if alone is None:
        return None
    (graph,) = node.graphs
    inputs = [Symbol(symbol.spec, symbol.name) for symbol in product.inputs]
    nodes = [Node(product.command, tuple(inputs), (graph.inputs[operand],), product.params, source=product.source)]
    number: dict[int, int] = {}
    for i, (inner, view) in enumerate(zip(graph.inputs, views, strict=True)):
        if i == operand:
            continue
        number[i] = len(inputs)
        if view is not None:
            stretched, inner = inner, Symbol(view.inputs[0].spec, view.inputs[0].name)
            nodes.append(Node(view.command, (inner,), (stretched,), view.params, source=view.source))
        inputs.append(inner)
    whole = graph.update(
        inputs=tuple(inputs),
        outputs=(*graph.outputs, *nodes[0].outputs) if stays else graph.outputs,
        nodes=(*nodes, *graph.nodes),
        name="with_epilogue",
    )
    if Epilogue.of(whole, machine) is None:
        return None
    pairs = tuple((number[i], j) for i, j in node.params["overwrite"] if i in number and views[i] is None)
    params = MappingProxyType({"overwrite": pairs})
    taken = find_kernel(with_epilogue, tuple([s.spec for s in inputs]), {**params, "graphs": (whole,)}, machine)
    if taken is None or taken.backend != alone.backend:
        return None
    return whole, params if taken.in_place else MappingProxyType({"overwrite": ()})


class _LiveBytes:
    """The bytes that are live at each node of a graph, and how they change where a product is moved."""

    def __init__(self, description: Description) -> None:
        self._views, self._number = description.views, description.number
        self._entries = description.entries
        self._entry = {node: i for i, node in enumerate(description.entries) if node is not None}
        graph = description.graph
        self._given = {*graph.inputs, *graph.constants}.difference(description.donated, description.carried)
        self._operations = description.operations(stay=True)
        self._live = self._operations.live_bytes(range(len(self._entries)))
        self._limit = max(self._live)
        self._last = [readers[-1] if readers else -1 for readers in self._operations.readers]

    def move(self, product: Node, node: Node, operand: int, stays: bool, joined: Node) -> bool:
        """Computes a product together with a fused node that reads it as this operand, in the node `joined`, unless the largest
        live set would grow, or an operand of the product would be overwritten before.
        """
        first, at = self._entry[product], self._entry[node]
        operations, last = self._operations, self._last
        if self._is_written_over(product, first + 1, at + 1):
            return False
        live = self._live[first : at + 1]
        kept = [s for s in operations.ending[first] if last[s] < at]
        for s in kept:
            for i in range(last[s] + 1, at + 1):
                live[i - first] += operations.nbytes[s]
        nbytes = operations.nbytes[self._number[self._views[product.outputs[0]].base]]
        # Before, the result could share the memory of the product, or of an operand that the joined kernel does not overwrite.
        taken_over = any(i == operand for i, _ in node.params["overwrite"])
        loses_place = len(joined.params["overwrite"]) < len(node.params["overwrite"])
        live[:-1] = [n - nbytes for n in live[:-1]]
        live[-1] -= 0 if stays or taken_over or loses_place else nbytes
        if max(live[1:]) > self._limit:
            return False
        self._live[first : at + 1] = live
        for s in kept:
            last[s] = at
        return True

    def _is_written_over(self, product: Node, first: int, end: int) -> bool:
        """Whether entries first..end may overwrite an operand of a product; then it must not run after them."""
        for base in {self._views[symbol].base for symbol in product.inputs} - self._given:
            for i in self._operations.readers[self._number[base]]:
                node = self._entries[i] if first <= i < end else None
                if node is not None and any(view.base is base for view, _ in overwritable(node, self._views)):
                    return True
        return False
