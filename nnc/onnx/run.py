"""Runs the nodes of a model in order, on arrays or under a trace. Results of known values alone are computed at once."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

import nnc
from nnc.base.context import activity
from nnc.errors import FileFormatError, NncError, UnsupportedError, user_error
from nnc.numpy.operands import at_once
from nnc.onnx.model import (
    DEEPEST,
    WHERE,
    Function,
    Model,
    ModelGraph,
    Node,
    body_of,
    most_run,
    needed,
    too_many,
    versions_of,
)
from nnc.onnx.operators.families import find
from nnc.onnx.values import InputsNeeded, ValueNeeded, as_known, check_known, is_known, nnc_has

# bytes: a larger value that outgrows its operands, such as weights that leave int8, is worked out in each run
FOLDED = 1 << 20
PACKED = 1 << 12  # bytes of a weight that gets memory of its own, so that packed forms of it are kept from call to call

# Operators whose results may be larger than all their operands: their sizes are asked for before they run.
_GROWING = {
    "ConstantOfShape", "Expand", "Tile", "Range", "Pad", "OneHot", "EyeLike", "Resize", "Upsample", "Concat", "Gather",
    "GatherElements", "GatherND", "ConvTranspose", "MatMul", "Add", "Sub", "Mul", "Div", "Pow", "Where", "Einsum", "Gemm",
    "DequantizeLinear", "Cast", "CastLike", "Col2Im", "MaxUnpool", "DFT", "STFT", "AffineGrid", "GridSample", "BlackmanWindow",
    "HammingWindow", "HannWindow", "MelWeightMatrix", "RandomNormal", "RandomUniform", "CenterCropPad",
}  # fmt: skip


class Named(NamedTuple):
    """A value, and the inputs of the model that its numbers depend on: none, if it is known."""

    value: Any
    inputs: frozenset[str]


Values = dict[str, Named]
ONE_PROCESSOR = (
    "com.microsoft.nchwc"  # operators that onnxruntime writes at its highest level, for the processor that it runs on
)
GRADIENT = ("ai.onnx.preview.training", "Gradient")
_NONE: frozenset[str] = frozenset()
ABSENT = Named(None, _NONE)


class Body:
    """A sub-graph as a function of its inputs; values of the graphs around it are those where its node stands."""

    def __init__(self, runner: Runner, graph: ModelGraph, around: Values) -> None:
        self.graph = graph
        self.is_on_host = runner.is_host
        self._runner, self._around = runner, around

    def __call__(self, *inputs: Any) -> list[Any]:
        """Returns the values of the outputs."""
        names = [value.name for value in self.graph.inputs]
        if len(inputs) != len(names):
            raise _wrong(f"the sub-graph {self.graph.name!r} has {len(names)} inputs and gets {len(inputs)}.")
        depends = frozenset().union(*(named.inputs for named in self._around.values())) if self._around else _NONE
        given = {name: _named(value, depends) for name, value in zip(names, inputs, strict=True)}
        return [named.value for named in self._runner.graph(self.graph, self._around | given)]


class OwnWeights:
    """Copies of large weights, as arrays of nnc that nobody else can write to, the same ones in each trace.

    Programs keep packed forms of such arrays from call to call.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[weakref.ref[Any], Any]] = {}  # by the identity of the model's array

    def copy_of(self, value: Any) -> Any:
        """Returns the copy of a large weight, and other values as they are."""
        if (
            not isinstance(value, np.ndarray)
            or value.nbytes < PACKED
            or value.dtype.kind != "f"
            or not nnc_has(value.dtype)
        ):
            return value
        held = self._copies.get(id(value))
        if held is None or held[0]() is not value:
            forget = partial(_forget, self._copies, id(value))
            held = self._copies[id(value)] = weakref.ref(value, forget), nnc.numpy.array(value)
        return held[1]


def _forget(copies: dict[int, Any], key: int, value: weakref.ref[Any]) -> None:
    copies.pop(key, None)


