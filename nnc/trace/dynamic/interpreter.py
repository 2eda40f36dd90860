"""The interpreter of a dynamic graph: commands run at once on the arrays that variables hold, and are recorded as they run.

Each value of a variable is a symbol of its own (`Binding`), so the record is in SSA form however often variables are
re-bound. Rules on the values to keep, and for how long, stand in store.py.

Threads may use one graph: its bookkeeping is behind a lock, which nothing that runs users' code holds. Variables may be
collected at any moment, also while the lock is held; they leave a note in a queue, which the next thread at work handles.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from hashlib import sha256
from typing import Any, NoReturn

import numpy as np

from nnc.array.array import Array, as_command_operand, asarray, new_array, settled
from nnc.array.device_array import DeviceArray
from nnc.array.promote import as_operand
from nnc.base.bounded import BoundedCache
from nnc.base.context import get_context, observes_commands, with_mode
from nnc.base.fork import new_lock
from nnc.calls.specialise import set_layers
from nnc.commands import elementwise as ew
from nnc.commands.weakness import with_inherited_weakness
from nnc.device import CPU
from nnc.device.dlpack import is_foreign
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    GraphError,
    InternalError,
    MissingNameError,
    TraceError,
    user_error,
)
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Command, Graph, TensorSpec, structural_hash
from nnc.trace.core.eager import Plan, exact_params, find_plan
from nnc.trace.core.on_device import DeviceInterpreter
from nnc.trace.core.specialised import SpecialisedCall
from nnc.trace.core.tracer import Tracer
from nnc.trace.dynamic.alias import View, view_of
from nnc.trace.dynamic.memo import Memo
from nnc.trace.dynamic.routine import MakeProgram, Routine, routine_of, routine_of_call, runner
from nnc.trace.dynamic.store import CONSTANT, Binding, Store

NDArray = np.ndarray[Any, Any]
_PLANS = 1024  # of commands with sub-graphs


class Variable(Tracer):
    """A place of a dynamic graph that holds an array and can be given another one.

    Operators and functions of nnc.numpy take it like an array; their results are variables, too. `grad` is the sum of the
    gradients that `backward` found since it was last None.
    """

    __slots__ = ("__weakref__", "_binding", "_grad", "_view", "constant", "declared")

    __hash__ = None  # type: ignore[assignment]  # its value is known, as an array's is
    owner: Recorder

    def __init__(self, owner: Recorder, binding: Binding | None, constant: bool, declared: bool = False) -> None:
        self.owner, self.source, self.weak = owner, None, False
        self._binding, self.constant, self.declared = binding, constant, declared
        self._view: View | None = None
        self._grad: Array | None = None

    # -- its value ----------------------------------------------------------------------------------------------------

    @property
    def binding(self) -> Binding:
        """The binding of the variable; an alias follows its base first.

        Raises:
            ArgumentError: the variable has not been written yet.
        """
        view = self._view
        if view is not None:
            base = view.base()
            if base is None or not base.is_bound:
                self._view = None  # nobody can re-bind the base any more
            elif base.binding is not view.of:
                shown, read = base.binding, view.read(base)
                self.constant = read.constant
                self.owner.exchange([self], [read.binding])
                self._view = replace(view, of=shown)
        if self._binding is None:
            fix = "write it first: x.set(array)."
            raise user_error(ArgumentError, "variable", "it holds no array yet, or it has been freed.", fix=fix)
        return self._binding

    @property
    def is_bound(self) -> bool:
        """Whether the variable holds an array."""
        return self._binding is not None

    @property
    def view(self) -> View | None:
        """Its view of another variable, if it is one."""
        return self._view

    def show(self, view: View | None) -> None:
        """Makes the variable an alias."""
        self._view = view

    @property
    def spec(self) -> TensorSpec:  # type: ignore[override]
        """Shape and dtype of its present value."""
        binding = self._binding
        return binding.spec if binding is not None and self._view is None else self.binding.spec

    @property
    def array(self) -> Array | None:
        """The array that it holds now; None before it is first written."""
        return self.binding.own_array() if self._binding is not None else None

    @property
    def held(self) -> Array | None:
        """The array that it holds now, for reading; None before it is first written."""
        return self.binding.array if self._binding is not None else None

    @property
    def device(self) -> str:
        """The device that holds the elements; "cpu" before it is first written."""
        held = self.held
        return CPU if held is None else held.device

    def concrete(self, what: str = "", fix: str = "") -> NDArray:
        """Returns the elements as a NumPy array."""
        return array_of(self.binding).data

    @property
    def grad(self) -> Array | None:
        """The gradients found so far, added up; None where there are none. Set it to None to begin anew."""
        return self._grad

    @grad.setter
    @api_boundary
    def grad(self, value: Any) -> None:
        if value is None:
            self._grad = None
            return
        array = asarray(value)
        if array.spec != self.spec:
            problem = "a gradient has the shape and dtype of its variable."
            operands = {"x": self.spec, "value": array.spec}
            fix = "convert it, or set x.grad = None to clear it."
            raise user_error(ArgumentError, "x.grad = value", problem, operands=operands, fix=fix)
        self.take_gradient(concrete_array(value, "x.grad = value").to_device(self.device))

    def take_gradient(self, gradient: Array) -> None:
        """Sets the gradient to an array of its shape and dtype."""
        self._grad = gradient
        self.owner.graded[id(self)] = self

    @property
    @api_boundary
    def backward(self) -> NoReturn:
        """The name that other libraries have for `DynamicGraph.backward`.

        Raises:
            MissingNameError: always; it names the method of the graph.
        """
        fix = "write graph.backward(y), of the DynamicGraph to which it belongs."
        raise user_error(MissingNameError, "variable", "it has no 'backward'.", fix=fix)

    # -- changes -------------------------------------------------------------------------------------------------------

    @api_boundary
    def set(self, value: Any) -> None:
        """Binds the variable to another array, of any shape and dtype; values computed before stay as they are.

        With a variable of the same graph as `value`, it takes over that one's history, too.

        Raises:
            ArgumentTypeError: it is an alias, or `value` is no array.
        """
        if isinstance(value, Variable) and value.owner is self.owner and value.constant == self.constant:
            self._check_no_alias()
            self.owner.exchange([self], [value.binding])
        else:
            self.owner.write([self], [concrete_array(value, "x.set")])

    def _check_no_alias(self) -> None:
        if self._view is not None:
            fix = "write to the base: base[1:3] = value, or base.set(...)."
            raise user_error(ArgumentTypeError, "x.set", "it is an alias, which shows the value of its base.", fix=fix)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Binds it to a copy in which the elements at `index` are replaced; the copy depends on both."""
        self.set(self.at[index].set(value))

    @api_boundary
    def detach(self) -> None:
        """Makes the variable a constant: no derivative flows through it into values that are computed, or were computed, from it.

        As long as it lives, `backward` can start at it, so its own history stays.
        """
        binding = self.binding
        self.constant, self._view = True, None
        self.owner.make_constant(binding)

    @api_boundary
    def free(self) -> None:
        """Releases it, as deleting it does; it cannot be used any more until it is written again."""
        self._grad = self._view = None
        self.owner.exchange([self], [None])

    def __del__(self) -> None:
        binding = getattr(self, "_binding", None)
        if binding is not None:
            self.owner.leave_word(binding)

    # -- use as a value ------------------------------------------------------------------------------------------------

    def __copy__(self) -> Variable:
        twin = Variable(self.owner, None, self.constant)
        self.owner.exchange([twin], [self.binding])
        twin.weak = self.weak
        return twin

    @api_boundary
    def __reduce__(self) -> NoReturn:
        problem = "a variable belongs to its dynamic graph, which cannot be stored."
        fix = "store the array: x.array, or nnc.tree.map(lambda x: x.array, model)."
        raise user_error(TraceError, "pickle", problem, fix=fix)

    def __repr__(self) -> str:
        name = "constant" if self.constant else "variable"
        return f"<{name} {self.array!r}>" if self.is_bound else f"<{name} without array>"

    def __format__(self, spec: str) -> str:
        return format(self.array, spec) if self.is_bound else repr(self)


