from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, DTypeError, NncError, OutOfBoundsError, ShapeError
from nnc.graph import Graph, GraphBuilder, Kernel, add_kernel, register
from nnc.graph.rules import Rules
from nnc.run.program import Program

Agree = Callable[..., list[Any]]
Compile = Callable[..., Program]


def ramp(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7 + 1).astype(dtype)


def network() -> Graph:
    """Two layers and a residual, with transposes between."""
    b = GraphBuilder("network")
    x, w, v = b.input((4, 3), "float32"), b.input((5, 3), "float32"), b.input((5, 5), "float32")
    h = b.add("dot", x, b.add("transpose", w, permutation=(1, 0)), contract=((1,), (0,)))
    h = b.add("tanh", b.add("neg", h))
    out = b.add("add", h, b.add("dot", h, v, contract=((1,), (1,))))
    return b.build(out, b.add("reduce_sum", out, axes=(0, 1)))


def test_a_program_agrees_with_its_graph(agree: Agree) -> None:
    agree(network(), ramp(4, 3), ramp(5, 3), ramp(5, 5))


def test_a_traced_training_step_agrees_with_eager_mode(agree: Agree) -> None:
    def step(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = nnc.value_and_grad(lambda w: nnp.mean((nnp.tanh(x @ w) - y) ** 2))(w)
        return w - 0.1 * gradient, loss

    inputs = [ramp(3, 2) / 10, ramp(8, 3) / 10, ramp(8, 2)]
    agree(nnc.make_graph(step)(*inputs), *inputs)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64"])
def test_every_kind_of_dtype_runs(agree: Agree, dtype: str) -> None:
    b = GraphBuilder()
    x = b.input((2, 3), dtype)
    y = b.add("transpose", b.add("mul", b.add("add", x, x), x), permutation=(1, 0))
    agree(b.build(b.add("add", y, y), y), ramp(2, 3).astype(x.dtype))


@pytest.mark.parametrize(
    ("command", "params"),
    [
        ("reshape", {"shape": (6, 4)}),
        ("transpose", {"permutation": (2, 0, 1)}),
        ("slice", {"start": (0, 1, 1), "limit": (2, 3, 4), "stride": (1, 1, 2)}),
        ("slice", {"start": (1, 3, 0), "limit": (1, 3, 4), "stride": (1, 1, 1)}),
        ("flip", {"axes": (0, -1)}),
        ("broadcast_to", {"shape": (2, 3, 4)}),
        ("broadcast_to", {"shape": (2, 5, 3, 4), "axes": (0, 2, 3)}),
    ],
)
def test_views_of_values_arguments_and_results_are_right(agree: Agree, command: str, params: dict[str, Any]) -> None:
    b = GraphBuilder()
    x = b.input((2, 3, 4), "float32")
    s = b.add("add", x, x)
    view = b.add(command, s, **params)
    of_input = b.add(command, x, **params)
    twice = b.add("transpose", view, permutation=tuple(reversed(range(view.spec.ndim))))
    agree(b.build(b.add("neg", view), b.add("exp", of_input), b.add("neg", twice), view, of_input, s), ramp(2, 3, 4))


def test_a_view_runs_as_no_step(compile_graph: Compile) -> None:
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    y = b.add("reshape", b.add("transpose", b.add("exp", x), permutation=(1, 0)), shape=(3, 1, 2))
    program = compile_graph(b.build(b.add("neg", b.add("flip", y, axes=(0,)))))
    assert [step.command.name for step in program.bound.steps] == ["exp", "neg"]


def test_a_reshape_that_no_strides_describe_runs_as_a_copy(agree: Agree, compile_graph: Compile) -> None:
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    flat = b.add("reshape", b.add("transpose", b.add("exp", x), permutation=(1, 0)), shape=(6,))
    graph = b.build(b.add("neg", flat))
    agree(graph, ramp(2, 3))
    assert [step.command.name for step in compile_graph(graph).bound.steps] == ["exp", "reshape", "neg"]


def test_outputs_may_be_inputs_constants_views_and_one_another(agree: Agree) -> None:
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    c = b.constant([1.0, 2.0], "float32")
    s = b.add("add", x, x)
    part = b.add("slice", s, start=(0, 0), limit=(1, 3), stride=(1, 1))
    flat = b.add("reshape", s, shape=(6,))
    t = b.add("transpose", x, permutation=(1, 0))
    agree(b.build(x, x, c, c, s, s, flat, part, t, b.add("neg", s)), ramp(2, 3))


def test_a_graph_may_have_no_nodes_no_inputs_or_no_outputs(agree: Agree) -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    agree(b.build(x), ramp(2))
    agree(b.build(), ramp(2))
    empty = GraphBuilder()
    agree(empty.build(empty.add("full", shape=(2, 2), dtype=np.dtype("float32"), value=3)))
    agree(GraphBuilder().build())


def test_tensors_without_elements_and_without_axes_run(agree: Agree) -> None:
    b = GraphBuilder()
    x, y = b.input((0, 3), "float32"), b.input((), "float32")
    s = b.add("exp", b.add("transpose", b.add("add", x, x), permutation=(1, 0)))
    total = b.add("add", b.add("reduce_sum", s, axes=(0, 1)), y)
    b_y = b.add("broadcast_to", b.add("neg", y), shape=(0, 2))
    agree(b.build(s, b.add("flip", s, axes=(0,)), total, b_y, y), np.zeros((0, 3), "float32"), np.float32(3))


def test_thirty_three_axes_are_ordinary(agree: Agree) -> None:
    b = GraphBuilder()
    x = b.input((2, *(1,) * 31, 3), "float32")
    t = b.add("transpose", b.add("exp", x), permutation=tuple(reversed(range(33))))
    agree(b.build(b.add("neg", t), b.add("reshape", t, shape=(3, 2))), ramp(2, *(1,) * 31, 3))


@pytest.mark.usefixtures("own_registries")
def test_kernels_get_strided_arguments_in_row_major_order(compile_graph: Compile) -> None:
    strides = []

    def run(inputs: Any, outputs: Any, params: Any) -> None:
        strides.append(inputs[0].strides)
        np.copyto(outputs[0], inputs[0])

    add_kernel(register("test_strides", Rules(infer=lambda x: x)), Kernel("mine", run))
    b = GraphBuilder()
    x = b.input((3, 2), "float32")
    program = compile_graph(b.build(b.add("test_strides", x), b.add("neg", b.add("transpose", x, permutation=(1, 0)))))
    whole = ramp(2, 6)
    same, flipped = program.run([whole[:, ::2].T])
    np.testing.assert_array_equal(same, whole[:, ::2].T)
    np.testing.assert_array_equal(flipped, -whole[:, ::2])
    assert strides == [(8, 4)]


def test_kernels_get_constants_at_multiples_of_the_size_of_elements(compile_graph: Compile) -> None:
    b = GraphBuilder()
    two = b.constant(np.frombuffer(b"." + np.full(3, 2.0).tobytes(), np.float64, offset=1))
    assert not b.build(two).constants[two].flags.aligned
    program = compile_graph(b.build(b.add("mul", b.input((3,), "float64"), two)))
    assert [constant.flags.aligned for constant in program.bound.constants] == [True]
    assert program.run([np.arange(3.0)])[0].tolist() == [0, 2, 4]


def test_a_program_holds_no_argument_and_no_result_after_a_call(compile_graph: Compile) -> None:
    program = compile_graph(network())
    inputs = [ramp(4, 3), ramp(5, 3), ramp(5, 5)]
    results = program.run(inputs)
    kept = [weakref.ref(x) for x in (*inputs, *results)]
    del inputs, results
    assert [ref() for ref in kept] == [None] * 5


def test_results_stay_when_the_program_runs_again(compile_graph: Compile) -> None:
    program = compile_graph(network())
    inputs = [ramp(4, 3), ramp(5, 3), ramp(5, 5)]
    first = program.run(inputs)
    kept = [x.copy() for x in first]
    program.run([-x for x in inputs])
    for x, y in zip(first, kept, strict=True):
        np.testing.assert_array_equal(x, y)


def test_threads_share_a_program(compile_graph: Compile) -> None:
    program = compile_graph(network())
    many = [[ramp(4, 3) * k, ramp(5, 3), ramp(5, 5) / k] for k in range(1, 41)]
    expected = [program.run(inputs) for inputs in many]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(program.run, many * 5))
    for results, wanted in zip(found, expected * 5, strict=True):
        for x, y in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(x, y)
    assert len(program.idle) <= 5


