"""Models as frozen records, read from protobuf, with every size checked before memory is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, helper, numpy_helper

from nnc.errors import ArgumentError, ArgumentTypeError, FileFormatError, UnsupportedError, user_error
from nnc.errors.paths import access, path_to_read

WHERE = "nnc.onnx.load"
MOST_NODES = 1_000_000
MOST_RUN = 20_000  # nodes that one run or trace may take beside 16 for each node of the file; each takes up to 80 µs
DEEPEST = 64  # sub-graphs within each other, and functions that call each other


class Node(NamedTuple):
    """One node of a model: the call of an operator.

    `attributes` holds ints, floats, str, lists of these, NumPy arrays, and sub-graphs. `version` is that of the node's domain
    which the model asks for. An absent input or output has the name "".
    """

    operator: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str
    proto: Any = None

    @property
    def title(self) -> str:
        """The node as messages call it."""
        return f"node {self.name!r} ({self.operator})" if self.name else f"the {self.operator} of {self.outputs[0]!r}"


class Value(NamedTuple):
    """An input or output: its dtype (None: a sequence, an optional value or a string) and its shape (None: any).

    A dimension is a size, a name that ties it to others, or None.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None


class ModelGraph(NamedTuple):
    """The nodes of a model or of a sub-graph, in order, and its weights."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: Mapping[str, np.ndarray[Any, Any]]
    nodes: tuple[Node, ...]


class Function(NamedTuple):
    """A function of a model. Its nodes are read for each call, since the attributes of the call belong to them."""

    proto: Any
    versions: Mapping[str, int]


class Model(NamedTuple):
    """A model: its graph, and its functions by domain and name; `size` counts the nodes of the file."""

    graph: ModelGraph
    functions: Mapping[tuple[str, str], Function]
    versions: Mapping[str, int]
    size: int


def read_model(source: Any, base: str | os.PathLike[str] | None = None) -> Model:
    """Reads a model from bytes or from a file; `base` is the folder of its weights that lie in files of their own.

    Raises:
        ArgumentTypeError, FileFormatError, UnsupportedError, MissingFileError, FileAccessError
    """
    folder = Path(base) if base is not None else None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        path = path_to_read(WHERE, source)
        with access(WHERE, path):
            data = path.read_bytes()
        folder = path.parent if folder is None else folder
    else:
        problem = f"bytes_or_path is a {type(source).__name__}."
        fix = "pass the bytes of a model, or the path of its file."
        raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        raise damaged(f"{len(data)} bytes are no model: {error}.") from None
    if not proto.HasField("graph"):
        raise damaged(f"{len(data)} bytes hold no graph.")
    return _Reader(folder).model(proto)


def damaged(problem: str) -> FileFormatError:
    """Builds the error of a file that breaks the format's rules."""
    return user_error(
        FileFormatError, WHERE, problem, fix="check the file with onnx.checker.check_model, or write it again."
    )


def most_run(size: int) -> int:
    """Returns the number of nodes that a run of a file with `size` nodes may take."""
    return MOST_RUN + 16 * size


def too_many(count: int, size: int) -> FileFormatError:
    """Builds the error of a file of few nodes that asks for many."""
    return damaged(f"its loops and functions make {count:,} nodes of {size:,}.")


def versions_of(imports: Iterable[Any]) -> dict[str, int]:
    """Returns the version of each domain that a model or a function asks for."""
    return {("" if entry.domain == "ai.onnx" else entry.domain): int(entry.version) for entry in imports}