class Recorder:
    """Runs and records commands on variables. Level 0 puts it below all transforms, so that they nest around it."""

    level = 0
    alive = True
    differentiates = False
    is_recorder = True
    specialises_at_once = False

    def __init__(self, memo_bytes: int, make_program: MakeProgram) -> None:
        self._make_program = make_program
        self.store = Store()
        self.uses_devices = False  # from the first array on a device: then each call asks where its arrays are
        self.memo = Memo(memo_bytes)
        self.graded: weakref.WeakValueDictionary[int, Variable] = weakref.WeakValueDictionary()
        self._lock = new_lock()
        self._left: deque[Binding] = deque()
        self._plans: BoundedCache[Any, Plan] = BoundedCache(_PLANS)
        self._watched = threading.local()

    # -- variables -----------------------------------------------------------------------------------------------------

    def make(self, value: Any, constant: bool) -> Variable:
        """Returns a variable, bound to an array unless `value` is None.

        Args:
            value: anything nnc makes an array of, or None.
            constant: no derivative flows through it.
        """
        variable = Variable(self, None, constant, declared=True)
        if value is not None:
            self.write([variable], [concrete_array(value, "variable")])
        return variable

    def write(self, variables: Sequence[Variable], arrays: Sequence[Array]) -> None:
        """Binds each variable to another array.

        Args:
            variables: variables of this graph.
            arrays: one for each.
        """
        for variable in variables:
            variable._check_no_alias()
        self._note_devices(arrays)
        pairs = zip(variables, arrays, strict=True)
        self.exchange(variables, [Binding(array.spec, array, variable.constant) for variable, array in pairs])

    def exchange(self, variables: Sequence[Variable], bindings: Sequence[Binding | None]) -> None:
        """Binds each variable to another binding, or to none.

        Args:
            variables: variables of this graph.
            bindings: one for each, or None.
        """
        with self._lock:
            self._settle()
            left = []
            for variable, binding in zip(variables, bindings, strict=True):
                old, variable._binding = variable._binding, binding
                if binding is not None:
                    self.store.hold(binding)
                    others = [other for other in binding.variables if other() is not None]
                    binding.variables = (*others, weakref.ref(variable))
                if old is not None:
                    left.append(old)
            self.store.let_go(left)
            self._settle()

    def make_constant(self, binding: Binding) -> None:
        """Lets no derivative through a binding any more.

        Args:
            binding: a tensor of the recorded graph, and the array it holds.
        """
        with self.locked():
            self.store.make_constant(binding)

    def leave_word(self, binding: Binding) -> None:
        """Notes that a variable was freed. It may be collected at any moment, so a busy thread is not waited for.

        Args:
            binding: a tensor of the recorded graph, and the array it holds.
        """
        self._left.append(binding)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    @contextmanager
    def locked(self) -> Iterator[Store]:
        """The store, for one thread at a time, with all that was left settled."""
        with self._lock:
            self._settle()
            yield self.store
            self._settle()

    def _settle(self) -> None:
        left = self._left
        while left:
            self.store.let_go([left.popleft()])
        self.memo.drop_stale()

    # -- running -------------------------------------------------------------------------------------------------------

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command on the values of the variables, and records it.

        Args:
            command: an operation.
            args: variables, arrays and numbers.
            params: static parameters by name.
            graphs: sub-graphs of the command.
        """
        operands = [self.operand(arg) for arg in args]
        specs = tuple([x.spec for x in operands])
        plan = self._shared_plan(command, specs, params, graphs) if graphs else find_plan(command, specs, params)
        routine = routine_of(plan)
        results = self.hand_out(routine, args, self.perform(routine, operands))
        return with_inherited_weakness(command, args, graphs, results)

    @property
    def follows_calls(self) -> bool:
        """Whether it runs the commands of a public function together."""
        return not self.uses_devices

    def follow(self, call: SpecialisedCall, values: Sequence[Any]) -> Any:
        """Returns the result of a public function whose commands are known, on variables, arrays and numbers.

        Args:
            call: the function's commands for such arguments.
            values: arguments of the function: variables, arrays and numbers.

        Raises:
            GraphError: another thread has bound a variable to other shapes meanwhile.
        """
        routine, weak, casts = routine_of_call(call), call.weak, call.casts
        place = routine.results[0]
        if place < len(values) and casts[place] is None:
            x = values[place]
            return x if x.weak == weak else x.as_weak(weak)
        operands = [self.operand(x if cast is None else Array(cast(x))) for x, cast in zip(values, casts, strict=True)]
        if tuple([x.spec for x in operands]) != routine.specs[: len(operands)]:
            raise user_error(GraphError, routine.name, "a variable was written to while the function was called.")
        bindings = self.perform(routine, operands)
        if bindings[0].foreign:
            return new_array(array_of(bindings[0]).memory, bindings[0].spec, weak)
        (result,) = self.hand_out(routine, values, bindings)
        result.weak = weak
        return result

    def hand_out(self, routine: Routine, values: Sequence[Any], bindings: Sequence[Binding]) -> list[Variable]:
        """Variables that hold the results of a routine on these values.

        Args:
            routine: commands.
            values: their operands: variables, arrays and numbers.
            bindings: the bindings of the results.
        """
        results = []
        for binding in bindings:
            binding.foreign = False
            results.append(Variable(self, binding, binding.constant))
        if routine.views and isinstance(values[routine.viewed], Variable):
            results[0].show(view_of(values[routine.viewed], routine.views))
        return results

    def operand(self, value: Any) -> Binding:
        """Returns the binding of a value that a command takes.

        Args:
            value: a variable, an array or a number.

        Raises:
            TraceError: it belongs to another dynamic graph.
        """
        if isinstance(value, Variable):
            if value.owner is self:
                return value.binding
            problem = "a command takes variables of two dynamic graphs."
            fix = "pass the other one's array: x.array."
            raise user_error(TraceError, "dynamic graph", problem, operands={"the other": value.spec}, fix=fix)
        array = settled(as_command_operand(value))
        self._note_devices((array,))
        return Binding(array.spec, array, constant=True, foreign=True)

    def _note_devices(self, arrays: Sequence[Array]) -> None:
        if not self.uses_devices:
            self.uses_devices = any(type(x) is not Array for x in arrays)

    def perform(self, routine: Routine, operands: Sequence[Binding]) -> list[Binding]:
        """Runs commands, unless their results are known, and records them; returns the new values of variables.

        Where one raises, nothing is recorded.

        Args:
            routine: commands.
            operands: bindings of their operands.
        """
        arrays, context = [array_of(x) for x in operands], get_context()
        kinds = tuple([x.kind for x in operands])
        record = routine.record(kinds if self not in context.modes else tuple([min(kind, CONSTANT) for kind in kinds]))
        is_observed = bool(context.modes) and observes_commands(context)
        key, found = None, None
        if routine.is_pure and not is_observed:
            key = self.memo.key(routine if len(routine.steps) == 1 else record, arrays)
            if key is not None:
                with self._lock:
                    found = self.memo.find(key)
        if found is None:
            if self.uses_devices and (device := device_of(arrays, context.device)) is not None:
                made = routine.run_on(device, arrays)
            else:
                run = routine.run if is_observed else runner(routine, record, self._make_program)
                made = run(arrays)
        else:
            made = found
        results, operations = record.bind(routine, operands, (*arrays, *routine.constants, *made))
        with self._lock:
            if key is not None and found is None:
                self.memo.keep(key, arrays, made, routine.nbytes)
            for binding in results:
                self.store.hold(binding)
            if operations:
                self.store.record(operations)
            self._settle()
        notes = getattr(self._watched, "notes", None)
        if notes is not None:
            notes.add(routine, operands, arrays, results)
        return results

    def _shared_plan(
        self, command: Command, specs: tuple[TensorSpec, ...], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Plan:
        """One plan for equal sub-graphs, which are traced anew whenever a loop or branch is called."""
        if "unspecialised" in get_context().modes:
            return find_plan(command, specs, params, graphs)
        try:
            key = command, specs, exact_params(params), tuple(map(structural_hash, graphs))
            hash(key)
        except (GraphError, TypeError):  # a parameter such as a function: no two are known to be equal
            return find_plan(command, specs, params, graphs)
        return self._plans.find(key) or self._plans.keep(key, find_plan(command, specs, params, graphs))

    # -- watching ------------------------------------------------------------------------------------------------------

    @contextmanager
    def watch(self) -> Iterator[Notes]:
        """Notes the commands that this thread runs within the block."""
        outer = getattr(self._watched, "notes", None)
        notes = self._watched.notes = Notes()
        try:
            with with_mode("watched"):
                yield notes
        finally:
            self._watched.notes = outer


class Notes:
    """Records the commands that ran, with their operands: two runs with equal `lines` did the same."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self._numbers: dict[Binding, int] = {}

    def add(
        self, routine: Routine, operands: Sequence[Binding], arrays: Sequence[Array], results: Sequence[Binding]
    ) -> None:
        """Notes one routine. Variables are told apart by where they came up first, other operands by their values."""
        read = [
            sha256(array.to_device(CPU).data.tobytes()).digest()
            if x.foreign
            else self._numbers.setdefault(x, len(self._numbers))
            for x, array in zip(operands, arrays, strict=True)
        ]
        self.lines.append((routine, *read))
        for x in results:
            self._numbers[x] = len(self._numbers)


