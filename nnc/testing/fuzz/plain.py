"""The transforms of nnc by their definitions: loops are loops of Python, a mapped function is called for every row.

A program runs in a namespace in which `nnc` is a `Plain`, the reference; then in one in which it is `nnc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import as_value
from nnc.array.promote import as_operand, astype, is_weak, with_weakness
from nnc.base import dtypes
from nnc.errors import NncError
from nnc.graph import find_interpreter
from nnc.graph.dispatch import replaced_eager
from nnc.testing.fuzz.collectives import Collectives
from nnc.testing.fuzz.lockstep import Lockstep
from nnc.testing.fuzz.reference import FrozenInterpreter, TooCostlyError
from nnc.testing.grads import inner_product
from nnc.trace.core.dual import DualTrace

Fun = Callable[..., Any]

_MOST_ITERATIONS = 100  # generated loops have 5; one from which a step was left out may never end


class Plain(Collectives):
    """Stands for the module `nnc`; names that are not defined here are nnc's."""

    def __init__(self) -> None:
        self.lockstep = Lockstep()

    def __getattr__(self, name: str) -> Any:
        return getattr(nnc, name)

    def compile(self, fun: Fun, **options: Any) -> Fun:
        """Runs the function command by command."""
        return fun

    checkpoint = compile

    def make_graph(self, fun: Fun) -> Fun:
        """Returns the function for any arguments."""
        return lambda *args: fun

    def scan(self, f: Fun, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> Any:
        """Loops over the rows of `xs`."""
        count = len(tree.leaves(xs)[0]) if tree.leaves(xs) else length
        if not count:
            return nnc.scan(f, init, xs, length, reverse)
        rows: list[Any] = []

        def step(carry: Any, i: int) -> Any:
            carry, row = f(carry, tree.map(lambda x: x[i], xs))
            rows.append(row)
            return carry

        first = _settled(f, partial(step, i=0), init)
        rows.clear()
        last = _repeated(step, first, reversed(range(count)) if reverse else range(count))
        return last, stacked(rows[::-1] if reverse else rows)

    def map(self, f: Fun, xs: Any) -> Any:
        """Loops over the rows of `xs`."""
        return stacked([f(tree.map(lambda x, i=i: x[i], xs)) for i in range(len(tree.leaves(xs)[0]))])

    def vmap(self, f: Fun, in_axes: Any = 0, axis_name: str | None = None, axis_size: int | None = None) -> Fun:
        """Loops over the rows of the arguments that are mapped; where an axis has a name, the rows run in lockstep."""

        def mapped(*args: Any) -> Any:
            axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
            pairs = list(zip(args, axes, strict=True))
            count: Any = next((x.shape[a] for x, a in pairs if a is not None), axis_size)

            def row(i: int) -> Any:
                return f(*(x if a is None else nnp.moveaxis(x, a, 0)[i] for x, a in pairs))

            if axis_name is None and self.lockstep.row is None:
                return stacked([row(i) for i in range(count)])
            return stacked(self.lockstep.run(axis_name, [partial(row, i) for i in range(count)]))

        return mapped

    def custom_jvp(self, fun: Fun, nondiff_argnums: Any = ()) -> _Custom:
        """A function that runs as it is, and by its rule where it is differentiated."""
        return _Custom(nnc.custom_jvp(fun, nondiff_argnums))

    def custom_vjp(self, fun: Fun, nondiff_argnums: Any = ()) -> _Custom:
        """A function that runs as it is, and by its rules where it is differentiated."""
        return _Custom(nnc.custom_vjp(fun, nondiff_argnums))

    def fori_loop(self, lower: Any, upper: Any, body: Fun, init: Any) -> Any:
        """Loops over integers."""
        step = lambda carry, i: body(nnc.asarray(np.int64(i)), carry)
        return _repeated(step, _settled(body, partial(step, i=int(lower)), init), range(int(lower), int(upper)))

    def while_loop(self, condition: Fun, body: Fun, init: Any, *, max_steps: int | None = None) -> Any:
        """Loops while the condition holds."""
        carry, count = _settled(body, body, init), 0
        while bool(condition(carry)):
            carry, count = _repeated(lambda carry, _: body(carry), carry, (count,)), count + 1
            if count > _MOST_ITERATIONS:
                raise TooCostlyError("while_loop does not end")
        return carry

    def cond(self, pred: Any, true_fun: Fun, false_fun: Fun, *operands: Any) -> Any:
        """Calls one of two functions."""
        return _chosen((false_fun, true_fun), int(bool(pred)), operands)

    def switch(self, index: Any, branches: Sequence[Fun], *operands: Any, mode: str = "error") -> Any:
        """Calls one of several functions."""
        return _chosen(branches, min(max(int(index), 0), len(branches) - 1), operands)


class _Custom:
    """A function with rules of its own, which is never traced but to differentiate it."""

    def __init__(self, custom: Any) -> None:
        self._custom = custom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._custom, name)

    def __call__(self, *args: Any) -> Any:
        differentiated = isinstance(find_interpreter(tree.leaves(args)), DualTrace)
        return self._custom(*args) if differentiated else self._custom.fun(*args)


