"""Kernels that become one launch compute the same bits as one by one, at a known cost of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.fused import _native_many
from nnc.backends.loaded import choose_kernel, compiler
from nnc.commands.control import fused_many
from nnc.errors import NncError
from nnc.graph import Graph, GraphBuilder, Node, Symbol, TensorSpec, infer_specs, run_passes
from nnc.lower.phases import BEFORE_FUSION, names_of
from nnc.lower.pipeline import lower
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Step, View
from nnc.lower.program.program import Program
from nnc.options import Options
from tests.lower.passes.tools import check_same_bits, evaluate, names, record, run

NDArray = np.ndarray[Any, Any]
VERIFIED = Options(verify_passes=True)
PASSES = (*names_of(BEFORE_FUSION), "fuse", "join_kernels")


@contextmanager
def one_by_one() -> Iterator[None]:
    """Kernels are not joined in the block."""
    pipeline = sys.modules["nnc.lower.pipeline"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "JOIN", pipeline.JOIN.without("join_kernels"))
        yield


def program(graph: Graph, **options: Any) -> Program:
    return lower(graph, VERIFIED.update(**options), choose_kernel, compiler())


def apart(graph: Graph, **options: Any) -> Program:
    with one_by_one():
        return program(graph, **options)


def joined(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.command is fused_many]


def check_programs(graph: Graph, inputs: Sequence[NDArray], **options: Any) -> None:
    """Compiled, the graph computes the same bits whether kernels are joined or not."""
    wanted = apart(graph, **options).run([x.copy() for x in inputs])
    for x, y in zip(program(graph, **options).run([x.copy() for x in inputs]), wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)


def resnet(blocks: int = 53) -> dict[str, NDArray]:
    """Three parameters for each block, and one: a small kernel, a scale and an offset."""
    rng = np.random.default_rng(0)
    params: dict[str, NDArray] = {"out": rng.normal(size=(10, 33)).astype(np.float32)}
    for i in range(blocks):
        width = 8 + 3 * (i // 4)
        params |= {
            f"w{i}": rng.normal(size=(width, 8, 3, 3)),
            f"g{i}": rng.normal(size=width),
            f"b{i}": rng.normal(size=width),
        }
    return {name: x.astype(np.float32) for name, x in params.items()}


def update(optimizer: Any, params: Any) -> tuple[Graph, list[NDArray], int]:
    """The graph of an optimizer's step, its arguments, and how many leaves parameters and state have."""

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return nnc.optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    leaves = [np.array(x) for x in nnc.tree.flatten((params, state, params))[0]]
    return nnc.make_graph(step)(params, state, params), leaves, len(leaves) - len(params)


OPTIMIZERS = {"sgd": nnc.optim.sgd(0.1), "momentum": nnc.optim.sgd(0.1, momentum=0.9), "adam": nnc.optim.adam(1e-3)}


# -- an optimizer's step -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_over_160_parameters_is_one_launch(name: str) -> None:
    params = resnet()
    assert len(params) == 160
    graph, _, _ = update(OPTIMIZERS[name], params)
    after = run_passes(graph, PASSES, Options(), verify=True)
    (node,) = joined(after)
    assert len(node.graphs) == 160
    assert names(after).count("fused") == (1 if name == "adam" else 0)  # the corrections of the bias


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_step_computes_the_same_bits_as_a_launch_for_each(name: str) -> None:
    graph, leaves, given_away = update(OPTIMIZERS[name], resnet(6))
    check_programs(graph, leaves)
    check_programs(graph, leaves, donated=tuple(range(given_away)))


def test_parameters_that_are_given_away_are_updated_in_place() -> None:
    graph, leaves, given_away = update(OPTIMIZERS["adam"], resnet(6))
    made = program(graph, donated=tuple(range(given_away)))
    assert set(made.bound.donated) == set(range(given_away))
    assert made.planned.peak == apart(graph, donated=tuple(range(given_away))).planned.peak < 1000
    results = made.run(leaves)
    assert all(any(np.shares_memory(x, y) for y in leaves[:given_away]) for x in results)


