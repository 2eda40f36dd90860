"""Functions whose calls on operands alike are traced once: the graphs are the same as if each call were traced."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.context import get_context
from nnc.calls.specialise import specialised_in_traces
from nnc.commands.debug import check_finite
from nnc.graph import verify


@pytest.fixture
def counted():
    """A repeated function of two arrays, and a list that grows whenever it is traced."""
    runs = []

    @specialised_in_traces
    def f(x, y, *, power=2, scale=1.0):
        runs.append(power)
        return scale * (x - nnp.mean(x)) ** power / (1 + nnp.exp(y)) + x, nnp.sum(nnp.sin(y))

    return f, runs


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_calls_alike_are_traced_once_and_others_anew(counted):
    f, runs = counted

    def g(x, y, z):
        a, _ = f(x, y)
        b, _ = f(y, x)
        c, _ = f(a, b, power=3)
        d, _ = f(z, z + 1)
        return a + b + c, d

    graph = nnc.make_graph(g)(numbers((2, 3)), numbers((2, 3), 1), numbers(4))
    assert runs == [2, 3, 2]  # the first serves the second; another setting and other shapes are traced
    verify(graph)


@pytest.mark.parametrize("transform", [nnc.make_graph, nnc.compile])
def test_values_are_those_of_tracing_every_call(counted, transform):
    f, runs = counted
    plain = f.__wrapped__

    def g(f, x, y):
        for k in range(3):
            x, s = f(x, y, scale=0.5)
            y = y * s + k
        return x, y

    x, y = numbers((3, 4)), numbers((3, 4), 1)
    program = transform(partial(g, f))
    program = program(x, y) if transform is nnc.make_graph else program
    for a, b in zip(program(x, y), g(plain, nnc.asarray(x), nnc.asarray(y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert len(runs) == 1 + 3


def test_gradients_are_those_of_tracing_every_call(counted):
    f, runs = counted

    def loss(f, x, y):
        for _ in range(3):
            x, s = f(x, y)
            x, y = f(y, x)[0], y + s
        return nnp.sum(x * y)

    x, y = numbers((3, 4)), numbers((3, 4), 1)
    found = nnc.compile(nnc.grad(partial(loss, f), argnums=(0, 1)))(x, y)
    assert len(runs) == 1
    for a, b in zip(found, nnc.grad(partial(loss, f.__wrapped__), argnums=(0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


def test_an_operand_without_a_tangent_makes_another_call(counted):
    f, runs = counted

    def loss(x, y):
        a, _ = f(x, y)
        b, _ = f(a, y)
        c, s = f(b, x)
        return nnp.sum(a * b + c) * s

    x, y = numbers(4), numbers(4, 1)
    found = nnc.compile(nnc.grad(loss))(x, y)
    assert len(runs) == 2
    np.testing.assert_allclose(found, nnc.grad(loss)(x, y), rtol=1e-4)


def test_second_derivatives_and_batches_are_traced_call_by_call(counted):
    f, _ = counted

    def loss(x, y):
        a, _ = f(x, y)
        b, s = f(y, a)
        return nnp.sum(b * s)

    x, y = numbers((2, 4)), numbers((2, 4), 1)
    row = nnc.vmap(nnc.hessian(loss))
    np.testing.assert_allclose(nnc.compile(row)(x, y), row(x, y), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("first", [True, False], ids=["first twice", "later twice"])
def test_an_operand_may_be_given_twice(counted, first):
    f, runs = counted

    def g(x, y):
        same, other = (x, x), (x, y)
        return f(*(same if first else other))[0] + f(*(other if first else same))[0]

    x, y = numbers(3), numbers(3, 1)
    found = nnc.compile(g)(x, y)
    assert len(runs) == (2 if first else 1)  # a call in which operands cannot be told apart serves no other one
    np.testing.assert_allclose(found, g(nnc.asarray(x), nnc.asarray(y)), rtol=1e-6)


def test_nodes_without_the_operands_are_recorded_as_well():
    @specialised_in_traces
    def f(x):
        return x + nnp.arange(3, dtype=nnp.float32)

    graph = nnc.make_graph(lambda x: f(f(f(x))))(numbers(3))
    np.testing.assert_allclose(graph(numbers(3)), numbers(3) + 3 * np.arange(3))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_function_may_hold_a_value_that_is_an_operand_of_one_call(which):
    def g(*leaves):
        held = leaves[which]
        step = specialised_in_traces(lambda x: x * 2 - held, may_capture=True)
        return [step(x) for x in leaves]

    leaves = [numbers(3, seed) for seed in range(4)]
    for found, x in zip(nnc.compile(g)(*leaves), leaves, strict=True):
        np.testing.assert_allclose(found, 2 * x - leaves[which], rtol=1e-5)


def test_a_function_may_hold_a_value_that_is_an_operand_of_two_calls():
    def g(x, y, z, held, other):
        step = specialised_in_traces(lambda x, y: x * y - held, may_capture=True)
        return step(x, held), step(y, held), step(z, other), step(x, other)

    x, y, z, held, other = (numbers(3, seed) for seed in range(5))
    expected = x * held - held, y * held - held, z * other - held, x * other - held
    for found, value in zip(nnc.compile(g)(x, y, z, held, other), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5)


def test_a_function_that_holds_values_of_the_trace_runs_once_for_operands_alike():
    runs = []

    def g(x, y, held):
        def scale(x, y):
            runs.append(x.shape)
            return x * held, (y, x)

        step = specialised_in_traces(scale, may_capture=True)
        return step(x, y), step(y, x), step(held, held), step(x[:2], y[:2])

    x, y, held = numbers(3), numbers(3, 1), numbers(())
    found = nnc.compile(g)(x, y, held)
    assert runs == [(3,), (), (2,)]
    expected = [(a * held, (b, a)) for a, b in ((x, y), (y, x), (held, held), (x[:2], y[:2]))]
    for a, b in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("transform", [nnc.grad, lambda f: nnc.vmap(nnc.grad(f), in_axes=(0, None, None))])
def test_a_function_may_hold_a_value_that_another_transform_sees(transform):
    def loss(rate, x, y):
        step = specialised_in_traces(lambda x: x - rate * x**2, may_capture=True)
        return nnp.sum(step(x) * step(y) + step(x + rate))

    rate, x, y = np.float32(0.3), numbers(3), numbers(3, 1)
    rate = rate if transform is nnc.grad else numbers(4)
    f = transform(loss)
    np.testing.assert_allclose(nnc.compile(f)(rate, x, y), f(rate, x, y), rtol=1e-4)


def test_a_function_that_holds_a_value_may_hold_loops_and_rules_of_its_own():
    @nnc.custom_jvp
    def double(x):
        return 2 * x

    double.defjvp(lambda primals, tangents: (2 * primals[0], 20 * tangents[0]))

    def loss(x, held):
        def formula(x):
            return nnc.fori_loop(0, 2, lambda i, c: c * held + double(x), x)

        step = specialised_in_traces(formula, may_capture=True)
        return nnp.sum(step(step(step(x))))

    x, held = numbers(3), np.float32(0.5)
    np.testing.assert_allclose(nnc.compile(loss)(x, held), loss(nnc.asarray(x), nnc.asarray(held)), rtol=1e-5)
    found, expected = nnc.compile(nnc.grad(loss, (0, 1)))(x, held), nnc.grad(loss, (0, 1))(x, held)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_earlier_broadcasts_keep_no_call_from_being_repeated():
    runs = []

    @specialised_in_traces
    def f(x, y):
        runs.append(x.shape)
        return nnp.tanh(x * y)

    def g(x, y):
        return f(f(x + y, y), y)  # the sum broadcasts y, which the first call reads as well

    x, y = numbers((3, 4)), numbers(4, 1)
    found = nnc.compile(g)(x, y)
    assert runs == [(3, 4)]
    np.testing.assert_allclose(found, np.tanh(np.tanh((x + y) * y) * y), rtol=1e-5)


def test_an_operand_may_be_returned_as_it_is():
    @specialised_in_traces
    def f(x, y):
        return y, (nnc.stop_gradient(x), x * y)

    def loss(x, y):
        for _ in range(3):
            x, (kept, product) = f(x, y)
            y = product + kept
        return nnp.sum(x * y)

    x, y = numbers(3), numbers(3, 1)
    for a, b in zip(nnc.compile(nnc.grad(loss, (0, 1)))(x, y), nnc.grad(loss, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_random_numbers_are_drawn_in_each_call():
    @specialised_in_traces
    def f(key, x):
        return x + nnc.random.normal(key, x.shape)

    def g(key, x):
        first, second = nnc.random.split(key)
        return f(first, x), f(second, x)

    a, b = nnc.compile(g)(nnc.random.key(0), numbers(5))
    assert not np.allclose(a, b)
    np.testing.assert_allclose(a, g(nnc.random.key(0), nnc.asarray(numbers(5)))[0], rtol=1e-6)


def test_repeated_nodes_name_the_line_of_their_own_call():
    def g(x):
        a = nnc.nn.layer_norm(x)
        return nnc.nn.layer_norm(a)

    lines = [node.source.line for node in nnc.make_graph(g)(numbers(3)).nodes if node.source is not None]
    start = g.__code__.co_firstlineno
    assert {*lines} == {start + 1, start + 2}
    assert lines == sorted(lines)


def test_functions_that_hold_values_of_a_call_are_not_repeated():
    @nnc.custom_vjp
    def double(x, y):
        return 2 * x * y

    double.defvjp(lambda x, y: (2 * x * y, (x, y)), lambda kept, ct: (20 * ct * kept[1], 20 * ct * kept[0]))

    @specialised_in_traces
    def f(x, y):
        return double(x, y) + y

    def loss(x, y):
        return nnp.sum(f(f(x, y), y))

    x, y = numbers(3), numbers(3, 1)
    for a, b in zip(nnc.compile(nnc.grad(loss, (0, 1)))(x, y), nnc.grad(loss, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_loops_inside_are_repeated():
    @specialised_in_traces
    def f(x, y):
        return nnc.fori_loop(0, 3, lambda i, c: c * y + x, x)

    def loss(x, y):
        return nnp.sum(f(f(x, y), y))

    x, y = numbers(3), numbers(3, 1)
    for a, b in zip(nnc.compile(nnc.grad(loss, (0, 1)))(x, y), nnc.grad(loss, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_outside_of_traces_the_function_runs_as_it_is(counted):
    f, runs = counted
    x, y = nnc.asarray(numbers(3)), nnc.asarray(numbers(3, 1))
    assert f(x, y)[0].shape == f(x, y)[0].shape == (3,)
    assert len(runs) == 2


def test_a_closed_over_value_that_is_differentiated_is_found(counted):
    def loss(rate, x):
        @specialised_in_traces
        def step(x):
            return x * rate + 1

        return nnp.sum(step(step(step(x))))

    rate, x = np.float32(0.5), numbers(3)
    np.testing.assert_allclose(nnc.compile(nnc.grad(loss))(rate, x), nnc.grad(loss)(rate, x), rtol=1e-5)


def test_loops_trace_their_rounds_apart(counted):
    f, _ = counted

    def g(x, y):
        a, _ = f(x, y)
        out, _ = nnc.scan(lambda c, _: (f(c, y)[0], None), a, None, length=3)
        return f(out, y)[0]

    x, y = numbers(3), numbers(3, 1)
    expected = nnc.asarray(x)
    for _ in range(5):
        expected = f.__wrapped__(expected, nnc.asarray(y))[0]
    np.testing.assert_allclose(nnc.compile(g)(x, y), expected, rtol=1e-4)


def test_nothing_of_a_trace_stays_when_it_has_ended(counted):
    f, _ = counted
    gone = []

    def loss(x, y):
        gone.append(weakref.ref(get_context().staging))
        return nnp.sum(f(f(x, y)[0], y)[0])

    gc.collect()
    gc.disable()
    try:
        nnc.make_graph(nnc.grad(loss))(numbers(3), numbers(3, 1))
        assert gone[0]() is None
    finally:
        gc.enable()


_ELSEWHERE = []


def broadcasts(x, c, d):
    """Its third call of a function alike to the second finds another broadcast than that one."""
    return x * d, x + d, x + c


def mixed(x, c, d):
    return nnp.maximum(x, d), nnp.where(x > c, d, x), x - d, x - c, nnp.where(x > d, c, x), nnp.maximum(x, c)


def swapped(x, c, d):
    return (x + d) * (x + c), (x * c + d) - (x * d + c), x * d - x * c


def through_layers(x, c, d):
    return nnc.nn.leaky_relu(x * d) + nnp.clip(x, c, d), nnp.clip(x, d, c), x / d + x / c


@pytest.mark.parametrize("f", [broadcasts, mixed, swapped, through_layers])
@pytest.mark.parametrize("shape", [(4,), (1,), (2, 3), ()])
def test_calls_alike_read_their_own_operands_after_any_broadcasts(f, shape):
    operands = nnc.asarray(numbers(shape)), nnc.asarray(5.0), nnc.asarray(np.float32(7.0))
    expected = [np.asarray(value) for value in f(*operands)]
    x, c, d = operands

    def summed(x, c, d):
        return sum(nnp.sum(value * (i + 1)) for i, value in enumerate(f(x, c, d)))

    found = {
        "graph": nnc.make_graph(f)(*operands)(*operands),
        "compile": nnc.compile(f)(*operands),
        "cond": nnc.compile(lambda p, *args: nnc.cond(p, f, f, *args))(nnc.asarray(True), *operands),
        "scan": [row[0] for row in nnc.scan(lambda carry, _: (carry, f(x, *carry)), (c, d), None, length=1)[1]],
        "vmap": [row[0] for row in nnc.compile(nnc.vmap(f))(x[None], c[None], d[None])],
        "while": nnc.compile(
            lambda *args: nnc.fori_loop(0, 1, lambda i, old: tuple(f(*args)), tuple(map(nnp.zeros_like, f(*args))))
        )(*operands),
    }
    for name, values in found.items():
        for a, b in zip(values, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=name)
    gradient = nnc.grad(summed, argnums=(0, 1, 2))
    for a, b in zip(nnc.compile(gradient)(*operands), gradient(*operands), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_call_that_reads_a_value_from_elsewhere_is_not_repeated():
    @specialised_in_traces
    def f(x):
        return x + _ELSEWHERE[-1]

    def g(x, y, z):
        found = []
        for value in (y, z, x):
            _ELSEWHERE[:] = [value]
            found.append(f(x))
        _ELSEWHERE.clear()
        return found

    x, y, z = numbers(3), numbers(3, 1), numbers(3, 2)
    for a, b in zip(nnc.compile(g)(x, y, z), (x + y, x + z, x + x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_weak_operands_are_told_from_others():
    def g(x, weak, strong):
        half = x.astype("float16")
        return half + weak, half + strong, half + weak, half + strong

    found = nnc.compile(g)(numbers(3), 2.0, np.ones((), np.float32))
    assert [value.dtype for value in found] == [nnp.float16, nnp.float32] * 2


def test_effects_come_about_in_each_call_also_without_operands():
    @specialised_in_traces
    def f(x):
        check_finite(nnp.zeros(2), name="zeros", results=1, source=None)
        check_finite(x, name="x", results=1, source=None)
        return x + 1

    graph = nnc.make_graph(lambda x: f(f(f(x))))(numbers(3))
    assert [node.params["name"] for node in graph.nodes if node.command is check_finite] == ["zeros", "x"] * 3


def test_weak_values_that_a_repeated_call_differentiates_stay_weak():
    def f(a):
        return nnp.sum(nnp.stack([a, a * 3])) * 0.5

    for run in (nnc.value_and_grad(f), nnc.compile(nnc.value_and_grad(f))):
        assert [(x.dtype, bool(x.weak), float(x)) for x in run(0.1)] == [
            (np.float32, True, 0.2),
            (np.float32, True, 2.0),
        ]
