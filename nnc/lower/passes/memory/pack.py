"""Brings weights into the blocked layouts of the kernels that read them, by nodes of their own.

A kernel that wants a weight in another layout reorders it in each call. A `pack` node reorders it once for all consumers of that
layout, before loops, and for constants while the program is made; the pass `keep_packed` lets it run once for many calls. Where it
would run as often, the kernel reorders: that is no slower, and is no concern of order and memory plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import nnc.commands.conv  # noqa: F401  (registers commands that take packed operands)
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.commands.pack import PACKABLE
from nnc.commands.pack import pack as pack_command
from nnc.commands.roles import take_loop
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, find_kernel, infer_specs, reference, register_pass
from nnc.graph.passes import Fact
from nnc.graph.remake import NewGraph, OncePerGraph, with_renamed
from nnc.lower.passes.loops import move_out
from nnc.lower.passes.memory.keep_packed import lasting_inputs


@register_pass("pack", requires=[Fact.LAYOUT], ensures=[Fact.PACKED])
def pack(graph: Graph, options: Options) -> Graph:
    """Puts `pack` nodes before nodes whose kernels would reorder an operand (column `kernel`, `layouts`), in sub-graphs, too.

    Packed are lasting inputs, constants, captured values of loops (before the loop), and values that several nodes want in one
    layout. Where no backend asks for a packed layout, nothing changes.

    Ensures: the same values; packed symbols have a spec with that layout, and the bytes that they take.

    Example:
        y = conv(x, w)  →  p = pack(w){layout=64x64x3x3:Acdb64a}; y = conv(x, p){packed=64x64x3x3:Acdb64a}
    """
    return _Packer(lasting_inputs(graph, options), machine_of(options)).graph(graph) if options.native else graph


class _Packer(OncePerGraph):
    """Packs weights, in inner loops first, so that a symbol that several capture is packed before all of them. `once` are the
    symbols whose packed form serves many runs of its readers: lasting inputs, and captured symbols of loops. `machine` has the
    kernels that are asked.
    """

    def __init__(self, lasting: Iterable[Symbol], machine: Target) -> None:
        super().__init__()
        self.once, self.machine = set(lasting), machine

    def rewrite(self, graph: Graph) -> Graph:
        return _WithPacks(self, graph).result()


class _WithPacks(NewGraph):
    """One graph that is rewritten. `known` are packed symbols, by their sources and layouts; `wishes` counts their consumers."""

    def __init__(self, packer: _Packer, graph: Graph) -> None:
        super().__init__(packer, graph)
        self.packer = packer
        self.known: dict[tuple[Symbol, str], Symbol] = {}
        self.lasting = packer.once.union(graph.constants)
        self.layouts = {node: layouts for node in graph.nodes if (layouts := self._layouts(node))}
        self.wishes = Counter(
            (node.inputs[i], layout) for node, layouts in self.layouts.items() for i, layout in layouts.items()
        )

    def take(self, old: Node) -> None:
        """See the base."""
        loop = take_loop(old)
        if loop is not None:
            self.packer.once.update(read.inner[0] for read in loop.captured)
        super().take(old)
        if not old.graphs:
            self.nodes.append(self._packed(self.nodes.pop(), self.layouts.get(old, {})))

    def add(self, node: Node) -> None:
        """See the base."""
        loop = take_loop(node)
        if loop is not None:
            before, loop = move_out(loop, self.constants, lambda inner, surely: inner.command is pack_command)
            for made in before:
                self._note(made)
            node = with_renamed(loop.join() if before else node, self.renamed)
        self.nodes.append(node)

    def _note(self, node: Node) -> None:
        """Adds a `pack` node, unless there is an equal one."""
        key = node.inputs[0], node.params["layout"]
        if key in self.known:
            self.renamed[node.outputs[0]] = self.known[key]
            return
        self.known[key] = node.outputs[0]
        if node.inputs[0] in self.constants:
            self.constants[node.outputs[0]] = reference[node.command](self.constants[node.inputs[0]], **node.params)
        else:
            self.nodes.append(node)

    def _packed(self, node: Node, layouts: Mapping[int, str]) -> Node:
        """Returns the node on packed operands, but for operands that no other node reads packed."""
        for position, layout in layouts.items():
            source, params = node.inputs[position], MappingProxyType({"layout": layout})
            if source not in self.lasting and self.wishes[source, layout] == 1 and not self.packer.machine.backends:
                continue  # a library's kernel reorders as fast
            (spec,) = infer_specs(pack_command, (source.spec,), params)
            self._note(Node(pack_command, (source,), (Symbol(spec, source.name),), params, source=node.source))
            inputs = (*node.inputs[:position], self.known[source, layout], *node.inputs[position + 1 :])
            node = node.update(inputs=inputs, params=MappingProxyType({**node.params, "packed": layout}))
        return node

    def _layouts(self, node: Node) -> Mapping[int, str]:
        """Returns the packed layouts of operands that the kernel of a node prefers."""
        if node.command.name not in PACKABLE or "packed" in node.params:
            return {}
        specs = tuple(symbol.spec for symbol in node.inputs)
        kernel = find_kernel(node.command, specs, node.params, self.packer.machine)
        once = node.inputs[1] in self.lasting
        return kernel.layouts(specs, node.params, once) if kernel is not None else {}