def array_of(binding: Binding) -> Array:
    """Returns the array of a binding that a variable holds."""
    if binding.array is None:
        raise InternalError("an array was released while it could still be read")
    return binding.array


def concrete_array(value: Any, where: str) -> Array:
    """Returns an array with a value, not a tracer. Memory that others can write to is copied.

    Raises:
        TraceError: the value is traced.
        NncError: nnc cannot make an array of it.
    """
    is_view = isinstance(value, np.ndarray) and (value.flags.writeable or value.base is not None)
    array = asarray(as_operand(value, where, "the value"), copy=is_view or is_foreign(type(value)) or None)
    if isinstance(array, Variable):
        return copy(array_of(array.binding))  # an array of its own, which may be donated
    if not isinstance(array, Array):
        fix = "use dynamic graphs outside of compile, grad and vmap, or apply those to functions of variables."
        raise user_error(TraceError, where, f"{array.shown} is a traced value, and a variable holds arrays.", fix=fix)
    if not array.weak:
        return array
    dtype = array.dtype  # the one that it shows
    return Array(np.asarray(array)) if type(array) is Array else ew.convert(array, dtype=dtype).as_weak(False)


def device_of(arrays: Sequence[Array], ambient: DeviceInterpreter | None = None) -> DeviceInterpreter | None:
    """Returns the interpreter of the first array on a device; the ambient one where no array has axes, and else None for the
    CPU.
    """
    owners = (x.owner for x in arrays if isinstance(x, DeviceArray))
    # none of a donated array
    found: DeviceInterpreter | None = next((owner for owner in owners if owner is not None), None)
    return ambient if found is None and not any(x.ndim for x in arrays) else found


set_layers(variable=Variable)
