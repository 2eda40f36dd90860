"""Chooses which tensors of convolutional networks lie with their channels last.

Libraries convolve activations fastest whose channels are neighbours; otherwise they reorder them, each time. Nodes between
convolutions that compute element by element, reduce, pool or join take either order. So each node gets one of two orders of axes,
such that the bytes that are moved for it are fewest: a minimum cut (`nnc.lower.plan.min_cut`), which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.base.options import Options
from nnc.base.target import Convolutions
from nnc.commands.shape import broadcast_axes, invert_permutation
from nnc.commands.windows import is_narrow
from nnc.device import CPU, machine_of
from nnc.graph import Graph, Node, Symbol, TensorSpec, command, register_pass
from nnc.graph.passes import Fact
from nnc.graph.registry import scalar
from nnc.graph.remake import OncePerGraph
from nnc.lower.plan.min_cut import INFINITE, MinCut

Axes = tuple[int, ...]
Params = Mapping[str, Any]


_CONVOLUTIONS: Mapping[str, tuple[bool, bool, bool]] = MappingProxyType({
    # which of the operands and the output are activations
    "conv": (True, False, True), "conv_input_grad": (True, False, True), "conv_weight_grad": (True, True, False),
})  # fmt: skip
_POOLS = frozenset(
    {"max_pool", "max_pool_places", "sum_pool", "sum_pool_input_grad", "pick_pool", "pick_pool_input_grad"}
)
_REDUCTIONS = frozenset(
    {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "logsumexp"}
)
_BY_AXES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    # parameters that hold axes, or one or several values for each axis
    "concatenate": ("axis",), "flip": ("axes",), "softmax": ("axes",), "log_softmax": ("axes",),
    "slice": ("start", "limit", "stride"), "pad": ("low", "high", "interior"),
    "assemble": ("shape", "starts"),
})  # fmt: skip
_HOLDS_AXES = frozenset({"axis", "axes"})


@register_pass(
    "layout",
    requires=[Fact.SIMPLIFIED, Fact.NO_DEAD],
    ensures=[Fact.LAYOUT],
    invalidates=[Fact.SIMPLIFIED, Fact.ORDERED],
)
def layout(graph: Graph, options: Options) -> Graph:
    """Lets chains of nodes between convolutions run with the channels last, where that moves fewer bytes, in sub-graphs, too.

    Programs for other devices than CPUs stay: the costs are of the CPU's library.

    Ensures: the same values; inputs and outputs of the graph keep their axes. Nodes between are turned with their operands, by
        `transpose` and, where memory is to be written in the new order, `reorder`.

    Example:
        y = conv(x, w); z = exp(y); u = conv(z, w)
        →  a = reorder(x); y = conv(a, w){channels_last}; z = exp(y); u = conv(z, w){channels_last}; v = transpose(u)
    """
    machine = machine_of(options)
    turns = options.native and machine.kind == CPU
    return _Layouts(machine.convolutions).graph(graph) if turns else graph


def last_order(ndim: int) -> Axes:
    """Returns the permutation that puts axis 1 last."""
    return (0, *range(2, ndim), 1)


def _turned(values: Any, order: Axes) -> Any:
    return tuple(values[axis] for axis in order)


class _Way(NamedTuple):
    """The form of a node on turned operands: which operands are turned, whether its output is, and its parameters."""

    inputs: tuple[bool, ...]
    output: bool
    params: Params


def _way(node: Node, figures: Convolutions) -> _Way | None:
    """Returns the way to run a node with the channels last; None where there is none."""
    if len(node.outputs) != 1 or not node.inputs or node.graphs:
        return None
    name, x, out = node.command.name, node.inputs[0].spec, node.outputs[0].spec
    if name in _CONVOLUTIONS:
        *turned, output = _CONVOLUTIONS[name]
        free = "channels_last" not in node.params and not _is_printed(node, figures)
        return _Way(tuple(turned), output, {**node.params, "channels_last": True}) if free else None
    if name in _POOLS:
        if "channels_last" in node.params or len(node.params["window"]) != x.ndim - 2:
            return None
        return _Way((True,) * len(node.inputs), True, {**node.params, "channels_last": True})
    if x.ndim < 3:
        return None
    if name in _REDUCTIONS:
        return _reduction(node, x)
    if name in _BY_AXES:
        order = last_order(x.ndim)
        inputs = (True, False) if name == "pad" else (True,) * len(node.inputs)
        return _Way(inputs, True, _turned_params(node.params, _BY_AXES[name], order))
    alike = all(symbol.spec.shape == out.shape for symbol in node.inputs)
    return _Way((True,) * len(node.inputs), True, node.params) if alike and node.command in scalar else None


def _is_printed(node: Node, figures: Convolutions) -> bool:
    """Whether a convolution's kernel reads rows."""
    x, w = (symbol.spec for symbol in node.inputs)
    return node.command.name == "conv" and is_narrow(x, w, node.params, figures)