class _Reader:
    """Reads the parts of one model, and counts its nodes."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._nodes = 0

    def model(self, proto: Any) -> Model:
        versions = versions_of(proto.opset_import)
        versions.setdefault("", 1)
        functions = {
            ("" if f.domain == "ai.onnx" else f.domain, f.name): Function(
                f, MappingProxyType(versions_of(f.opset_import))
            )
            for f in proto.functions
        }
        counts = count_calls(functions)
        graph = self.graph(proto.graph, versions, {})
        size = self._nodes + sum(len(f.node) for f in proto.functions)
        total = sum(1 + counts.get((node.domain, node.operator), 0) for node in graph.nodes)
        if total > most_run(size):
            raise too_many(total, size)
        return Model(graph, MappingProxyType(functions), MappingProxyType(versions), size)

    def graph(self, proto: Any, versions: Mapping[str, int], given: Mapping[str, Any], depth: int = 0) -> ModelGraph:
        if depth > DEEPEST:
            raise damaged(f"sub-graphs lie more than {DEEPEST} deep within each other.")
        weights = {}
        for tensor in proto.initializer:
            if tensor.name in weights:
                raise damaged(f"two weights have the name {tensor.name!r}.")
            weights[tensor.name] = self.tensor(tensor)
        for sparse in proto.sparse_initializer:
            weights[sparse.values.name] = self.sparse(sparse)
        inputs, outputs = tuple(map(self._value, proto.input)), tuple(map(self._value, proto.output))
        nodes = self.nodes(proto.node, versions, given, depth)
        return ModelGraph(proto.name, inputs, outputs, MappingProxyType(weights), nodes)

    def nodes(
        self, protos: Sequence[Any], versions: Mapping[str, int], given: Mapping[str, Any], depth: int = 0
    ) -> tuple[Node, ...]:
        self._nodes += len(protos)
        if self._nodes > MOST_NODES:
            raise damaged(f"it has more than {MOST_NODES:,} nodes.")
        made: set[str] = set()
        for name in (name for proto in protos for name in proto.output if name):
            if name in made:
                raise damaged(f"the value {name!r} is written twice.")
            made.add(name)
        return tuple(self._node(proto, versions, given, depth) for proto in protos)

    def _node(self, proto: Any, versions: Mapping[str, int], given: Mapping[str, Any], depth: int) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if any(attribute.ref_attr_name for attribute in proto.attribute):
            proto = with_attributes(proto, given)
        attributes = {entry.name: self.attribute(entry, versions, given, depth) for entry in proto.attribute}
        if not proto.output:
            raise damaged(f"a node of the operator {proto.op_type!r} has no output.")
        return Node(
            proto.op_type, domain, versions.get(domain, 1), tuple(proto.input), tuple(proto.output),
            MappingProxyType(attributes), proto.name, proto,
        )  # fmt: skip

    def attribute(self, proto: Any, versions: Mapping[str, int], given: Mapping[str, Any], depth: int) -> Any:
        kind = proto.type
        if kind == AttributeProto.TENSOR:
            return self.tensor(proto.t)
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.sparse(proto.sparse_tensor)
        if kind == AttributeProto.GRAPH:
            return self.graph(proto.g, versions, given, depth + 1)
        if kind == AttributeProto.STRING:
            return proto.s.decode(errors="replace")
        if kind == AttributeProto.STRINGS:
            return [text.decode(errors="replace") for text in proto.strings]
        if kind == AttributeProto.TENSORS:
            return [self.tensor(tensor) for tensor in proto.tensors]
        if kind == AttributeProto.GRAPHS:
            return [self.graph(graph, versions, given, depth + 1) for graph in proto.graphs]
        try:
            found = helper.get_attribute_value(proto)
        except ValueError:
            raise damaged(f"the attribute {proto.name!r} has no type.") from None
        return list(found) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else found

    def tensor(self, proto: Any) -> np.ndarray[Any, Any]:
        shape = tuple(proto.dims)
        where = f"the tensor {proto.name!r} of shape {list(shape)}"
        if any(size < 0 for size in shape) or len(shape) > DEEPEST:
            raise damaged(f"{where} is none that an array can have.")
        if proto.data_type == onnx.TensorProto.STRING:
            texts = [text.decode(errors="replace") for text in proto.string_data]
            if len(texts) != math.prod(shape):
                raise damaged(f"{where} has {len(texts)} strings.")
            return np.array(texts, object).reshape(shape)
        dtype = dtype_of(proto.data_type)
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            return self._external(proto, dtype, shape, where)
        wanted = -(-math.prod(shape) * bits_of(proto.data_type) // 8)
        held = len(proto.raw_data) if proto.HasField("raw_data") else None
        if held is not None and held != wanted:
            raise damaged(f"{where} needs {wanted} bytes, the file has {held}.")
        if held is None and wanted > 16 * (proto.ByteSize() + 16):
            raise damaged(f"{where} needs {wanted} bytes, the file holds {proto.ByteSize()} bytes of it.")
        try:
            return np.asarray(numpy_helper.to_array(proto))
        except (ValueError, TypeError) as error:
            raise damaged(f"{where} cannot be read: {error}.") from None

    def _external(self, proto: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> np.ndarray[Any, Any]:
        """Maps a tensor that lies in a file beside the model's into memory."""
        entries = {entry.key: entry.value for entry in proto.external_data}
        if self._folder is None:
            problem = f"{where} lies in the file {entries.get('location')!r} beside the model."
            raise user_error(ArgumentError, WHERE, problem, fix="pass base=, the folder of that file.")
        location = Path(entries.get("location", ""))
        path = self._folder / location
        if not location.parts or location.is_absolute() or ".." in location.parts or _has_link(self._folder, location):
            raise damaged(f"{where} lies at {str(location)!r}, which leaves the model's folder.")
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
        except ValueError:
            raise damaged(f"{where} has the offset {entries.get('offset')!r}, which is no number.") from None
        wanted = math.prod(shape) * bits_of(proto.data_type) // 8
        with access(WHERE, path):
            held = path.stat().st_size
        if offset < 0 or (length >= 0 and length != wanted) or offset + wanted > held:
            raise damaged(f"{where} needs {wanted} bytes at {offset} of {str(location)!r}, which has {held}.")
        if bits_of(proto.data_type) % 8:
            problem = f"{where} has elements of {bits_of(proto.data_type)} bits in a file of its own."
            raise user_error(UnsupportedError, WHERE, problem, fix="write it into the model.")
        if not wanted:
            return np.empty(shape, dtype)
        with access(WHERE, path):
            return np.memmap(path, dtype.newbyteorder("<"), "r", offset, shape)

    def sparse(self, proto: Any) -> np.ndarray[Any, Any]:
        values, places = self.tensor(proto.values), self.tensor(proto.indices)
        shape = tuple(proto.dims)
        count = math.prod(shape)
        if any(size < 0 for size in shape) or count * values.itemsize > MOST_DENSE:
            raise damaged(f"a sparse tensor of shape {list(shape)} is too large to be written out.")
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape, mode="clip")
        if flat.size and (flat.min() < 0 or flat.max() >= count):
            raise damaged(f"a sparse tensor of shape {list(shape)} has elements outside of it.")
        dense = np.zeros(count, values.dtype)
        dense[flat] = values
        return dense.reshape(shape)

    def _value(self, proto: Any) -> Value:
        kind = proto.type
        if not kind.HasField("tensor_type"):
            return Value(proto.name, None, None)
        number = kind.tensor_type.elem_type
        dtype = None if number in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING) else dtype_of(number)
        if not kind.tensor_type.HasField("shape"):
            return Value(proto.name, dtype, None)
        return Value(proto.name, dtype, tuple(map(_dimension, kind.tensor_type.shape.dim)))


