"""Generated programs whose calls are specialised agree with the functions themselves, bit by bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc.base.context import with_mode
from nnc.calls import specialise
from nnc.calls.specialise import specialised_in_traces
from tests.fuzz.programs.generated import NUMBERS, OPERATIONS, Step, check_same, leaves, run, steps

FLOATS = ("float32", "float32", "float64")
SMOOTH = [name for name in OPERATIONS if name not in ("astype", "full", "draw")]
Program = Callable[..., Any]
FEWER = settings(max_examples=settings.default.max_examples // 3)  # of the longer tests


@pytest.fixture(scope="module", autouse=True)
def at_once() -> Iterator[None]:
    """Eager calls are specialised when they are made for the second time, however many others there are."""
    with patch.object(specialise, "THRESHOLD", 0), patch.object(specialise, "KEYS_PER_CALL", 1 << 60):
        yield


def of_graph(fun: Program, inputs: Sequence[Any]) -> list[Any]:
    """The results of a traced function, command by command, and whether they are weak."""
    weak: list[bool] = []

    def traced(*values: Any) -> Any:
        results = nnc.tree.leaves(fun(*values))
        weak[:] = [x.weak for x in results]
        return results

    graph = nnc.make_graph(traced)(*inputs)
    with with_mode("unspecialised"):
        results = nnc.tree.leaves(graph(*inputs))
    return [x.as_weak() if is_weak else x for x, is_weak in zip(results, weak, strict=True)]


def check_traced(fun: Program, inputs: Sequence[Any], rtol: float = 0.0) -> None:
    """Compares the graphs of a function with and without specialised calls."""
    with with_mode("unspecialised"):
        expected = of_graph(fun, inputs)
    check_same(of_graph(fun, inputs), expected, rtol)


def is_float(x: Any) -> bool:
    return bool(nnp.issubdtype(x.dtype, nnp.floating))


def total(values: Any) -> Any:
    """A number that depends on all floats among the values, on each in another way."""
    floats = [x for x in nnc.tree.leaves(values) if is_float(x)]
    return sum([nnp.sum(x.astype("float64") * (i + 1)) for i, x in enumerate(floats)], nnp.zeros((), "float64"))


def waves(inputs: Sequence[Any]) -> list[Any]:
    """A tangent for each input."""
    return [
        nnp.cos(nnp.arange(x.size, dtype="float64").reshape(x.shape) + i).astype(x.dtype) for i, x in enumerate(inputs)
    ]


# -- eager -------------------------------------------------------------------------------------------------------------


@given(steps(), leaves(), leaves())
def test_eager_calls_agree_with_their_functions(program: list[Step], first: list[Any], second: list[Any]) -> None:
    for inputs in (first, second, first):
        with with_mode("unspecialised"):
            expected = run(program, inputs)
        for _ in range(2):
            check_same(run(program, inputs), expected)


@given(st.sampled_from(sorted(OPERATIONS)), st.permutations(NUMBERS), leaves(least=1))
def test_equal_numbers_of_several_kinds_are_told_apart(name: str, numbers: Sequence[Any], inputs: list[Any]) -> None:
    program = [Step(name, i, i + 1, number) for number in numbers for i in (0, 1)]
    again = [step for step in program for _ in range(2)]
    with with_mode("unspecialised"):
        expected = [run([step], inputs) for step in again]
    check_same([run([step], inputs) for step in again], expected)
    check_traced(lambda *values: [run([step], values) for step in program], inputs)


@FEWER
@given(steps(most=6), leaves(), leaves())
def test_threads_share_specialised_calls(program: list[Step], first: list[Any], second: list[Any]) -> None:
    with with_mode("unspecialised"):
        expected = [run(program, inputs) for inputs in (first, second)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: run(program, (first, second)[i % 2]), range(8)))
    for i, values in enumerate(found):
        check_same(values, expected[i % 2])


@FEWER
@given(steps(most=5), leaves())
def test_modes_that_are_switched_on_between_calls_see_each_command(program: list[Step], inputs: list[Any]) -> None:
    with with_mode("unspecialised"):
        expected = run(program, inputs)
    graph = nnc.DynamicGraph()
    modes = [nnc.debug.eager, graph.no_grad, nnc.debug.trace_errors, nnc.debug.check_keys, nnc.debug.promotion]
    for mode in modes:
        check_same(run(program, inputs), expected)
        with mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_same(run(program, inputs), expected)


# -- traced ------------------------------------------------------------------------------------------------------------


def straight(program: Program) -> Program:
    return lambda *inputs: program(inputs)


def branches(program: Program) -> Program:
    return lambda *inputs: nnc.cond(nnp.sum(inputs[0] * 1.0) < 1, program, lambda x: program(x), inputs)


def switched(program: Program) -> Program:
    return lambda *inputs: (nnc.switch(nnp.sum(inputs[-1] * 1.0) > 0, [program, program], inputs), program(inputs))


def scanned(program: Program) -> Program:
    return lambda *inputs: (
        nnc.scan(
            lambda carry, k: (carry, (program(carry), program([k, *carry[1:]]))),
            list(inputs),
            nnp.stack([inputs[0]] * 2),
        )[1],
        program(inputs),
    )


def while_loop(program: Program) -> Program:
    def loop(*inputs: Any) -> Any:
        first = program(inputs)
        again = lambda carry: (
            carry[0] + 1,
            [x.astype(y.dtype) for x, y in zip(program(inputs), carry[1], strict=True)],
        )
        return nnc.while_loop(lambda carry: carry[0] < 2, again, (nnp.asarray(0), [nnp.zeros_like(x) for x in first]))

    return loop


def rows(program: Program) -> Program:
    return lambda *inputs: nnc.vmap(program)([nnp.stack([x, x + x]) for x in inputs])


def some_rows(program: Program) -> Program:
    return lambda *inputs: nnc.vmap(lambda x: program([x, *inputs[1:]]))(nnp.stack([inputs[0]] * 2))


def pushed(program: Program) -> Program:
    return lambda *inputs: nnc.jvp(lambda *x: program(x), inputs, tuple(waves(inputs)))


def pushed_through_some(program: Program) -> Program:
    return lambda *inputs: nnc.jvp(lambda x: program([x, *inputs[1:]]), inputs[:1], tuple(waves(inputs[:1])))


def gradient(program: Program) -> Program:
    return lambda *inputs: nnc.value_and_grad(lambda x: total(program(x)))(list(inputs))


def gradient_of_some(program: Program) -> Program:
    return lambda *inputs: nnc.grad(lambda x: total(program([*inputs[:-1], x])))(inputs[-1])


def second(program: Program) -> Program:
    grad = nnc.grad(lambda x: total(program(x)))
    return lambda *inputs: nnc.jvp(lambda *x: grad(list(x)), inputs, tuple(waves(inputs)))


def checkpointed(program: Program) -> Program:
    return lambda *inputs: nnc.grad(lambda x: total(nnc.checkpoint(program)(x)))(list(inputs))


def gradient_of_loop(program: Program) -> Program:
    return gradient(lambda inputs: scanned(program)(*inputs))


def gradients_of_rows(program: Program) -> Program:
    grad = nnc.grad(lambda x: total(program(x)))
    return lambda *inputs: nnc.vmap(grad)([nnp.stack([x, x + x]) for x in inputs])


FORWARD = [straight, branches, switched, scanned, while_loop, rows, some_rows]
BACKWARD = [
    pushed,
    pushed_through_some,
    gradient,
    gradient_of_some,
    second,
    checkpointed,
    gradient_of_loop,
    gradients_of_rows,
]


@given(st.sampled_from(FORWARD), steps(), leaves())
def test_traced_calls_record_the_nodes_of_their_functions(
    wrap: Callable[[Program], Program], program: list[Step], inputs: list[Any]
) -> None:
    check_traced(wrap(lambda values: run(program, list(values))), inputs)


@given(st.sampled_from(BACKWARD), steps(SMOOTH, most=6), leaves(FLOATS))
def test_derivatives_of_traced_calls_are_those_of_their_functions(
    wrap: Callable[[Program], Program], program: list[Step], inputs: list[Any]
) -> None:
    inputs = [nnc.asarray(np.asarray(x)) for x in inputs]
    check_traced(
        wrap(lambda values: run(program, list(values))), inputs, rtol=1e-4
    )  # cotangents are added in another order


@FEWER
@given(steps(most=8), leaves())
def test_compiled_programs_agree_with_their_functions(program: list[Step], inputs: list[Any]) -> None:
    with with_mode("unspecialised"):
        expected = run(program, inputs)
    check_same(nnc.compile(lambda values: run(program, values))(inputs), expected, rtol=2e-2)


@FEWER
@given(steps(most=6), leaves(), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_effects_come_about_in_each_call(program: list[Step], inputs: list[Any], places: list[int]) -> None:
    seen: list[float] = []

    @specialised_in_traces
    def look(x: Any, y: Any) -> Any:
        nnc.debug.callback(lambda value: seen.append(float(value)), total(x * 1.0))
        return x + y

    def looked(*values: Any) -> Any:
        found = [*values, *run(program, list(values))]
        return [look(found[i % len(found)], found[(i + 1) % len(found)]) for i in places]

    notes = []
    for mode in (with_mode("unspecialised"), nullcontext()):
        with mode:
            graph = nnc.make_graph(looked)(*inputs)
        seen.clear()
        graph(*inputs)
        notes.append(list(seen))
    assert len(notes[0]) == len(places)
    np.testing.assert_array_equal(notes[0], notes[1])


# -- examples ----------------------------------------------------------------------------------------------------------


def test_a_call_is_specialised_though_its_broadcast_was_made_before() -> None:
    ran = []

    def add(x: Any, y: Any) -> Any:
        ran.append(y)
        return x + y

    once = specialised_in_traces(add)
    x, c, d = np.ones(4, np.float32), np.float32(5), np.float32(7)
    found = nnc.compile(lambda x, c, d: (x * d, once(x, d), once(x, c)))(x, c, d)
    assert [y.tolist() for y in found] == [[7.0] * 4, [8.0] * 4, [6.0] * 4]
    assert len(ran) == 1


@pytest.mark.parametrize(("rows", "weak_first"), [(11, True), (13, False)])
def test_weak_operands_are_told_apart_from_others_of_their_spec(rows: int, weak_first: bool) -> None:
    x, strong = np.ones(rows, np.float32), nnc.asarray(np.asarray(0.75))
    pair = (strong.as_weak(), strong) if weak_first else (strong, strong.as_weak())
    expected = ["float32", "float64"] if weak_first else ["float64", "float32"]
    eager = [[nnp.maximum(nnc.asarray(x), y).dtype.name for _ in range(5)][-1] for y in pair]
    traced = nnc.compile(lambda x, a, b: (nnp.maximum(x, a), nnp.maximum(x, b)))(x, *pair)
    assert eager == [y.dtype.name for y in traced] == expected
