"""State of a dynamic graph that outlives a step: programs, counts of equal runs, states of optimizers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.compiled.decorator import compile
from nnc.errors import ArgumentError, user_error
from nnc.trace.dynamic.interpreter import Variable, array_of

EQUAL_RUNS = 3  # of a function before it is compiled
_PATIENCE = 30  # runs of a function that are looked at
PROGRAMS = 256  # of each kind that a graph keeps


class Repeated:
    """Counts equal runs of a function in a row."""

    def __init__(self) -> None:
        self.is_over = False  # it was compiled, cannot be, or never does the same
        self._last: tuple[Any, ...] = ()
        self._equal = self._runs = 0

    def is_due(self, lines: tuple[Any, ...]) -> bool:
        """Whether the run that gave these lines was the last of enough equal ones, so that compiling pays."""
        self._runs += 1
        self._equal = self._equal + 1 if lines == self._last else 1
        is_due = bool(lines) and self._equal >= EQUAL_RUNS
        self.is_over = is_due or self._runs >= _PATIENCE
        self._last = () if self.is_over else lines
        return is_due


class Update:
    """The state of one optimizer for the variables that it moves together."""

    def __init__(self, optimizer: Any, variables: Sequence[Variable]) -> None:
        self.optimizer = optimizer
        self._variables = [weakref.ref(x) for x in variables]
        self._state = optimizer.init([array_of(x.binding) for x in variables])
        self._step = compile(self._moved)

    def shares(self, variables: Sequence[Variable]) -> bool:
        """Whether one of the variables is among the variables that it moves."""
        mine = {id(x) for ref in self._variables if (x := ref()) is not None}
        return any(id(x) in mine for x in variables)

    def is_stale(self) -> bool:
        """Whether all variables are gone."""
        return all(ref() is None for ref in self._variables)

    def run(self, variables: Sequence[Variable]) -> None:
        """Moves the variables by one step and clears their gradients.

        Raises:
            ArgumentError: a variable is new, or one of the first call is gone.
        """
        mine = [x for ref in self._variables if (x := ref()) is not None and x.is_bound]
        given = {id(x) for x in variables}
        if len(mine) < len(self._variables) or not given <= set(map(id, mine)):
            problem = "the optimizer keeps a state for other variables than these."
            operands = {"before": len(self._variables), "of them alive": len(mine), "now": len(variables)}
            fix = "make a new optimizer for another set of variables, and keep the variables of one set alive."
            raise user_error(ArgumentError, "apply_gradients", problem, operands=operands, fix=fix)
        params = [array_of(x.binding) for x in mine]
        grads = [_gradient(x, p, id(x) in given) for x, p in zip(mine, params, strict=True)]
        moved, self._state = self._step(params, grads, self._state)
        mine[0].owner.write(mine, moved)
        for variable in variables:
            variable.grad = None

    def _moved(self, params: list[Any], grads: list[Any], state: Any) -> Any:
        updates, state = self.optimizer.update(grads, state, params)
        return [astype(p + u, p.dtype) for p, u in zip(params, updates, strict=True)], state


def _gradient(variable: Variable, param: Array, is_given: bool) -> Array:
    return (
        variable.grad
        if is_given and variable.grad is not None
        else asarray(np.zeros(param.shape, param.dtype), device=param.device)
    )
