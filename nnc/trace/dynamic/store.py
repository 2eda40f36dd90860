"""The memory of a dynamic graph, and when it forgets.

A *binding* is one value that a variable had; it stands for one symbol, written once. An *operation* is a command that made
bindings of others. Two rules decide which records stay:

- A binding is *active* if a derivative with respect to it can be asked for: it is no constant, and a live variable holds it or
  an operation made it.
- An operation stays while one of its inputs is active, and one of its outputs is held by a live variable or, unless it has
  become a constant, read by an operation that stays.

So an operation goes when nobody can start at its outputs, and when nobody can ask for the values of its inputs. Everything is
followed with a list of things to look at again, never by recursion: chains of any length come and go.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from nnc.array.array import Array, new_array
from nnc.base.source import SourceLine
from nnc.errors import InternalError
from nnc.graph import Symbol, TensorSpec
from nnc.trace.core.eager import Plan

FOREIGN, CONSTANT, ACTIVE = range(3)  # kinds of values: of no variable; of one without, of one with a derivative


class Binding:
    """One value of a variable. `array` is dropped when neither a variable nor a derivative can read it any more."""

    __slots__ = (
        "_symbol",
        "active",
        "array",
        "constant",
        "foreign",
        "handles",
        "is_shared",
        "maker",
        "readers",
        "spec",
        "uses",
        "variables",
    )

    def __init__(
        self, spec: TensorSpec, array: Array | None, constant: bool, foreign: bool = False, is_shared: bool = False
    ) -> None:
        self.spec, self.array = spec, array
        self.constant = constant
        self.is_shared = is_shared  # the array is a result, which memoisation may give to other bindings, too
        self.foreign = foreign  # no variable holds it: an operand from outside, or a residual
        self.active = False
        self.handles = 0  # live variables that hold it
        self.readers = 0  # operations whose derivative reads the array
        self.maker: Operation | None = None
        self.uses: dict[Operation, int] = {}  # operations that read it, and in how many places
        self.variables: tuple[weakref.ref[Any], ...] = ()  # that were bound to it, the first one first
        self._symbol: Symbol | None = None

    @property
    def kind(self) -> int:
        """The kind of the binding for values that are computed from it now."""
        return ACTIVE if self.active else FOREIGN if self.foreign else CONSTANT

    def own_array(self) -> Array:
        """Returns the array, for a caller that may donate it: one that no other binding holds, on the same memory."""
        if self.array is None:
            raise InternalError("an array was released while it could still be read")
        if self.is_shared and type(self.array) is not Array:
            self.array, self.is_shared = copy(self.array), False
        elif self.is_shared:
            self.array.memory.flags.writeable = False  # so that nobody has to copy it lest it changes
            self.array, self.is_shared = new_array(self.array.memory, self.spec), False
        return self.array

    @property
    def symbol(self) -> Symbol:
        """The symbol that it stands for."""
        if self._symbol is None:
            self._symbol = Symbol(self.spec)
        return self._symbol


class Operation:
    """A command that ran: its operands, its results, and which of these its derivative reads."""

    __slots__ = ("active", "inputs", "number", "outputs", "plan", "reads", "source")

    def __init__(
        self, plan: Plan, inputs: Sequence[Binding], outputs: Sequence[Binding], reads: Sequence[Binding],
        source: SourceLine | None,
    ) -> None:  # fmt: skip
        self.plan, self.inputs, self.outputs, self.reads, self.source = plan, inputs, outputs, reads, source
        self.active = 0  # places in `inputs` with an active binding
        self.number = -1


class Store:
    """The operations and bindings of one dynamic graph. Callers of its methods hold the graph's lock."""

    def __init__(self) -> None:
        self.operations: dict[int, Operation] = {}  # in the order in which they ran
        self.leaves: dict[int, Binding] = {}  # bindings that live variables hold and that are no constants
        self._next = 0

    # -- growing -------------------------------------------------------------------------------------------------------

    def hold(self, binding: Binding) -> None:
        """Counts one more variable that holds the binding."""
        binding.handles += 1
        if not binding.constant:
            self.leaves[id(binding)] = binding
            binding.active = True

    def record(self, operations: Sequence[Operation]) -> None:
        """Keeps operations that have run, one after the other."""
        for operation in operations:
            operation.number, self._next = self._next, self._next + 1
            self.operations[operation.number] = operation
            for binding in operation.reads:
                binding.readers += 1
            for binding in operation.inputs:
                binding.uses[operation] = binding.uses.get(operation, 0) + 1
                operation.active += binding.active
            for binding in operation.outputs:
                binding.maker, binding.active = operation, not binding.constant
        for operation in operations:
            for binding in operation.inputs:
                if not binding.handles and not binding.readers:
                    binding.array = None

    # -- forgetting ----------------------------------------------------------------------------------------------------

    def let_go(self, bindings: Iterable[Binding]) -> None:
        """Counts, for each binding, one variable less that holds it, and forgets operations that nobody can need any more."""
        again = []
        for binding in bindings:
            binding.handles -= 1
            if binding.handles == 0:
                self.leaves.pop(id(binding), None)
            again.append(binding)
        self._look_again(again)

    def make_constant(self, binding: Binding) -> None:
        """Makes a binding a constant: from now on no derivative flows through it into values that were computed from it."""
        binding.constant = True
        self.leaves.pop(id(binding), None)
        self._look_again([binding])

    def _look_again(self, bindings: list[Binding]) -> None:
        while bindings:
            binding = bindings.pop()
            gone: list[Operation] = []
            if binding.active and (binding.constant or (binding.maker is None and not binding.handles)):
                binding.active = False
                for operation, places in binding.uses.items():
                    operation.active -= places
                    if not operation.active:
                        gone.append(operation)
            maker = binding.maker
            if maker is not None and not any(map(_is_wanted, maker.outputs)):
                gone.append(maker)
            for operation in gone:
                bindings += self._drop(operation)
            if not binding.handles and not binding.readers:
                binding.array = None

    def _drop(self, operation: Operation) -> Iterable[Binding]:
        """Takes an operation out; returns the bindings around it, which may go, too."""
        if self.operations.pop(operation.number, None) is None:
            return ()
        for binding in operation.inputs:
            binding.uses.pop(operation, None)
        for binding in operation.reads:
            binding.readers -= 1
        for binding in operation.outputs:
            binding.maker = None
        return (*operation.inputs, *operation.outputs)

    # -- asking --------------------------------------------------------------------------------------------------------

    def nbytes(self) -> int:
        """Bytes of the arrays that variables and derivatives can still read."""
        bindings = dict(self.leaves)
        for operation in self.operations.values():
            bindings.update((id(x), x) for x in (*operation.inputs, *operation.outputs))
        arrays = {id(x.array): x.spec.nbytes for x in bindings.values() if x.array is not None}
        return sum(arrays.values())

    def bookkeeping(self) -> tuple[int, int]:
        """Counts the operations, and the bindings that they and the variables that are no constants hold."""
        bindings = set(self.leaves)
        for operation in self.operations.values():
            bindings.update([id(x) for x in (*operation.inputs, *operation.outputs) if not x.foreign])
        return len(self.operations), len(bindings)


def _is_wanted(binding: Binding) -> bool:
    return binding.handles > 0 or (not binding.constant and bool(binding.uses))


def history(targets: Iterable[Binding]) -> list[Operation]:
    """Returns the operations that `targets` were computed with, in the order in which they ran; constants on the way have none."""
    found: dict[int, Operation] = {}
    pending = [binding.maker for binding in targets]
    while pending:
        operation = pending.pop()
        if operation is not None and operation.number not in found:
            found[operation.number] = operation
            pending += [binding.maker for binding in operation.inputs if not binding.constant]
    return [found[number] for number in sorted(found)]