def test_a_donated_input_is_overwritten_and_others_are_not(compile_graph: Compile) -> None:
    b = GraphBuilder()
    x, y = b.input((4,), "float32"), b.input((4,), "float32")
    program = compile_graph(b.build(b.add("add", x, y)), donated=(0,))
    given, kept = ramp(4), ramp(4)
    (result,) = program.run([given, kept])
    assert result is given
    np.testing.assert_array_equal(result, 2 * kept)
    assert program.memory_plan.peak == 0


def test_a_donated_input_in_which_only_a_loop_counts_is_overwritten_too(compile_graph: Compile) -> None:
    inner = GraphBuilder("round")
    _, x, limit = (inner.input((), dtype) for dtype in ("int64", "float64", "float64"))
    b = GraphBuilder()
    taken, start = b.input((), "int64"), b.input((), "float64")
    graph = inner.build(inner.add("less", x, limit), inner.add("add", x, x))
    x, iterations = b.add("while", start, b.constant(100.0, "float64"), graphs=(graph,), carries=1, before=1)
    program = compile_graph(b.build(iterations, x, taken), donated=(0,))
    frozen = np.asarray(3)
    frozen.flags.writeable = False
    assert [int(x) for x in program.run([frozen, np.asarray(1.0)])] == [7, 128, 3]
    program = compile_graph(b.build(iterations, x), donated=(0,))
    assert program.bound.donated == (0,)
    assert [int(x) for x in program.run([frozen, np.asarray(1.0)])] == [7, 128]
    assert frozen == 3


