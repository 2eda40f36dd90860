"""Loads a model as a pure function of a dict of arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

import nnc
from nnc.array.array import Array
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TraceError, user_error
from nnc.onnx.model import WHERE, Model, ModelGraph, Node, Value, damaged, needed, read_model
from nnc.onnx.parts import Parts, as_array
from nnc.onnx.run import Named, OwnWeights, Runner, Values, has_definition
from nnc.onnx.values import InputsNeeded, ValueNeeded, is_known, nnc_has
from nnc.trace.core.tracer import Tracer

CALL = "model"
SMALL = 16  # elements of an input whose values may be fixed, so that shapes that depend on them are known
MOST_USUAL = 1000  # kinds of calls that are recognised by the specs of their arrays alone
MOST_VARIANTS = 16  # values of such inputs for which the model is compiled anew

Feeds = Mapping[str, Any]


def load(
    bytes_or_path: bytes | str | os.PathLike[str],
    *,
    outputs: Sequence[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    trainable: bool = False,
) -> OnnxFunction:
    """Reads a model in the ONNX format and returns it as a pure function: `f({"x": x})` gives the list of its outputs.

    The function compiles as a whole at its first call, and again for other shapes. Where a shape depends on the values of a small
    input, such as a number of steps, it compiles for each value, up to 16; where one depends on the data, it compiles in parts.
    `f.explain()` tells which. It differentiates, maps and compiles within other functions as those that are written in Python.

    Args:
        bytes_or_path: the model, or the path of its file.
        outputs: the values to return, by their names in the model; by default its outputs.
        base: the folder of weights that lie in files of their own; by default that of the model's file.
        trainable: whether `f.params` holds the weights of floating-point numbers, for `f.apply(params, feeds)`. Numbers without
            dimensions, such as an epsilon, are settings and none of them.

    Returns:
        the function, with `inputs`, `outputs`, `params`, `apply` and `explain`.

    Raises:
        FileFormatError: the file breaks the rules of the format, or asks for more memory than its weights can have.
        UnsupportedError: it has an operator that nnc does not know. Node and operator are named when the model first runs.
        ArgumentError: `outputs` names no value of the model, or `base` is missing.

    Example:
        >>> model = nnc.onnx.load(nnc.onnx.export(lambda x: nnc.numpy.tanh(x) + 1, [nnc.ShapeDtypeStruct((2,), "float32")]))
        >>> model({model.inputs[0].name: nnc.asarray([0.0, 1.0], dtype="float32")})
        [Array([1.       , 1.7615942], dtype=float32)]
    """
    return OnnxFunction(read_model(bytes_or_path, base), outputs, trainable)


class OnnxFunction:
    """A model as a pure function of a dict of arrays; see `load`.

    Attributes:
        inputs: name, dtype and shape of each input.
        outputs: name, dtype and shape of each output.
        params: the weights that `apply` takes, by name; empty unless the model was loaded with `trainable=True`.
        graph: the nodes that the outputs need, and all other weights.
    """

    def __init__(self, model: Model, outputs: Sequence[str] | None = None, trainable: bool = False) -> None:
        graph = model.graph
        wanted = graph.outputs if outputs is None else tuple(_find_output(graph, name) for name in outputs)
        graph = graph._replace(outputs=wanted, nodes=needed(graph.nodes, [value.name for value in wanted]))
        self.inputs = tuple(value for value in graph.inputs if value.name not in graph.weights)
        self.outputs = wanted
        self._defaults = frozenset(graph.weights).intersection(value.name for value in graph.inputs)
        settings = _settings(graph.nodes)
        trained = {
            name: array
            for name, array in graph.weights.items()
            if trainable and array.ndim and array.dtype.kind == "f" and nnc_has(array.dtype) and name not in settings
        }
        self.params = {name: nnc.asarray(np.asarray(array)) for name, array in trained.items()}
        self.graph = graph._replace(weights={n: a for n, a in graph.weights.items() if n not in trained})
        self._model = model
        self._tracer = _ModelTracer(model, self.graph, self._defaults)
        self._programs: dict[Any, Any] = {}  # compiled functions, by the values of the inputs that are fixed in them
        self._fixed: dict[Any, frozenset[str] | None] = {}  # by the specs of a call; None: it runs in parts
        self._usual: dict[Any, tuple[frozenset[str], Any]] = {}  # how calls of arrays of these specs ran
        self._reasons: dict[str, None] = {}
        self._parts = Parts(model, self._tracer.own, self.graph, self._note)

    def __call__(self, feeds: Feeds) -> list[Any]:
        """Returns the outputs for a dict of inputs by name."""
        usual = self._usual.get(_specs(feeds)) if type(feeds) is dict else None
        if usual is None:
            return self.apply(self.params, feeds)
        fixed, names = usual
        program = self._programs.get(tuple([(name, _key(feeds[name])) for name in names]))
        if program is None:
            return self.apply(self.params, feeds)
        free = {name: _as_array(value) for name, value in feeds.items() if name not in fixed}
        found: list[Any] = program(self.params, free)
        return found

    def apply(self, params: Mapping[str, Any], feeds: Feeds) -> list[Any]:
        """Returns the outputs for other weights than the model's own, a dict like `params`."""
        if set(params) != set(self.params):
            problem = f"params has {_shown(params)}, and the model has {_shown(self.params)}."
            fix = "pass a dict like model.params" + (
                "." if self.params else ", after nnc.onnx.load(..., trainable=True)."
            )
            raise user_error(ArgumentError, f"{CALL}.apply", problem, fix=fix)
        given = self._checked(feeds)
        if any(isinstance(leaf, Tracer) and not isinstance(leaf, Array) for leaf in nnc.tree.leaves((params, given))):
            return self._within(params, given)
        hosts = frozenset(name for name, value in given.items() if _is_host(value))
        call = tuple((name, _spec(value)) for name, value in given.items())
        fixed = self._fixed.get(call, hosts)
        while fixed is not None:
            program, free = self._program(given, fixed)
            if program is None:
                self._note(
                    f"there are {MOST_VARIANTS} programs for values of {', '.join(map(repr, sorted(fixed)))} already"
                )
                break
            try:
                found = program(params, free)
            except ValueNeeded as request:
                self._note(f"{request.what} is none that a program can return")
                fixed = self._fixed[call] = None
                continue
            except InputsNeeded as request:
                fixed = self._more_fixed(request, given, fixed)
                self._fixed[call] = fixed
                continue
            self._note(f"compiled {self._how(fixed)}: {_call_text(given)}")
            if (specs := _specs(feeds)) is not None and len(self._usual) < MOST_USUAL:
                self._usual[specs] = fixed, sorted(fixed)
            return list(found)
        self._note(f"in parts: {_call_text(given)}")
        try:
            return [as_array(named.value) for named in self._parts.run(self._tracer.values(params, given, hosts))]
        except InputsNeeded as request:  # nodes that run one by one know all values but those that are missing
            problem = f"{request.node.title} cannot run: {request.what} is missing."
            raise damaged(problem) from None

    def defines(self, node: Node) -> bool:
        """Whether the model or the standard defines the operator of a node by other operators."""
        return (node.domain, node.operator) in self._model.functions or has_definition(node)

    def explain(self) -> str:
        """Tells how calls ran, and why, a line each."""
        return "\n".join(self._reasons) or "it has not run yet."

    def _within(self, params: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        """Runs as a part of the caller's trace. NumPy arrays are known there, also small ones whose values shapes depend on."""
        fixed = frozenset(
            name for name, value in given.items() if isinstance(value, np.ndarray) and value.size <= SMALL
        )
        try:
            return list(map(_result, self._tracer.run(params, given, fixed)))
        except InputsNeeded as request:
            which = ", ".join(map(repr, sorted(request.inputs)))
            problem = f"{request.what} in {request.node.title} depends on the values of {which}, which are traced."
            fix = "pass small inputs as NumPy arrays; data that decides shapes cannot be traced."
            raise user_error(TraceError, CALL, problem, fix=fix) from None

    def _program(self, given: Mapping[str, Any], fixed: frozenset[str]) -> tuple[Any, dict[str, Any]]:
        """Returns the function that is compiled for the values of the fixed inputs, and its arguments, the others.

        The function is None where there are enough for other values.
        """
        held = {name: value if _is_host(value) else np.asarray(value) for name, value in given.items() if name in fixed}
        key = tuple((name, _key(value)) for name, value in sorted(held.items()))
        if key not in self._programs:
            if len(self._programs.keys() - {()}) >= MOST_VARIANTS:
                return None, {}

            self._programs[key] = _compiled(_WithFixed(self._tracer, held))
        return self._programs[key], {name: value for name, value in given.items() if name not in fixed}

    def _more_fixed(
        self, request: InputsNeeded, given: Mapping[str, Any], fixed: frozenset[str]
    ) -> frozenset[str] | None:
        """Returns the inputs to fix so that a node gets its numbers; None where the model has to run in parts."""
        wanted = request.inputs - fixed
        names = ", ".join(map(repr, sorted(request.inputs)))
        self._note(f"{request.what} in {request.node.title} depends on the values of {names or 'no input'}")
        is_small = all(name in given and np.size(given[name]) <= SMALL for name in wanted)
        return fixed | wanted if wanted and is_small else None

    def _checked(self, feeds: Feeds) -> dict[str, Any]:
        """Returns the inputs as arrays of the declared dtypes and shapes."""
        if not isinstance(feeds, Mapping):
            problem = f"feeds is a {type(feeds).__name__}."
            raise user_error(ArgumentTypeError, CALL, problem, fix=f'pass a dict such as {{"{self._first}": x}}.')
        known = {value.name: value for value in self.graph.inputs}
        for name in feeds:
            if name not in known:
                near = _nearest(name, known)
                fix = f"write {near!r}." if near else f"its inputs are {_shown(known)}."
                raise user_error(ArgumentError, CALL, f"it has no input {name!r}.", fix=fix)
        sizes: dict[str, tuple[int, str]] = {}
        given = {}
        for name, value in known.items():
            if name in feeds:
                given[name] = _array_of(value, feeds[name])
                _check_shape(value, given[name], sizes)
            elif name not in self._defaults and value.dtype is not None:
                problem = f"the input {name!r} is missing; feeds has {_shown(feeds)}."
                raise user_error(ArgumentError, CALL, problem, fix=f"pass {spec_text(value)} as {name!r}.")
        return given

    @property
    def _first(self) -> str:
        return self.inputs[0].name if self.inputs else "x"

    def _how(self, fixed: frozenset[str]) -> str:
        return f"for the values of {', '.join(map(repr, sorted(fixed)))}" if fixed else "as a whole"

    def _note(self, line: str) -> None:
        if len(self._reasons) < 1000:
            self._reasons[line] = None


class _ModelTracer:
    """Runs the nodes of a model, under a trace or on arrays.

    It is no function, so that calls of compiled functions that hold it do not look through all nodes for changes.
    """

    def __init__(self, model: Model, graph: ModelGraph, defaults: frozenset[str]) -> None:
        self._model, self._graph, self._defaults, self.own = model, graph, defaults, OwnWeights()

    def values(self, params: Mapping[str, Any], given: Mapping[str, Any], fixed: frozenset[str]) -> Values:
        """Returns weights and inputs by name; those of inputs that are `fixed` are known."""
        values: Values = {name: Named(value, frozenset((name,))) for name, value in params.items()}
        for value in self._graph.inputs:
            if value.name in given:
                known = value.name in fixed or is_known(given[value.name])
                values[value.name] = Named(given[value.name], frozenset() if known else frozenset((value.name,)))
            elif value.name not in self._defaults:
                values[value.name] = Named(None, frozenset())
        return values

    def run(self, params: Mapping[str, Any], given: Mapping[str, Any], fixed: frozenset[str]) -> list[Named]:
        """Returns the outputs; the values of inputs that are `fixed` are known."""
        return Runner(self._model, self.own).graph(self._graph, self.values(params, given, fixed))


class _WithFixed:
    """A model as a function of its other inputs, where some have these values."""

    def __init__(self, tracer: _ModelTracer, held: Mapping[str, Any]) -> None:
        self._tracer, self._held = tracer, held

    def run(self, params: Mapping[str, Any], free: Mapping[str, Any]) -> list[Any]:
        """Returns the outputs as a compiled function may return them."""
        return list(map(_result, self._tracer.run(params, {**free, **self._held}, frozenset(self._held))))


def _compiled(model: _WithFixed) -> Any:
    @nnc.compile
    def program(params: Mapping[str, Any], free: Mapping[str, Any]) -> list[Any]:
        return model.run(params, free)

    return program


def _settings(nodes: Sequence[Node]) -> set[str]:
    """Returns weights that are settings: the scales and regions of Resize."""
    return {name for node in nodes if node.operator in ("Resize", "Upsample") for name in node.inputs[1:]}


def _nearest(name: Any, names: Iterable[str]) -> str | None:
    lower = {other.lower(): other for other in names}
    near = get_close_matches(str(name).lower(), lower, 1)
    return lower[near[0]] if near else None


def _find_output(graph: ModelGraph, name: str) -> Value:
    known = {value.name: value for value in graph.outputs}
    made = [output for node in graph.nodes for output in node.outputs if output]
    if name in known:
        return known[name]
    if name in made:
        return Value(name, None, None)
    near = _nearest(name, [*known, *made])
    fix = f"write {near!r}." if near else f"its outputs are {_shown(known)}."
    raise user_error(ArgumentError, WHERE, f"outputs: the model has no value {name!r}.", fix=fix)


def _array_of(wanted: Value, value: Any) -> Any:
    """Returns an input as an array of the declared dtype. Python's numbers take it on; arrays must have it."""
    if wanted.dtype is None or isinstance(value, Tracer) or value is None:
        checked = [*value] if isinstance(value, (list, tuple)) else value
        if wanted.dtype is None:
            return checked
        array = value
    elif isinstance(value, (Array, np.ndarray)) or hasattr(value, "__dlpack__") or isinstance(value, np.generic):
        array = value if isinstance(value, (Array, np.ndarray)) else np.asarray(value)
    else:
        array = np.asarray(value)
        cast = array.astype(wanted.dtype) if array.dtype.kind in "biuf" else array
        if array.dtype.kind in "biu" and not np.array_equal(cast, array):
            problem = f"the input {wanted.name!r} has numbers that {wanted.dtype} cannot hold: {value!r:.80}."
            raise user_error(DTypeError, CALL, problem, fix=f"pass {spec_text(wanted)}.")
        array = cast if array.dtype.kind in "biu" or wanted.dtype.kind in "fc" else array
    if array is None or np.dtype(array.dtype) != wanted.dtype:
        found = None if array is None else np.dtype(array.dtype).name
        problem = f"the input {wanted.name!r} has dtype {found}, the model declares {wanted.dtype}."
        raise user_error(DTypeError, CALL, problem, fix=f'pass x.astype("{wanted.dtype}").')
    if isinstance(array, np.ndarray) and nnc_has(array.dtype) and not array.flags.writeable:
        return array.copy()
    return array


def _check_shape(wanted: Value, value: Any, sizes: dict[str, tuple[int, str]]) -> None:
    """Compares a shape with the declared one; a name stands for one size in all inputs."""
    if wanted.shape is None or not hasattr(value, "shape"):
        return
    shape = tuple(value.shape)
    matches = len(shape) == len(wanted.shape)
    for axis, (size, declared) in enumerate(zip(shape, wanted.shape, strict=False)):
        if isinstance(declared, int):
            matches = matches and size == declared
        elif isinstance(declared, str):
            other, where = sizes.setdefault(declared, (size, f"axis {axis} of {wanted.name!r}"))
            if other != size:
                problem = f"{declared!r} is {other} by {where}, and {size} by axis {axis} of {wanted.name!r}."
                raise user_error(ShapeError, CALL, problem, fix="pass inputs whose axes of this name are equal.")
    if not matches:
        problem = f"the input {wanted.name!r} has shape {shape}."
        raise user_error(ShapeError, CALL, problem, fix=f"pass {spec_text(wanted)}.")


def spec_text(value: Value) -> str:
    """Returns the dtype and the shape that a model declares, such as `float32[batch, 3]`."""
    shape = "" if value.shape is None else f"[{', '.join('?' if size is None else str(size) for size in value.shape)}]"
    return f"{value.dtype or 'a value'}{shape}"


def _result(named: Named) -> Any:
    """Returns an output as one that a compiled function may return.

    Raises:
        ValueNeeded: it is none, such as a string; then the model runs in parts.
    """
    value = named.value
    if isinstance(value, list):
        return [_result(Named(part, named.inputs)) for part in value]
    if isinstance(value, dict):
        raise ValueNeeded(value, "a map")
    if isinstance(value, np.ndarray) and not nnc_has(value.dtype):
        raise ValueNeeded(value, f"an output of {value.dtype}")
    return nnc.asarray(value) if isinstance(value, np.ndarray) else value


def _is_host(value: Any) -> bool:
    """Whether an input is none that a program can take: a sequence, strings, numbers of a few bits."""
    return value is None or isinstance(value, list) or not hasattr(value, "dtype") or not nnc_has(value.dtype)


def _key(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, type(number), number) for name, number in value.items())
    if isinstance(value, np.ndarray):
        content = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
        return value.shape, value.dtype.name, content
    return (
        (np.asarray(value).shape, np.asarray(value).dtype.name, np.asarray(value).tobytes())
        if value is not None
        else None
    )


def _specs(feeds: Mapping[str, Any]) -> Any:
    """Returns names and specs of inputs that are arrays of nnc or NumPy; None where another one is among them."""
    found: list[Any] = []
    for name, value in feeds.items():
        if type(value) is Array:
            found.append((name, value.spec))
        elif type(value) is np.ndarray and value.flags.writeable:
            found.append((name, value.shape, value.dtype))
        else:
            return None
    return tuple(found)


def _as_array(value: Any) -> Any:
    """Returns an array of nnc on the memory of NumPy's: functions of arrays alone are called with less ado."""
    return value if type(value) is Array else nnc.asarray(value)


def _spec(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(value.shape), np.dtype(value.dtype).name
    return _key(value)


def _call_text(given: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {np.dtype(v.dtype).name}{list(v.shape)}" if hasattr(v, "dtype") else name for name, v in given.items()
    ]
    return ", ".join(parts) or "no inputs"


def _shown(names: Any) -> str:
    shown = [repr(name) for name in list(names)[:8]]
    return ", ".join(shown) + (", …" if len(names) > 8 else "") or "none"