class ByColumns(Plain):
    """Reverse mode by definition: the transpose of the Jacobian that forward mode gives."""

    def vjp(self, fun: Fun, *primals: Any) -> Any:
        """The cotangent of each element is the inner product with the tangents that it leads to."""
        outputs = fun(*primals)

        def pull(cts: Any) -> Any:
            return tuple(self._cotangent(fun, primals, i, cts) for i in range(len(primals)))

        return outputs, pull

    def _cotangent(self, fun: Fun, primals: tuple[Any, ...], at: int, cts: Any) -> Any:
        x = primals[at]
        found = np.zeros(x.shape, x.dtype)
        zeros = [nnp.zeros_like(p) for p in primals]
        for place in np.ndindex(x.shape):
            for unit in (1.0, -1j) if dtypes.is_complex(x.dtype) else (1.0,):
                tangent = np.zeros(x.shape, x.dtype)
                tangent[place] = unit if unit == 1.0 else 1j
                moved = nnc.jvp(fun, primals, (*zeros[:at], nnc.asarray(tangent), *zeros[at + 1 :]))[1]
                found[place] += unit * inner_product(moved, cts)
        return nnc.asarray(found)


class ByDifferences(Plain):
    """Forward mode by definition: differences of the function's values, `left` and `right` steps of size `step` from the point."""

    def __init__(self, step: float = 1e-5, left: float = 1.0, right: float = 1.0) -> None:
        super().__init__()
        self.step, self.left, self.right = step, left, right

    def jvp(self, fun: Fun, primals: Any, tangents: Any) -> Any:
        """The value, and the slope between two points."""
        frozen = FrozenInterpreter()

        def at(t: float) -> Any:
            frozen.next = 0
            moved = [nnc.asarray(np.asarray(x) + t * np.asarray(v)) for x, v in zip(primals, tangents, strict=True)]
            with replaced_eager(frozen):  # slopes are parts of values that are differentiated alone
                return nnc.jvp(fun, moved, tangents)[0]

        value, before, after = at(0.0), at(-self.left * self.step), at(self.right * self.step)
        width = (self.left + self.right) * self.step
        return value, tree.map(lambda a, b: nnc.asarray((np.asarray(b) - np.asarray(a)) / width), before, after)


def _chosen(branches: Sequence[Fun], index: int, operands: Sequence[Any]) -> Any:
    """The result of one branch, in the dtype that it has with those of the others where it is a number."""
    result = branches[index](*operands)
    if not any(map(is_weak, tree.leaves(result))):
        return result
    return tree.map(_joined, result, *(branch(*operands) for i, branch in enumerate(branches) if i != index))


def _joined(x: Any, *elsewhere: Any) -> Any:
    """A number takes the dtype of the arrays of other branches; among numbers it stays weak."""
    kinds = [(as_value(y).spec.dtype, is_weak(y)) for y in (x, *elsewhere)]
    wanted = [dtype for dtype, weak in kinds if not weak] or [reduce(dtypes.promote_types, [d for d, _ in kinds])]
    return with_weakness(as_value(astype(x, wanted[0])), dtypes.joint_weakness(kinds))


def _settled(fun: Fun, step: Fun, init: Any) -> Any:
    """The first carry of a loop with the dtypes and the weakness that iterations of `fun` give it: values that begin as numbers
    are arrays in all iterations if they are in one.
    """
    init = tree.map(as_operand, init)  # a number of NumPy is weak, too
    seen = getattr(fun, "__globals__", {}).get("seen", [])
    count, kinds = len(seen), None
    with suppress(NncError):  # of an iteration that may not take place
        while kinds != (kinds := [(as_value(x).spec.dtype, is_weak(x)) for x in tree.leaves(init)]):
            init = tree.map(_joined, init, step(init)) if any(weak for _, weak in kinds) else init
    del seen[count:]
    return init


def _repeated(step: Fun, carry: Any, numbers: Iterable[int]) -> Any:
    """The last carry. Each following value has the dtype and the weakness of the carried one."""
    for i in numbers:
        carry = tree.map(
            lambda x, like: with_weakness(as_value(astype(x, as_value(like).spec.dtype)), is_weak(like)),
            step(carry, i),
            carry,
        )
    return carry


def stacked(rows: Sequence[Any]) -> Any:
    """Trees of arrays as one tree of stacks."""
    return tree.map(lambda *xs: nnp.stack([as_value(x) for x in xs]), *rows)