def _turned_params(params: Params, names: tuple[str, ...], order: Axes) -> Params:
    where, changed = invert_permutation(order), dict(params)
    for name in names:
        value = params[name]
        if name == "starts":
            changed[name] = tuple(_turned(start, order) for start in value)
        elif name not in _HOLDS_AXES:
            changed[name] = _turned(value, order)
        elif isinstance(value, tuple):
            changed[name] = tuple(sorted(where[axis % len(order)] for axis in value))
        else:
            changed[name] = where[value % len(order)]
    return changed


def _reduction(node: Node, x: TensorSpec) -> _Way | None:
    """Returns a reduction whose remaining axes come out in one of the two orders."""
    order = last_order(x.ndim)
    removed = {axis % x.ndim for axis in node.params["axes"]}
    left = [axis for axis in range(x.ndim) if axis not in removed]
    found = [axis for axis in order if axis not in removed]
    params = _turned_params(node.params, ("axes",), order)
    if found == left:
        return _Way((True,), False, params)
    return _Way((True,), True, params) if found == [left[axis] for axis in last_order(len(left))] else None


def _is_free(spec: TensorSpec) -> bool:
    """Whether both orders are the same memory: no axis of more than one element moves past another."""
    moved = [axis for axis in last_order(spec.ndim) if spec.shape[axis] != 1]
    return moved == sorted(moved)


def _first_cost(node: Node) -> int:
    """Returns the bytes that the library reorders where a convolution's activations do not have their channels last."""
    if node.command.name not in _CONVOLUTIONS:
        return 0
    symbols = (*node.inputs, *node.outputs)
    return sum(s.spec.nbytes for s, moves in zip(symbols, _CONVOLUTIONS[node.command.name], strict=True) if moves)


class _Layouts(OncePerGraph):
    """Rewrites graphs and their sub-graphs."""

    def __init__(self, figures: Convolutions) -> None:
        super().__init__()
        self._figures = figures

    def rewrite(self, graph: Graph) -> Graph:
        chosen: dict[Node, _Way] = {}
        if any(node.command.name in _CONVOLUTIONS for node in graph.nodes):
            ways = {node: way for node in graph.nodes if (way := _way(node, self._figures)) is not None}
            chosen = _choose(graph, ways, self._figures.turning_cost)
        printed = {node for node in graph.nodes if node.command.name == "conv" and _is_printed(node, self._figures)}
        if not chosen and not printed and not any(node.graphs for node in graph.nodes):
            return graph
        return _Turned(graph, chosen, printed, lambda node: self.renew(node, {})).result()


def _turns(node: Node, order: Callable[[int], Axes]) -> bool:
    """Whether a node is a transpose to that order."""
    return node.command.name == "transpose" and tuple(node.params["permutation"]) == order(node.inputs[0].spec.ndim)