def test_a_step_in_the_rounds_of_a_loop_is_one_launch_of_each_round() -> None:
    optimizer, params = OPTIMIZERS["momentum"], resnet(6)

    def train(params: Any, state: Any, grads: Any) -> Any:
        def step(_: Any, carried: Any) -> Any:
            updates, state = optimizer.update(grads, carried[1], carried[0])
            return nnc.optim.apply_updates(carried[0], updates), state

        return nnc.fori_loop(0, 7, step, (params, state))

    arguments = params, optimizer.init(params), params
    graph = nnc.make_graph(train)(*arguments)
    (loop,) = (node for node in run_passes(graph, PASSES, Options(), verify=True).nodes if node.graphs)
    assert [len(node.graphs) for node in joined(loop.graphs[0])] == [19]
    check_programs(graph, [np.array(x) for x in nnc.tree.flatten(arguments)[0]])


def test_rows_are_read_and_written_where_they_lie() -> None:
    def f(xs: Any, ys: Any) -> Any:
        return nnc.scan(lambda carried, row: (carried, (nnp.exp(row[0]), nnp.exp(row[1]))), nnp.zeros(()), (xs, ys))[1]

    arguments = [np.linspace(0, 1, 5 * n, dtype=np.float32).reshape(5, n) for n in (3, 40)]
    graph = nnc.make_graph(f)(*arguments)
    made = program(graph)
    (step,) = (step for step in walk(made.bound.steps) if step.command is fused_many)
    assert all(view.rounds for view in (*step.inputs, *step.outputs))
    check_programs(graph, arguments)


def test_nothing_is_joined_across_the_test_of_a_loop() -> None:
    def f(x: Any, y: Any) -> Any:
        return nnc.while_loop(
            lambda c: nnp.sum(nnp.sort(nnp.exp(c[0]))) < 50, lambda c: (c[0] + 1, nnp.exp(c[1])), (x, y)
        )

    x, y = np.zeros(5, np.float32), np.zeros(7, np.float32)
    graph = nnc.make_graph(f)(x, y)
    (loop,) = (node for node in run_passes(graph, PASSES, Options(), verify=True).nodes if node.graphs)
    assert not joined(loop.graphs[0])
    check_programs(graph, [x, y])


# -- which kernels wait, and for how long -----------------------------------------------------------------------------------------


def vectors(*lengths: int) -> list[TensorSpec]:
    return [TensorSpec((n,), np.dtype(np.float32)) for n in lengths]


def command(b: str, *operands: Any, **params: Any) -> Any:
    return nnc.graph.command(b)(*operands, **params)


def exp(x: Any) -> Any:
    return command("exp", x)


def turned(x: Any) -> Any:
    """A node that is no kernel of a fused graph."""
    return command("cumsum", x, axis=0)


def test_kernels_join_in_the_place_of_the_last() -> None:
    graph = record(lambda x, y, z: (exp(x), exp(turned(y)), exp(z)), *vectors(2000, 2, 3000))
    after = run(graph, "fuse", "join_kernels")
    assert names(after) == ["cumsum", "fused_many"]
    check_same_bits(graph, after, [np.linspace(0, 1, n, dtype=np.float32) for n in (2000, 2, 3000)])


def test_who_reads_a_result_does_not_wait() -> None:
    graph = record(lambda x, y: (turned(exp(x)), exp(y)), *vectors(5, 6))
    assert names(run(graph, "fuse", "join_kernels")) == ["fused", "cumsum", "fused"]


def test_a_view_of_a_result_stands_behind_it() -> None:
    def f(x: Any, y: Any) -> Any:
        part = command("slice", exp(x), start=(1,), limit=(3,), stride=(1,))
        return part, exp(y)

    graph = record(f, *vectors(5, 6))
    after = run(graph, "fuse", "join_kernels")
    assert names(after) == ["fused", "slice", "fused"]


def test_a_kernel_does_not_wait_for_one_that_reads_the_same() -> None:
    """The second is the last reader of x, and may write over it."""
    graph = record(lambda x, y: (exp(x), turned(y), exp(command("flip", x, axes=(0,))), exp(y)), *vectors(5, 6))
    after = run(graph, "fuse", "join_kernels")
    assert all(len(node.graphs) == 2 for node in joined(after))
    for node in joined(after):
        assert len(set(node.inputs)) == 2


