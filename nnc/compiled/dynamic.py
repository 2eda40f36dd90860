"""The dynamic graph for users: the recorder of nnc.trace joined with lowering, which runs the derivatives."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value, asarray, new_array
from nnc.array.promote import is_weak, with_weakness
from nnc.base.bounded import BoundedCache
from nnc.base.context import ContextChange, activity, get_context, observes_commands, with_mode
from nnc.base.options import Options, parse_bytes
from nnc.base.silence import silently
from nnc.commands.control import call as call_command
from nnc.commands.elementwise import add
from nnc.commands.rules import is_differentiable
from nnc.compiled.compiled import BoundMethod, Compiled
from nnc.compiled.decorator import compile
from nnc.compiled.device_program import QueuedProgram
from nnc.compiled.dynamic_steps import EQUAL_RUNS, PROGRAMS, Repeated, Update
from nnc.compiled.executable import Executable
from nnc.compiled.pipeline import lower
from nnc.compiled.signature import Signature
from nnc.compiled.toolchain import toolchain
from nnc.device import CPU, find_device, interpreter_of
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    GraphError,
    InternalError,
    NncError,
    ShapeError,
    user_error,
)
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Graph, spec_of, structural_hash
from nnc.run.program import Program
from nnc.trace.core.eager import Plan
from nnc.trace.core.flat import name_of
from nnc.trace.core.on_device import DeviceInterpreter, device_put
from nnc.trace.dynamic.backward import Backward, Structure, as_graph, differentiate, take_apart
from nnc.trace.dynamic.interpreter import Recorder, Variable, concrete_array, device_of
from nnc.trace.dynamic.linear import LinearPart, split
from nnc.trace.dynamic.memo import MemoStats
from nnc.trace.dynamic.routine import routine_of
from nnc.trace.dynamic.store import Binding, Operation, history

NDArray = np.ndarray[Any, Any]
Elements = NDArray | Array  # of an array: itself, on a device
Run = Callable[[Sequence[Any]], Sequence[Elements]]

_LOG = logging.getLogger("nnc")


class DynamicGraph(Recorder):
    """Runs commands at once and keeps the graph of them, as long as a gradient can still be asked for.

    Variables are re-bound freely; each binding is a symbol of its own. `backward` differentiates the recorded graph before it
    runs, as `nnc.compile` would, and keeps the program for equal graphs. Values that no live variable can need are forgotten:
    freeing or detaching a variable, or leaving it to Python's garbage collector, releases the operations and arrays behind it.

    Slices, reshapes and transposes of a variable are aliases: they show its present value. Threads may share a graph; each
    call is atomic. `no_grad` and the like hold for the thread that enters them.

    Args:
        memo_bytes: how many bytes of results are kept to be found again (0: none), such as "64MiB".

    Example:
        >>> g = nnc.DynamicGraph()
        >>> x = g.variable(19.0)
        >>> f = x * nnp.log(x) + 1.2 * x
        >>> g.backward(f)
        >>> x.grad  # log 19 + 2.2
        Array(5.1444387, dtype=float32)
        >>> g.bookkeeping()
        (4, 5)
    """

    @api_boundary
    def __init__(self, memo_bytes: int | str = "64MiB") -> None:
        super().__init__(parse_bytes(memo_bytes, "memo_bytes"), self._native_program)
        self._derivatives: BoundedCache[tuple[Structure, str | None], tuple[Backward, Run]] = BoundedCache(PROGRAMS)
        self._programs: BoundedCache[tuple[str, str | None], Run] = BoundedCache(PROGRAMS)
        self._nodes: BoundedCache[tuple[Graph, tuple[bool, ...]], Plan] = BoundedCache(PROGRAMS)
        self._compiled: BoundedCache[tuple[Any, Hashable], Compiled[..., Any]] = BoundedCache(PROGRAMS)
        self._repeated: weakref.WeakKeyDictionary[Any, BoundedCache[Hashable, Repeated]] = weakref.WeakKeyDictionary()
        self._updates: list[Update] = []

    # -- variables -----------------------------------------------------------------------------------------------------

    @api_boundary
    def variable(self, array: Any = None) -> Variable:
        """Returns a variable bound to `array`; without one, it is absent until it is first written with `set`.

        Args:
            array: anything nnc makes an array of, or None.

        Raises:
            TraceError: `array` is traced.
            NncError: it is nothing nnc makes an array of.
        """
        return self.make(array, constant=False)

    @api_boundary
    def constant(self, array: Any = None) -> Variable:
        """Returns the same, but no derivative flows through it.

        Args:
            array: anything nnc makes an array of, or None.
        """
        return self.make(array, constant=True)

    def no_grad(self) -> ContextChange:
        """Returns a block within which commands run but nothing is recorded: results are constants.

        Example:
            >>> g = nnc.DynamicGraph()
            >>> with g.no_grad():
            ...     y = g.variable(2.0) * 3.0
            >>> g.bookkeeping()
            (0, 0)
        """
        return with_mode(self)

    # -- derivatives ---------------------------------------------------------------------------------------------------

    @api_boundary
    def backward(self, f: Any, df: Any = None, inputs: Any = None) -> None:
        """Adds the derivatives of `f` to the `grad` of its inputs.

        Args:
            f: a variable, or a list of them, whose gradients add up.
            df: the cotangent of the result, like `f`; left out for losses, which are 0-d.
            inputs: variables to differentiate with respect to, also computed ones; by default all that `variable` made
                and `f` depends on.

        Raises:
            ShapeError: `f` is no scalar and df is left out, or df has another shape.
            ArgumentTypeError: something is no variable of this graph.
            UnsupportedError: a command has no derivative.
        """
        self._backward(f, df, inputs)

    def _backward(self, f: Any, df: Any, inputs: Any) -> Sequence[Variable]:
        """Does it, and returns the variables that have a gradient now."""
        losses = self._variables("backward", "f", f)
        with activity("differentiating a dynamic graph"):
            cts = _cotangents(losses, df)
            targets = [x.binding for x in losses]
            chosen = None
            if inputs is not None:  # each once
                chosen = list({id(x): x for x in self._variables("backward", "inputs", inputs)}.values())
            _check_floats(losses, chosen or ())
            sources = None if chosen is None else list(dict.fromkeys([x.binding for x in chosen]))
            with self.locked():
                operations = history(targets)
                if chosen is None or sources is None:
                    chosen = _declared(operations, targets)
                    _check_any(chosen, losses)
                    sources = [x.binding for x in chosen]
                structure, bindings = take_apart(operations, targets, sources)
                values = [x.array for x in bindings]
            found: dict[Binding, Elements] = {}
            if sources:
                device = self._device_of((*targets, *sources))
                backward, run = self._derivative(structure, [x.source for x in operations], device)
                given = [cts[i] for i in backward.cotangents] + [_elements(values[i]) for i in backward.feeds]
                gradients = run(given + [x.data if device is None else x for x in backward.captured])
                reached = [x for x, on in zip(sources, backward.reached, strict=True) if on]
                found = dict(zip(reached, gradients, strict=True))
        for variable in chosen:
            self._add_gradient(variable, found.get(variable.binding))
        return chosen

    def _device_of(self, bindings: Sequence[Binding]) -> str | None:
        """Returns the device of losses and inputs; None for the CPU."""
        device = device_of([x.array for x in bindings if x.array is not None]) if self.uses_devices else None
        return None if device is None else device.device.name

    def _add_gradient(self, variable: Variable, gradient: Elements | None) -> None:
        before, spec = variable.grad, variable.spec
        if gradient is None:
            gradient = _zeros_like(variable)
        if before is not None and before.spec == spec:
            if isinstance(gradient, Array):
                gradient = add(before.to_device(gradient.device), gradient)
            else:
                gradient = np.asarray(silently(np.add, before.data, gradient))
        variable.take_gradient(gradient if isinstance(gradient, Array) else new_array(gradient, spec))

    def _derivative(self, structure: Structure, lines: Sequence[Any], device: str | None) -> tuple[Backward, Run]:
        key = structure, device
        known = self._derivatives.find(key) if "unspecialised" not in get_context().modes else None
        if known is None:
            backward = differentiate(structure, lines)
            if device is not None:
                backward = replace(backward, captured=tuple(x.to_device(device) for x in backward.captured))
            known = self._derivatives.keep(key, (backward, self._program(backward.graph, device)))
        return known

    def _program(self, graph: Graph, device: str | None) -> Run:
        """Returns the program of a graph; equal graphs share one."""
        try:
            key = structural_hash(graph), device
        except GraphError:  # a parameter such as a function: no two are known to be equal
            return _make_run(graph, device)
        run = self._programs.find(key) if "unspecialised" not in get_context().modes else None
        if run is None:
            run = self._programs.keep(key, _make_run(graph, device))
            _LOG.debug("dynamic graph: compiled a backward graph of %d nodes", len(graph.nodes))
        return run

    @staticmethod
    def _native_program(graph: Graph) -> Callable[[Sequence[NDArray]], list[NDArray]] | None:
        """Returns the program of commands that ran often; None where it would run them one by one, too.

        Denormal numbers stay, as they do where commands run one by one: results do not depend on how often something ran.
        """
        options = Options.from_environment().update(flush_denormals=False)
        compiler = toolchain(options.device).compiler() if options.native else None
        return _lower(graph, options).run if compiler is not None and compiler.works() else None

    @api_boundary
    def apply_gradients(self, optimizer: Any) -> None:
        """Moves every variable that has a gradient by one step of an optimizer, and clears the gradients.

        The state of the optimizer is kept by the graph. The variables of the first call belong together from then on; one that
        has no gradient in a later call is given zeros.

        Args:
            optimizer: any GradientTransformation (an object with `init` and `update`).

        Raises:
            ArgumentError: there are no gradients, or they are of other variables than before as well.
        """
        self._apply(optimizer, [x for x in list(self.graded.values()) if x.grad is not None])

    @api_boundary
    def minimize(self, f: Any, optimizer: Any, inputs: Any = None) -> None:
        """`backward` and `apply_gradients` in one: a step that makes the losses `f` smaller.

        Args:
            f: a 0-d variable, or a list of them.
            optimizer: any GradientTransformation.
            inputs: the variables to move; by default all that `variable` made and `f` depends on.
        """
        self._apply(optimizer, self._backward(f, None, inputs))

    def _apply(self, optimizer: Any, variables: Sequence[Variable]) -> None:
        if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
            problem = f"the optimizer is {optimizer!r}, which has no init and update."
            fix = "pass the result of a function such as nnc.optim.sgd(0.1)."
            raise user_error(ArgumentTypeError, "apply_gradients", problem, fix=fix)
        if not variables:
            raise user_error(
                ArgumentError, "apply_gradients", "no variable has a gradient.", fix="call g.backward(loss) before."
            )
        self._updates = [x for x in self._updates if not x.is_stale()]
        mine = [x for x in self._updates if x.optimizer is optimizer and x.shares(variables)]
        if not mine:
            mine = [Update(optimizer, variables)]
            self._updates += mine
        mine[0].run(variables)

    # -- compiled functions --------------------------------------------------------------------------------------------

    @api_boundary
    def evaluate(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`fun(*args)` within the graph. A function made by `nnc.compile` becomes one operation with a gradient of its own.

        Any other function runs command by command. After a few runs that did the same it is compiled, too, and the debug log
        (logger "nnc") says so; a function that decides on values, or that cannot be traced, goes on as before.

        Args:
            fun: a pure function of pytrees of variables and arrays.
            *args: pytrees of variables and arrays.
            **kwargs: pytrees of variables and arrays by name.
        """
        context = get_context()
        if "eager" in context.modes:
            return fun(*args, **kwargs)
        if isinstance(fun, BoundMethod):
            return self.evaluate(fun.compiled, fun.instance, *args, **kwargs)
        if isinstance(fun, Compiled):
            return self._evaluate_compiled(fun, args, kwargs)
        if context.modes and observes_commands(context):
            return fun(*args, **kwargs)
        try:
            weakref.ref(fun)
            call = Signature.of(fun, None, None, None, None).take_apart(args, kwargs)
        except (NncError, TypeError):  # runs of it cannot be told to be equal
            return fun(*args, **kwargs)
        compiled = self._compiled.find((fun, call.key))
        if compiled is not None:
            return self._evaluate_compiled(compiled, args, kwargs)
        counts = self._repeated.setdefault(fun, BoundedCache(PROGRAMS))
        repeated = counts.find(call.key) or counts.keep(call.key, Repeated())
        if repeated.is_over:
            return fun(*args, **kwargs)
        flat = call.flat_function()
        with self.watch() as notes:
            result = flat.build_result(flat(*map(self._argument, call.arguments.dynamic)))
        if repeated.is_due(tuple(notes.lines)):
            self._compile_repeated(fun, call.key, args, kwargs)
        return result

    def _argument(self, leaf: Any) -> Any:
        """Returns an argument whose value may be another one next time: not a number or array that stands in the function."""
        if hasattr(leaf, "owner"):
            return leaf
        constant = self.constant(with_weakness(as_value(leaf), False))
        constant.weak = is_weak(leaf)
        return constant

    def _evaluate_compiled(self, compiled: Compiled[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        executable, leaves = compiled.find(*args, **kwargs)
        if executable is None:
            return compiled.fun(*args, **kwargs)
        values, device = executable.operands(leaves), executable.options.device
        if device != CPU:
            values = [device_put(x, device) if isinstance(x, Array) else x for x in values]
        operands = [self.operand(x) for x in values]
        active = tuple([x.active for x in operands]) if self not in get_context().modes else (False,) * len(operands)
        key = executable.graph, active
        known = self._nodes.find(key) if "unspecialised" not in get_context().modes else None
        plan = known or self._nodes.keep(key, _plan_call(executable, active))
        routine = routine_of(plan, len(executable.graph.outputs))
        return executable.build(self.hand_out(routine, (), self.perform(routine, operands)))

    def _compile_repeated(self, fun: Any, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        compiled = compile(fun, flush_denormals=False)  # as its commands do
        try:
            executable, _ = compiled.find(*args, **kwargs)
        except NncError as error:
            _LOG.debug("dynamic graph: %s stays eager: %s", name_of(fun), str(error).splitlines()[0])
            return
        if executable is not None:
            self._compiled.keep((fun, key), compiled)
            _LOG.debug("dynamic graph: compiled %s after %d equal runs", name_of(fun), EQUAL_RUNS)

    # -- asking --------------------------------------------------------------------------------------------------------

    def bookkeeping(self) -> tuple[int, int]:
        """Counts the operations and the tensors that are kept: values that they connect, and variables that are no constants."""
        with self.locked() as store:
            return store.bookkeeping()

    @api_boundary
    def depends(self, outputs: Any, inputs: Any) -> tuple[bool, ...]:
        """For each of `inputs`, whether any of `outputs` still depends on it, so that its gradient may be other than 0.

        Args:
            outputs: a variable, or a list of them.
            inputs: a variable, or a list of them.

        Example:
            >>> g = nnc.DynamicGraph()
            >>> x, y = g.variable(1.0), g.variable(2.0)
            >>> g.depends(x * 2.0, [x, y])
            (True, False)
        """
        starts = [x.binding for x in self._variables("depends", "outputs", outputs)]
        asked = [x.binding for x in self._variables("depends", "inputs", inputs)]
        with self.locked():
            met = {x for x in starts if not x.constant}
            for operation in history(starts):
                met.update(x for x in operation.inputs if not x.constant)
        return tuple(x in met for x in asked)

    def memo_stats(self) -> MemoStats:
        """Counts the results that were found again, and the bytes that are kept."""
        with self.locked():
            return self.memo.stats()

    @api_boundary
    def graph(self) -> Graph:
        """Returns the present record, as a graph: from values that nothing here made to values that variables hold."""
        with self.locked() as store:
            return as_graph(list(store.operations.values()), list(store.leaves.values()), "dynamic")

    def __repr__(self) -> str:
        operations, tensors = self.bookkeeping()
        with self.locked() as store:
            held, memo = store.nbytes(), self.memo.stats()
        return (
            f"<DynamicGraph: {operations} operations, {tensors} tensors of {held} bytes, "
            f"{memo.entries} results kept in {memo.nbytes} of {memo.limit} bytes>"
        )

    def _variables(self, where: str, name: str, given: Any) -> list[Variable]:
        listed = list(given) if isinstance(given, (list, tuple)) else [given]
        for x in listed:
            if not isinstance(x, Variable) or x.owner is not self:
                problem = f"{name} holds {x!r}, which is no variable of this graph."
                fix = "pass variables made by g.variable(...), or values computed from them."
                raise user_error(ArgumentTypeError, where, problem, fix=fix)
        return listed


def _lower(graph: Graph, options: Options | None = None) -> Program:
    options = options or Options.from_environment()
    tools = toolchain(options.device)
    return lower(graph, options, tools.choose_kernel, tools.compiler())


def _plan_call(executable: Executable, active: tuple[bool, ...]) -> Plan:
    """Plans a compiled function as one operation. Where it is differentiated it returns its residuals, too."""
    graph = executable.graph
    plan = Plan(call_command, graph.input_specs, {}, (graph,), graph.output_specs, executable.run_arrays)
    if executable.queued is not None:
        plan.known[DeviceInterpreter] = executable.queued.run_arrays
    if not any(active) or "check_finite" in get_context().modes:
        return plan
    parts = split(graph, active)
    if parts is None:
        return plan
    forward, linear = parts
    options = executable.options.update(memory_budget=Options.from_environment().memory_budget)  # residuals take more
    program, known = _lower(forward.graph, options), dict[Any, Any]({LinearPart: linear})
    if executable.queued is not None:
        known[DeviceInterpreter] = _with(
            _queued(forward.graph.name, program, options.device).run_arrays, forward.captured
        )
    run = _with(program.run, [x.data for x in forward.captured])
    return replace(plan, outputs=forward.graph.output_specs, run=run, known=known)


def _with(run: Callable[[list[Any]], Any], captured: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda arrays: run([*arrays, *captured])


def _queued(name: str, program: Program, device: str) -> QueuedProgram:
    return QueuedProgram(name, program, interpreter_of(find_device(device, name)))


def _make_run(graph: Graph, device: str | None) -> Run:
    """Returns the function that runs a graph on the elements of arrays."""
    if device is not None:
        program = _lower(graph, Options.from_environment().update(device=device))
        return _queued(graph.name, program, device).run_arrays
    return _lower(graph).run


def _cotangents(losses: Sequence[Variable], df: Any) -> list[Elements]:
    """Returns the factors of the losses' derivatives."""
    given = [None] * len(losses) if df is None else list(df) if isinstance(df, (list, tuple)) else [df]
    if len(given) != len(losses):
        fix = "give one df for each loss, or leave df out."
        raise user_error(ArgumentError, "backward", f"df holds {len(given)} values for {len(losses)} losses.", fix=fix)
    found = []
    for loss, ct in zip(losses, given, strict=True):
        if ct is None and loss.shape:
            problem = "f is no scalar, so its derivative needs a direction."
            fix = "reduce it (nnp.sum, nnp.mean), or pass df, an array like f."
            raise user_error(ShapeError, "backward", problem, operands={"f": loss.spec}, fix=fix)
        array = np.ones((), loss.spec.dtype) if ct is None else _elements(concrete_array(ct, "backward"))
        if array.shape != loss.shape:
            problem = "df has another shape than f."
            fix = "pass df with the shape of f."
            raise user_error(ShapeError, "backward", problem, operands={"f": loss.spec, "df": spec_of(array)}, fix=fix)
        found.append(array.astype(loss.spec.dtype, copy=False))
    return found


def _check_floats(losses: Sequence[Variable], inputs: Sequence[Variable]) -> None:
    """Raises DTypeError for losses that have no derivative, and inputs to which there is none."""
    for name, x in (*(("f", x) for x in losses), *(("inputs", x) for x in inputs)):
        if not is_differentiable(x.spec):
            problem = f"{name} holds a variable of {x.dtype.name}; derivatives need floating-point numbers."
            fix = "use floats: 1.0 instead of 1, x.astype('float32')."
            raise user_error(DTypeError, "backward", problem, operands={name: x.spec}, fix=fix)


def _check_any(chosen: Sequence[Variable], losses: Sequence[Variable]) -> None:
    """Raises ArgumentError where there is nothing to differentiate with respect to."""
    if not chosen:
        problem = (
            "f depends on no variable: on constants alone, on values computed within no_grad, or on "
            "variables that have been freed."
        )
        operands = {"f": losses[0].spec if losses else "empty"}
        fix = "make the inputs to differentiate by with g.variable(...), and keep them."
        raise user_error(ArgumentError, "backward", problem, operands=operands, fix=fix)


def _declared(operations: Sequence[Operation], targets: Sequence[Binding]) -> list[Variable]:
    """Returns the variables that users made, are no constants, and are operands of the record; of several on one binding the
    first.
    """
    met = dict.fromkeys((*targets, *(x for operation in operations for x in operation.inputs)))
    found = []
    for binding in met:
        if binding.active and is_differentiable(binding.spec):
            live = [variable for reference in binding.variables if (variable := reference()) is not None]
            found += [x for x in live if x.declared and x.is_bound and x.binding is binding][:1]
    return found


def _elements(array: Array | None) -> Elements:
    """Returns the elements of an array that was kept for a backward program: side by side, as programs take them."""
    if array is None:
        raise InternalError("an array was released, though a derivative reads it")
    if type(array) is not Array:
        return array
    data = array.data
    return data if data.flags.c_contiguous else data.copy()


def _zeros_like(variable: Variable) -> Elements:
    """Zeros where the array of a variable is, if it was not donated."""
    held, spec = variable.held, variable.spec
    zeros = np.zeros(spec.shape, spec.dtype)
    return zeros if type(held) is Array or held is None or held.is_deleted() else asarray(zeros, device=held.device)