def _first_order(ndim: int) -> Axes:
    """Returns the permutation that undoes `last_order`."""
    return invert_permutation(last_order(ndim))


def _is_lazy(node: Node) -> bool:
    """Whether a node is a view that is made again in the requested order."""
    return node.command.name == "broadcast_to" or _turns(node, _first_order)


def _choose(graph: Graph, ways: Mapping[Node, _Way], turning_cost: int) -> dict[Node, _Way]:
    """Returns the nodes that run with their channels last, so that the least is moved, and how."""
    number = {node: i for i, node in enumerate(ways)}
    cut = MinCut(len(number))
    writers = {node.outputs[0]: number[node] for node, way in ways.items() if way.output}
    readers: dict[Symbol, list[int]] = {}  # the nodes that can read a symbol turned
    others = set(graph.outputs)  # symbols that are read in their first order, too
    for node in graph.nodes:
        way = ways.get(node)
        if way is not None:
            cut.cost_of_first(number[node], _first_cost(node))
            for symbol, turns in zip(node.inputs, way.inputs, strict=True):
                if turns:
                    readers.setdefault(symbol, []).append(number[node])
                else:
                    others.add(symbol)
        elif not _is_lazy(node) and not _turns(node, last_order):  # such nodes show either order
            others.update(node.inputs)
    made = {node.outputs[0] for node in graph.nodes if _is_lazy(node)}
    symbols = dict.fromkeys((*readers, *writers))
    free = {spec for spec in {symbol.spec for symbol in symbols} if spec.ndim < 3 or _is_free(spec)}
    for symbol in symbols:
        if symbol.spec in free or symbol in made:
            continue
        able, writer, cost = (
            readers.get(symbol, ()),
            writers.get(symbol),
            turning_cost * symbol.spec.nbytes,
        )
        turned = cut.thing()  # a turned copy, for all that read it turned
        for reader in able:
            cut.cost_if(turned, reader, INFINITE)
        if writer is None:
            cut.cost_of_second(turned, cost)
            continue
        cut.cost_if(writer, turned, cost)
        back = cut.thing()  # a copy of the turned result, in the first order
        cut.cost_if(back, writer, cost)
        if symbol in others:
            cut.cost_of_second(back, INFINITE)
        for reader in able:
            cut.cost_if(reader, back, INFINITE)
    second = cut.second()
    return {node: way for (node, way), is_turned in zip(ways.items(), second, strict=False) if is_turned}


