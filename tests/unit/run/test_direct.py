"""Direct calls: the same results and errors as in the general way, and every reference is given back."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import ArgumentTypeError
from nnc.graph import GraphBuilder, TensorSpec, register, spec_of
from nnc.graph.rules import Rules
from nnc.lower.kernels.native import Native
from nnc.run import direct_code as code
from nnc.run.arguments import is_layout_known
from nnc.run.direct import ArrayLayout, Direct, Results
from nnc.run.program import Program
from tests.unit.run.test_entry import chooser, elementwise, jit, refusing

pytestmark = [
    pytest.mark.skipif(compiler() is None or not is_layout_known(), reason="programs are not compiled here"),
    pytest.mark.unguarded,
]
X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


class Box:
    """Stands for an array."""

    __slots__ = ("__weakref__", "memory", "spec", "weak")

    def __init__(self, memory: Any, weak: bool = False) -> None:
        self.memory, self.spec, self.weak = memory, spec_of(memory), weak


def boxes() -> ArrayLayout:
    found = ArrayLayout.like(Box(X, weak=True))
    assert found is not None
    return found


def sums(*, is_one: bool) -> tuple[Program, Direct]:
    """x + x, and unless `is_one` also (x + x) + x."""
    b = GraphBuilder("sums")
    x = b.input((2, 3), "float32")
    y = b.add("add", x, x)
    outputs = [y] if is_one else [y, b.add("add", y, x)]
    program = lower(b.build(*outputs), Options(), chooser({"add": elementwise}), jit())
    specs = [TensorSpec((2, 3), np.dtype(np.float32)) for _ in outputs]
    direct = Direct.of(
        program, jit(), boxes(), [(spec_of(X), False)], Results(specs, [True, False][: len(specs)], is_one)
    )
    assert direct is not None
    program.run([X])  # makes a frame
    return program, direct


def call_of(direct: Direct) -> Callable[[list[Any]], Any]:
    return direct.bind(direct.idle[-1])


def test_results_are_boxes_of_fresh_memory() -> None:
    _, direct = sums(is_one=False)
    call = call_of(direct)
    first, second = call([Box(X)])
    assert type(first) is type(second) is Box
    np.testing.assert_array_equal(first.memory, 2 * X)
    np.testing.assert_array_equal(second.memory, 3 * X)
    assert (first.spec, first.weak, second.weak) == (spec_of(X), True, False)
    again, _ = call([Box(X)])
    assert not np.shares_memory(again.memory, first.memory)


def test_one_result_comes_without_a_list() -> None:
    _, direct = sums(is_one=True)
    result = call_of(direct)([Box(X)])
    assert type(result) is Box
    np.testing.assert_array_equal(result.memory, 2 * X)


class Derived(Box):
    """A box of another type."""

    __slots__ = ()


def other_box() -> Box:
    """One whose memory is as expected, though it says otherwise."""
    box = Box(X)
    box.spec = spec_of(X.T)
    return box


def empty_box() -> Box:
    box = Box(X)
    del box.memory
    return box


@pytest.mark.parametrize(
    "leaves",
    [
        [], [Box(X), Box(X)], [X], [None], [Derived(X)], [empty_box()], [other_box()], [Box(X, weak=True)], [Box(X.T.copy())],
        [Box(X.astype(np.float64))], [Box(np.zeros((2, 6), np.float32)[:, ::2])], [Box([0.0] * 6)],
    ],
    ids=[
        "none", "two", "array", "None", "derived", "empty", "spec", "weak", "shape", "dtype", "strides", "list",
    ],
)  # fmt: skip
def test_unexpected_calls_are_left_to_the_general_way(leaves: list[Any]) -> None:
    _, direct = sums(is_one=True)
    call = call_of(direct)
    assert call(leaves) is NotImplemented
    np.testing.assert_array_equal(call([Box(X)]).memory, 2 * X)


def references(*objects: Any) -> list[int]:
    return [sys.getrefcount(each) for each in objects]


def test_every_reference_is_given_back() -> None:
    program, direct = sums(is_one=False)
    call, box, spec = call_of(direct), Box(X), direct._results.specs[0]
    watched = (box, X, spec, spec.shape, Box, boxes().kind, program.idle[0])
    call([box])
    gc.collect()
    before, objects = references(*watched), len(gc.get_objects())
    for _ in range(1000):
        call([box])
        call([box, box])
        call([Box(X, weak=True)])
        call([Box(X.astype(np.float64))])
    gc.collect()
    assert references(*watched) == before
    assert len(gc.get_objects()) < objects + 100
    first, second = call([box])
    seen = [weakref.ref(each) for each in (first, second, first.memory, second.memory)]
    del first, second
    assert [ref() for ref in seen] == [None] * 4


def test_errors_while_results_are_made_are_raised_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _, direct = sums(is_one=False)
    made: list[Any] = []

    def scarce(shape: Any, dtype: Any) -> Any:
        if len(made) % 2:
            made.clear()
            raise MemoryError("no more")
        made.append(np.zeros(shape, dtype))
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", scarce)
        call = call_of(direct)
    box = Box(X)
    before = references(X, box)
    for _ in range(3):
        with pytest.raises(MemoryError, match="no more"):
            call([box])
    assert references(X, box) == before and not made


@pytest.mark.usefixtures("own_registries")
def test_a_program_that_fails_is_left_to_others() -> None:
    register("test_picky", Rules(infer=lambda x, limit: x, reference=lambda x, *, limit: x))
    b = GraphBuilder("picky")
    x = b.input((), "float64")
    program = lower(b.build(b.add("test_picky", x, limit=2.0)), Options(), chooser({"test_picky": refusing}), jit())
    spec = TensorSpec((), np.dtype(np.float64))
    direct = Direct.of(program, jit(), boxes(), [(spec, False)], Results([spec], [False], is_one=True))
    assert direct is not None
    program.run([np.asarray(1.0)])
    call = call_of(direct)
    assert call([Box(np.asarray(1.5))]).memory == 1.5
    assert call([Box(np.asarray(2.5))]) is NotImplemented
    assert call([Box(np.asarray(0.5))]).memory == 0.5


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("kind", ["python", "donated", "loop", "input", "uncompiled"])
def test_programs_that_need_more_have_no_direct_calls(kind: str) -> None:
    b = GraphBuilder("more")
    x = b.input((), "float32")
    y = b.add("add", x, x)
    options, outputs, native = Options(), [y], jit() if kind != "uncompiled" else None
    if kind == "python":
        register("test_python", Rules(infer=lambda x: x, reference=lambda x: x))
        outputs = [b.add("add", b.add("test_python", y), x)]
    elif kind == "donated":
        options = options.update(donated=(0,))
    elif kind == "input":
        outputs = [y, x]
    elif kind == "loop":
        inner = GraphBuilder("round")
        _, carry = inner.input((), "int64"), inner.input((), "float32")
        outputs = list(
            b.add("scan", y, graphs=(inner.build(inner.add("add", carry, carry)),), xs=0, carries=1, length=3)
        )
    program = lower(b.build(*outputs), options, chooser({"add": elementwise}), native)
    specs = [TensorSpec((), np.dtype(np.float32)) for _ in outputs]
    arguments = [(TensorSpec((), np.dtype(np.float32)), False)]
    assert Direct.of(program, jit(), boxes(), arguments, Results(specs, [False] * len(specs), is_one=False)) is None


def test_objects_of_other_layouts_have_none() -> None:
    class Loose:
        def __init__(self) -> None:
            self.memory, self.spec, self.weak = X, spec_of(X), True

    assert ArrayLayout.like(Loose()) is None


# -- of compiled functions ---------------------------------------------------------------------------------------------


def is_direct(compiled: Any) -> bool:
    """Whether calls of a compiled function have gone the direct way."""
    return any(frame.direct is not None for e in compiled._entries.values() for frame in e._program.idle)


def arrays(count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    return [nnc.asarray(rng.normal(size=(3, 4)).astype(np.float32)) for _ in range(count)]


@pytest.mark.parametrize(
    "fun",
    [
        lambda x, y: x @ y.T,
        lambda x, y: (x + y, [x - y], {"last": x * y}),
        lambda x, y: {f"w{i}": x * i + y for i in range(12)},  # the tree's order is another than the program's
        lambda x, y: {"sum": (x + y).sum(), "kind": "static", "none": None},
        lambda x, y: (x > y, x.astype("bfloat16"), nnp.argmax(x)),
        lambda x, y: 2.0 + 0 * x.sum() * y.sum(),
    ],
    ids=["one", "nested", "order", "settings", "dtypes", "scalar"],
)
def test_calls_of_compiled_functions_agree_with_the_function(fun: Callable[..., Any]) -> None:
    compiled, (x, y) = nnc.compile(fun), arrays(2)
    expected = fun(x, y)
    results = [compiled(x, y) for _ in range(4)]
    assert is_direct(compiled)
    for result in results:
        leaves, treedef = nnc.tree.flatten(result)
        others, other = nnc.tree.flatten(expected)
        assert treedef == other
        for a, b in zip(leaves, others, strict=True):
            if isinstance(b, nnc.Array):
                assert (type(a), a.spec, a.weak) == (nnc.Array, b.spec, b.weak)
                np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-5)
            else:
                assert a == b
    assert compiled.cache_info().misses == 1 and compiled.cache_info().hits == 3


def test_captured_arrays_go_along() -> None:
    x, y, z = arrays(3)
    compiled = nnc.compile(lambda x: x * y + z)
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(x * y + z), rtol=1e-6)
    assert is_direct(compiled)


def test_arguments_of_other_kinds_are_served_between_direct_calls() -> None:
    compiled, (x, y) = nnc.compile(lambda x, y: x + y), arrays(2)
    calls: Sequence[tuple[Any, Any]] = [
        (x, y), (np.asarray(x), y), (x, 1.0), (x[:2], y[:2]), (nnc.asarray(np.asarray(x).T).T, y), (x.as_weak(), y), (x, y),
    ]  # fmt: skip
    for _ in range(3):
        for a, b in calls:
            np.testing.assert_allclose(np.asarray(compiled(a, b)), np.asarray(a) + np.asarray(b), rtol=1e-6)
        assert "reused" in nnc.debug.explain(compiled)
    np.testing.assert_allclose(np.asarray(compiled(y=y, x=x)), np.asarray(x) + np.asarray(y), rtol=1e-6)
    assert is_direct(compiled)


def test_a_deleted_array_is_refused_as_ever() -> None:
    compiled, (x, y) = nnc.compile(lambda x, y: x + y), arrays(2)
    for _ in range(3):
        compiled(x, y)
    assert is_direct(compiled)
    y.delete()
    with pytest.raises(ArgumentTypeError, match="donated"):
        compiled(x, y)


def test_modes_and_changes_are_seen_by_functions_that_are_called_directly() -> None:
    factor = 2.0
    compiled, (x,) = nnc.compile(lambda x: x * factor), arrays(1)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(compiled(x)), 2 * np.asarray(x))
    assert is_direct(compiled)
    factor = 3.0
    np.testing.assert_array_equal(np.asarray(compiled(x)), 3 * np.asarray(x))
    assert "factor changed" in nnc.debug.explain(compiled)
    seen: list[Any] = []
    watching = nnc.compile(lambda x: seen.append(type(x)) or -x)
    for _ in range(3):
        watching(x)
    with nnc.debug.eager():
        watching(x)
    assert len(seen) == 2 and seen[-1] is nnc.Array


def test_threads_call_the_same_function_at_once() -> None:
    compiled, (x,) = nnc.compile(lambda x: (x * 2, x + 1)), arrays(1)
    for _ in range(3):
        compiled(x)
    assert is_direct(compiled)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(300):
            a, b = compiled(x)
            if not (np.array_equal(a, 2 * np.asarray(x)) and np.array_equal(b, np.asarray(x) + 1)):
                wrong.append((a, b))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_printed_function_calls_nothing_but_published_functions() -> None:
    native: Native = code.direct()
    declared = {
        line.partition("@")[2].partition("(")[0] for line in native.text.splitlines() if line.startswith("declare ")
    }
    assert declared == set(native.symbols) and all(native.symbols.values())
