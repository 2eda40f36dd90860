"""Functions as ONNX models."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import nnc
from nnc.base.files import Folder
from nnc.errors import ArgumentError, ArgumentTypeError, UnsupportedError, user_error
from nnc.errors.paths import access, path_to_write
from nnc.onnx.writers import complexes, draws, elementwise, index, loops, products, shape  # noqa: F401  (they fill the column `onnx`)
from nnc.onnx.writers.dynamic import LARGE, PRIMES, SMALL, Axis, compare, write_sizes
from nnc.onnx.writers.writer import Writer, make_graph, value_info
from nnc.tree import leaves_with_path

WHERE = "nnc.onnx.export"
OPSETS = range(13, 24)
LARGEST = (1 << 31) - (1 << 20)  # bytes of a file that protobuf can hold, with room for the nodes
SMALLEST = 1024  # bytes of an array that goes to a file of its own; shapes stay with the nodes
IR_VERSION = 9

DynamicAxes = Mapping[str, Mapping[int, str]]


def export(
    fun: Callable[..., object],
    specs: Sequence[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = 20,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: DynamicAxes | None = None,
) -> bytes:
    """Writes a function as a model in the ONNX format, which onnxruntime and other engines run.

    The function is traced, so gradients, loops and optimizer steps are written like anything else. Arrays that it captures
    become the model's weights. Complex arguments and results are real ones in the model, with their parts along a last axis of 2.

    Args:
        fun: a function of pytrees of arrays.
        specs: for each argument a pytree of arrays or of `ShapeDtypeStruct`s; arrays only tell shapes and dtypes.
        path: the file to write, which is replaced; with weights beyond 2 GB they go to a file of their own beside it.
        opset: the version of the operators, from 13 to 23.
        input_names: a name for each leaf of the arguments; by default the parameters' names, with the path of the leaf.
        output_names: a name for each leaf of the result; by default `output` with its path.
        dynamic_axes: names for sizes that may vary, by the input's name and the axis: `{"x": {0: "batch"}}`. Axes of one name
            have one size.

    Returns:
        the bytes of the model; of one with weights in a file of their own, those of the file at `path`.

    Raises:
        UnsupportedError: commands have no form in ONNX, all of which are listed with their lines; or a size that varies does not
            lead to sums of multiples of it.
        ArgumentError: names or versions that cannot be; weights beyond 2 GB without a path.

    Example:
        >>> data = nnc.onnx.export(lambda x: nnp.tanh(x) @ x, [nnc.ShapeDtypeStruct((3,), "float32")])
        >>> nnc.onnx.load(data).inputs[0].shape
        (3,)
    """
    if opset not in OPSETS:
        fix = f"choose one from {OPSETS.start} to {OPSETS.stop - 1}."
        raise user_error(ArgumentError, WHERE, f"opset is {opset!r}.", fix=fix)
    if not isinstance(specs, (list, tuple)):
        problem = f"specs is a {type(specs).__name__}."
        raise user_error(ArgumentTypeError, WHERE, problem, fix="pass a list with an entry for each argument of fun.")
    arguments = [nnc.tree.map(_as_spec, spec) for spec in specs]
    names = _input_names(fun, arguments, input_names)
    axes = _axes(dynamic_axes or {}, names, arguments)
    sizes = _sizes(axes, names, arguments)
    if len(sizes) > len(SMALL):
        problem = f"dynamic_axes names {len(sizes)} sizes; nnc compares traces for {len(SMALL)} at most."
        raise user_error(ArgumentError, WHERE, problem, fix="give axes that are equal one name.")
    tried = dict(zip(sizes, PRIMES, strict=False))
    base, outputs = _write(fun, _resized(arguments, names, axes, tried), names, opset, bool(sizes))
    found = _output_names(outputs, output_names, names)
    nodes = list(base.nodes)
    if tried:
        spare = PRIMES[len(tried) :]
        larger = [{**tried, name: spare[0]} for name in tried]
        larger += [dict(zip(tried, proof, strict=False)) for proof in (spare[1:], SMALL, LARGE)]
        others = [(now, _write(fun, _resized(arguments, names, axes, now), names, opset, True)[0]) for now in larger]
        nodes = [*write_sizes(base, compare(base, others, tried), axes, tried), *nodes]
    nodes += [helper.make_node("Identity", [inner], [name]) for inner, name in zip(base.results, found, strict=True)]
    named = {(axis.place, axis.axis): axis.name for axis in axes}
    inputs = [
        value_info(name, leaf.dtype, [named.get((name, a), size) for a, size in enumerate(leaf.shape)])
        for name, leaf in zip(names, nnc.tree.leaves(arguments), strict=True)
    ]
    infos = [
        value_info(name, spec.dtype, spec.shape if not sizes else [None] * len(spec.shape))
        for name, (_, spec) in zip(found, outputs, strict=True)
    ]
    return _save(nodes, inputs, infos, base.constants, opset, path, getattr(fun, "__name__", "function"))


def _write(
    fun: Callable[..., object], arguments: Sequence[Any], names: Sequence[str], opset: int, is_sized: bool
) -> tuple[Writer, list[tuple[str, Any]]]:
    """Traces the function and writes its nodes; returns the writer, and the leaves of the result with their paths."""
    graph = nnc.make_graph(fun)(*arguments)
    writer = Writer(opset, is_sized=is_sized)
    writer.results = writer.graph(graph, names)
    if writer.problems:
        lines = "\n".join(dict.fromkeys(str(problem).partition("\nFix:")[0].strip() for problem in writer.problems))
        problem = f"{len(writer.problems)} commands have no form in ONNX:\n{lines}"
        fix = "compute these parts outside of the exported function, or register writers in the column `onnx`."
        raise user_error(UnsupportedError, WHERE, problem, fix=fix)
    return writer, leaves_with_path(nnc.eval_shape(fun, *arguments))


def _as_spec(leaf: Any) -> Any:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return nnc.ShapeDtypeStruct(tuple(leaf.shape), leaf.dtype)
    array = nnc.asarray(leaf)
    return nnc.ShapeDtypeStruct(array.shape, array.dtype)


def _input_names(fun: Callable[..., object], arguments: Sequence[Any], given: Sequence[str] | None) -> list[str]:
    leaves = [leaf for argument in arguments for leaf in leaves_with_path(argument)]
    if given is not None:
        return _checked_names("input_names", given, len(leaves))
    try:
        parameters = [
            name
            for name, p in inspect.signature(fun).parameters.items()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    titles = [*parameters, *(f"input_{place}" for place in range(len(parameters), len(arguments)))]
    return [
        _joined(title, path)
        for title, argument in zip(titles, arguments, strict=False)
        for path, _ in leaves_with_path(argument)
    ]


def _joined(title: str, path: str) -> str:
    """Returns a name such as `params.layers.0.weight` for a leaf at `["layers"][0].weight`."""
    parts = path.replace('"', "").replace("'", "").replace("]", "").replace("[", ".").strip(".")
    return f"{title}.{parts}" if parts else title


def _output_names(outputs: Sequence[Any], given: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    if given is not None:
        names = _checked_names("output_names", given, len(outputs))
    else:
        names = [_joined("output", path) for path, _ in outputs]
        names = [f"{name}_" if name in inputs else name for name in names]
    if set(names) & set(inputs):
        both = ", ".join(sorted(set(names) & set(inputs)))
        raise user_error(
            ArgumentError, WHERE, f"output_names: {both} is an input, too.", fix="give outputs other names."
        )
    return names


def _checked_names(what: str, given: Sequence[str], count: int) -> list[str]:
    names = list(given)
    if len(names) != count or len(set(names)) != count or not all(isinstance(name, str) and name for name in names):
        problem = f"{what} is {names!r}; it needs {count} different names."
        raise user_error(
            ArgumentError, WHERE, problem, fix="pass a name for each leaf, in the order of nnc.tree.leaves."
        )
    if any(name.startswith("v") and name[1:].isdigit() for name in names):
        raise user_error(
            ArgumentError, WHERE, f"{what} is {names!r}; v1, v2, … are names of nnc's.", fix="choose others."
        )
    return names


# -- sizes that vary ---------------------------------------------------------------------------------------------------


def _axes(given: DynamicAxes, names: Sequence[str], arguments: Sequence[Any]) -> list[Axis]:
    leaves = dict(zip(names, nnc.tree.leaves(arguments), strict=True))
    found = []
    for name, axes in given.items():
        if name not in leaves:
            fix = f"its inputs are {', '.join(map(repr, names))}."
            raise user_error(ArgumentError, WHERE, f"dynamic_axes: there is no input {name!r}.", fix=fix)
        for axis, size in axes.items():
            ndim = len(leaves[name].shape)
            if not -ndim <= axis < ndim:
                problem = f"dynamic_axes: {name!r} has no axis {axis}, its shape is {tuple(leaves[name].shape)}."
                raise user_error(ArgumentError, WHERE, problem, fix="name an axis that it has.")
            found.append(Axis(str(size), name, axis % ndim))
    return found


def _sizes(axes: Sequence[Axis], names: Sequence[str], arguments: Sequence[Any]) -> dict[str, int]:
    leaves = dict(zip(names, nnc.tree.leaves(arguments), strict=True))
    sizes: dict[str, int] = {}
    for name, place, axis in axes:
        size = leaves[place].shape[axis]
        if sizes.setdefault(name, size) != size:
            problem = f"dynamic_axes: {name!r} is {sizes[name]} and, on axis {axis} of {place!r}, {size}."
            raise user_error(ArgumentError, WHERE, problem, fix="give axes of one name one size in specs.")
    return sizes


def _resized(
    arguments: Sequence[Any], names: Sequence[str], axes: Sequence[Axis], sizes: Mapping[str, int]
) -> list[Any]:
    leaves, structure = nnc.tree.flatten(list(arguments))
    changed = []
    for name, leaf in zip(names, leaves, strict=True):
        sizes_of_axes = list(leaf.shape)
        for axis in axes:
            if axis.place == name:
                sizes_of_axes[axis.axis] = sizes[axis.name]
        changed.append(nnc.ShapeDtypeStruct(tuple(sizes_of_axes), leaf.dtype))
    return list(nnc.tree.unflatten(structure, changed))


# -- the file ----------------------------------------------------------------------------------------------------------


def _save(
    nodes: Sequence[Any], inputs: Any, outputs: Any, constants: Mapping[str, Any], opset: int, path: Any, name: str
) -> bytes:
    is_large = sum(array.nbytes for array in constants.values()) > LARGEST
    if is_large and path is None:
        problem = f"the weights are larger than {LARGEST:,} bytes."
        raise user_error(ArgumentError, WHERE, problem, fix="pass path=, so that they go to a file of their own.")
    apart = {name: array for name, array in constants.items() if is_large and array.nbytes > SMALLEST}
    held = {name: array for name, array in constants.items() if name not in apart}
    graph = make_graph(name, nodes, inputs, outputs, held.items())
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="nnc", producer_version=nnc.__version__
    )
    if path is None:
        return bytes(model.SerializeToString(deterministic=True))
    target = path_to_write(WHERE, path)
    beside = Folder(str(target.parent), None)
    if is_large:
        data = target.with_name(f"{target.name}.data")
        _write_weights(model.graph, apart, data)
    content = bytes(model.SerializeToString(deterministic=True))
    with access(WHERE, target):
        beside.write(target.name, content)
    return content


def _write_weights(graph: Any, constants: Mapping[str, Any], path: Any) -> None:
    """Writes weights to a file of their own, each at a multiple of 4,096 bytes, so that it can be mapped."""
    at = 0
    with access(WHERE, path), path.open("wb") as file:
        for name, array in constants.items():
            at += -at % 4096
            file.seek(at)
            file.write(np.ascontiguousarray(array).tobytes())
            tensor = graph.initializer.add()
            tensor.name, tensor.data_type, tensor.data_location = (
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                TensorProto.EXTERNAL,
            )
            tensor.dims.extend(array.shape)
            for key, value in (("location", path.name), ("offset", at), ("length", array.nbytes)):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)
            at += array.nbytes