def test_a_donated_input_that_cannot_be_overwritten_is_copied(compile_graph: Compile) -> None:
    b = GraphBuilder()
    x, y = b.input((4,), "float32"), b.input((4,), "float32")
    s = b.add("add", x, y)
    program = compile_graph(b.build(b.add("mul", s, y)), donated=(0,))
    shared = ramp(4)
    (result,) = program.run([shared, shared])
    np.testing.assert_array_equal(shared, ramp(4))
    np.testing.assert_array_equal(result, 2 * ramp(4) ** 2)
    shared.flags.writeable = False
    np.testing.assert_array_equal(program.run([shared, ramp(4)])[0], 2 * ramp(4) ** 2)


@pytest.mark.parametrize("seed", range(20))
def test_of_donated_inputs_those_are_copied_that_share_memory(compile_graph: Compile, seed: int) -> None:
    b = GraphBuilder()
    inputs = [b.input((n,), "float32") for n in (4, 0, 3, 2, 4)]
    program = compile_graph(b.build(*(b.add("neg", x) for x in inputs)), donated=(0, 2, 3, 4))
    draw = np.random.default_rng(seed)
    memory = ramp(30)
    given = [memory[i : i + x.shape[0]] for x, i in zip(inputs, draw.integers(0, 26, len(inputs)), strict=True)]
    before = memory.copy()
    results = program.run(given)
    for i, x in enumerate(given):
        expected = before[x.__array_interface__["data"][0] - memory.__array_interface__["data"][0] >> 2 :][: len(x)]
        np.testing.assert_array_equal(results[i], -expected)
        if any(np.may_share_memory(x, y) for j, y in enumerate(given) if j != i):
            np.testing.assert_array_equal(x, expected)
        elif i in program.bound.donated and len(x):
            assert results[i].ctypes.data == x.ctypes.data


def test_inputs_of_another_number_shape_or_dtype_are_refused(compile_graph: Compile) -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    program = compile_graph(b.build(b.add("neg", x)))
    with pytest.raises(ArgumentError, match="takes 1 inputs, 2"):
        program.run([ramp(2), ramp(2)])
    with pytest.raises(ShapeError, match="input 0"):
        program.run([ramp(3)])
    with pytest.raises(DTypeError, match="input 0"):
        program.run([ramp(2, dtype="float64")])


