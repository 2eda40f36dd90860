"""Computes at compile time values that depend on constants alone.

A constant that would be large stays an expression. A tensor that holds one number everywhere becomes a broadcast of that number,
which takes no memory, and elementwise commands on such tensors are computed on the numbers. Empty tensors count as such, and so do
reductions of them: programs have no kernels for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.commands.properties import element_as, never_raises, yields_elements
from nnc.commands.roles import NodeRoles, Read, take_apart
from nnc.commands.rules import Number, reduction
from nnc.commands.shape import broadcast_to
from nnc.errors import NncError
from nnc.graph import Graph, Node, Symbol, TensorSpec, command, reference, register_pass
from nnc.graph.graph import NDArray
from nnc.graph.passes import Fact
from nnc.graph.registry import alias, effect, scalar
from nnc.graph.remake import NewGraph, OncePerGraph, append_copy, with_renamed
from nnc.lower.passes.simplify.dce import has_effect

LARGEST_RESULT = 1024  # bytes; a result may also be as large as its operands
LARGEST_OPERANDS = 1 << 16


@register_pass("fold", requires=[Fact.INLINED], ensures=[Fact.FOLDED], invalidates=[Fact.NO_DEAD])
def fold(graph: Graph, options: Options) -> Graph:
    """Replaces nodes whose operands are constants by their value, and branches and loops by the nodes that they surely run.

    Draws and effects stay, and so does a command that raises: the error occurs when the program runs, at the user's line.

    Ensures: no constant is larger than 1 KiB or the operands it was computed from; a tensor that holds one number everywhere, as
        far as this is known, is `broadcast_to` of a 0-d constant with axes=(). No `case_of` has a constant index in
        range, no scan has length 0 or 1, no `while` a test that is known to fail at once.

    Example:
        a = full(shape=(2, 3), value=2); b = neg(a)  →  b = broadcast_to(-2.0, shape=(2, 3), axes=())
    """
    return _Folder(options.sized).graph(graph)


class _Folder(OncePerGraph):
    def __init__(self, sized: bool) -> None:
        super().__init__()
        self.sized = sized

    def rewrite(self, graph: Graph) -> Graph:
        """`graph` folded; the graph itself where nothing is known."""
        return _Fold(self, graph).result()


class _Fold(NewGraph):
    """The folding of one graph."""

    def __init__(self, folder: _Folder, graph: Graph) -> None:
        super().__init__(folder, graph)
        self.folder = folder
        self.numbers: dict[Symbol, NDArray] = {}  # tensors with axes that hold one number everywhere
        self.number_constants: dict[tuple[Any, bytes], Symbol] = {}

    def take(self, old: Node) -> None:
        """Appends a node, or the value that it folds to."""
        node = with_renamed(old, self.renamed)
        if node.graphs:
            self.add_with_graphs(node)
        elif not self.fold(node):
            self.add(node)

    def add(self, node: Node) -> None:
        """Appends a node."""
        self.nodes.append(node)

    # -- values ------------------------------------------------------------------------------------------------------

    def number(self, symbol: Symbol) -> NDArray | None:
        """Returns the one number that a tensor holds, 0-d; None where it is not known."""
        if symbol in self.numbers:
            return self.numbers[symbol]
        value = self.constants.get(symbol)
        return value if value is not None and value.ndim == 0 and value.dtype != TAPE else None

    def fold(self, node: Node) -> bool:
        """Whether the node's value is known; it is then a constant, or a broadcast of one."""
        if self.fold_nothing(node):
            return True
        for symbol in node.inputs:
            if symbol not in self.constants and symbol not in self.numbers:
                return False
        if len(node.outputs) != 1 or node.command in effect or node.command not in reference:
            return False
        (out,) = node.outputs
        if out.dtype == TAPE:
            return False
        number = self.number_of(node)
        if number is not None:
            self.set_number(node, out, number)
            return True
        value = self.value_of(node, out)
        if value is None:
            return False
        self.constants[out] = value
        return True

    def fold_nothing(self, node: Node) -> bool:
        """Whether there is nothing to compute, or nothing to compute it from: empty results, and reductions of empty tensors."""
        outputs, is_given = node.outputs, any(symbol.spec.size for symbol in node.inputs)
        if (
            self.folder.sized
            or node.command in effect
            or node.command in alias
            or (is_given and not never_raises(node))
        ):
            return False
        if not any(out.spec.size or out.dtype == TAPE for out in outputs):
            for out in outputs:
                self.set_number(node, out, np.zeros((), out.dtype))
            return True
        if is_given or not node.inputs or len(outputs) != 1:
            return False
        (out,), by = outputs, reduction.get(node.command, None)
        if by is not None:
            self.set_number(node, out, np.asarray(by.identity(out.dtype), out.dtype))
            return True
        if node.command not in reference or out.dtype == TAPE or out.spec.nbytes > LARGEST_RESULT:
            return False
        value = _evaluate(node, [np.zeros(symbol.shape, symbol.dtype) for symbol in node.inputs])
        if value is not None:
            self.constants[out] = value
        return value is not None

    def number_of(self, node: Node) -> NDArray | None:
        """Returns the number that the result holds everywhere, where all operands do, too."""
        number = element_as(node.command, Number)
        if number is not None:
            (out,) = node.outputs
            return np.asarray(np.full((), number.of(**node.params), out.dtype))
        numbers = [self.number(symbol) for symbol in node.inputs]
        if not numbers or numbers[0] is None or any(x is None for x in numbers):
            return None
        if yields_elements(node):
            alike = all(x is not None and x.tobytes() == numbers[0].tobytes() for x in numbers)
            return numbers[0] if alike else None
        if node.command not in scalar or not node.outputs[0].spec.size:
            return None
        return _evaluate(node, numbers)

    def set_number(self, node: Node, out: Symbol, number: NDArray) -> None:
        """Lets `out` be a broadcast of a 0-d constant."""
        if out.spec.ndim == 0:
            self.constants[out] = number
            return
        self.numbers[out] = number
        params = {"shape": out.shape, "axes": ()}
        if node.command is broadcast_to and node.inputs[0] in self.constants and dict(node.params) == params:
            self.add(node)
            return
        key = number.dtype, number.tobytes()
        constant = self.number_constants.get(key)
        if constant is None:
            constant = self.number_constants[key] = Symbol(TensorSpec((), number.dtype))
            self.constants[constant] = number
        self.add(node.update(command=broadcast_to, inputs=(constant,), outputs=(out,), params=MappingProxyType(params)))

    def value_of(self, node: Node, out: Symbol) -> NDArray | None:
        """Returns the value of a node on known values, some of them constants; None where it is large, or the command raises."""
        constants = [self.constants[symbol] for symbol in node.inputs if symbol in self.constants]
        size = sum(value.nbytes for value in constants)
        if (node.inputs and not constants) or any(value.dtype == TAPE for value in constants):
            return None
        if self.folder.sized and not node.inputs and out.spec.ndim:
            return None  # its size may vary
        if size > LARGEST_OPERANDS or out.spec.nbytes > max(size, LARGEST_RESULT):
            return None
        return _evaluate(node, [self.whole(symbol) for symbol in node.inputs])

    def whole(self, symbol: Symbol) -> NDArray:
        """Returns a value that is known."""
        found = self.constants.get(symbol)
        return np.broadcast_to(self.numbers[symbol], symbol.shape) if found is None else found

    # -- sub-graphs --------------------------------------------------------------------------------------------------

    def add_with_graphs(self, node: Node) -> None:
        """Appends a node with sub-graphs, which learn the constants that they are given, or the sub-graph that surely runs."""
        loop = take_apart(node)
        if loop is not None:
            loop = self.hand_in(loop)
            if loop.length in (0, 1):
                self.add_iterations(loop)
                return
            if loop.test and not loop.rows and self.never_runs(loop):
                self.add_test(loop)
                return
            if loop.is_branch:
                index = self.constants.get(loop.lead[0])
                if index is not None and 0 <= int(index) < len(loop.graphs):
                    self.add_branch(loop, int(index))
                    return
            node = loop.node
        self.add(self.folder.renew(node, {}))

    def hand_in(self, loop: NodeRoles) -> NodeRoles:
        """Returns the loop with the constants among its captured values made constants of its sub-graphs."""
        known = [read for read in loop.captured if self.is_small(read.operand)]
        if not known:
            return loop
        graphs = tuple(
            self.with_constants(graph, [(r, r.inner[i]) for r in known]) for i, graph in enumerate(loop.graphs)
        )
        kept = tuple(read for read in loop.captured if read not in known)
        joined = take_apart(loop.update(captured=kept, graphs=graphs).join())
        assert joined is not None
        return joined

    def is_small(self, symbol: Symbol, *, whole: bool = False) -> bool:
        """Whether a value is a constant worth handing into sub-graphs, or one number everywhere (unless `whole`)."""
        value = self.constants.get(symbol)
        return (symbol in self.numbers and not whole) or (
            value is not None and value.nbytes <= LARGEST_RESULT and value.dtype != TAPE
        )

    def with_constants(self, graph: Graph, known: Sequence[tuple[Read, Symbol]]) -> Graph:
        """`graph` with some inputs as constants; the caller drops the inputs."""
        constants = dict(graph.constants)
        first: list[Node] = []
        for read, inner in known:
            number = self.numbers.get(read.operand)
            if number is None:
                constants[inner] = self.constants[read.operand]
            else:
                seed = Symbol(TensorSpec((), number.dtype))
                constants[seed] = number
                params = MappingProxyType({"shape": inner.shape, "axes": ()})
                first.append(Node(command("broadcast_to"), (seed,), (inner,), params))
        return graph.update(constants=constants, nodes=(*first, *graph.nodes))

    def add_branch(self, loop: NodeRoles, index: int) -> None:
        """Appends the nodes of the branch that is taken."""
        self.add_copy(loop.graphs[index], [read.operand for read in loop.captured], [x.result for x in loop.rows])

    def add_iterations(self, loop: NodeRoles) -> None:
        """Appends the nodes of a scan of no iteration or of one."""
        if loop.length == 0:
            for row in loop.rows:
                empty = {"shape": row.result.shape, "dtype": row.result.dtype, "value": 0}
                self.take(Node(command("full"), (), (row.result,), MappingProxyType(empty), source=loop.node.source))
            self.rename([x.result for x in loop.carries], [x.operand for x in loop.carries])
            return
        step = Symbol(loop.counter[0].spec)
        self.constants[step] = np.zeros((), step.dtype)
        elements = [self.reshape(x.operand, Symbol(x.inner[0].spec), loop.node) for x in loop.sequences]
        operands = [step, *elements, *(x.operand for x in loop.carries), *(x.operand for x in loop.captured)]
        rows = [Symbol(x.inner[0].spec) for x in loop.rows]
        self.add_copy(loop.graphs[0], operands, [*(x.result for x in loop.carries), *rows])
        for symbol, item in zip(rows, loop.rows, strict=True):
            self.reshape(self.renamed.get(symbol, symbol), item.result, loop.node)

    def never_runs(self, loop: NodeRoles) -> bool:
        """Whether the test of a `while` fails at once, as far as constants tell, and nothing has an effect before it."""
        (body,) = loop.graphs
        if any(map(has_effect, body.nodes[: loop.node.params["before"]])):
            return False
        known = {x.inner: self.constants[x.operand] for x in loop.carries if self.is_small(x.operand, whole=True)}
        test = body.update(nodes=body.nodes[: loop.node.params["before"]]).restrict(loop.test)
        first = {loop.counter[0]: np.zeros((), loop.counter[0].dtype)}
        folded = _Fold(self.folder, test.update(constants={**test.constants, **known, **first})).result()
        value = folded.constants.get(folded.outputs[0])
        return value is not None and not value

    def add_test(self, loop: NodeRoles) -> None:
        """Appends the nodes that a `while` of no iteration runs: the ones before its test."""
        (body,) = loop.graphs
        exits = tuple(x.inner[0] for x in loop.exits)
        head = body.update(nodes=body.nodes[: loop.node.params["before"]]).restrict(exits)
        (step,) = loop.iterations
        self.constants[step] = np.zeros((), step.dtype)
        operands = [step, *(x.operand for x in loop.carries), *(x.operand for x in loop.captured)]
        self.add_copy(head, operands, [x.result for x in loop.exits])
        self.rename([x.result for x in loop.carries], [x.operand for x in loop.carries])

    def reshape(self, x: Symbol, out: Symbol, node: Node) -> Symbol:
        """Appends `out` = `x` in the shape of `out`; returns it."""
        params = MappingProxyType({"shape": out.shape})
        self.take(Node(command("reshape"), (x,), (out,), params, source=node.source))
        return out

    def add_copy(self, graph: Graph, operands: Sequence[Symbol], results: Sequence[Symbol]) -> None:
        """Appends the nodes of a sub-graph on `operands`, whose outputs stand for `results`."""
        nodes: list[Node] = []
        outputs = append_copy(graph, operands, nodes, self.constants)
        for node in nodes:
            self.take(node)
        self.rename(results, [self.renamed.get(symbol, symbol) for symbol in outputs])

    def rename(self, old: Sequence[Symbol], new: Sequence[Symbol]) -> None:
        """Lets readers of the `old` symbols read the `new` ones."""
        self.renamed.update(zip(old, new, strict=True))


def _evaluate(node: Node, values: Sequence[NDArray | None]) -> NDArray | None:
    """Returns the reference on these values; None where it raises, as it will when the program runs."""
    try:
        with np.errstate(all="ignore"):
            result = reference[node.command](*values, **node.params)
    except (NncError, ArithmeticError, ValueError):
        return None
    return np.array(result, order="C")
