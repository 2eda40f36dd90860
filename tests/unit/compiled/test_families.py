"""Programs of one function at several sizes share their lowering and their code, and give right results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import AxisError, ShapeError, TraceError

W = np.linspace(-1, 1, 16 * 16, dtype=np.float32).reshape(16, 16)


def rows(n: int, width: int = 16) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).normal(size=(n, width)).astype(np.float32)


def lines(fun: Any) -> list[Any]:
    """The lines of a compiled function, one for each form of its traced graphs."""
    return [line for kin in fun._families._kinds.values() for line in kin._lines.values()]


def loss(w: Any, x: Any) -> Any:
    return nnp.mean(nn.relu(x @ w) ** 2)


def two_axes(x: Any) -> Any:
    return nnp.sum(nnp.tanh(x), axis=1)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "training step": (lambda w, x: w - 0.1 * nnc.grad(loss)(w, x), lambda n: (W, rows(n))),
    "softmax": (lambda x: nn.softmax(x @ x.T), lambda n: (rows(n),)),
    "scan of n iterations": (lambda x: nnc.scan(lambda c, r: (c * 0.5 + r, c), nnp.zeros(16), x), lambda n: (rows(n),)),
    "derivative of a scan": (
        nnc.grad(lambda x: nnp.sum(nnc.scan(lambda c, r: (nnp.tanh(c + r), None), nnp.zeros(16), x)[0])),
        lambda n: (rows(n),),
    ),
    "while loop": (
        lambda x: nnc.while_loop(lambda c: c[0] < x.shape[0], lambda c: (c[0] + 1, c[1] * 0.9), (0, x)),
        lambda n: (rows(n),),
    ),
    "cond": (lambda x: nnc.cond(nnp.sum(x) > 0, lambda x: x * 2, lambda x: x - 1, x), lambda n: (rows(n),)),
    "vmap": (nnc.vmap(lambda r: nnp.cumsum(r) / nnp.sum(r * r)), lambda n: (rows(n),)),
    "mask of positions": (
        lambda x: nnp.where(nnp.arange(x.shape[0])[:, None] >= nnp.arange(x.shape[0]), x @ x.T, -1.0),
        lambda n: (rows(n),),
    ),
    "convolution": (
        lambda x: nn.conv(x[None, None], np.ones((2, 1, 3, 3), np.float32), padding=1),
        lambda n: (rows(n),),
    ),
    "sort": (lambda x: (nnp.sort(x, axis=0), nnp.argmax(x, axis=0)), lambda n: (rows(n),)),
    "gather": (lambda x, i: x[i], lambda n: (rows(n), np.arange(n // 2, dtype=np.int64))),
    "two axes": (two_axes, lambda n: (np.ones((n, 2 * n % 37 + 3, 4), np.float32),)),
    "nothing": (lambda x: x[:0], lambda n: (rows(n),)),
}


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in nnc.tree.leaves(tree)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_size_agrees_with_a_program_of_its_own(name: str) -> None:
    fun, make = FUNCTIONS[name]
    shared, alone = nnc.compile(fun), nnc.compile(fun, dynamic_axes={})
    for n in (40, 48, 44, 52, 47, 1, 0 if name == "nothing" else 2, 52):
        for found, wanted in zip(leaves(shared(*make(n))), leaves(alone(*make(n))), strict=True):
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["training step", "softmax", "scan of n iterations", "derivative of a scan", "vmap", "mask of positions"]
)
def test_the_fourth_size_is_not_lowered(name: str) -> None:
    fun, make = FUNCTIONS[name]
    shared = nnc.compile(fun)
    for n in (40, 48, 44):
        shared(*make(n))
    assert [line.problem for line in lines(shared)] == [""]
    shared(*make(52))
    assert not [
        part for part, _ in shared._last.timings.rows if part in ("pass simplify", "pass fuse", "binding buffers")
    ]


def test_a_family_is_counted_once() -> None:
    double = nnc.compile(lambda x: x * 2)
    for n in (8, 9, 10, 11, 9):
        double(rows(n))
    assert double.cache_info() == (1, 4, 4, 1)
    double(rows(8).astype(np.float64))
    assert double.cache_info().families == 2
    double.cache_clear()
    assert double.cache_info() == (0, 0, 0, 0)


def test_explain_names_the_family() -> None:
    double = nnc.compile(lambda x: x * 2)
    for n in (8, 9, 10):
        double(rows(n))
    assert "it is one of 3 programs of family 1" in double.explain()
    double(rows(10))
    assert "family" not in double.explain()


def test_explain_says_why_each_new_size_is_lowered_or_printed() -> None:
    ordered = nnc.compile(lambda x: nnp.sort(x * 2, axis=0))
    looped = nnc.compile(lambda x: nnc.scan(lambda c, r: (c * 0.5 + r, None), nnp.zeros(16), x)[0])
    for n in (40, 46, 52, 43, 49):
        ordered(rows(n)), looped(rows(n))
    assert "; each new size is printed: " in ordered.explain()
    assert "; each new size is printed: how often a loop looks for interrupts" in looped.explain()
    spectrum = nnc.compile(lambda x: nnp.abs(nnp.fft.fft(x, axis=0)))
    for n in (40, 46, 52, 43):
        spectrum(rows(n))
    assert "; each new size is " in spectrum.explain(), spectrum.explain()


def test_programs_share_code_after_the_second_size() -> None:
    fun = nnc.compile(lambda x: nnp.tanh(x) * x - nnp.sum(x, axis=0))
    names = []
    for n in (100, 120, 140, 160):
        fun(rows(n))
        names.append({native.name for native in fun._last.program.natives.values()})
    assert names[1] == names[2] == names[3]


def test_the_environment_switches_families_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_FAMILIES", "0")
    double = nnc.compile(lambda x: x * 2)
    for n in (8, 9, 10):
        double(rows(n))
    assert double._last.program.like is None


def test_captured_arrays_may_change_size() -> None:
    held = {"x": nnp.asarray(rows(8))}
    total = nnc.compile(lambda scale: nnp.sum(held["x"], axis=0) * scale)
    for n in (8, 9, 10, 11, 9):
        held["x"] = nnp.asarray(rows(n))
        np.testing.assert_allclose(np.asarray(total(2.0)), 2 * rows(n).sum(axis=0), rtol=1e-5, atol=1e-5)


def test_a_function_that_asks_for_the_size_stays_right() -> None:
    def scaled(x: Any) -> Any:
        return x * float(x.shape[0]) if x.shape[0] % 3 else x - x.shape[0]

    fun = nnc.compile(scaled)
    for n in (8, 9, 10, 11, 12, 13, 14, 15, 16, 9):
        np.testing.assert_allclose(np.asarray(fun(rows(n))), scaled(rows(n)), rtol=1e-6)


def test_donated_arguments_of_several_sizes() -> None:
    step = nnc.compile(lambda x: x + 1, donate_argnums=0)
    for n in (40, 44, 48, 52, 56):
        x = nnp.asarray(rows(n))
        np.testing.assert_array_equal(np.asarray(step(x)), rows(n) + 1)
        assert x.is_deleted()


def test_a_budget_holds_for_each_size() -> None:
    fun = nnc.compile(lambda x: nnp.sum(nnp.sort(x @ x.T)), memory_budget=60_000)
    for n in (40, 48, 44, 52):
        fun(rows(n))
    with pytest.raises(nnc.errors.MemoryBudgetError):
        fun(rows(400))


def test_a_program_that_calls_back_serves_further_sizes() -> None:
    seen: list[int] = []
    fun = nnc.compile(lambda x: (nnc.debug.callback(lambda y: seen.append(len(y)), x), x * 2)[1])
    for n in (8, 9, 10, 11):
        np.testing.assert_array_equal(np.asarray(fun(rows(n))), rows(n) * 2)
    assert seen == [8, 9, 10, 11]


# -- named axes --------------------------------------------------------------------------------------------------------


def masked(x: Any, mask: Any) -> Any:
    return nnp.sum(x * mask[:, None])


def test_axes_of_one_name_have_one_size() -> None:
    fun = nnc.compile(masked, dynamic_axes={"x": {0: "batch"}, "mask": {0: "batch"}})
    for n in (8, 9, 10, 11):
        np.testing.assert_allclose(np.asarray(fun(rows(n), np.ones(n, np.float32))), rows(n).sum(), rtol=1e-4)
    with pytest.raises(ShapeError, match="'batch' has two sizes: axis 0 of x is 8, axis 0 of mask is 9"):
        fun(rows(8), np.ones(9, np.float32))
    assert fun.cache_info().families == 1


def test_a_size_has_a_limit() -> None:
    fun = nnc.compile(masked, dynamic_axes={"x": {0: nnc.dim("batch", max=10)}, "mask": {-1: "batch"}})
    for n in (8, 9, 10):
        fun(rows(n), np.ones(n, np.float32))
    with pytest.raises(ShapeError, match="axis 0 of x is 11, and 'batch' is 10 at most"):
        fun(rows(11), np.ones(11, np.float32))


def test_axes_without_a_name_share_nothing() -> None:
    fun = nnc.compile(two_axes, dynamic_axes={"x": {0: "batch"}})
    for shape in ((4, 3, 2), (5, 3, 2), (6, 4, 2), (7, 4, 2)):
        fun(np.ones(shape, np.float32))
    assert fun.cache_info().families == 2


def test_each_array_of_a_container_has_the_axes_of_its_parameter() -> None:
    fun = nnc.compile(lambda batch: nnp.sum(batch["x"]) + nnp.sum(batch["y"]), dynamic_axes={"batch": {0: "n"}})
    assert fun({"x": np.ones((3, 2)), "y": np.ones(3)}) == 9
    with pytest.raises(ShapeError, match=r"axis 0 of batch\['x'\] is 3, axis 0 of batch\['y'\] is 4|'n' has two sizes"):
        fun({"x": np.ones((3, 2)), "y": np.ones(4)})


def test_an_array_needs_the_axis() -> None:
    with pytest.raises(AxisError, match="axis 1"):
        nnc.compile(nnp.sum, dynamic_axes={"x": {1: "n"}})(np.ones(3))


def test_a_copy_of_a_compiled_function_keeps_its_names() -> None:
    fun = pickle.loads(pickle.dumps(nnc.compile(masked, dynamic_axes={"x": {0: "batch"}, "mask": {0: "batch"}})))
    with pytest.raises(ShapeError):
        fun(rows(8), np.ones(9, np.float32))


def test_traces_are_counted_size_by_size() -> None:
    fun = nnc.compile(lambda x: x * 2, max_traces=2)
    fun(rows(3)), fun(rows(4))
    with pytest.raises(TraceError, match="max_traces"):
        fun(rows(5))
