from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import OutOfBoundsError
from nnc.graph import Graph, GraphBuilder, TensorSpec, command
from tests.unit.lower.passes.tools import check_after, check_same_bits, evaluate, names, record, run

VECTOR = TensorSpec((3,), "float32")
add, mul, neg, exp, full = (command(name) for name in ("add", "mul", "neg", "exp", "full"))
X = np.asarray([1.0, -0.0, np.nan], np.float32)


def test_nodes_of_small_constants_become_constants() -> None:
    graph = record(lambda x: add(x, exp(neg(np.asarray([1, 2, 3], np.float32)))), VECTOR)
    after = check_after(graph, ["fold", "dce"], [X], 1)
    assert [c.shape for c in after.constants] == [(3,)]


def test_a_tensor_of_one_number_stays_an_expression_however_large_it_is() -> None:
    shape = (1 << 20, 1 << 20)
    two = {"shape": shape, "dtype": np.dtype("float32"), "value": 2}
    graph = record(
        lambda x: add(x, neg(command("transpose")(full(**two), permutation=(1, 0)))), TensorSpec(shape, "float32")
    )
    after = run(graph, "fold", "dce")
    assert names(after) == ["broadcast_to", "add"]
    assert [float(value) for value in after.constants.values()] == [-2.0]


def test_a_constant_that_would_be_larger_than_its_operands_is_not_made() -> None:
    small = np.arange(300, dtype=np.float32)
    graph = record(
        lambda x: add(x, command("broadcast_to")(neg(small), shape=(300, 300))), TensorSpec((300, 300), "float32")
    )
    assert names(run(graph, "fold", "dce")) == ["broadcast_to", "add"]
    iota = record(lambda: command("iota")(shape=(4000,), dtype=np.dtype("int64"), axis=0))
    assert names(run(iota, "fold")) == ["iota"]


def test_a_command_that_raises_stays_and_raises_at_the_users_line_when_it_runs() -> None:
    def f(x: Any) -> Any:
        table = np.arange(3.0, dtype=np.float32)
        return x + nnp.take(nnp.asarray(table), np.asarray(7))  # the line that fails

    compiled = nnc.compile(f)
    with pytest.raises(OutOfBoundsError, match="the line that fails"):
        compiled(np.float32(1))


def test_draws_are_not_folded() -> None:
    key = np.asarray([1, 2], np.uint32)
    graph = record(lambda: command("random_bits")(key, np.asarray(0, np.uint64), shape=(2,), width=32))
    assert names(run(graph, "fold")) == ["random_bits"]


def branches() -> tuple[Graph, Graph]:
    return record(lambda x: neg(x), VECTOR), record(lambda x: exp(x), VECTOR)


def test_a_branch_with_a_known_index_is_the_only_one_left() -> None:
    for index in (0, 1):
        b = GraphBuilder()
        x = b.input(VECTOR)
        graph = b.build(*b.add("case_of", b.constant(index, "int64"), x, graphs=branches()))
        assert names(check_after(graph, ["fold", "dce"], [X], 1)) == [["neg", "exp"][index]]


@pytest.mark.parametrize("index", [-1, 2])
def test_a_branch_with_a_known_index_out_of_range_stays(index: int) -> None:
    b = GraphBuilder()
    graph = b.build(*b.add("case_of", b.constant(index, "int64"), b.input(VECTOR), graphs=branches()))
    assert names(run(graph, "fold")) == ["case_of"]


@pytest.mark.parametrize(("length", "count"), [(0, 1), (1, 3)])
def test_scans_of_no_round_or_one_are_unrolled(length: int, count: int) -> None:
    rows = np.ones((length, 3), np.float32)
    graph = nnc.make_graph(lambda x, rows: nnc.scan(lambda c, row: (c * row, c), x, rows))(X, rows)
    after = check_after(graph, ["fold", "simplify", "dce"], [X, rows], count)
    assert "scan" not in names(after)


def test_a_while_whose_test_fails_at_once_runs_its_test_only() -> None:
    def f(x: Any, stop: float) -> Any:
        return nnc.while_loop(lambda c: c[0] < stop, lambda c: (c[0] + 1, nnp.sin(c[1])), (np.float32(5), x))

    for stop, loops in ((3.0, 0), (7.0, 1)):
        graph = nnc.make_graph(lambda x, stop=stop: f(x, stop))(X)
        after = run(graph, "fold", "dce")
        check_same_bits(graph, after, [X])
        assert names(after).count("while") == loops


def test_constants_are_handed_into_loops_and_branches() -> None:
    def f(x: Any) -> Any:
        half = nnp.full((3,), 0.5) * 2
        return nnc.fori_loop(0, 5, lambda i, c: nnc.cond(c[0] > 0, lambda y: y * half, lambda y: y + half, c), x)

    graph = nnc.make_graph(f)(X)
    after = run(graph, "fold", "simplify", "dce")
    check_same_bits(graph, after, [X])
    (loop,) = (node for node in after.nodes if node.graphs)
    assert len(loop.inputs) == 1  # the carried value
    (choice,) = (node for node in loop.graphs[0].nodes if node.graphs)
    assert [names(branch) for branch in choice.graphs] in ([["broadcast_to", "add"], []], [[], ["broadcast_to", "add"]])


