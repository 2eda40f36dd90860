"""Generated programs whose calls are specialised give what the functions themselves give: values, dtypes and weakness."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.context import with_mode
from nnc.graph.specialise import specialised_in_traces

BINARY = [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, nnp.maximum, lambda x, y: nnp.where(x > y, x, y),
    lambda x, y: nnp.clip(x, -1, y), lambda x, y: x / (2 + abs(y)), lambda x, y: nnp.mean(x) + y,
]  # fmt: skip
UNARY = [
    nnp.tanh, nn.softmax, nn.gelu, lambda x: x * 0.5, lambda x: 2 - x, lambda x: x**2, lambda x: nnp.sum(x),
    lambda x: x.reshape(-1), lambda x: nn.leaky_relu(x, 0.1), nnc.stop_gradient,
]  # fmt: skip
SHAPES = [(), (1,), (4,), (1, 4), (3, 4), (0,)]
LEAVES = [
    nnc.asarray(np.random.default_rng(i).normal(size=shape).astype(dtype))
    for i, (shape, dtype) in enumerate(
        [*[(s, "float32") for s in SHAPES[:5]], ((), "float64"), ((4,), "float32"), ((), "float32")]
    )
] + [nnc.asarray(0.75).as_weak()]  # beside a float64 of the same shape that is not weak
STEPS = st.lists(
    st.tuples(st.integers(0, len(BINARY) + len(UNARY) - 1), st.integers(0, 30), st.integers(0, 30)),
    min_size=3,
    max_size=14,
)


def run(steps: Any, leaves: Any) -> list[Any]:
    """The values of a program, in which every value may be read again and again."""
    values = [*leaves, 0.5]
    for number, i, j in steps:
        x, y = values[i % len(values)], values[j % len(values)]
        if number < len(BINARY):
            values.append(BINARY[number](nnp.asarray(x) if isinstance(x, float) else x, y))
        else:
            values.append(UNARY[number - len(BINARY)](nnp.asarray(x) if isinstance(x, float) else x))
    return values[len(leaves) + 1 :]


def loss(steps: Any, leaves: Any) -> Any:
    return sum(nnp.sum(value * (i + 1)) for i, value in enumerate(run(steps, leaves)))


def check_equal(found: Any, expected: Any) -> None:
    for a, b in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
        assert a.spec == b.spec and a.weak == b.weak
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-4)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_traced_programs_give_what_their_functions_give(steps: Any) -> None:
    def program(leaves: Any) -> Any:
        return run(steps, leaves)

    def branch(leaves: Any) -> Any:
        return nnc.cond(leaves[0] < 9, program, program, leaves)

    def rounds(leaves: Any) -> Any:
        return nnc.scan(lambda carry, _: (carry, program(carry)), leaves, None, length=2)[1]

    def rows(leaves: Any) -> Any:
        return nnc.vmap(program)([nnp.stack([x, x]) for x in leaves])

    for fun in (program, branch, rounds, rows):
        try:
            with with_mode("unspecialised"):
                expected = nnc.compile(lambda leaves, fun=fun: fun(leaves))(LEAVES)
        except nnc.errors.NncError:
            continue  # shapes do not fit
        check_equal(nnc.compile(lambda leaves, fun=fun: fun(leaves))(LEAVES), expected)


@settings(deadline=None, max_examples=25)
@given(STEPS)
def test_gradients_of_traced_programs_are_those_of_their_functions(steps: Any) -> None:
    floats = [x for x in LEAVES if x.dtype == nnp.float32]
    gradient = nnc.grad(lambda leaves: nnp.sum(loss(steps, leaves)).astype("float32"))
    try:
        with with_mode("unspecialised"):
            expected = nnc.compile(gradient)(floats)
    except nnc.errors.NncError:
        return
    check_equal(nnc.compile(gradient)(floats), expected)


@settings(deadline=None, max_examples=25)
@given(STEPS)
def test_eager_programs_give_what_their_functions_give(steps: Any) -> None:
    try:
        with with_mode("unspecialised"):
            expected = run(steps, LEAVES)
    except nnc.errors.NncError:
        for _ in range(4):
            with pytest.raises(nnc.errors.NncError):
                run(steps, LEAVES)
        return
    for _ in range(4):
        check_equal(run(steps, LEAVES), expected)


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