def _dimension(proto: Any) -> int | str | None:
    """Returns a size or a name. Some writers put -1 or "?" for any size, which ties no dimensions to each other."""
    if proto.HasField("dim_value"):
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return proto.dim_param if any(map(str.isalpha, proto.dim_param)) else None


def with_attributes(proto: Any, given: Mapping[str, Any]) -> Any:
    """Returns a node of a function with the attributes of the call in place of references to them; without those not given."""
    found = onnx.NodeProto()
    found.CopyFrom(proto)
    del found.attribute[:]
    for attribute in proto.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            entry = found.attribute.add()
            entry.CopyFrom(source)
            entry.name = attribute.name
    return found


def count_calls(functions: Mapping[tuple[str, str], Function]) -> dict[tuple[str, str], int]:
    """Returns the number of nodes that a call of each function runs, but for those of its sub-graphs.

    Raises:
        FileFormatError: functions call themselves, or each other too deep.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}  # heights and counts

    def read(key: tuple[str, str], depth: int) -> tuple[int, int]:
        if key not in found:
            if depth > DEEPEST:
                problem = (
                    f"the function {key[1]!r} calls itself, or functions call each other more than {DEEPEST} deep."
                )
                raise damaged(problem)
            called = [
                ("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in functions[key].proto.node
            ]
            inner = [read(key, depth + 1) for key in called if key in functions]
            found[key] = 1 + max((height for height, _ in inner), default=0), len(called) + sum(n for _, n in inner)
        return found[key]

    if max((read(key, 0)[0] for key in functions), default=0) > DEEPEST:
        raise damaged(f"functions call each other more than {DEEPEST} deep.")
    return {key: count for key, (_, count) in found.items()}


def needed(nodes: Sequence[Node], outputs: Sequence[str]) -> tuple[Node, ...]:
    """Returns the nodes that outputs need, in their order; those of sub-graphs may read any value around them."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
            for value in node.attributes.values():
                if isinstance(value, ModelGraph):
                    wanted.update(names_within(value))
    return tuple(reversed(kept))


def names_within(graph: ModelGraph) -> set[str]:
    """Returns all names that a sub-graph reads."""
    names = {value.name for value in graph.outputs}
    for node in graph.nodes:
        names.update(node.inputs)
        for value in node.attributes.values():
            if isinstance(value, ModelGraph):
                names |= names_within(value)
    return names


MOST_DENSE = 1 << 30  # bytes of a sparse tensor that is written out


def body_of(function: Function, given: Mapping[str, Any]) -> tuple[Node, ...]:
    """Returns the nodes of a function's call; `given` are its attributes as protobuf, by name."""
    return _Reader(None).nodes(function.proto.node, function.versions, given)


def dtype_of(number: int) -> np.dtype[Any]:
    """Returns the dtype that ONNX gives a number.

    Raises:
        FileFormatError: there is no such number.
    """
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except KeyError:
        raise damaged(f"a tensor has elements of type {number}, which ONNX does not know.") from None


def bits_of(number: int) -> int:
    """Returns the bits of an element in a file; types of less than a byte lie side by side."""
    name = onnx.TensorProto.DataType.Name(number)
    small = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
    return small.get(name, 8 * dtype_of(number).itemsize)


def _has_link(folder: Path, location: Path) -> bool:
    """Whether the way from the folder to the file goes through a link, which may lead anywhere."""
    steps = [folder.joinpath(*location.parts[: count + 1]) for count in range(len(location.parts))]
    return any(step.is_symlink() for step in steps) or (steps[-1].exists() and steps[-1].stat().st_nlink > 1)
