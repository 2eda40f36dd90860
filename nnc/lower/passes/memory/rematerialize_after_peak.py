"""Rematerializes cheap values where they are read late, so that no memory holds them in between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from nnc.base.options import Options
from nnc.base.size import hint
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.passes import Fact
from nnc.graph.registry import scalar, weight
from nnc.lower.kernels.domain import can_fuse, is_reduction
from nnc.lower.passes.memory.order import Description
from nnc.lower.passes.simplify.dce import dce
from nnc.lower.plan.min_cut import INFINITE, MinCut
from nnc.lower.plan.views import runs

_WORTHWHILE = 1 << 20  # bytes; below, memory is not worth any work
_GAIN = 0.9  # of the peak; the pass changes nothing for less gain
_WORK = 16  # of elementwise commands for one value: 1 for commands with a weight, 2 for others; a GELU takes a dozen
_NODES = 96  # the same limit where a kernel computes it for itself alone
_SMALL = 64  # a value that takes this part of another's bytes may be kept for it
_MINOR = 1000  # values that take a smaller part of the peak stay
_PROGRESS = 0.99  # of the peak; an iteration that gains less is the last


@register_pass("rematerialize_after_peak", requires=[Fact.NO_CALLS, Fact.ORDERED], ensures=[Fact.LOW_PEAK])
def rematerialize_after_peak(graph: Graph, options: Options) -> Graph:
    """Rematerializes, after the peak of memory, results of elementwise commands from values that are kept over the peak anyway.

    Activations are the case in point: relu(x · scale + bias) and the mask of its derivative follow from x, which the backward part
    keeps for the normalisation. At most a dozen elementwise commands are run again for a value, and only where the largest live set
    falls by a tenth. Sub-graphs stay as they are.

    Where programs are compiled, values that only kernels of elementwise commands read after the peak are recomputed in these
    kernels at any cost, from the fewest bytes from which they can be (a minimum cut): reading and writing memory takes longer.
    (PyTorch's compiler partitions its graphs for training likewise.)

    Ensures: the same values bit for bit; the largest live set is no larger.

    Example:
        y = exp(x); <peak>; z = mul(y, x)  →  y = exp(x); <peak>; y' = exp(x); z = mul(y', x)
    """
    peak = Peak(graph, options)
    if peak.nbytes < _WORTHWHILE:
        return graph
    if options.native and (derived := peak.derived()) is not None:
        peak = Peak(derived, options, peak)
    first = peak
    while (smaller := peak.lowered()) is not None:
        following = Peak(smaller, options, peak)
        if following.nbytes > _PROGRESS * peak.nbytes:
            break
        peak = following
    return (peak if peak.nbytes <= _GAIN * first.nbytes else first).graph


class Peak:
    """The place in a graph where the most bytes are live, and the values that are live across it.

    Args:
        origin: the peak of the graph from which this one was made; None: `order` may have described this graph already.
    """

    def __init__(self, graph: Graph, options: Options, origin: Peak | None = None) -> None:
        self.graph, self.options, self.machine = graph, options, machine_of(options)
        known = origin.description if origin is not None else graph.attrs.get("_description")
        self.description: Description = Description.of_program(graph, options, known)
        live = self.description.live_bytes()
        self.nbytes = max(live)
        self.place = max(live.index(self.nbytes) - (len(live) - len(graph.nodes)), -1)
        self.views = self.description.views

    @cached_property
    def writers(self) -> dict[Symbol, int]:
        """The places of the nodes that write symbols."""
        return {symbol: place for place, node in enumerate(self.graph.nodes) for symbol in node.outputs}

    def lowered(self) -> Graph | None:
        """Returns the graph that rematerializes values after the peak where that is possible; None where it is not."""
        early, late = self._early(), {base for _, read in self._late() for base in read}
        wanted = {s for s in early if s in late and hint(s.spec.nbytes) * _MINOR >= self.nbytes}
        outputs = {self.views[s].base for s in self.graph.outputs}
        wanted -= outputs
        kept = {*self.graph.inputs, *self.graph.constants, *outputs, *late.intersection(early)} - wanted
        at_hand = kept | wanted | self._cheapest(wanted, kept)
        recipes: dict[Symbol, list[Node]] = {}
        for symbol in early:
            if symbol in wanted:
                at_hand.discard(symbol)
                recipe = self._recipe(symbol, at_hand)
                if recipe is None:
                    at_hand.add(symbol)
                else:
                    recipes[symbol] = recipe
        return self._rewritten(recipes) if recipes else None

    def derived(self) -> Graph | None:
        """Returns the graph in which kernels of elementwise commands after the peak recompute their operands, from the fewest
        bytes; None where they read nothing else already.
        """
        early = self._early()
        kept = {*self.graph.inputs, *self.graph.constants, *(self.views[s].base for s in self.graph.outputs)}
        kept.update(s for s in early if hint(s.spec.nbytes) * _MINOR < self.nbytes)
        large = set(early) - kept
        late = [(node, large.intersection(read)) for node, read in self._late()]
        for node, read in late:
            if not read <= kept and not can_fuse(node, self.machine):
                kept |= read
        wanted = {symbol for _, read in late for symbol in read} - kept
        stored = self._cheapest(wanted, kept)
        at_hand = kept | stored
        recipes: dict[Symbol, list[Node]] = {}
        for symbol in early:
            if symbol in wanted and symbol not in stored:
                recipe = self._recipe(symbol, at_hand, most=_NODES)
                if recipe is not None:
                    recipes[symbol] = recipe
        return self._rewritten(recipes) if recipes else None

    def _cheapest(self, wanted: set[Symbol], kept: set[Symbol]) -> set[Symbol]:
        """Finds the values of the fewest bytes from which, and from kept values, elementwise commands make all wanted ones."""
        found = self._sources(wanted, kept)
        number = {symbol: i for i, symbol in enumerate(found)}
        cut = MinCut(2 * len(found))  # each value is a pair: whether it can be recomputed, and whether it is in memory
        for symbol, sources in found.items():
            made, there = 2 * number[symbol], 2 * number[symbol] + 1
            cut.cost_if(made, there, hint(symbol.spec.nbytes))
            if symbol in wanted:
                cut.cost_of_first(there, INFINITE)
            if sources is None:
                cut.cost_of_second(made, INFINITE)
            for source in sources or ():
                cut.cost_if(2 * number[source] + 1, made, INFINITE)
        second = cut.second()
        return {symbol for symbol, i in number.items() if second[2 * i + 1] and not second[2 * i]}

    def _sources(self, wanted: set[Symbol], kept: set[Symbol]) -> dict[Symbol, list[Symbol] | None]:
        """Finds the sources of wanted values, step by step: for each the values that its node reads and that are not kept; None
        where it cannot be recomputed.
        """
        found: dict[Symbol, list[Symbol] | None] = {}
        stack = list(wanted)
        while stack:
            symbol = stack.pop()
            if symbol in found:
                continue
            node = self.graph.nodes[self.writers[symbol]] if symbol in self.writers else None
            if node is None or not can_fuse(node, self.machine) or is_reduction(node):
                found[symbol] = None
                continue
            sources = [base for base in [self.views[s].base for s in node.inputs] if base not in kept]
            found[symbol] = sources
            stack += sources
        return found

    def _early(self) -> list[Symbol]:
        """Returns the values with memory of their own that are written up to the peak."""
        views = self.views
        return [s for node in self.graph.nodes[: self.place + 1] for s in node.outputs if views[s].base is s]

    def _late(self) -> list[tuple[Node, list[Symbol]]]:
        """Returns the nodes that run after the peak, each with the memory that it reads."""
        views = self.views
        nodes = [node for node in self.graph.nodes[self.place + 1 :] if runs(node, views)]
        return [(node, [views[s].base for s in node.inputs]) for node in nodes]

    def _recipe(self, symbol: Symbol, at_hand: set[Symbol], most: int = _WORK) -> list[Node] | None:
        """Returns the nodes that make a symbol from values at hand, in order; None where they are too many, or one is expensive."""
        found: set[int] = set()  # places of nodes
        stack, work = [symbol], 0
        while stack:
            output = stack.pop()
            base = self.views[output].base
            if base in at_hand or (
                output is not symbol and hint(base.spec.nbytes) * _SMALL <= hint(symbol.spec.nbytes)
            ):
                continue
            place = self.writers[output]
            if place in found:
                continue
            found.add(place)
            node = self.graph.nodes[place]
            if runs(node, self.views):
                work += 1 if node.command in weight else 2
                if node.command not in scalar or len(node.outputs) > 1 or work > most:
                    return None
            stack += node.inputs
        return [self.graph.nodes[place] for place in sorted(found)]

    def _rewritten(self, recipes: dict[Symbol, list[Node]]) -> Graph:
        """Returns the graph with the recipes carried out where the first node after the peak needs them."""
        nodes = list(self.graph.nodes[: self.place + 1])
        remade = {symbol for symbol, view in self.views.items() if view.base in recipes}
        renamed: dict[Symbol, Symbol] = {}
        for node in self.graph.nodes[self.place + 1 :]:
            if not runs(node, self.views):
                if node.outputs[0] not in remade:
                    nodes.append(node)
            elif remade.isdisjoint(node.inputs):
                nodes.append(node)
            else:
                for symbol in node.inputs:
                    for needed in self._renewed(symbol, recipes):
                        if needed.outputs[0] not in renamed:
                            renamed[needed.outputs[0]] = Symbol(needed.outputs[0].spec)
                            nodes.append(_renamed(needed, renamed))
                nodes.append(node.update(inputs=tuple([renamed[s] if s in remade else s for s in node.inputs])))
        return dce(self.graph.update(nodes=tuple(nodes)), self.options)

    def _renewed(self, symbol: Symbol, recipes: dict[Symbol, list[Node]]) -> Iterator[Node]:
        """The nodes that make a symbol in rematerialized memory, in order; some may be done."""
        base = self.views[symbol].base
        if symbol is base or base not in recipes:
            yield from recipes.get(base, ())
        else:
            node = self.graph.nodes[self.writers[symbol]]
            for source in node.inputs:
                yield from self._renewed(source, recipes)
            yield node


def _renamed(node: Node, renamed: dict[Symbol, Symbol]) -> Node:
    """Returns a copy of a node, whose inputs and outputs are renamed."""
    inputs, outputs = (tuple(renamed.get(s, s) for s in symbols) for symbols in (node.inputs, node.outputs))
    return node.update(inputs=inputs, outputs=outputs)
