"""Builds graphs, by hand or for a trace. Graphs themselves do not change."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base.context import Context, get_context, new_level, set_context
from nnc.base.dtypes import plain_dtype
from nnc.base.source import SourceLine, user_source
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, GraphError, NncError, ShapeError, user_error
from nnc.errors.errors import word_anew
from nnc.graph.boxes import Box
from nnc.graph.dispatch import Command
from nnc.graph.graph import NO_PARAMS, Graph, NDArray, Node, Symbol, new_node, new_symbol
from nnc.graph.registry import REGISTRY, command, infer
from nnc.graph.spec import MOST_AXES, TensorSpec

__all__ = ["GraphBuilder", "InlineGraph", "check_same_dtype", "infer_specs"]

Replace = Callable[[Symbol, Mapping[str, Any], SourceLine | None], Symbol]
_SPEC: Callable[[Symbol], TensorSpec] = attrgetter("spec")
Row = tuple[Command, tuple[int, ...], tuple[TensorSpec, ...], Mapping[str, Any], tuple[Graph, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class InlineGraph:
    """Nodes in the form in which they are added to other graphs in the shortest time.

    Symbols are numbered: inputs, then the nodes' outputs, one after the other. A row is a command, the numbers of its inputs,
    the specs of its outputs, parameters and sub-graphs. Nodes of the command `replaced` are made by the caller.

    Args:
        rows: a row for each node; operands are numbers of symbols.
        outputs: numbers of the symbols that stand for results.
        replaced: the command that is replaced in other graphs.

    Example:
        >>> graph = make_graph(lambda x: x * x)(nnp.ones(2))
        >>> form = InlineGraph.of(graph.inputs, graph.nodes, graph.outputs, command("call"))
        >>> len(form.rows), form.outputs
        (1, (1,))
    """

    rows: tuple[Row, ...]
    outputs: tuple[int, ...]
    replaced: Command

    @classmethod
    def of(
        cls, inputs: Iterable[Symbol], nodes: Sequence[Node], outputs: Iterable[Symbol], replaced: Command
    ) -> InlineGraph:
        """Returns the form of nodes that read nothing but inputs and each other's outputs.

        Args:
            inputs: symbols that the nodes read.
            nodes: the nodes, in topological order.
            outputs: symbols that the nodes write.
            replaced: the command that is replaced in other graphs.
        """
        number = {symbol: i for i, symbol in enumerate(inputs)}
        rows = []
        for node in nodes:
            reads, written = tuple(map(number.__getitem__, node.inputs)), node.outputs
            rows.append((node.command, reads, tuple(map(_SPEC, written)), node.params, node.graphs))
            for symbol in written:
                number[symbol] = len(number)
        return cls(tuple(rows), tuple(map(number.__getitem__, outputs)), replaced)


class GraphBuilder:
    """Grows a graph node by node.

    Within `with builder:`, calling a command with symbols appends a node; `builder.add` does the same anywhere.

    Args:
        name: the name of the graph.

    Example:
        >>> b = GraphBuilder()
        >>> x, y = b.input((2,), "float32"), b.input((2,), "float32")
        >>> s = b.add("add", x, y)
        >>> square = b.build(b.add("mul", s, s))
        >>> square(nnp.asarray([10.0, 1.0]), nnp.asarray([8.0, 2.0]))
        Array([324.,   9.], dtype=float32)
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.level = new_level()
        self.alive = True
        self._inputs: list[Symbol] = []
        self._nodes: list[Node] = []
        self._constants: dict[Symbol, NDArray] = {}
        self._written: dict[Symbol, SourceLine | None] = {}
        self._views: dict[Symbol, tuple[Symbol, Box]] = {}  # declared aliases that nothing has written or read yet
        self._declared: dict[Symbol, list[tuple[Symbol, Box]]] = {}  # tensors that are written through aliases
        self._contexts: list[AbstractContextManager[Context]] = []

    def __enter__(self) -> GraphBuilder:
        self._contexts.append(set_context(staging=self, level=self.level))
        self._contexts[-1].__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._contexts.pop().__exit__(*exception)

    # -- symbols -----------------------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int] | TensorSpec, dtype: Any = None, *, name: str = "") -> Symbol:
        """Returns a new input of the graph.

        Args:
            shape: size of each axis, or a spec.
            dtype: element type, where shape is no spec.
            name: the name in the readable form.
        """
        spec = shape if isinstance(shape, TensorSpec) else TensorSpec(tuple(shape), dtype)
        symbol = new_symbol(spec, name)
        self._inputs.append(symbol)
        self._written[symbol] = None
        return symbol

    @property
    def num_nodes(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    @property
    def last_node(self) -> Node:
        """The last node so far."""
        return self._nodes[-1]

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """The inputs so far."""
        return tuple(self._inputs)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far."""
        return tuple(self._nodes)

    def adopt(self, symbol: Symbol) -> None:
        """Takes a symbol whose value comes from outside; the caller adds it to the graph's inputs.

        Args:
            symbol: a symbol without a writer.
        """
        self._written[symbol] = None

    def constant(self, value: Any, dtype: Any = None, *, name: str = "") -> Symbol:
        """Returns a constant of the graph; `value` is anything NumPy makes an array of.

        Args:
            value: anything NumPy makes an array of.
            dtype: element type; by default the one of the value.
            name: the name in the readable form.
        """
        array = np.asarray(value, dtype=dtype)
        if array is value and array.flags.writeable:
            array = array.copy()  # the caller may write to it later
        symbol = Symbol(TensorSpec(array.shape, array.dtype), name)
        self._constants[symbol] = array
        self._written[symbol] = None
        return symbol

    def tensor(self, shape: Sequence[int] | TensorSpec, dtype: Any = None, *, name: str = "") -> Symbol:
        """Returns a tensor that will be written through aliases; elements that no alias covers are 0.

        Args:
            shape: size of each axis, or a spec.
            dtype: element type, where shape is no spec.
            name: the name in the readable form.
        """
        spec = shape if isinstance(shape, TensorSpec) else TensorSpec(tuple(shape), dtype)
        symbol = Symbol(spec, name)
        self._declared[symbol] = []
        return symbol

    def alias(self, base: Symbol, start: Sequence[int], shape: Sequence[int], *, name: str = "") -> Symbol:
        """Returns the box of `shape` at `start` within `base`, as a symbol: read it, or write it with `add(..., out=alias)`.

        An alias of an alias views the root.

        Args:
            base: a symbol of this graph.
            start: first index along each axis.
            shape: size along each axis.
            name: the name in the readable form.

        Raises:
            ShapeError: the box does not lie within `base`.
        """
        box = Box.within(base.spec.shape, start, shape)
        if base in self._views:
            root, outer = self._views[base]
            base, box = root, box.shift(outer.start)
        symbol = Symbol(TensorSpec(box.shape, base.spec.dtype), name)
        self._views[symbol] = (base, box)
        return symbol

    # -- nodes -------------------------------------------------------------------------------------------------------

    def add(
        self,
        target: Command | str,
        *inputs: Symbol,
        out: Symbol | None = None,
        graphs: tuple[Graph, ...] = (),
        source: SourceLine | None = None,
        **params: Any,
    ) -> Any:
        """Appends a node and returns its output symbol (a tuple where the command yields several).

        Args:
            target: the command or its name.
            *inputs: symbols of this graph.
            out: an alias of a declared tensor to write.
            graphs: sub-graphs of the command.
            source: the user's line that the node comes from.
            **params: static parameters by name.

        Raises:
            GraphError: an input belongs to another graph or is not written yet, or `out` is written already or overlaps
                an alias that is.
            NncError: the command does not take these inputs.
        """
        cmd = command(target)
        if "dtype" in params:
            params["dtype"] = plain_dtype(params["dtype"])
        source = source or get_context().source or user_source()
        written = self._written
        read = tuple([x if x in written else self._read(cmd, i, x) for i, x in enumerate(inputs)])
        if out is None:
            outputs = self.record(cmd, read, params, graphs, source)
        else:
            specs = infer_specs(cmd, tuple([symbol.spec for symbol in read]), params, graphs)
            outputs = (self._write_alias(cmd, out, specs, source),)
            self._append(Node(cmd, read, outputs, MappingProxyType(params), graphs, source))
        return outputs[0] if cmd.outputs == 1 else outputs

    def record(
        self, command: Command, read: tuple[Symbol, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...],
        source: SourceLine | None,
    ) -> tuple[Symbol, ...]:  # fmt: skip
        """Appends a node that reads symbols known to have their values in this graph, and returns its outputs.

        Args:
            command: an operation.
            read: symbols with values in this graph.
            params: static parameters by name.
            graphs: sub-graphs of the command.
            source: the user's line that the node comes from.
        """
        outputs = tuple(map(new_symbol, infer_specs(command, tuple(map(_SPEC, read)), params, graphs)))
        fixed = MappingProxyType(dict(params)) if params else NO_PARAMS
        self._nodes.append(new_node(command, read, outputs, fixed, graphs, source))
        for symbol in outputs:
            self._written[symbol] = source
        return outputs

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Symbol]:
        """Records a command that is called while the builder is ambient; NumPy arrays and scalars become constants.

        Args:
            command: an operation.
            args: symbols, NumPy arrays and scalars.
            params: static parameters by name.
            graphs: sub-graphs of the command.
        """
        symbols = [arg if isinstance(arg, Symbol) else self.constant(arg) for arg in args]
        outputs = self.add(command, *symbols, graphs=graphs, **params)
        return (outputs,) if command.outputs == 1 else tuple(outputs)

    def nodes_between(self, begin: int, end: int) -> list[Node]:
        """Returns the nodes from one position on, up to another.

        Args:
            begin: position of the first node.
            end: position behind the last one.
        """
        return self._nodes[begin:end]

    def is_constant(self, symbol: Symbol) -> bool:
        """Whether a symbol is a constant of the graph.

        Args:
            symbol: a symbol of this graph.
        """
        return symbol in self._constants

    def value_of(self, symbol: Symbol) -> NDArray:
        """Returns the value of a constant.

        Args:
            symbol: a symbol of this graph.
        """
        return self._constants[symbol]

    def inline(self, graph: InlineGraph, symbols: list[Symbol], source: SourceLine | None, replace: Replace) -> None:
        """Appends nodes for which `symbols` stand for their inputs, and adds their outputs to that list.

        Args:
            graph: nodes in this form.
            symbols: stand for their inputs; their outputs are added.
            source: the user's line that all nodes come from.
            replace: gives the symbol of a node of `graph.replaced`, for its first operand, parameters and line.
        """
        append, written, replaced, symbol_at = self._nodes.append, self._written, graph.replaced, symbols.__getitem__
        for cmd, places, specs, params, graphs in graph.rows:
            if cmd is replaced:
                symbols.append(replace(symbols[places[0]], params, source))
                continue
            outputs = tuple(map(new_symbol, specs))
            append(new_node(cmd, tuple(map(symbol_at, places)), outputs, params, graphs, source))
            for symbol in outputs:
                written[symbol] = source
            symbols += outputs

    def build(self, *outputs: Symbol, attrs: Mapping[str, Any] | None = None) -> Graph:
        """Returns the finished graph with these outputs.

        Args:
            *outputs: symbols of this graph.
            attrs: attributes of the graph.
        """
        read = tuple(self._read(None, i, symbol) for i, symbol in enumerate(outputs))
        return Graph(tuple(self._inputs), read, tuple(self._nodes), dict(self._constants), dict(attrs or {}), self.name)

    # -- aliases -----------------------------------------------------------------------------------------------------

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        for symbol in node.outputs:
            self._written[symbol] = node.source

    def _read(self, reader: Command | None, position: int, symbol: Symbol) -> Symbol:
        if symbol in self._written:
            return symbol
        where = reader.name if reader is not None else "build"
        if symbol in self._declared:
            return self._assemble(symbol)
        if symbol in self._views:
            base, box = self._views.pop(symbol)
            source = self._read(reader, position, base)
            limit = tuple(a + n for a, n in zip(box.start, box.shape, strict=True))
            params = {"start": box.start, "limit": limit, "stride": (1,) * len(limit)}
            self._append(Node(command("slice"), (source,), (symbol,), MappingProxyType(params), (), user_source()))
            return symbol
        what = f"{symbol!r}" if isinstance(symbol, Symbol) else f"{symbol!r} ({type(symbol).__name__})"
        problem = f"input {position} is {what}, which is no symbol of the graph being built."
        fix = "pass symbols that this builder returned; make a constant of a value with builder.constant(value)."
        raise user_error(GraphError, where, problem, fix=fix)

    def _assemble(self, base: Symbol) -> Symbol:
        parts = self._declared.pop(base)
        symbols = tuple(symbol for symbol, _ in parts)
        params = {"shape": base.spec.shape, "dtype": base.spec.dtype, "starts": tuple(box.start for _, box in parts)}
        infer_specs(command("assemble"), tuple(symbol.spec for symbol in symbols), params, ())
        self._append(Node(command("assemble"), symbols, (base,), MappingProxyType(params), (), user_source()))
        return base

    def _write_alias(
        self, cmd: Command, out: Symbol, specs: tuple[TensorSpec, ...], source: SourceLine | None
    ) -> Symbol:
        if out in self._declared and not self._declared[out]:
            self._views[out] = (out, Box((0,) * out.spec.ndim, out.spec.shape))  # the whole of a declared tensor
        view = self._views.get(out)
        if out in self._written or view is None:
            first = f" at {self._written[out]}" if self._written.get(out) else ""
            problem = f"out={out!r} is written or read already{first}; a symbol is written exactly once."
            fix = "write a fresh alias of a tensor declared with builder.tensor."
            raise user_error(GraphError, cmd.name, problem, fix=fix)
        base, box = view
        if base not in self._declared and base is not out:
            fix = "declare the tensor with builder.tensor and write all its aliases before reading it."
            raise user_error(GraphError, cmd.name, f"out={out!r} views {base!r}, which has its value already.", fix=fix)
        if specs != (out.spec,):
            problem = "out has another shape or dtype than the command yields."
            fix = "declare the alias with the command's output shape."
            raise user_error(GraphError, cmd.name, problem, operands={"yields": specs[0], "out": out.spec}, fix=fix)
        for other, other_box in self._declared[base]:
            if box.overlaps(other_box):
                boxes = f"{box} and {other_box} of {base!r}"
                problem = f"out overlaps an alias that is written already, at {self._written[other]}: {boxes}."
                fix = "write aliases that do not overlap, or add the two values first."
                raise user_error(GraphError, cmd.name, problem, fix=fix)
        del self._views[out]
        if base is out:
            del self._declared[out]
        else:
            self._declared[base].append((out, box))
        return out


def infer_specs(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...] = ()
) -> tuple[TensorSpec, ...]:
    """Returns the output specs of a command, found out once for equal specs and parameters.

    Args:
        command: an operation.
        specs: the specs of the operands.
        params: static parameters by name.
        graphs: sub-graphs of the command.

    Raises:
        NncError: the command does not take these operands or parameters.

    Example:
        >>> spec = TensorSpec((2, 3), "float32")
        >>> infer_specs(command("add"), (spec, spec), {})[0].shape
        (2, 3)
    """
    for value in params.values():
        if type(value) not in _PLAIN and not isinstance(value, np.dtype):
            break  # it may not be kept: a function keeps its captured values alive
    else:
        if not graphs:
            try:
                return _known_specs(command, REGISTRY.version, specs, *params, *params.values())
            except (NncError, TypeError):  # the latter also for a parameter without a hash
                pass  # found out, or said in words, below
    return _infer_anew(command, specs, params, graphs)


_PLAIN = frozenset({bool, int, float, complex, str, tuple, type(None)})


@lru_cache(maxsize=1 << 11, typed=True)
def _known_specs(command: Command, version: int, specs: tuple[TensorSpec, ...], *params: Any) -> tuple[TensorSpec, ...]:
    """Returns the output specs by the rules of this version of the registry; `params` are all names, then all values."""
    names, values = params[: len(params) // 2], params[len(params) // 2 :]
    return _infer_anew(command, specs, dict(zip(names, values, strict=True)), ())


def _infer_anew(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...]
) -> tuple[TensorSpec, ...]:
    if command.arity is not None and len(specs) != command.arity:
        problem = f"it takes {command.arity} inputs, {len(specs)} were given."
        operands = {f"input {i}": spec for i, spec in enumerate(specs)}
        fix = "pass the inputs that the command takes."
        raise user_error(ArgumentError, command.name, problem, operands=operands, fix=fix)
    rule = infer[command]
    given = {**params, "graphs": graphs} if graphs else params
    try:
        result = rule(*specs, **given)
    except NncError:
        if get_context().source is None:  # then it names the innermost line outside nnc, which may be the rule's
            word_anew(lambda: rule(*specs, **given), user_source())
        raise
    except TypeError as error:
        problem = f"parameters do not fit: {error}."
        fix = "pass each static parameter of the command, by keyword."
        raise user_error(ArgumentTypeError, command.name, problem, operands=dict(params), fix=fix) from error
    found = result if isinstance(result, tuple) else (result,)
    for spec in found:
        _check_size(command, spec)
    return found


def _check_size(command: Command, spec: TensorSpec) -> None:
    """Raises ShapeError for a result that no memory holds. As in NumPy, axes of size 0 do not make others of any size possible."""
    if spec.ndim > MOST_AXES:
        problem = f"its result would have {spec.ndim} axes; an array has at most {MOST_AXES}."
        raise user_error(ShapeError, command.name, problem, fix="join axes with reshape before you add others.")
    nbytes = math.prod([n for n in spec.shape if n]) * spec.dtype.itemsize
    if nbytes > sys.maxsize:
        problem = f"its result {spec} would have {nbytes:.3g} bytes; an array has at most {sys.maxsize}."
        fix = "make it smaller: look at the sizes that its shape is computed from."
        raise user_error(ShapeError, command.name, problem, fix=fix)


def check_same_dtype(where: str, specs: Sequence[TensorSpec]) -> None:
    """Raises DTypeError unless all specs have one dtype: commands convert nothing by themselves.

    Args:
        where: the caller, for messages.
        specs: the specs of the operands.

    Example:
        >>> check_same_dtype("f", [TensorSpec((2,), "float32"), TensorSpec((3,), "float32")])
    """
    if any(spec.dtype != specs[0].dtype for spec in specs):
        problem = f"dtypes differ: {', '.join(spec.dtype.name for spec in specs)}."
        operands = {f"input {i}": spec for i, spec in enumerate(specs)}
        fix = "convert them first, with x.astype(dtype)."
        raise user_error(DTypeError, where, problem, operands=operands, fix=fix)
