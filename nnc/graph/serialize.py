"""The versioned JSON form of graphs.

A document holds tables of the distinct specs, source lines and graphs (sub-graphs before the graphs that own them, the
graph itself last); nodes refer to them by position, so an object that a graph shares is stored once. Parameters and attributes keep
their Python types: a type that JSON lacks is an object with a single key, the tag.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

import numpy as np

from nnc.base import dtypes
from nnc.base.source import SourceLine
from nnc.errors import (
    ArgumentTypeError,
    GraphError,
    NncError,
    RegistryError,
    access,
    path_to_read,
    path_to_write,
    user_error,
)
from nnc.errors.errors import shorten
from nnc.errors.tracebacks import api_boundary
from nnc.graph.boxes import Box
from nnc.graph.dispatch import Command
from nnc.graph.graph import NO_PARAMS, Graph, NDArray, Node, Symbol, new_node, new_symbol
from nnc.graph.registry import command
from nnc.graph.spec import STRIDED, TensorSpec
from nnc.graph.verify import verify

__all__ = ["from_json", "load_graph", "save_graph", "storable", "to_json"]

FORMAT, VERSION = "nnc.graph", 1
_DTYPES = {**dtypes.BY_NAME, dtypes.TAPE.name: dtypes.TAPE}  # tapes occur in specs, never as values
KNOWN_DTYPES = frozenset(_DTYPES.values())
_EXACT_INT = 2**53  # beyond this, other JSON readers round

_COUNT = "an integer of 0 or more"
_SPEC = {"shape": [_COUNT], "dtype": str, "layout?": str}
_ARRAY = {"dtype": str, "shape": [_COUNT], "data": str}
_NODE = {
    "command": str,
    "inputs": [_COUNT],
    "outputs": [_COUNT],
    "params?": dict,
    "graphs?": [_COUNT],
    "source?": _COUNT,
}
_GRAPH = {
    "name": str,
    "symbols": [(_COUNT, str)],
    "inputs": [_COUNT],
    "constants": [(_COUNT, _ARRAY)],
    "nodes": [_NODE],
    "outputs": [_COUNT],
    "attrs": dict,
}
# a list has any number of elements of one form; a tuple one element of each; fields with "?" may be left out
DOCUMENT = {"format": str, "version": _COUNT, "specs": [_SPEC], "sources": [(str, _COUNT, str)], "graphs": [_GRAPH]}

C = TypeVar("C", bound=type[Any])

RECORDS: dict[str, type[Any]] = {cls.__name__: cls for cls in (TensorSpec, Box, SourceLine)}


def storable(cls: C) -> C:
    """Lets instances of a frozen dataclass stand in parameters and attributes that are hashed and stored as JSON.

    Args:
        cls: a frozen dataclass.

    Raises:
        RegistryError: another class of that name is storable already.

    Example:
        >>> @storable
        ... @dataclasses.dataclass(frozen=True)
        ... class Padding:
        ...     low: int
        ...     high: int
        >>> Padding(1, 2)
        Padding(low=1, high=2)
    """
    if cls.__name__ in RECORDS or not is_dataclass(cls):
        problem = "is no dataclass" if cls.__name__ not in RECORDS else "has the name of a storable class"
        fix = "pass a frozen dataclass with a name of its own."
        raise user_error(RegistryError, "storable", f"{cls.__qualname__} {problem}.", fix=fix)
    RECORDS[cls.__name__] = cls
    return cls


# -- values ------------------------------------------------------------------------------------------------------------


def encode_value(value: Any, symbols: Mapping[Symbol, int] | None = None) -> Any:
    """Encodes `value` as a tree that JSON can hold; equal trees mean equal values of equal types.

    Raises:
        TypeError: there is no encoding for a type within `value`.

    Example:
        >>> encode_value((1, [2.5, None], np.dtype("float16")))
        {'tuple': [1, [2.5, None], {'dtype': 'float16'}]}
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < _EXACT_INT else {"int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is complex:
        return {"complex": [encode_value(value.real), encode_value(value.imag)]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if kind is list:
        return [encode_value(item, symbols) for item in value]
    if kind is tuple:
        return {"tuple": [encode_value(item, symbols) for item in value]}
    if kind is slice:
        return {"slice": [encode_value(part, symbols) for part in (value.start, value.stop, value.step)]}
    if kind is frozenset:
        return {"frozenset": sorted((encode_value(item, symbols) for item in value), key=json.dumps)}
    if kind in (dict, MappingProxyType):
        return {"dict": [[encode_value(key, symbols), encode_value(item, symbols)] for key, item in value.items()]}
    return _encode_object(value, symbols)


def _encode_object(value: Any, symbols: Mapping[Symbol, int] | None) -> Any:
    if isinstance(value, np.dtype) and value in KNOWN_DTYPES:
        return {"dtype": value.name}
    if isinstance(value, (np.ndarray, np.generic)) and dtypes.is_known(value.dtype):
        return {"array" if isinstance(value, np.ndarray) else "scalar": encode_array(np.asarray(value))}
    if isinstance(value, Command):
        return {"command": value.name}
    if isinstance(value, Symbol) and symbols is not None and value in symbols:
        return {"symbol": symbols[value]}
    kind = type(value)
    if RECORDS.get(kind.__name__) is kind:
        content = {
            field.name: encode_value(getattr(value, field.name), symbols) for field in fields(value) if field.init
        }
        return {"record": [kind.__name__, content]}
    raise TypeError(f"{value!r} ({kind.__name__}) has no JSON form")


def decode_value(tree: Any, symbols: list[Symbol] | None = None) -> Any:
    """Returns the value that `encode_value` made `tree` of."""
    kind = type(tree)
    if kind is list:  # mostly of numbers
        return [decode_value(item, symbols) if type(item) in _CONTAINERS else item for item in tree]
    if kind is not dict:
        return tree
    ((tag, content),) = tree.items()
    if tag == "tuple":
        return tuple(decode_value(content, symbols))
    if tag == "symbol" and symbols is not None:
        return symbols[content]
    if tag == "record":
        name, values = content
        return RECORDS[name](**{key: decode_value(value, symbols) for key, value in values.items()})
    if tag in _DECODERS:
        return _DECODERS[tag](content)
    items = decode_value(content, symbols)
    if tag == "dict":
        return dict(items)
    if tag == "slice":
        return slice(*items)
    if tag == "frozenset":
        return frozenset(items)
    raise KeyError(tag)


_CONTAINERS = frozenset({list, dict})


def encode_array(value: NDArray) -> dict[str, Any]:
    """Returns an array as dtype, shape and little-endian bytes."""
    little = value.astype(value.dtype.newbyteorder("<"), copy=False) if value.dtype.kind != "V" else value
    data = base64.b64encode(little.tobytes()).decode("ascii")
    return {"dtype": value.dtype.name, "shape": list(value.shape), "data": data}


def decode_array(tree: Mapping[str, Any]) -> NDArray:
    """Returns the array that `encode_array` made `tree` of; it is read-only."""
    dtype = dtypes.BY_NAME[tree["dtype"]]
    stored = dtype.newbyteorder("<") if dtype.kind != "V" else dtype
    data = base64.b64decode(tree["data"], validate=True)
    array = np.frombuffer(data, stored).reshape(tree["shape"]).astype(dtype, copy=False)
    array.flags.writeable = False
    return array


_DECODERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType({
    "int": int,
    "float": float,
    "complex": lambda parts: complex(*map(decode_value, parts)),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": _DTYPES.__getitem__,
    "array": decode_array,
    "scalar": lambda tree: decode_array(tree)[()],
    "command": command,
})  # fmt: skip


# -- graphs ------------------------------------------------------------------------------------------------------------


@api_boundary
def to_json(graph: Graph) -> str:
    """Returns the JSON form of `graph` with its sub-graphs, constants, attributes, names and source lines.

    Args:
        graph: any graph.

    Raises:
        GraphError: a parameter or attribute has a value without a JSON form; `storable` gives dataclasses one.

    Example:
        >>> graph = make_graph(lambda x: x + x)(nnp.ones(2))
        >>> from_json(to_json(graph))(nnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    writer = GraphWriter()
    writer.graph(verify(graph))
    document = {"format": FORMAT, "version": VERSION, **writer.tables()}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


class GraphWriter:
    """Collects the tables of one document; others may number their own specs, source lines and graphs in them."""

    def __init__(self) -> None:
        self.specs: dict[TensorSpec, int] = {}
        self.sources: dict[SourceLine, int] = {}
        self.positions: dict[Graph, int] = {}
        self.graphs: list[dict[str, Any]] = []

    def tables(self) -> dict[str, Any]:
        """Returns the tables that `GraphReader` reads."""
        return {
            "specs": [_spec_tree(spec) for spec in self.specs],
            "sources": [[source.file, source.line, source.function] for source in self.sources],
            "graphs": self.graphs,
        }

    def spec(self, spec: TensorSpec) -> int:
        """Returns the position of a spec in its table."""
        return self.specs.setdefault(spec, len(self.specs))

    def source(self, source: SourceLine) -> int:
        """Returns the position of a source line in its table."""
        return self.sources.setdefault(source, len(self.sources))

    def graph(self, graph: Graph) -> int:
        """Returns the position of a graph in its table."""
        if graph in self.positions:
            return self.positions[graph]
        symbols = {symbol: i for i, symbol in enumerate(graph.symbols())}
        lasting = {name: value for name, value in graph.attrs.items() if not name.startswith("_")}
        tree = {
            "name": graph.name,
            "symbols": [[self.spec(symbol.spec), symbol.name] for symbol in symbols],
            "inputs": [symbols[symbol] for symbol in graph.inputs],
            "constants": [
                [symbols[symbol], encode_array(np.asarray(value))] for symbol, value in graph.constants.items()
            ],
            "nodes": [self._node(node, symbols) for node in graph.nodes],
            "outputs": [symbols[symbol] for symbol in graph.outputs],
            "attrs": _values(lasting, f"attribute {{}} of graph {graph.name!r}", symbols),
        }
        self.graphs.append(tree)
        return self.positions.setdefault(graph, len(self.graphs) - 1)

    def _node(self, node: Node, symbols: Mapping[Symbol, int]) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "command": node.command.name,
            "inputs": [symbols[symbol] for symbol in node.inputs],
            "outputs": [symbols[symbol] for symbol in node.outputs],
        }
        if node.params:
            tree["params"] = encode_params(node.command, node.params, node.source)
        if node.graphs:
            tree["graphs"] = [self.graph(graph) for graph in node.graphs]
        if node.source is not None:
            tree["source"] = self.source(node.source)
        return tree


def encode_params(command: Command, params: Mapping[str, Any], source: SourceLine | None = None) -> dict[str, Any]:
    """Encodes a node's parameters as trees that JSON can hold.

    Raises:
        GraphError: a parameter has a value without a JSON form.
    """
    return _values(params, f"parameter {{}} of a {command.name} node", None, source)


def decode_params(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters that `encode_params` made `tree` of."""
    return MappingProxyType({name: decode_value(value) for name, value in tree.items()}) if tree else NO_PARAMS


def _values(
    values: Mapping[str, Any], what: str, symbols: Mapping[Symbol, int] | None, source: SourceLine | None = None
) -> dict[str, Any]:
    trees = {}
    for name, value in values.items():
        try:
            trees[name] = encode_value(value, symbols)
        except TypeError as error:
            problem = f"{what.format(repr(name))} cannot be stored: {error}."
            fix = "use plain values, tuples, dtypes, arrays or dataclasses marked with storable, or drop it first."
            raise user_error(GraphError, "to_json", problem, fix=fix, source=source) from error
    return trees


def _spec_tree(spec: TensorSpec) -> dict[str, Any]:
    """Returns a spec as a tree that JSON can hold."""
    tree: dict[str, Any] = {"shape": [int(n) for n in spec.shape], "dtype": spec.dtype.name}
    return tree if spec.layout == STRIDED else tree | {"layout": spec.layout}


@api_boundary
def from_json(text: str | bytes) -> Graph:
    """Returns the graph that `to_json` wrote; it is verified.

    Args:
        text: as `to_json` writes it.

    Raises:
        ArgumentTypeError: it is no text.
        GraphError: the text is damaged, of another format or of an unknown version, or its graph breaks an invariant.
        RegistryError: the graph has a command that is not registered.

    Example:
        >>> from_json(nnc.graph.to_json(make_graph(nnp.sin)(1.0))).nodes[0].command.name
        'sin'
    """
    if not isinstance(text, (str, bytes, bytearray)):
        problem = f"text is {shorten(text)} ({type(text).__name__}), not a string."
        fix = "pass a text that to_json wrote; load_graph reads a file of one."
        raise user_error(ArgumentTypeError, "from_json", problem, fix=fix)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse(f"the text is no JSON: {error}", error)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        _refuse(f"the text is JSON, but no graph: its format is not {FORMAT!r}")
    if document.get("version") != VERSION:
        _refuse(
            f"version {shorten(document.get('version'))} of the format is unknown; this nnc reads version {VERSION}"
        )
    try:
        check_form(document)
        return verify(GraphReader(document).graphs()[-1])
    except NncError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        _refuse(f"the text is damaged ({type(error).__name__}: {error})", error)


def _refuse(problem: str, cause: BaseException | None = None) -> NoReturn:
    raise user_error(GraphError, "from_json", f"{problem}.", fix="pass a text that to_json wrote.") from cause


class GraphReader:
    """Reads the tables that a `GraphWriter` made, each row when it is first needed; verifies nothing.

    Args:
        sources: the source lines that replace the first ones of the table.
    """

    def __init__(self, document: Mapping[str, Any], sources: Sequence[SourceLine] = ()) -> None:
        lines = document["sources"][len(sources) :]
        self.sources = [*sources, *(SourceLine(*source) for source in lines)]
        self._spec_rows, self._graph_rows = document["specs"], document["graphs"]
        self._specs: list[TensorSpec | None] = [None] * len(self._spec_rows)
        self._graphs: list[Graph | None] = [None] * len(self._graph_rows)

    def spec(self, position: int) -> TensorSpec:
        """Returns the spec at a position of its table."""
        found = self._specs[position]
        if found is None:
            found = self._specs[position] = _read_spec(self._spec_rows[position])
        return found

    def graph(self, position: int) -> Graph:
        """Returns the graph at a position of its table."""
        found = self._graphs[position]
        if found is None:
            found = self._graphs[position] = self._read_graph(self._graph_rows[position])
        return found

    def graphs(self) -> list[Graph]:
        """Returns all graphs."""
        return [self.graph(position) for position in range(len(self._graph_rows))]

    def _read_graph(self, tree: Mapping[str, Any]) -> Graph:
        symbols = [new_symbol(self.spec(spec), name) for spec, name in tree["symbols"]]

        def pick(positions: list[int]) -> tuple[Symbol, ...]:
            return tuple([symbols[i] for i in positions])

        nodes = tuple([
            new_node(
                command(node["command"]),
                pick(node["inputs"]),
                pick(node["outputs"]),
                decode_params(node["params"]) if "params" in node else NO_PARAMS,
                tuple([self.graph(i) for i in node["graphs"]]) if "graphs" in node else (),
                self.sources[node["source"]] if "source" in node else None,
            )
            for node in tree["nodes"]
        ])  # fmt: skip
        constants = {symbols[i]: decode_array(value) for i, value in tree["constants"]}
        attrs = {name: decode_value(value, symbols) for name, value in tree["attrs"].items()}
        return Graph(pick(tree["inputs"]), pick(tree["outputs"]), nodes, constants, attrs, tree["name"])


def _read_spec(tree: Mapping[str, Any]) -> TensorSpec:
    """Returns the spec that `_spec_tree` made `tree` of."""
    return TensorSpec(tuple(tree["shape"]), _DTYPES[tree["dtype"]], tree.get("layout", STRIDED))


@api_boundary
def save_graph(path: str | os.PathLike[str], graph: Graph) -> None:
    """Writes the JSON form of `graph` to a file.

    Args:
        path: where to; a file there is replaced.
        graph: any graph.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_graph(f"{folder}/graph.json", make_graph(nnp.sin)(1.0))
        ...     load_graph(f"{folder}/graph.json").nodes[0].command.name
        'sin'
    """
    text, place = to_json(graph), path_to_write("save_graph", path)
    with access("save_graph", place):
        place.write_text(text, encoding="utf-8")


@api_boundary
def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Returns the graph in a file that `save_graph` wrote; raises as `from_json` does.

    Args:
        path: a file that `save_graph` wrote.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_graph(f"{folder}/graph.json", make_graph(nnp.sin)(1.0))
        ...     len(load_graph(f"{folder}/graph.json").nodes)
        1
    """
    place = path_to_read("load_graph", path)
    with access("load_graph", place):
        text = place.read_bytes()
    return from_json(text)


# -- the form of a document: which fields there are, and which types they have -----------------------------------------


def check_form(tree: Any, form: Any = DOCUMENT, path: str = "the document") -> None:
    """Raises ValueError unless `tree` has a form; the text names the field.

    Example:
        >>> check_form({"version": "1"}, {"version": int})
        Traceback (most recent call last):
        ValueError: the document["version"] is '1', not of type int
    """
    if form is _COUNT:
        _require(type(tree) is int and tree >= 0, path, tree, form)
    elif isinstance(form, type):
        _require(type(tree) is form, path, tree, f"of type {form.__name__}")
    elif isinstance(form, list):
        _require(type(tree) is list, path, tree, "a list")
        for i, part in enumerate(tree):
            check_form(part, form[0], f"{path}[{i}]")
    elif isinstance(form, tuple):
        _require(type(tree) is list and len(tree) == len(form), path, tree, f"a list of {len(form)}")
        for i, (part, inner) in enumerate(zip(tree, form, strict=True)):
            check_form(part, inner, f"{path}[{i}]")
    else:
        _require(type(tree) is dict, path, tree, "an object")
        names = {name.removesuffix("?"): inner for name, inner in form.items()}
        for name in tree:
            _require(name in names, path, name, "one of its fields")
        for name in form:
            _require(name.endswith("?") or name in tree, path, tree, f"an object with the field {name}")
        for name, part in tree.items():
            check_form(part, names[name], f'{path}["{name}"]')


def _require(holds: bool, path: str, value: Any, wanted: str) -> None:
    if not holds:
        text = repr(value)
        raise ValueError(f"{path} is {text if len(text) < 60 else text[:57] + '...'}, not {wanted}")