class _Turned:
    """A graph in which some nodes run with the channels last."""

    def __init__(
        self, graph: Graph, ways: Mapping[Node, _Way], printed: Set[Node], renew: Callable[[Node], Node]
    ) -> None:
        self.old, self.ways, self.printed, self.renew = graph, ways, printed, renew
        self.nodes: list[Node] = []
        self.lazy = {node.outputs[0]: node for node in graph.nodes if _is_lazy(node)}
        self.first: dict[Symbol, Symbol] = {symbol: symbol for symbol in (*graph.inputs, *graph.constants)}
        self.last: dict[Symbol, Symbol] = {}  # the symbol with its channels last

    def result(self) -> Graph:
        """Returns the new graph."""
        for node in self.old.nodes:
            way = self.ways.get(node)
            if way is not None:
                self._turn(node, way)
            elif node.outputs and node.outputs[0] in self.lazy:
                continue  # it is made where it is read
            elif _turns(node, last_order) and node.inputs[0] in self.last:
                self.first[node.outputs[0]] = self.last[node.inputs[0]]
            else:
                inputs = tuple([self.first.get(symbol) or self._get(symbol, False, node) for symbol in node.inputs])
                if node in self.printed:
                    inputs = (self._rows(node, inputs[0]), *inputs[1:])
                renewed = self.renew(node)
                self.nodes.append(renewed if inputs == node.inputs else renewed.update(inputs=inputs))
                self.first.update(zip(node.outputs, node.outputs, strict=True))
        outputs = tuple(self._get(symbol, False, None) for symbol in self.old.outputs)
        return self.old.update(nodes=tuple(self.nodes), outputs=outputs)

    def _turn(self, node: Node, way: _Way) -> None:
        inputs = tuple([self._get(s, turned, node) for s, turned in zip(node.inputs, way.inputs, strict=True)])
        old = node.outputs[0]
        new = Symbol(_turned_spec(old.spec), old.name) if way.output and old.spec.ndim > 2 else old
        self.nodes.append(node.update(inputs=inputs, outputs=(new,), params=MappingProxyType(dict(way.params))))
        self._places(way.output)[old] = new

    def _get(self, symbol: Symbol, last: bool, reader: Node | None) -> Symbol:
        """Returns the symbol in the requested order."""
        last = last and symbol.spec.ndim > 2
        places = self._places(last)
        found = places.get(symbol)
        if found is None:
            view = self.lazy.get(symbol)
            found = places[symbol] = self._convert(symbol, last, reader) if view is None else self._show(view, last)
        return found

    def _rows(self, node: Node, activations: Symbol) -> Symbol:
        """Returns the activations of a printed convolution in rows, where they would be a view of others: vectors are read."""
        view = self.lazy.get(node.inputs[0])
        if view is None or not _turns(view, _first_order):
            return activations
        source, spec = self._get(view.inputs[0], False, node), view.outputs[0].spec
        return self._append("reorder", source, spec, {"permutation": tuple(view.params["permutation"])}, node)

    def _places(self, last: bool) -> dict[Symbol, Symbol]:
        """Returns the symbols of the new graph that show symbols of the old one in an order."""
        return self.last if last else self.first

    def _convert(self, symbol: Symbol, last: bool, reader: Node | None) -> Symbol:
        """Returns a tensor's elements in the other order."""
        source = self._places(not last)[symbol]
        order = last_order(symbol.spec.ndim)
        if _is_free(symbol.spec):
            spec = _turned_spec(symbol.spec) if last else symbol.spec
            return self._append("reshape", source, spec, {"shape": spec.shape}, reader)
        if last:
            return self._append("reorder", source, _turned_spec(symbol.spec), {"permutation": order}, reader)
        return self._append("transpose", source, symbol.spec, {"permutation": invert_permutation(order)}, reader)

    def _show(self, node: Node, last: bool) -> Symbol:
        """Returns a view in the requested order."""
        out, x = node.outputs[0], node.inputs[0]
        if last and node.command.name == "transpose":
            return self._get(x, False, node)
        if not last:
            self.nodes.append(node.update(inputs=(self._get(x, False, node),)))
            return out
        where = invert_permutation(last_order(out.spec.ndim))
        axes = broadcast_axes(x.spec.ndim, out.spec.shape, node.params.get("axes"))
        if axes == tuple(range(out.spec.ndim)):
            source, moved = self._get(x, True, node), axes
        else:
            source = self._get(x, False, node)
            moved = tuple(where[axis] for axis in axes)
            order = tuple(sorted(range(len(moved)), key=moved.__getitem__))
            if order != tuple(range(len(order))):
                spec = x.spec.update(shape=_turned(x.spec.shape, order))
                source = self._append("transpose", source, spec, {"permutation": order}, node)
                moved = tuple(sorted(moved))
        spec = _turned_spec(out.spec)
        return self._append("broadcast_to", source, spec, {"shape": spec.shape, "axes": moved}, node)

    def _append(self, name: str, source: Symbol, spec: TensorSpec, params: Params, near: Node | None) -> Symbol:
        new = Symbol(spec)
        line = near.source if near is not None else None
        self.nodes.append(Node(command(name), (source,), (new,), MappingProxyType(dict(params)), source=line))
        return new


def _turned_spec(spec: TensorSpec) -> TensorSpec:
    return spec.update(shape=_turned(spec.shape, last_order(spec.ndim)))