class Runner:
    """Runs graphs of one model once."""

    is_host = False  # whether it runs nodes that a trace has left because they need numbers

    def __init__(self, model: Model, own: OwnWeights, outer: Runner | None = None) -> None:
        self._model, self._own = model, own
        self._most = most_run(model.size)
        self._depth: int = outer._depth + 1 if outer is not None else 0
        # nodes, those of functions and of all iterations of loops included
        self._ran: list[int] = outer._ran if outer is not None else [0]

    def graph(self, graph: ModelGraph, values: Values) -> list[Named]:
        """Runs a graph; `values` has its inputs, and the values of the graphs around it."""
        values = {name: Named(array, _NONE) for name, array in graph.weights.items()} | values
        self.nodes(graph.nodes, values)
        return [take(values, output.name, f"the output {output.name!r}") for output in graph.outputs]

    def count(self, nodes: int) -> None:
        """Raises where a run takes more nodes than a file of this size may ask for."""
        self._ran[0] += nodes
        if self._ran[0] > self._most:
            raise too_many(self._ran[0], self._model.size)

    def nodes(self, nodes: Sequence[Node], values: Values) -> None:
        """Runs nodes and adds their results to the values.

        Raises:
            InputsNeeded: a node needs numbers that are not known.
        """
        for node in nodes:
            self.count(1)
            operands = [take(values, name, node.title) for name in node.inputs]
            depends = frozenset().union(*(operand.inputs for operand in operands))
            try:
                with activity(f"running {node.title}"):
                    given = [operand.value for operand in operands]
                    is_gradient = (node.domain, node.operator) == GRADIENT
                    results = (
                        self._gradient(node, nodes, given, values) if is_gradient else self._node(node, given, values)
                    )
            except ValueNeeded as request:
                asked = [operand.inputs for operand in operands if operand.value is request.value]
                raise InputsNeeded(
                    node, request.what, asked[0] if asked else depends or _inputs_around(node, values)
                ) from None
            except NncError:
                raise
            except NotImplementedError as error:
                fix = "write the model with another version of the operators."
                raise user_error(UnsupportedError, WHERE, f"{node.title}: nnc has no {error}.", fix=fix) from None
            except (
                KeyError,
                IndexError,
                TypeError,
                ValueError,
                AttributeError,
                OverflowError,
                ZeroDivisionError,
                MemoryError,
            ) as error:
                raise _wrong(f"{node.title} cannot run: {type(error).__name__}: {error}.") from error
            depends = depends or _inputs_around(node, values)
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    values[name] = _named(value, depends)

    def _node(self, node: Node, operands: list[Any], values: Values) -> Sequence[Any]:
        bodies = {
            name: Body(self, value, values) for name, value in node.attributes.items() if isinstance(value, ModelGraph)
        }
        function = find(node) if (node.domain, node.operator) not in self._model.functions else None
        if function is None:
            return self._call(node, operands)
        if bodies:
            node = node._replace(attributes=MappingProxyType({**node.attributes, **bodies}))
        elif all(map(is_known, operands)) and self._may_be_folded(node, function, operands):
            with at_once():
                found = _several(function(node, *operands))
            return list(map(as_known, found))
        return _several(function(node, *map(self._own.copy_of, operands)))

    def _gradient(self, node: Node, nodes: Sequence[Node], operands: list[Any], values: Values) -> Sequence[Any]:
        """Differentiates the nodes that lead from `xs` to `y`, names of values of the same graph."""
        names, y = node.attributes["xs"], node.attributes["y"]
        before = needed(nodes[: nodes.index(node)], [y])

        def total(*xs: Any) -> Any:
            inner = values | {name: _named(x, values[name].inputs) for name, x in zip(names, xs, strict=True)}
            self.nodes(before, inner)
            return nnc.numpy.sum(inner[y].value)

        wanted = tuple(range(len(names)))
        found: Any = nnc.grad(total, argnums=wanted)(*map(nnc.numpy.asarray, operands[: len(names)]))
        return tuple(found)

    def _may_be_folded(self, node: Node, function: Any, operands: Sequence[Any]) -> bool:
        """Whether the results of known operands are to be known, too; checks their size before there is anything of it."""
        held = sum(_nbytes(operand) for operand in operands)
        if node.operator not in _GROWING or any(_is_host(operand) for operand in operands):
            return True
        with at_once():
            try:
                specs: Any = nnc.eval_shape(lambda: [_array(value) for value in _several(function(node, *operands))])
            except ValueNeeded:
                return True
        size: int = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs if spec is not None)
        check_known(size, f"a result of {node.title}", held)
        return size <= max(FOLDED, held)

    def _call(self, node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        """Runs a function of the model, or an operator without a row by the standard's own definition."""
        if self._depth > DEEPEST:
            raise _wrong(f"functions call each other more than {DEEPEST} deep at {node.title}.")
        given = {attribute.name: attribute for attribute in node.proto.attribute}
        function = self._model.functions.get((node.domain, node.operator))
        if function is None:
            function = standard_function(node, operands, self._model.versions)
        for attribute in [*function.proto.attribute_proto, *_defaults(node)]:
            given.setdefault(attribute.name, attribute)
        names = list(function.proto.input)
        values = {name: Named(value, _NONE) for name, value in zip(names, operands, strict=False)}
        values |= dict.fromkeys(names[len(operands) :], ABSENT)
        depends = frozenset(str(index) for index, value in enumerate(operands) if not is_known(value))
        values = {name: _named(named.value, depends) for name, named in values.items()}
        try:
            Runner(self._model, self._own, self).nodes(body_of(function, given), values)
        except InputsNeeded as request:
            asked = [operands[int(index)] for index in request.inputs]
            raise ValueNeeded(
                asked[0] if len(asked) == 1 else None, f"{request.what}, within {node.operator}"
            ) from None
        return [values[name].value if name in values else None for name in function.proto.output]


def standard_function(node: Node, operands: Sequence[Any], versions: Mapping[str, int]) -> Function:
    """Returns the standard's definition of an operator by other operators.

    Raises:
        UnsupportedError: it has none.
    """
    problem = f"nnc has no operator {node.operator!r}" + (f" of the domain {node.domain!r}." if node.domain else ".")
    fix = "write one: see nnc.onnx.operators.table.operator."
    if node.domain == ONE_PROCESSOR:
        fix = "have onnxruntime optimize the model at the level ORT_ENABLE_EXTENDED, or load it as it was before."
    missing = user_error(UnsupportedError, WHERE, problem, fix=fix)
    try:
        schema: Any = onnx.defs.get_schema(node.operator, node.version, node.domain)
    except onnx.defs.SchemaError:
        raise missing from None
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        kinds = [_kind(operand).SerializeToString() for operand in operands]
        body = onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function(node.proto.SerializeToString(), kinds))
        if not body.node:
            raise missing
    else:
        raise missing
    return Function(body, MappingProxyType({**versions} | versions_of(body.opset_import)))


