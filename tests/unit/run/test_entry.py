"""Programs as machine code: they compute, fail and are interrupted as they do when all steps run from Python."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import ArgumentError, InternalError, OutOfBoundsError, user_error
from nnc.graph import Graph, GraphBuilder, Kernel, Symbol, add_kernel, register
from nnc.graph.rules import Rules
from nnc.lower.kernels.native import Native
from nnc.lower.phases import FUSE, ORDER, PACK
from nnc.run.program import Program
from tests.fuzz.programs.test_graphs_of_loops import arguments, graphs
from tests.unit.lower.kernels.kernels import ELEMENTWISE, chooser, elementwise, jit, lower_twice
from tests.unit.lower.plan.schedule.tools import Delays, two_chains

ONE = np.asarray(1.0)


@pytest.fixture(autouse=True)
def plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of one step for each command: their execution is tested here, not how commands become kernels."""
    pipeline = sys.modules["nnc.compiled.pipeline"]
    monkeypatch.setattr(pipeline, "PLACING", (ORDER.without("prefuse"), PACK))
    monkeypatch.setattr(pipeline, "FUSE", FUSE.without("fuse"))


def same(program: Program, oracle: Program, *inputs: Any) -> None:
    """Both give the same values, also the second time, and leave the inputs as they are."""
    expected = oracle.run([x.copy() for x in inputs])
    for _ in range(2):
        arrays = [x.copy() for x in inputs]
        for x, y in zip(program.run(arrays), expected, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
        for i, (x, y) in enumerate(zip(arrays, inputs, strict=True)):
            assert i in program.bound.donated or np.array_equal(x, y)


@contextmanager
def calls() -> Iterator[list[str]]:
    """The names of all functions of Python that begin within the block."""
    found: list[str] = []
    sys.setprofile(lambda frame, event, _: found.append(frame.f_code.co_name) if event == "call" else None)
    try:
        yield found
    finally:
        sys.setprofile(None)


# -- values --------------------------------------------------------------------------------------------------------------


@given(graphs(), st.sets(st.integers(0, 6)), st.sets(st.sampled_from(sorted(ELEMENTWISE))), st.sampled_from([1, 2]))
def test_random_loops_and_branches_agree_with_runs_from_python(
    graph: Graph, donated: set[int], names: set[str], streams: int
) -> None:
    note(str(graph))
    program, oracle = lower_twice(graph, names | {"copy"}, donated=tuple(sorted(donated)), streams=streams)
    assert oracle.code is None
    for iterations in (0, 1, 3):
        same(program, oracle, *arguments(graph, iterations))


def test_each_step_by_itself_computes_the_same() -> None:
    program, oracle = lower_twice(two_chains(iterations=2, size=4), streams=2)
    inputs = [np.full((4, 4), 0.1), np.full((4, 4), 0.2)]
    assert len(program.schedule.streams) == 2
    delays = Delays(0)
    same(program, oracle, *inputs)
    same(program.watched(delays), oracle, *inputs)
    assert {position for _, position in delays.ran} == set(range(len(program.bound.steps)))


def test_a_program_of_many_steps_is_made_of_several_functions() -> None:
    b = GraphBuilder()
    x, y = b.input((2,), "float64"), b.input((2,), "float64")
    z = x
    for _ in range(150):
        z = b.add("minimum", b.add("add", z, y), b.add("neg", z))
    program, oracle = lower_twice(b.build(z))
    assert len(program.bound.steps) > 200
    same(program, oracle, np.array([0.5, -2]), np.array([0.1, 3]))


# -- loops ---------------------------------------------------------------------------------------------------------------


def counting(iterations: int, **params: Any) -> Graph:
    """A loop of so many iterations, whose steps all have compiled kernels."""

    def function(x: Any) -> Any:
        return nnc.while_loop(
            lambda c: c[0] < iterations, lambda c: (c[0] + 1, c[1] * 0.5 + 1.0), (nnp.asarray(0), x), **params
        )

    return nnc.make_graph(function)(ONE)


def test_a_million_rounds_run_without_python() -> None:
    program, _ = lower_twice(counting(10**6))
    program.run([ONE])
    with calls() as found:
        count, x = program.run([ONE])
    assert (count, x) == (10**6, 2)
    assert (
        found[:4] == ["run", "run", "check_memory", "_execute"] and len(found) == 6
    )  # of program and frame; the end of the block


def test_python_knows_the_round_after_a_loop_within_it() -> None:
    def body(pair: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        a, b = pair
        c = nnc.fori_loop(0, 3, lambda _, c: c + x, a)
        return (b, c), -c  # changes places: the program holds the round twice

    xs = np.arange(4.0)
    graph = nnc.make_graph(lambda a, b, xs: nnc.scan(body, (a, b), xs))(ONE, ONE, xs)
    same(*lower_twice(graph, ["add", "copy"]), ONE, ONE, xs)  # `neg` runs in Python, and writes its row


def test_a_loop_that_takes_long_lets_python_look_for_interrupts() -> None:
    program, _ = lower_twice(counting(10**7))
    with calls() as found:
        program.run([ONE])
    assert 1 <= found.count("serve") < 100


def test_a_loop_that_is_too_long_fails_as_it_does_from_python() -> None:
    program, oracle = lower_twice(counting(10, max_steps=9))
    for _ in range(2):
        messages = []
        for each in (program, oracle):
            with pytest.raises(ArgumentError, match="still holds after max_steps=9") as caught:
                each.run([ONE])
            messages.append(str(caught.value).splitlines()[0])
        assert messages[0] == messages[1]
    within, oracle = lower_twice(counting(9, max_steps=9))
    same(within, oracle, ONE)


def test_an_index_without_a_branch_fails_as_it_does_from_python() -> None:
    def function(i: Any, x: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda k, x: nnc.switch(i - k, [lambda x: -x, lambda x: x + x], x), x)

    i = np.asarray(1)
    program, oracle = lower_twice(nnc.make_graph(function)(i, ONE))
    for _ in range(2):
        messages = []
        for each in (program, oracle):
            with pytest.raises(OutOfBoundsError, match="index -1 is out of range for 2 branches") as caught:
                each.run([i, ONE])
            messages.append(str(caught.value).splitlines()[0])
        assert messages[0] == messages[1]


@pytest.mark.parametrize("short", [True, False])
def test_programs_hold_short_kernels_themselves(short: bool) -> None:
    b = GraphBuilder("held")
    x = b.input((3,), "float64")
    graph = b.build(b.add("mul", b.add("add", x, x), x))
    choose = chooser({name: lambda step: elementwise(step, inline=short) for name in ELEMENTWISE})
    program, oracle = lower(graph, Options(), choose, jit()), lower(graph, Options(), choose)
    same(program, oracle, np.arange(3.0))
    assert program.code is not None
    text = program.code.printed[False].text
    kernels = {native.name for native in program.code.natives.values()}
    assert {native.name for native in text.held} == (kernels if short else set())
    assert kernels.isdisjoint(native.name for native in text.called) is short
    assert all((f"define internal i64 @{name}(" in text.text) is short for name in kernels)


# -- errors --------------------------------------------------------------------------------------------------------------


def refusing(step: Any) -> Native:
    """A kernel of one number that refuses numbers above the parameter `limit`."""
    text = f"""define i64 @KERNEL(ptr %in0, ptr %out0) {{
  %x = load double, ptr %in0
  %refused = fcmp ogt double %x, {float(step.params["limit"]):.6e}
  %status = zext i1 %refused to i64
  br i1 %refused, label %end, label %write
write:
  store double %x, ptr %out0
  br label %end
end:
  ret i64 %status
}}
"""
    return Native(text, inline=True)


def picky(limit: float, lenient: bool = False) -> tuple[Graph, Callable[..., Any]]:
    """A loop with a step that refuses numbers above `limit`; its reference does not if `lenient`."""

    def fail(x: Any, *, limit: float) -> Any:
        if x > limit and not lenient:
            raise user_error(OutOfBoundsError, "picky", f"{x} is above {limit}.", fix="pass less.")
        return x

    register("test_picky", Rules(infer=lambda x, limit: x, reference=fail))
    inner = GraphBuilder("round")
    _, x = inner.input((), "int64"), inner.input((), "float64")
    y = inner.add("test_picky", inner.add("add", x, x), limit=limit)  # the line to be named
    b = GraphBuilder("picky")
    (total,) = b.add("scan", b.input((), "float64"), graphs=(inner.build(y),), xs=0, carries=1, length=20)
    return b.build(total), refusing


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("compiled", [True, False])
def test_an_error_of_a_step_in_a_loop_names_the_users_line_and_leaves_the_program_usable(compiled: bool) -> None:
    graph, native = picky(100.0)
    kernels = {"add": elementwise, "test_picky": native} if compiled else {"add": elementwise}
    program = lower(graph, Options(), chooser(kernels), jit())
    oracle = lower(graph, Options(), chooser(kernels))
    for _ in range(2):
        messages = []
        for each in (program, oracle):
            with pytest.raises(OutOfBoundsError, match=r"(?s)128\.0 is above 100\.0.*the line to be named") as caught:
                each.run([ONE])
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert program.run([np.asarray(0.0)])[0] == 0


@pytest.mark.usefixtures("own_registries")
def test_a_kernel_that_refuses_operands_of_its_reference_is_a_bug() -> None:
    graph, native = picky(100.0, lenient=True)
    program = lower(graph, Options(), chooser({"test_picky": native}), jit())
    with pytest.raises(InternalError, match="test_picky"):
        program.run([ONE])


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("streams", [1, 2])
def test_an_interrupt_within_a_callback_ends_the_call(streams: int) -> None:
    seen: list[float] = []

    def interrupt(x: Any) -> Any:
        seen.append(float(x))
        if x > 2:
            raise KeyboardInterrupt
        return x

    register("test_interrupt", Rules(infer=lambda x: x, reference=interrupt))
    b = GraphBuilder()
    x = b.input((), "float64")
    y = b.add("add", b.add("test_interrupt", b.add("add", x, x)), x)
    z = b.add("test_interrupt", b.add("add", y, y))
    program, _ = lower_twice(b.build(b.add("neg", z)), streams=streams)
    assert program.code is not None
    with pytest.raises(KeyboardInterrupt):
        program.run([ONE])
    assert seen == [2, 6]
    assert program.run([ONE * 0])[0] == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends a signal")
@pytest.mark.parametrize("calls_python", [False, True])
def test_an_error_of_a_signal_handler_during_a_long_loop_ends_the_call(calls_python: bool) -> None:
    seen: list[float] = []

    def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
        i, x = state
        if calls_python:
            nnc.cond(i % 5000 == 0, lambda: nnc.debug.callback(lambda i: seen.append(i.item()), i), lambda: None)
        return i + 1, nnp.sin(x) + 1

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"after {number}")

    run = nnc.compile(lambda n: nnc.while_loop(lambda state: state[0] < n, body, (0, 0.5))[0])
    assert run(3) == 3
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(TimeoutError, match="after"):
                run(10**10)
            assert run(4) == 4
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert bool(seen) == calls_python


def test_a_failed_call_holds_none_of_its_arrays() -> None:
    i, x = np.asarray(5), np.asarray(2.0)
    program, _ = lower_twice(nnc.make_graph(lambda i, x: nnc.switch(i, [lambda x: -x, lambda x: x + x], x))(i, x))
    kept = [weakref.ref(i), weakref.ref(x)]
    gc.disable()
    try:
        with pytest.raises(OutOfBoundsError):
            program.run([i, x])
        del i, x
        assert [ref() for ref in kept] == [None, None]
    finally:
        gc.enable()


# -- arguments -----------------------------------------------------------------------------------------------------------


def pair(**changes: Any) -> tuple[Program, Program]:
    b = GraphBuilder()
    x, y = b.input((4,), "float32"), b.input((4,), "float32")
    return lower_twice(b.build(b.add("add", x, y), b.add("neg", b.add("mul", x, y))), **changes)


@pytest.mark.parametrize("donated", [(), (0,), (0, 1)])
def test_arrays_of_any_layout_are_taken_as_they_are_from_python(donated: tuple[int, ...]) -> None:
    class Mine(np.ndarray[Any, Any]):
        pass

    x = np.arange(1, 5, dtype=np.float32)
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    frozen = x.copy()
    frozen.flags.writeable = False
    own_dtype = x.view(np.dtype(np.float32, metadata={"unit": "m"}))
    wide = np.zeros(6, np.float32)
    program, oracle = pair(donated=donated)
    for arrays in (
        (x, x + 1), (x, x), (np.repeat(x, 2)[::2], x), (odd, x), (frozen, x), (x, x.view(Mine)), (own_dtype, x), (x[::-1], x),
        (wide[:4], wide[2:]), (wide[2:], wide[:4]), (wide[:4], wide[:4]),
    ):  # fmt: skip
        before = [np.array(x) for x in arrays]
        expected = oracle.run(before if not donated else [x.copy() for x in before])
        for result, wanted in zip(program.run(arrays), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        may_change = [
            i in donated and x.flags.writeable and not np.may_share_memory(*arrays) for i, x in enumerate(arrays)
        ]
        for x, y, changes in zip(arrays, before, may_change, strict=True):
            assert changes or np.array_equal(x, y)
            if changes:
                x[...] = y


def test_inputs_that_do_not_fit_are_refused_as_they_are_from_python() -> None:
    x = np.ones(4, np.float32)
    for arrays in (
        [x],
        [x, x, x],
        [x, x[:3]],
        [x, x.reshape(2, 2)],
        [x.astype(np.float64), x],
        [x, x.astype(">f4")],
        [],
    ):
        messages = []
        for each in pair():
            with pytest.raises((ValueError, TypeError)) as caught:
                each.run(arrays)
            messages.append(str(caught.value).splitlines()[0])
        assert messages[0] == messages[1]


def test_arguments_and_results_belong_to_nobody_else_after_a_call() -> None:
    program, _ = pair()
    x = np.ones(4, np.float32)
    results = program.run([x, x + 1])
    assert all(y.base is None and y.flags.owndata for y in results)
    kept = [weakref.ref(y) for y in (x, *results)]
    del x, results
    assert [ref() for ref in kept] == [None] * 3


def test_eight_threads_call_one_program() -> None:
    program, oracle = lower_twice(counting(1000))
    many = [[np.asarray(float(k))] for k in range(16)]
    expected = [oracle.run(inputs) for inputs in many]
    with ThreadPoolExecutor(8) as pool:
        for results, wanted in zip(pool.map(program.run, many * 8), expected * 8, strict=True):
            assert results[1] == wanted[1]
    assert len(program.idle) <= 8


# -- states of kernels -------------------------------------------------------------------------------------------------


class Held:
    """A state: one number, and its holder."""

    made: ClassVar[list[weakref.ref[Held]]] = []

    def __init__(self, scratch: int) -> None:
        self.number, self.scratch = ctypes.c_double(len(self.made)), scratch
        self.made.append(weakref.ref(self))

    @property
    def address(self) -> int:
        return ctypes.addressof(self.number)


def needy(step: Any) -> Native:
    """x + state · number, by way of the workspace."""
    text = """define i64 @KERNEL(ptr %in0, ptr %out0, ptr %workspace, ptr %state, i64 %number) {
  %x = load double, ptr %in0
  %kept = load double, ptr %state
  %factor = sitofp i64 %number to double
  %more = fmul double %kept, %factor
  store double %more, ptr %workspace
  %again = load double, ptr %workspace
  %y = fadd double %x, %again
  store double %y, ptr %out0
  ret i64 0
}
"""
    return Native(text, state=Held, scratch=100 * step.params["number"], numbers=(step.params["number"],))


def needy_builder(monkeypatch: pytest.MonkeyPatch) -> tuple[GraphBuilder, Symbol]:
    """A graph that begins with an input, where there is a command with the kernel `needy`."""
    monkeypatch.setattr(Held, "made", [])
    command = register("test_needy", Rules(infer=lambda x, number: x, reference=lambda x, number: x))
    add_kernel(command, Kernel("mine", lambda *_: None, workspace=lambda specs, params: 8, native=needy))
    b = GraphBuilder()
    return b, b.input((), "float64")


@pytest.mark.usefixtures("own_registries")
def test_kernels_get_workspace_states_of_their_frame_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    b, x = needy_builder(monkeypatch)
    y = b.add("test_needy", b.add("test_needy", x, number=10), number=100)
    program = lower(b.build(y), Options(verify_passes=True), choose_kernel, jit())
    assert [float(program.run([ONE])[0]) for _ in range(2)] == [101, 101]  # states 0 and 1 of the one frame
    states = [ref() for ref in Held.made]
    assert [state is not None and state.scratch % 64 for state in states] == [0, 0]
    assert len({state.scratch for state in states if state is not None}) == 1  # one step follows the other
    del states
    program.idle.clear()
    gc.collect()
    assert [ref() for ref in Held.made] == [None, None]


@pytest.mark.usefixtures("own_registries")
def test_kernels_that_run_side_by_side_have_scratch_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    b, x = needy_builder(monkeypatch)
    outputs = [b.add("test_needy", x, number=10), b.add("test_needy", x, number=100)]
    program = lower(b.build(*outputs), Options(streams=2), choose_kernel, jit())
    assert len(program.schedule.streams) == 2
    program.run([ONE])
    first, second = sorted(state.scratch for ref in Held.made if (state := ref()) is not None)
    assert second - first >= 1000


# -- how it is switched --------------------------------------------------------------------------------------------------


def test_options_switch_compiled_programs_off() -> None:
    assert Options.from_environment({}).native
    assert not Options.from_environment({"NNC_NATIVE": "0"}).native
    program, _ = lower_twice(two_chains(1, 4), native=False)
    assert program.code is None


def test_seconds_of_printing_and_compiling_are_counted() -> None:
    clock: dict[str, float] = {}
    with nnc.base.context.set_context(clock=clock):
        pair()
    assert {"printing kernels", "compiling kernels"} <= set(clock)


def test_reports_name_the_backend_of_each_step() -> None:
    program, _ = pair()
    assert program.as_text().count("[test]") == len(program.bound.steps)


def test_where_arrays_lie_otherwise_in_memory_all_steps_run_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.run.kernel_queue.is_layout_known", lambda: False)
    program, oracle = pair()
    assert program.code is None
    same(program, oracle, np.ones(4, np.float32), np.ones(4, np.float32))
