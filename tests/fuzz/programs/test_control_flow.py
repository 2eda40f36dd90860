"""Random nested programs of loops and branches, held against the same program run by Python's own `for`, `while` and `if`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp

State = tuple[Any, ...]
SIZE = 3  # values that a program carries
FEWER = settings(max_examples=settings.default.max_examples // 3)  # of the longer tests


# -- programs as data --------------------------------------------------------------------------------------------------

_slot = st.integers(0, SIZE - 1)
_number = st.sampled_from([-1.5, -0.4, 0.3, 0.9, 1.7])
_assign = st.tuples(
    st.just("assign"), st.sampled_from(["sin", "mul", "tanh", "mix", "copy"]), _slot, _slot, _slot, _number
)


def _blocks(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("for"), st.integers(0, 3), body),
        st.tuples(st.just("while"), st.integers(0, 4), _slot, _number, body),
        st.tuples(st.just("if"), _slot, _number, body, body),
        st.tuples(st.just("case"), _slot, st.lists(body, min_size=1, max_size=2)),
    )


_program = st.lists(st.recursive(_assign, _blocks, max_leaves=8), min_size=1, max_size=4)


def assign(statement: Any, state: State, captured: Any) -> State:
    _, kind, target, a, b, number = statement
    x, y = state[a], state[b]
    value = {
        "sin": lambda: nnp.sin(x) + number * y,
        "mul": lambda: x * y * 0.5 + number,
        "tanh": lambda: nnp.tanh(x + number) * captured,
        "mix": lambda: 0.3 * x - number * nnp.cos(y),
        "copy": lambda: x,
    }[kind]()
    return (*state[:target], value, *state[target + 1 :])


def case_index(x: Any) -> Any:
    """Returns the branch that a value chooses; there may be none of that number."""
    return nnp.floor(nnc.stop_gradient(x)).astype("int64")


def run_python(program: Any, state: State, captured: Any) -> State:
    """The program by Python's own control flow, on values."""
    for statement in program:
        kind = statement[0]
        if kind == "assign":
            state = assign(statement, state, captured)
        elif kind == "for":
            for i in range(statement[1]):
                state = run_python(statement[2], (state[0] + 0.1 * i, *state[1:]), captured)
        elif kind == "while":
            _, limit, slot, number, body = statement
            count = 0
            while count < limit and bool(state[slot] - count < number):
                state, count = run_python(body, state, captured), count + 1
        elif kind == "if":
            state = run_python(
                statement[3] if bool(state[statement[1]] > statement[2]) else statement[4], state, captured
            )
        else:
            index = int(case_index(state[statement[1]]))
            if 0 <= index < len(statement[2]):
                state = run_python(statement[2][index], state, captured)
    return state


def run_nnc(program: Any, state: State, captured: Any) -> State:
    """The same by nnc's loops and branches."""
    for statement in program:
        kind = statement[0]
        if kind == "assign":
            state = assign(statement, state, captured)
        elif kind == "for":
            body = statement[2]
            step = lambda i, s, body=body: run_nnc(body, (s[0] + 0.1 * i.astype("float64"), *s[1:]), captured)
            state = nnc.fori_loop(0, statement[1], step, state)
        elif kind == "while":
            _, limit, slot, number, body = statement
            go = lambda c, limit=limit, slot=slot, number=number: (c[0] < limit) & (c[1][slot] - c[0] < number)
            step = lambda c, body=body: (c[0] + 1, run_nnc(body, c[1], captured))
            state = nnc.while_loop(go, step, (0, state))[1]
        elif kind == "if":
            branches = [lambda *s, body=body: run_nnc(body, s, captured) for body in statement[3:]]
            state = nnc.cond(state[statement[1]] > statement[2], *branches, *state)
        else:
            branches = [lambda *s, body=body: run_nnc(body, s, captured) for body in statement[2]]
            state = nnc.case_of(case_index(state[statement[1]]), branches, *state)
    return state


def loss(run: Callable[..., State], program: Any) -> Callable[[Any, Any], Any]:
    def f(x: Any, captured: Any) -> Any:
        state = run(program, (x, x * 0.5 + 0.2, 1.0 - x), captured)
        return state[0] + 2.0 * state[1] * state[2]

    return f


POINT = (np.float64(0.37), np.float64(1.2))
ROWS = np.array([-0.8, 0.37, 1.6])


def agree(a: Any, b: Any) -> None:
    for x, y in zip(nnc.tree.leaves(a), nnc.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@given(program=_program)
def test_values_and_derivatives_are_those_of_a_plain_run(program: Any) -> None:
    mine, plain = loss(run_nnc, program), loss(run_python, program)
    agree(mine(*POINT), plain(*POINT))
    gradient = nnc.grad(plain, (0, 1))(*POINT)
    agree(nnc.grad(mine, (0, 1))(*POINT), gradient)
    agree(nnc.compile(nnc.grad(mine, (0, 1)))(*POINT), gradient)
    one = (np.float64(1), np.float64(0))
    agree(nnc.jvp(mine, POINT, one)[1], gradient[0])


@given(program=_program)
def test_rows_are_those_of_plain_runs(program: Any) -> None:
    mine, plain = loss(run_nnc, program), loss(run_python, program)
    agree(nnc.vmap(mine, (0, None))(ROWS, POINT[1]), np.array([plain(x, POINT[1]) for x in ROWS]))
    rows = [nnc.grad(plain, (0, 1))(x, POINT[1]) for x in ROWS]
    wanted = [np.array([float(row[i]) for row in rows]) for i in (0, 1)]
    agree(nnc.vmap(nnc.grad(mine, (0, 1)), (0, None))(ROWS, POINT[1]), tuple(wanted))
    total = nnc.grad(lambda v: nnp.sum(nnc.vmap(mine, (0, None))(v, POINT[1])))(ROWS)
    agree(total, wanted[0])


@pytest.mark.slow
@FEWER
@given(program=_program)
def test_second_derivatives_are_those_of_a_plain_run_in_every_order_of_modes(program: Any) -> None:
    mine, plain = loss(run_nnc, program), loss(run_python, program)
    at = lambda f: lambda v: f(v[0], v[1])
    point = np.array(POINT)
    rows = [nnc.grad(lambda *p, i=i: nnc.grad(plain, (0, 1))(*p)[i], (0, 1))(*POINT) for i in (0, 1)]
    wanted = np.array([[float(x) for x in row] for row in rows])
    for outer in (nnc.jacfwd, nnc.jacrev):
        for inner in (nnc.jacfwd, nnc.jacrev):
            agree(outer(inner(at(mine)))(point), wanted)


@pytest.mark.slow
@given(program=_program)
def test_graphs_of_random_programs_verify_and_round_trip(program: Any) -> None:
    graph = nnc.graph.verify(nnc.make_graph(nnc.grad(loss(run_nnc, program), (0, 1)))(*POINT))
    again = nnc.graph.from_json(nnc.graph.to_json(graph))
    assert nnc.graph.structural_hash(again) == nnc.graph.structural_hash(graph)
    agree(again(*POINT), graph(*POINT))
