"""Collects the nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from nnc.base.dtypes import is_complex, real_dtype
from nnc.commands.control import inlines
from nnc.commands.rules import decomposition, expansion
from nnc.errors import NncError, UnsupportedError
from nnc.graph import Graph, GraphBuilder, Node, Symbol
from nnc.graph.registry import effect, reference
from nnc.onnx.values import nnc_has
from nnc.onnx.writers.table import of_complex, onnx, refused

FOLDED = 1 << 16  # bytes of a result of known operands that is written as a constant


class Writer:
    """Names of symbols, and the nodes so far. Constants belong to the outermost graph, which sub-graphs see."""

    def __init__(self, opset: int, outer: Writer | None = None, is_sized: bool = False) -> None:
        self.opset = opset
        self.is_sized = is_sized  # whether constants may depend on sizes: then equal ones are not one
        self.results: list[str] = []
        self.nodes: list[NodeProto] = []
        self.names: dict[Symbol, str] = dict(outer.names) if outer is not None else {}
        self.problems: list[NncError] = outer.problems if outer is not None else []
        self._root: Writer = outer._root if outer is not None else self
        self._parts: dict[str, tuple[str, str]] = dict(outer._parts) if outer is not None else {}
        self._made: dict[str, NodeProto] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._known: dict[Any, str] = {}
        self._count = 0

    def new(self) -> str:
        """Returns a name that no value has."""
        self._root._count += 1
        return f"v{self._root._count}"

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Returns the name of a constant; equal ones are one."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        array = array[..., None].view(real_dtype(array.dtype)) if is_complex(array.dtype) else array
        root = self._root
        key = (
            (root._count,)
            if root.is_sized
            else (
                array.dtype.str,
                array.dtype.name,
                array.shape,
                array.tobytes() if array.nbytes <= FOLDED else id(value),
            )
        )
        if key not in root._known:
            name = root._known[key] = self.new()
            root.constants[name] = array
        return root._known[key]

    def integers(self, values: Sequence[int]) -> str:
        """Returns the name of a constant vector of int64: a shape, axes, bounds."""
        return self.constant(np.array(values, np.int64).reshape(-1))

    def op(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; returns the names of its results, or its name if there is one."""
        names = [self.new() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        self._made.update(dict.fromkeys(names, self.nodes[-1]))
        return names[0] if outputs == 1 else names

    def cast(self, name: str, dtype: Any) -> str:
        """Adds a conversion."""
        return str(self.op("Cast", name, to=number_of(dtype)))

    def known(self, name: str) -> np.ndarray[Any, Any] | None:
        """Returns the value of a constant; None where the name is another value's."""
        return self._root.constants.get(name)

    def maker(self, name: str, operator: str) -> list[str] | None:
        """Returns the operands of the node that a value comes from; None where that is not one of this operator in this graph."""
        made = self._made.get(name)
        return list(made.input) if made is not None and made.op_type == operator else None

    def is_zero(self, name: str) -> bool:
        """Whether a value is known to be 0 everywhere."""
        source = self.maker(name, "Expand")
        value = self.known(name if source is None else source[0])
        return value is not None and not value.any()

    def graph(self, graph: Graph, operands: Sequence[str]) -> list[str]:
        """Writes a graph on operands; returns the names of its results."""
        self.names.update(zip(graph.inputs, operands, strict=True))
        wanted = set(graph.outputs)
        kept = []
        for node in reversed(graph.nodes):
            if wanted.intersection(node.outputs):
                kept.append(node)
                wanted.update(node.inputs)
        for symbol, value in graph.constants.items():
            if symbol in wanted:
                self.names[symbol] = self.constant(np.asarray(value))
        for node in reversed(kept):
            self._write(node)
        return [self.names[symbol] for symbol in graph.outputs]

    def _write(self, node: Node) -> None:
        try:
            found = self._names_of(node, [self.names[symbol] for symbol in node.inputs])
        except UnsupportedError as error:  # all are listed
            self.problems.append(error)
            found = [self.new() for _ in node.outputs]
        self.names.update(zip(node.outputs, [found] if isinstance(found, str) else found, strict=True))

    def _names_of(self, node: Node, operands: list[str]) -> str | list[str]:
        kinds = {symbol.spec.dtype for symbol in (*node.inputs, *node.outputs)}
        if not all(map(nnc_has, kinds)):
            raise refused(node, f"ONNX has no operators for {', '.join(map(str, kinds))}")
        folded = self._folded(node, operands)
        if folded is not None:
            return folded
        column = of_complex if any(map(is_complex, kinds)) else onnx
        if node.command in column:
            return column[node.command](self, node, operands)
        if node.command in inlines:
            return self.graph(node.graphs[0], operands)
        if node.command in expansion or node.command in decomposition:
            return self.by_others(node, operands)
        raise refused(node, "it has no form in ONNX" + (" for complex numbers" if column is of_complex else ""))

    def _folded(self, node: Node, operands: list[str]) -> list[str] | None:
        """Returns constants for the results of known operands, which are small."""
        values = [self._value(name, symbol.spec.dtype) for name, symbol in zip(operands, node.inputs, strict=True)]
        size = sum(symbol.spec.nbytes for symbol in node.outputs)
        if node.graphs or size > FOLDED or any(value is None for value in values) or not values:
            return None
        if self._root.is_sized and any(symbol.spec.shape for symbol in node.outputs):
            return None
        if node.command not in reference or node.command in effect:
            return None
        found = reference[node.command](*values, **node.params)
        several = found if isinstance(found, (tuple, list)) else [found]
        return [self.constant(np.asarray(v, s.spec.dtype)) for v, s in zip(several, node.outputs, strict=True)]

    def _value(self, name: str, dtype: Any) -> np.ndarray[Any, Any] | None:
        """Returns the value of a constant in the dtype that it has in nnc; None where the name is another value's."""
        value = self.known(name)
        return value if value is None or not is_complex(dtype) else value.view(dtype)[..., 0]

    def parts(self, name: str) -> tuple[str, str]:
        """Returns the names of the real and of the imaginary part of a complex value."""
        if name not in self._parts:
            value = self.known(name)
            places = [self.constant(np.int64(place)) for place in (0, 1)] if value is None else []
            re, im = (
                (self.constant(value[..., part]) for part in (0, 1))
                if value is not None
                else (self.op("Gather", name, place, axis=-1) for place in places)
            )
            self._parts[name] = re, im
        return self._parts[name]

    def whole(self, re: str, im: str) -> str:
        """Returns the name of the complex value with these parts. Nothing is left of it in the file if only its parts are read."""
        last = self.integers([-1])
        name = str(self.op("Concat", self.op("Unsqueeze", re, last), self.op("Unsqueeze", im, last), axis=-1))
        self._parts[name] = re, im
        return name

    def by_others(self, node: Node, operands: list[str]) -> list[str]:
        """Writes a command by the simpler ones that compute it."""

        def compute(*stands: Any) -> Any:
            if node.command in expansion:
                return [expansion[node.command](*stands, **node.params)]
            return decomposition[node.command](*stands, **node.params)

        return self.computed(node, operands, compute)

    def computed(self, node: Node, operands: list[str], compute: Callable[..., Sequence[Any] | None]) -> list[str]:
        """Writes the commands that compute the results of a node."""
        builder = GraphBuilder()
        stands = [builder.input(symbol.spec) for symbol in node.inputs]
        with builder:
            found = compute(*stands)
            if found is None:
                raise refused(node, "it has no form in ONNX for these sizes")
        part = builder.build(*found)
        inner = part.update(nodes=tuple(n.update(source=node.source) for n in part.nodes))
        return self.graph(inner, operands)

    def body(self, graph: Graph, names: Sequence[str], write: Any = None) -> tuple[Writer, list[str]]:
        """Writes a sub-graph; its results have names of their own, as ONNX wants it."""
        inner = Writer(self.opset, self)
        found = inner.graph(graph, names)
        return inner, [inner.op("Identity", name) for name in found]


def number_of(dtype: Any) -> int:
    """Returns ONNX's number of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def value_info(name: str, dtype: Any, shape: Sequence[Any] | None) -> Any:
    """Returns the declaration of an input or a result; that of a complex one has the last axis of its parts."""
    if is_complex(np.dtype(dtype)):
        dtype, shape = real_dtype(np.dtype(dtype)), None if shape is None else (*shape, 2)
    return helper.make_tensor_value_info(name, number_of(dtype), None if shape is None else list(shape))


def make_graph(name: str, nodes: Sequence[NodeProto], inputs: Any, outputs: Any, constants: Any = ()) -> GraphProto:
    """Returns a graph of the nodes that its outputs need; `constants` are pairs of names and arrays."""
    wanted, kept = {output.name for output in outputs}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read_by(node))
    tensors: list[TensorProto] = [numpy_helper.from_array(array, label) for label, array in constants]
    return helper.make_graph(kept[::-1], name, list(inputs), list(outputs), tensors)


def _read_by(node: NodeProto) -> set[str]:
    """Returns the names that a node reads, also within its sub-graphs."""
    found = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found |= _read_by(inner)
        found.update(output.name for output in attribute.g.output)
    return found