def test_operands_that_would_be_kept_too_long_are_not() -> None:
    """Each kernel reads the result of a node before it; of the large ones none may wait."""

    def f(*xs: Any) -> Any:
        return tuple(exp(turned(x)) for x in xs)

    large = record(f, *vectors(20_000, 20_000, 20_000))
    assert names(run(large, "fuse", "join_kernels")) == ["cumsum", "fused"] * 3
    mixed = record(f, *vectors(200, 500_000, 300))
    after = run(mixed, "fuse", "join_kernels")
    assert names(after) == ["cumsum", "cumsum", "fused", "cumsum", "fused_many"]
    assert program(mixed).planned.peak <= 1.01 * apart(mixed).planned.peak


def test_what_waits_may_not_raise_the_peak() -> None:
    """60 kB wait before and behind the largest node, whose 2 MB are the peak, but not while it runs."""

    def f(*xs: Any) -> Any:
        return tuple(turned(exp(turned(x))) if x.spec.size > 2000 else exp(turned(x)) for x in xs)

    graph = record(f, *vectors(*[1500] * 10, 500_000, *[1500] * 10))
    assert [len(node.graphs) for node in joined(run(graph, "fuse", "join_kernels"))] == [10, 10]
    assert program(graph).planned.peak <= 1.01 * apart(graph).planned.peak


def test_without_compiled_programs_nothing_is_joined() -> None:
    graph = run(record(lambda x, y: (exp(x), exp(y)), *vectors(5, 6)), "fuse")
    assert run_passes(graph, ("join_kernels",), Options(native=False)).nodes == graph.nodes


def test_the_command_takes_the_operands_of_its_graphs_one_after_the_other() -> None:
    graph = run(record(lambda x, y: (exp(x), exp(y)), *vectors(5, 6)), "fuse", "join_kernels")
    (node,) = joined(graph)
    five, six = vectors(5, 6)
    assert infer_specs(fused_many, (five, six), node.params, node.graphs) == (five, six)
    for wrong in ((six, five), (five,), (five, six, six)):
        with pytest.raises(NncError, match="its graph"):
            infer_specs(fused_many, wrong, node.params, node.graphs)


# -- the kernel ----------------------------------------------------------------------------------------------------------

LENGTHS = [*range(1, 20), *range(30, 36), *range(63, 67), 1023, 1024, 1025, 2047, 4999, 5000]


