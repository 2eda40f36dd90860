"""`summary`: the parameters and costs of the layers of a model, found by tracing one call without running it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any

from nnc import random, tree
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.html import format_bytes, format_table, show_text
from nnc.commands.properties import flops_of
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Graph, Node, TensorSpec, spec_of
from nnc.nn.module import Module, is_container
from nnc.nn.paths import join, parameters
from nnc.nn.running import is_stateful, takes_key
from nnc.trace.core.specs import make_graph

__all__ = ["LayerRow", "Summary", "summary"]

_LOG = "_summary_log"  # beside the fields of a watched module: its log and its path


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One call of a layer, which stands in `depth` others. Parameters and costs of its parts are included.

    `flops` and `nbytes` (read and written by its commands) are None where the call stands in a loop or a branch: those count to
    the layer that has the loop.

    Args:
        path: where the layer stands in the model.
        kind: its class.
        depth: how many layers it stands in.
        outputs: shapes and dtypes of its results.
        parameters: number of its parameters.
        flops: floating-point operations of the call.
        nbytes: bytes read and written by the call.

    Example:
        >>> summary = nnc.nn.summary(nnc.nn.Linear(2, 3, key=nnc.random.key(0)), nnp.ones((1, 2)))
        >>> summary.rows[0].kind, summary.rows[0].parameters
        ('Linear', 9)
    """

    path: str
    kind: str
    depth: int
    outputs: tuple[TensorSpec, ...]
    parameters: int
    flops: int | None
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The calls of all layers, in the order in which they begin; the first row is the model. Its text is a table.

    Args:
        rows: the calls; the first one is the model's.
        parameter_bytes: bytes of all parameters.

    Example:
        >>> summary = nnc.nn.summary(nnc.nn.Linear(2, 3, key=nnc.random.key(0)), nnp.ones((1, 2)))
        >>> summary.parameters
        9
    """

    rows: tuple[LayerRow, ...]
    parameter_bytes: int

    @property
    def parameters(self) -> int:
        """Elements of all parameters; an array that several layers share counts once."""
        return self.rows[0].parameters

    @property
    def flops(self) -> int:
        """Floating-point operations of the call."""
        return self.rows[0].flops or 0

    @property
    def nbytes(self) -> int:
        """Bytes that the commands of the call read and write."""
        return self.rows[0].nbytes or 0

    def __str__(self) -> str:
        table = [("path", "layer", "output", "parameters", "flops", "bytes")]
        for row in self.rows:
            outputs = ", ".join(map(str, row.outputs))
            work = ("in a loop", "") if row.flops is None else (_number(row.flops), format_bytes(row.nbytes or 0))
            table.append(("  " * row.depth + (row.path or "(model)"), row.kind, outputs, f"{row.parameters:,}", *work))
        total = f"total: {self.parameters:,} parameters ({format_bytes(self.parameter_bytes)})"
        return "\n".join(
            [
                *format_table(table),
                f"{total}, {_number(self.flops)} flops, {format_bytes(self.nbytes)} read and written",
            ]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return show_text("summary", str(self))


@api_boundary
def summary(model: Module, *inputs: Any, depth: int | None = None, **options: Any) -> Summary:
    """Counts, for each layer of a model, in one call: parameters, output shapes, operations, bytes read and written.

    Nothing is computed: model and inputs may be trees of ShapeDtypeStructs.

    Args:
        model: a module.
        *inputs: arguments of the model's call.
        depth: how many levels of layers are shown; all by default.
        **options: keyword arguments of that call; a key is made where it takes one and none is given.

    Raises:
        ArgumentTypeError: the model is no module, or an input is a shape.

    Example:
        >>> model = nnc.nn.MLP(4, 2, width=8, depth=1, key=nnc.random.key(0))
        >>> print(nnc.nn.summary(model, nnc.ShapeDtypeStruct((3, 4), "float32")))  # doctest: +ELLIPSIS
        path        layer   output        parameters  flops  bytes
        (model)     MLP     float32[3,2]  58          ...
          layers.0  Linear  float32[3,8]  40          ...
          layers.1  Linear  float32[3,2]  18          ...
        total: 58 parameters (232 B), ... flops, ... read and written
    """
    if not isinstance(model, Module):
        problem = f"the model is a {type(model).__name__}, not a module."
        fix = "of a function, nnc.compile(function).lower(*arguments).compile().cost tells the work of each command."
        raise user_error(ArgumentTypeError, "nnc.nn.summary", problem, fix=fix)
    if takes_key(model) and options.get("key") is None:
        options["key"] = random.key(0)
    for i, given in enumerate(inputs):
        if isinstance(given, (tuple, list)) and given and all(isinstance(n, int) for n in given):
            fix = f'pass nnc.ShapeDtypeStruct({tuple(given)}, "float32"), or an array.'
            raise user_error(ArgumentTypeError, "nnc.nn.summary", f"input {i} is {given!r}, a shape.", fix=fix)
    log = _Log([], [])
    leaves, structure = tree.flatten((inputs, options))
    traced = [None if dtypes.is_scalar(leaf) else leaf for leaf in leaves]  # flags and numbers are settings

    def call(model: Any, traced: Any) -> None:
        log.traces.append(get_context().staging)
        given = [leaf if x is None else x for leaf, x in zip(leaves, traced, strict=True)]
        inputs, options = tree.unflatten(structure, given)
        _watch(model, log, "", 0)(*inputs, **options)

    graph = make_graph(call)(model, traced)
    rows = tuple(_make_row(entry, graph) for entry in log.entries if depth is None or entry.depth <= depth)
    return Summary(rows, sum(spec_of(x).nbytes for x in parameters(model).values()))


# -- recording ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    """A call of a layer: which nodes of the graph it made, None where it made them within another trace."""

    path: str
    kind: str
    depth: int
    parameters: int
    nodes: tuple[int, int] | None = None
    outputs: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class _Log:
    """Calls in the order in which they begin; `traces` holds the trace of the whole call."""

    entries: list[_Entry]
    traces: list[Any]


def _watch(value: Any, log: _Log, path: str, depth: int) -> Any:
    """Returns a copy of a tree of modules that notes every call of a module in `log`."""
    if isinstance(value, Module):
        twin: Any = object.__new__(_watched(type(value)) if callable(value) else type(value))  # type: ignore[arg-type]
        for name, part in value.__dict__.items():
            object.__setattr__(twin, name, _watch(part, log, join(path, name), depth + 1))
        object.__setattr__(twin, _LOG, (log, path, depth))
        return twin
    if not is_container(value):
        return value
    if isinstance(value, dict):
        return {name: _watch(part, log, join(path, name), depth) for name, part in value.items()}
    return type(value)(_watch(part, log, join(path, i), depth) for i, part in enumerate(value))


@lru_cache(maxsize=1024)
def _watched(cls: Any) -> Any:
    """Returns the subclass of a class of modules that notes its calls."""

    @wraps(cls.__call__)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        log, path, depth = self.__dict__.get(_LOG, (None, "", 0))
        if log is None:  # a transform took the module apart and put it together
            return cls.__call__(self, *args, **kwargs)
        count = sum(math.prod(x.shape) for x in parameters(self).values())
        entry = _Entry(path, cls.__name__, depth, count)
        log.entries.append(entry)
        trace = get_context().staging
        start = trace.builder.num_nodes
        out = cls.__call__(self, *args, **kwargs)
        if trace is log.traces[0]:
            entry.nodes = (start, trace.builder.num_nodes)
        entry.outputs = tuple(spec_of(x) for x in tree.leaves(out[0] if is_stateful(self) else out) if tree.is_array(x))
        return out

    return type(cls.__name__, (cls,), {"__call__": call, "__doc__": cls.__doc__, "__module__": cls.__module__})


# -- costs -------------------------------------------------------------------------------------------------------------


def _make_row(entry: _Entry, graph: Graph) -> LayerRow:
    nodes = None if entry.nodes is None else graph.nodes[slice(*entry.nodes)]
    flops, nbytes = (None, None) if nodes is None else _work(nodes)
    return LayerRow(entry.path, entry.kind, entry.depth, entry.outputs, entry.parameters, flops, nbytes)


def _work(nodes: Sequence[Node]) -> tuple[int, int]:
    """Operations and bytes of nodes; a loop of known length counts its iteration so many times, another one once."""
    flops = nbytes = 0
    for node in nodes:
        if node.graphs:
            iterations = node.params.get("length") or 1
            of_graphs = [_work(graph.nodes) for graph in node.graphs]
            flops += iterations * sum(work[0] for work in of_graphs)
            nbytes += iterations * sum(work[1] for work in of_graphs)
            continue
        flops += flops_of(node.command, [symbol.spec for symbol in node.inputs], node.params)
        nbytes += sum(symbol.spec.nbytes for symbol in (*node.inputs, *node.outputs))
    return flops, nbytes


def _number(count: int) -> str:
    """Returns a count in at most four digits: 3.62 G."""
    value, unit = float(count), 0
    while value >= 1000 and unit < 5:
        value, unit = value / 1000, unit + 1
    return str(count) if unit == 0 else f"{value:.3g} {'kMGTP'[unit - 1]}"