def test_folding_again_changes_nothing() -> None:
    graph = run(nnc.make_graph(lambda x: nnp.where(x > 0, nnp.ones(3) * 2, 0.0) + nnp.zeros(3))(X), "fold")
    assert run(graph, "fold").nodes is graph.nodes


def test_effects_before_a_test_that_fails_at_once_run() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        def test(c: Any) -> Any:
            nnc.debug.callback(lambda c: seen.append(float(c)), c)
            return c < 3.0

        return nnc.while_loop(test, lambda c: c + 1, np.float32(5)) + x

    after = run(nnc.make_graph(f)(X), "fold", "dce")
    assert "while" in names(after)
    np.testing.assert_array_equal(nnc.compile(f)(X), X + 5)
    assert seen == [5.0]


def _bits(value: int) -> np.ndarray[Any, Any]:
    return np.asarray(value, np.uint32).view(np.float32)


PAIRS = {
    "zeros": (_bits(0), _bits(1 << 31)),
    "payloads of NaN": (_bits(0x7FC00000), _bits(0x7FC00001)),
    "signs of NaN": (_bits(0x7FC00000), _bits(0xFFC00000)),
}


@pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS)
def test_numbers_that_are_equal_but_for_their_bits_are_two(first: Any, second: Any) -> None:
    def joined(x: Any) -> Any:
        parts = [command("broadcast_to")(value, shape=(3,), axes=()) for value in (first, second, first)]
        return neg(x), command("concatenate")(*parts, axis=0), *parts

    graph = record(joined, VECTOR)
    for passes in (("fold",), ("fold", "cse"), ("cse", "fold", "simplify", "parts", "cse", "dce")):
        for before, after in zip(evaluate(graph, [X]), evaluate(run(graph, *passes), [X]), strict=True):
            np.testing.assert_array_equal(before.view(np.uint32), after.view(np.uint32))


@pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS)
def test_choices_between_such_numbers_are_made(first: Any, second: Any) -> None:
    spread = [np.broadcast_to(value, (3,)) for value in (first, second)]
    compiled = nnc.compile(lambda c: nnp.where(c, *(nnp.asarray(value) for value in spread)))
    condition = np.asarray([True, False, True])
    found = np.asarray(compiled(condition)).view(np.uint32)
    np.testing.assert_array_equal(found, np.where(condition, *(value.view(np.uint32) for value in spread)))


def test_computed_numbers_that_are_equal_but_for_their_bits_are_two() -> None:
    def signs(x: Any) -> Any:
        zero = full(shape=(3,), dtype=np.dtype("float32"), value=0.0)
        least = full(shape=(3,), dtype=np.dtype("float32"), value=-0.0)
        return add(x, zero), zero, least, neg(zero), neg(least), command("reciprocal")(neg(zero))

    graph = record(signs, VECTOR)
    check_same_bits(graph, run(graph, "fold", "cse", "dce"), [X])


def test_a_number_meets_the_elements_of_a_constant() -> None:
    row = np.asarray([1, 2, 3], np.float32)
    two = {"shape": (3,), "dtype": np.dtype("float32"), "value": 2}
    graph = record(lambda x: add(x, command("sub")(full(**two), mul(row, full(**two)))), VECTOR)
    after = check_after(graph, ["fold", "dce"], [X], 1)
    assert [value.tolist() for value in after.constants.values()] == [[0, -2, -4]]


def test_a_loop_that_never_runs_writes_no_tape_for_its_gradient() -> None:
    def f(x: Any) -> Any:
        n, y = nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, nnp.sin(c[1]) * x), (5, x))
        return nnp.sum(y * n)

    value, gradient = nnc.compile(nnc.value_and_grad(f))(X[:2])
    assert float(value) == 5 and np.asarray(gradient).tolist() == [5, 5]


def test_empty_results_and_reductions_of_empty_tensors_are_numbers() -> None:
    empty, plain = TensorSpec((0, 3), "float32"), np.zeros((0, 3), np.float32)
    total = command("reduce_sum")
    graph = record(lambda x: (exp(neg(x)), total(x, axes=(0,)), command("reduce_prod")(x, axes=(0, 1))), empty)
    after = check_after(graph, ["fold", "dce"], [plain], 2)
    assert set(names(after)) == {"broadcast_to"}
    assert names(run(record(lambda x: total(x, axes=(1,)), VECTOR.update(shape=(0, 3))), "fold")) == ["broadcast_to"]
    assert names(run(record(lambda x: command("det")(x), TensorSpec((0, 0), "float64")), "fold")) == []
    whole = record(lambda x: total(x, axes=(0,)), VECTOR)
    assert names(run(whole, "fold")) == ["reduce_sum"]


def test_empty_results_of_several_outputs_are_numbers() -> None:
    graph = record(lambda x: command("qr")(x), TensorSpec((0, 2, 2), "float64"))
    after = check_after(graph, ["fold", "dce"], [np.zeros((0, 2, 2))], 2)
    assert set(names(after)) == {"broadcast_to"}


def test_a_command_that_refuses_values_runs_for_an_empty_result() -> None:
    f = nnc.compile(lambda x, i: nnp.take(x, i, axis=1))
    with pytest.raises(OutOfBoundsError):
        f(np.zeros((0, 3), np.float32), np.int64(7))