def mixture(x: Any, y: Any, s: Any) -> Any:
    """Two results of two vectors and a single value."""
    wide = command("broadcast_to", s, shape=x.shape)
    both = command("add", command("mul", x, wide), y)
    return both, command("tanh", both)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_members_of_any_length_compute_what_the_reference_does(dtype: str) -> None:
    specs = [TensorSpec((n,), np.dtype(dtype)) for n in LENGTHS for _ in range(2)]
    graph = record(
        lambda s, *xs: tuple(out for x, y in zip(xs[::2], xs[1::2], strict=True) for out in mixture(x, y, s)),
        TensorSpec((), np.dtype(dtype)),
        *specs,
    )
    (node,) = joined(run(graph, "fuse", "join_kernels"))
    assert len(node.graphs) == len(LENGTHS) - 1  # a single value is computed elsewhere
    rng = np.random.default_rng(1)
    inputs = [np.asarray(1.5, dtype), *(rng.normal(size=spec.shape).astype(dtype) for spec in specs)]
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    for x, y in zip(program(graph).run(inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=tolerance, atol=tolerance)


def test_the_kernel_is_printed_once_for_any_lengths_and_any_number() -> None:
    def native(lengths: Sequence[int]) -> Any:
        graph = record(lambda *xs: tuple(map(exp, xs)), *vectors(*lengths))
        (node,) = joined(run(graph, "fuse", "join_kernels"))
        views = [View.whole(i, s.spec) for i, s in enumerate((*node.inputs, *node.outputs))]
        n = len(node.inputs)
        return _native_many(Step(node.command, tuple(views[:n]), tuple(views[n:]), node.params, node.graphs))

    first, second = native([2, 3]), native([5000, 17, 100])
    assert first.text == second.text and first.packed
    assert second.numbers[0] == 3 and second.numbers[2::2] == (5000, 17, 100)


def test_work_of_many_members_is_dealt_out_to_threads() -> None:
    lengths = [3000 + 7 * i for i in range(150)]
    graph = record(lambda *xs: tuple(map(exp, xs)), *vectors(*lengths))
    inputs = [np.linspace(-1, 1, n, dtype=np.float32) for n in lengths]
    number = nnc.set_num_threads(3)  # their parts begin and end within members
    try:
        check_programs(graph, inputs)
        check_programs(graph, inputs, streams=2)
    finally:
        nnc.set_num_threads(number)


def test_results_that_lie_in_columns_of_another_tensor_are_written_there() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return command("concatenate", exp(x), exp(y), exp(z), axis=1)

    graph = record(f, *(TensorSpec((40, n), np.dtype(np.float32)) for n in (30, 50, 30)))
    inputs = [np.linspace(0, 1, 40 * n, dtype=np.float32).reshape(40, n) for n in (30, 50, 30)]
    after = run(graph, "fuse", "join_kernels")
    assert names(after) == ["fused_many", "concatenate"]
    made = program(graph)
    (step,) = (step for step in made.bound.steps if step.command is fused_many)
    assert not any(view.is_dense for view in step.outputs)
    assert len(made.bound.steps) == 1
    check_programs(graph, inputs)


def test_a_stored_program_is_as_good_as_a_new_one(tmp_path: Path) -> None:
    graph, leaves, _ = update(OPTIMIZERS["sgd"], resnet(3))
    options = Options(cache_folder=tmp_path)
    first = lower(graph, options, choose_kernel, compiler()).run(leaves)
    again = lower(graph, options, choose_kernel, compiler())
    assert again.code is not None and any(native.packed for native in again.code.natives.values())
    for x, y in zip(first, again.run(leaves), strict=True):
        np.testing.assert_array_equal(x, y)


# -- random graphs -------------------------------------------------------------------------------------------------------

SHAPES = ((2,), (3,), (17,), (4, 5), (1,), (2, 1030), ())


def append(draw: Any, b: GraphBuilder, x: Symbol, pool: list[Symbol]) -> Symbol:
    """A new node that reads `x`."""
    name = draw(st.sampled_from(["exp", "exp", "sgd", "sgd", "cumsum", "transpose", "reshape", "slice", "concatenate"]))
    ndim = x.spec.ndim
    if name == "sgd":
        alike = [y for y in pool if y.spec == x.spec]
        return b.add("sub", x, b.add("mul", draw(st.sampled_from(alike)), draw(st.sampled_from(alike))))
    if name == "cumsum" and ndim:
        return b.add(name, x, axis=0)
    if name == "transpose":
        return b.add(name, x, permutation=tuple(reversed(range(ndim))))
    if name == "reshape":
        return b.add(name, x, shape=(x.spec.size,))
    if name == "slice" and ndim:
        return b.add(name, x, start=(0,) * ndim, limit=(max(x.shape[0] - 1, 1), *x.shape[1:]), stride=(1,) * ndim)
    if name == "concatenate" and ndim:
        return b.add(name, x, b.add("sin", x), axis=ndim - 1)
    return b.add("sin", x)


@st.composite
def graphs(draw: Any) -> Graph:
    b = GraphBuilder("random")
    pool = [b.input(shape, "float32") for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=2, max_size=8))]
    for _ in range(draw(st.integers(2, 24))):
        new = append(draw, b, draw(st.sampled_from(pool)), pool)
        if new.spec.size <= 10_000:
            pool.append(new)
    return b.build(*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=8)))


@given(graphs(), st.sets(st.integers(0, 7)))
def test_random_graphs_compute_the_same_bits(graph: Graph, donated: set[int]) -> None:
    rng = np.random.default_rng(len(graph.nodes))
    inputs = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    check_same_bits(graph, run(graph, "fuse", "join_kernels"), inputs)
    check_programs(graph, inputs, donated=tuple(sorted(i for i in donated if i < len(inputs))))