@pytest.mark.usefixtures("own_registries")
def test_an_error_of_a_kernel_names_the_line_that_made_the_step(compile_graph: Compile) -> None:
    def fail(x: Any) -> Any:
        if x[0] > 1:
            raise nnc.errors.user_error(OutOfBoundsError, "picky", "too large.", fix="pass less.")
        return x

    register("test_picky", Rules(infer=lambda x: x, reference=fail))
    b = GraphBuilder()
    x = b.input((2,), "float32")
    y = b.add("test_picky", x)  # the line to be named
    program = compile_graph(b.build(b.add("neg", y)))
    with pytest.raises(OutOfBoundsError, match="the line to be named") as caught:
        program.run([ramp(2) + 1])
    assert isinstance(caught.value, NncError)
    np.testing.assert_array_equal(program.run([ramp(2) * 0])[0], np.zeros(2))  # the arena is usable again


@pytest.mark.usefixtures("own_registries")
def test_the_kernel_of_the_best_backend_runs(compile_graph: Compile) -> None:
    def run(inputs: Any, outputs: Any, params: Any) -> None:
        np.multiply(inputs[0], 3, out=outputs[0])

    triple = register("test_triple", Rules(infer=lambda x: x, reference=lambda x: x * 3))
    add_kernel(triple, Kernel("mine", run, lambda specs, params: specs[0].dtype == np.float32))
    for dtype, backend in (("float32", "mine"), ("float64", "numpy")):
        b = GraphBuilder()
        program = compile_graph(b.build(b.add("test_triple", b.input((2,), dtype))))
        assert program.kernel_of(program.bound.steps[0]).backend == backend
        np.testing.assert_array_equal(program.run([ramp(2, dtype=dtype)])[0], 3 * ramp(2))


@pytest.mark.usefixtures("own_registries")
def test_a_kernel_gets_the_workspace_that_it_asks_for_from_the_plan(compile_graph: Compile) -> None:
    given = []

    def run(inputs: Any, outputs: Any, params: Any) -> None:
        result, workspace = outputs
        given.append((workspace.dtype, workspace.size))
        workspace[...] = 255  # all of it is the kernel's own
        np.copyto(result, inputs[0] + 1)

    add_kernel(
        register("test_needy", Rules(infer=lambda x: x)),
        Kernel("mine", run, workspace=lambda specs, params: 100 * specs[0].nbytes),
    )
    b = GraphBuilder()
    x = b.input((2,), "float64")
    y = b.add("test_needy", b.add("neg", x))
    program = compile_graph(b.build(b.add("mul", b.add("test_needy", y), y)))
    np.testing.assert_array_equal(program.run([np.array([1.0, 3.0])])[0], [0, 2])
    assert given == [(np.uint8, 1600)] * 2
    rows = [row for row in program.memory_plan.rows if row.name == "workspace of test_needy"]
    assert [(row.size, row.last - row.first, row.offset) for row in rows] == [(1600, 0, rows[0].offset)] * 2
    assert program.memory_plan.arena_bytes < 2 * 1600


@pytest.mark.usefixtures("own_registries")
def test_a_command_that_owns_sub_graphs_runs_through_its_reference(agree: Agree) -> None:
    inner = GraphBuilder("inner")
    u = inner.input((2, 3), "float32")
    graph = inner.build(inner.add("exp", u), inner.add("transpose", u, permutation=(1, 0)))
    register(
        "test_twice", Rules(
            infer=lambda *specs, graphs: graphs[0].output_specs,
            reference=lambda *arrays, graphs, run: run(graphs[0], arrays),
        ), arity=None, outputs=None,
    )  # fmt: skip
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    y, z = b.add("test_twice", b.add("neg", x), graphs=(graph,))
    agree(b.build(b.add("neg", y), z), ramp(2, 3))


def test_the_text_shows_buffers_steps_and_backends(compile_graph: Compile) -> None:
    text = str(compile_graph(network()))
    assert "program network: 6 steps" in text
    assert "tanh(" in text
    assert "[numpy]" in text
    assert "test_program.py" in text
