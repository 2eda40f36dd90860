"""The worked numbers of libnnc's tests: values, gradients, and gradients through tensors written by alias.

Tensors written in parts appear three ways: as slices of an array, as functional updates, and as hand-built graphs whose nodes
write aliases of a declared tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, GraphBuilder


def close(a: Any, b: Any, tolerance: float = 1e-6) -> bool:
    return np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


def check_everywhere(f: Callable[..., Any], args: tuple[Any, ...], value: float, gradients: tuple[Any, ...]) -> None:
    """Value and gradients eagerly, compiled, checkpointed, in forward mode, and as the graph of the gradient."""
    wide = tuple(np.asarray(x, np.float64) for x in args)
    numbers = tuple(range(len(args)))
    both = nnc.value_and_grad(f, numbers)
    for run in (both, nnc.compile(both), nnc.value_and_grad(nnc.checkpoint(f), numbers)):
        found, slopes = run(*wide)
        assert close(found, value)
        assert all(close(a, b) for a, b in zip(slopes, gradients, strict=True))
    assert all(close(a, b) for a, b in zip(nnc.jacfwd(f, numbers)(*wide), gradients, strict=True))
    graph = nnc.make_graph(nnc.grad(f, numbers))(*wide)
    outputs = graph(*wide)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert all(close(a, b) for a, b in zip(outputs, gradients, strict=True))
    twice = tuple(np.stack([x, x]) for x in wide)
    assert all(
        close(row, b) for a, b in zip(nnc.vmap(nnc.grad(f, numbers))(*twice), gradients, strict=True) for row in a
    )
    nnc.testing.check_grads(f, wide, order=2)


# -- plain expressions -------------------------------------------------------------------------------------------------


def test_x_squared_plus_log_of_its_inverse() -> None:
    def f(x: Any) -> Any:
        return x**2 + nnp.log(1 / x)

    check_everywhere(f, (0.84,), 0.879953, (0.489524,))
    for second in (nnc.grad(nnc.grad(f)), nnc.hessian(f), nnc.jacfwd(nnc.grad(f)), nnc.compile(nnc.grad(nnc.grad(f)))):
        assert close(second(np.float64(0.84)), 2 + 1 / 0.84**2)
    assert close(nnc.grad(nnc.grad(nnc.grad(f)))(np.float64(0.84)), -2 / 0.84**3)


def test_an_unused_argument_has_gradient_zero() -> None:
    check_everywhere(lambda x: nnp.ones((), "float64"), (10.0,), 1.0, (0.0,))


def test_a_product_of_a_difference_and_a_sum() -> None:
    check_everywhere(lambda x, y: (x - y) * (y + 1), (43.24, 0.38), 59.1468, (1.38, 41.48))


def test_a_gradient_of_one_argument_costs_nothing_for_the_other() -> None:
    def f(x: Any, y: Any) -> Any:
        return y * x + nnp.log(1 / x)

    x, y = np.float64(0.84), np.float64(1.23)
    assert close(nnc.grad(f, 1)(x, y), 0.84)
    assert close(nnc.grad(f, 0)(x, y), 1.23 - 1 / 0.84)
    executable = nnc.compile(nnc.grad(f, 1)).lower(x, y).compile()
    assert "log" not in executable.as_text() and "div" not in executable.as_text()


def test_two_losses_at_once() -> None:
    def losses(x: Any, y: Any) -> Any:
        return x**2 + nnp.log(1 / x), y**2 + nnp.log(1 / y)

    x, y = np.float64(0.84), np.float64(0.24)
    _, pull = nnc.vjp(losses, x, y)
    assert all(close(g, 2 * t - 1 / t) for g, t in zip(pull((1.0, 1.0)), (0.84, 0.24), strict=True))
    first, second = pull((1.0, 0.0))
    assert close(first, 2 * 0.84 - 1 / 0.84) and second == 0


def test_a_user_defined_command_with_its_own_derivative() -> None:
    f = nnc.custom_vjp(lambda x: nnp.log(nnp.log(x)))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct / (x * nnp.log(x)),))
    check_everywhere(f, (10.0,), np.log(np.log(10)), (1 / (10 * np.log(10)),))


def test_common_parts_are_computed_once_or_twice_with_one_result() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x + y) * (x + y)

    check_everywhere(f, (10.0, 8.0), 324.0, (36.0, 36.0))


# -- aliases -----------------------------------------------------------------------------------------------------------


def by_hand(build: Callable[[GraphBuilder, Any], Any], size: int = 2) -> Graph:
    """A graph of one argument of `size` floats."""
    b = GraphBuilder()
    x = b.input((size,), "float64")
    return b.build(build(b, x))


def part(b: GraphBuilder, x: Any, start: int, size: int = 1) -> Any:
    return b.alias(x, (start,), (size,))


def total(b: GraphBuilder, *terms: Any) -> Any:
    """The sum of all elements of vectors of one length."""
    result = terms[0]
    for term in terms[1:]:
        result = b.add("add", result, term)
    return b.add("reduce_sum", result, axes=(0,))


def sliced_sum(x: Any) -> Any:
    y = x + np.array([1, 1.5])
    y1, y2 = y[:1], y[1:]
    return nnp.sum(x[:1] + (y1 + y1**2) + nnp.exp(y2))


def sliced_sum_graph(b: GraphBuilder, x: Any) -> Any:
    y = b.add("add", x, b.constant(np.array([1, 1.5])))
    y1, y2 = part(b, y, 0), part(b, y, 1)
    return total(b, part(b, x, 0), y1, b.add("mul", y1, y1), b.add("exp", y2))


@pytest.mark.parametrize("f", [sliced_sum, by_hand(sliced_sum_graph)], ids=["slices", "graph"])
def test_slices_are_read_as_aliases(f: Any) -> None:
    check_everywhere(f, ([0.44, -1.18],), 5.330728, ([4.88, 1.377128],))


def written_by_updates(x: Any) -> Any:
    y = nnp.zeros(2, "float64").at[:1].set(nnp.log(x[:1])).at[1:].set(x[1:] ** 2)
    return nnp.sum(y[:1] ** 2 + y[:1] * y[1:])


def written_by_alias(b: GraphBuilder, x: Any) -> Any:
    y = b.tensor((2,), "float64")
    x2 = part(b, x, 1)
    b.add("log", part(b, x, 0), out=part(b, y, 0))
    b.add("mul", x2, x2, out=part(b, y, 1))
    y1, y2 = part(b, y, 0), part(b, y, 1)
    return total(b, b.add("mul", y1, y1), b.add("mul", y1, y2))


@pytest.mark.parametrize("f", [written_by_updates, by_hand(written_by_alias)], ids=["updates", "graph"])
def test_two_aliases_of_a_tensor_are_written_and_read(f: Any) -> None:
    check_everywhere(f, ([0.38, -2.8],), -6.64964, ([15.539031, 5.418471],))


def half_written_by_updates(x: Any) -> Any:
    y1 = nnp.zeros(2, "float64").at[:1].set(nnp.log(x[:1]))[:1]
    return nnp.sum(y1**2 + y1)


def half_written_by_alias(b: GraphBuilder, x: Any) -> Any:
    y = b.tensor((2,), "float64")
    b.add("log", part(b, x, 0), out=part(b, y, 0))
    y1 = part(b, y, 0)
    return total(b, b.add("mul", y1, y1), y1)


@pytest.mark.parametrize("f", [half_written_by_updates, by_hand(half_written_by_alias)], ids=["updates", "graph"])
def test_a_slice_that_nothing_touches_has_gradient_exactly_zero(f: Any) -> None:
    check_everywhere(f, ([0.21, -13.22],), 0.874974, ([-10.101407, 0.0],))
    for gradient in (nnc.grad(f), nnc.compile(nnc.grad(f))):
        assert gradient(np.array([0.21, -13.22]))[1] == 0


def test_a_chain_of_tensors_that_grow_by_alias() -> None:
    x, w1, w2 = 0.235, 0.886, 0.472

    def by_updates(x: Any, w1: Any, w2: Any) -> Any:
        y = nnp.zeros(2, "float64").at[0].set(x).at[1].set(x * w1 + 0.912)
        return y[1] * w2

    check_everywhere(by_updates, (x, w1, w2), 0.528739, (w1 * w2, x * w2, x * w1 + 0.912))
    b = GraphBuilder()
    v, u1, u2 = (b.input((1,), "float64") for _ in range(3))
    block = b.tensor((3,), "float64")
    b.add("copy", v, out=part(b, block, 0))
    product = b.add("mul", v, u1)
    b.add("add", product, b.constant(np.array([0.912])), out=part(b, block, 1))
    graph = b.build(b.add("reduce_sum", b.add("mul", part(b, block, 1), u2), axes=(0,)))
    found = nnc.value_and_grad(graph, (0, 1, 2))(np.array([x]), np.array([w1]), np.array([w2]))
    assert close(found[0], 0.528739)
    assert [round(float(g[0]), 9) for g in found[1]] == [round(g, 9) for g in (w1 * w2, x * w2, x * w1 + 0.912)]


def test_values_written_by_alias_are_moved_into_the_result() -> None:
    def f(x: Any) -> Any:
        return nnp.zeros(2, "float64").at[0].set(x + 8).at[1].set(x)

    assert close(f(np.float64(1.2)), [9.2, 1.2]) and close(nnc.jacfwd(f)(np.float64(1.2)), [1, 1])


# Three more, in which two aliases are written and read in several ways.


def overlapping_reads(b: GraphBuilder, x: Any) -> Any:
    """y = [exp x0, x1·x2, ·, x0]; reads y[0:2], y[1:3] and y[2:4], which overlap each other and written elements."""
    y = b.tensor((4,), "float64")
    b.add("exp", part(b, x, 0), out=part(b, y, 0))
    b.add("mul", part(b, x, 1), part(b, x, 2), out=part(b, y, 1))
    b.add("copy", part(b, x, 0), out=part(b, y, 3))
    low, middle, high = part(b, y, 0, 2), part(b, y, 1, 2), part(b, y, 2, 2)
    return total(b, b.add("mul", low, middle), b.add("mul", low, high), b.add("sin", middle))


def overlapping_reads_by_updates(x: Any) -> Any:
    y = nnp.zeros(4, "float64").at[0].set(nnp.exp(x[0])).at[1].set(x[1] * x[2]).at[3].set(x[0])
    return nnp.sum(y[:2] * y[1:3] + y[:2] * y[2:] + nnp.sin(y[1:3]))


@pytest.mark.parametrize("f", [overlapping_reads_by_updates, by_hand(overlapping_reads, 4)], ids=["updates", "graph"])
def test_reads_that_overlap_add_their_gradients(f: Any) -> None:
    a, p, q = 0.3, -0.7, 1.9  # e^a pq + pq a + sin pq, over y = [e^a, pq, 0, a]
    slope = np.exp(a) + a + np.cos(p * q)
    gradient = [np.exp(a) * p * q + p * q, q * slope, p * slope, 0]
    check_everywhere(f, ([a, p, q, 5.0],), np.exp(a) * p * q + p * q * a + np.sin(p * q), (gradient,))
    assert nnc.grad(f)(np.array([a, p, q, 5.0]))[3] == 0


def columns(b: GraphBuilder, x: Any) -> Any:
    """A 2×2 tensor written by columns (x, x²), read by rows and as a whole."""
    y = b.tensor((2, 2), "float64")
    column = b.add("reshape", x, shape=(2, 1))
    b.add("copy", column, out=b.alias(y, (0, 0), (2, 1)))
    b.add("mul", column, column, out=b.alias(y, (0, 1), (2, 1)))
    top, bottom = b.alias(y, (0, 0), (1, 2)), b.alias(y, (1, 0), (1, 2))
    rows = b.add("reduce_sum", b.add("mul", top, bottom), axes=(0, 1))
    return b.add("add", rows, b.add("reduce_sum", b.add("sin", y), axes=(0, 1)))


def columns_by_updates(x: Any) -> Any:
    y = nnp.zeros((2, 2), "float64").at[:, 0].set(x).at[:, 1].set(x * x)
    return nnp.sum(y[0] * y[1]) + nnp.sum(nnp.sin(y))


@pytest.mark.parametrize("f", [columns_by_updates, by_hand(columns)], ids=["updates", "graph"])
def test_columns_are_written_and_rows_are_read(f: Any) -> None:
    p, q = 0.4, -1.1
    value = p * q + (p * q) ** 2 + sum(np.sin(t) + np.sin(t * t) for t in (p, q))
    gradient = [u + 2 * t * u * u + np.cos(t) + 2 * t * np.cos(t * t) for t, u in ((p, q), (q, p))]
    check_everywhere(f, ([p, q],), value, (gradient,))


def one_part_unread(b: GraphBuilder, x: Any) -> Any:
    """y = [sin x0, x1³ (unread), ·]; z = [y0·x2, y2 (never written: 0)]; the sum of z, and of z times itself reversed in use."""
    y, z = b.tensor((3,), "float64"), b.tensor((2,), "float64")
    x1 = part(b, x, 1)
    b.add("sin", part(b, x, 0), out=part(b, y, 0))
    b.add("mul", b.add("mul", x1, x1), x1, out=part(b, y, 1))
    b.add("mul", part(b, y, 0), part(b, x, 2), out=part(b, z, 0))
    b.add("copy", part(b, y, 2), out=part(b, z, 1))
    return b.add("reduce_sum", b.add("add", z, b.add("mul", z, z)), axes=(0,))


def one_part_unread_by_updates(x: Any) -> Any:
    y = nnp.zeros(3, "float64").at[0].set(nnp.sin(x[0])).at[1].set(x[1] ** 3)
    z = nnp.zeros(2, "float64").at[0].set(y[0] * x[2]).at[1].set(y[2])
    return nnp.sum(z + z * z)


@pytest.mark.parametrize("f", [one_part_unread_by_updates, by_hand(one_part_unread, 3)], ids=["updates", "graph"])
def test_a_written_part_that_is_not_read_and_a_read_part_that_is_not_written_have_gradient_zero(f: Any) -> None:
    a, p, c = 0.8, 3.3, -0.6
    z = np.sin(a) * c
    check_everywhere(f, ([a, p, c],), z + z * z, ([(1 + 2 * z) * c * np.cos(a), 0, (1 + 2 * z) * np.sin(a)],))
    assert nnc.grad(f)(np.array([a, p, c]))[1] == 0 and nnc.compile(nnc.grad(f))(np.array([a, p, c]))[1] == 0