def has_definition(node: Node) -> bool:
    """Whether the standard defines an operator by others."""
    try:
        schema: Any = onnx.defs.get_schema(node.operator, node.version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def take(values: Mapping[str, Named], name: str, where: str) -> Named:
    """Returns a value by its name; raises where no earlier node made it."""
    if not name:
        return ABSENT
    if name not in values:
        raise _wrong(
            f"{where} reads {name!r}, which is neither an input nor a weight nor the result of an earlier node."
        )
    return values[name]


def _kind(operand: Any) -> Any:
    if operand is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype)), list(operand.shape))


def _defaults(node: Node) -> list[Any]:
    """Returns the standard's defaults of an operator's attributes."""
    try:
        schema = onnx.defs.get_schema(node.operator, node.version, node.domain)
    except onnx.defs.SchemaError:
        return []
    return [entry.default_value for entry in schema.attributes.values() if entry.default_value.name]


def _wrong(problem: str) -> FileFormatError:
    return user_error(FileFormatError, WHERE, problem, fix="check the file with onnx.checker.check_model.")


def _several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _named(value: Any, depends: frozenset[str]) -> Named:
    return Named(value, _NONE if is_known(value) else depends)


def _inputs_around(node: Node, values: Values) -> frozenset[str]:
    """Returns the inputs on which a node with sub-graphs may depend by names of the graphs around them."""
    if not any(isinstance(value, ModelGraph) for value in node.attributes.values()):
        return _NONE
    return frozenset().union(*(named.inputs for named in values.values()))


def _nbytes(value: Any) -> int:
    return sum(map(_nbytes, value)) if isinstance(value, list) else getattr(value, "nbytes", 0)


def _is_host(value: Any) -> bool:
    """Whether a value is none that a trace can hold: a sequence, a map, strings, elements of a few bits."""
    return isinstance(value, (list, dict)) or (value is not None and not nnc_has(value.dtype))


def _array(value: Any) -> Any:
    return None if value is None or not nnc_has(value.dtype) else nnc.numpy.asarray(value)
