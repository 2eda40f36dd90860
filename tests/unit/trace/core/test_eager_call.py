"""Eager calls answered by recipes give the functions' own results, dtypes, weakness and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.calls.specialise import specialised
from nnc.errors import ArgumentTypeError, DTypeError, OutOfBoundsError
from nnc.graph import GraphBuilder, Kernel, add_kernel, command
from nnc.graph.kernels import kernel
from nnc.trace.core.eager_call import run_of

RNG = np.random.default_rng(0)
TIMES = 5  # calls, of which the last are answered by a recipe
F = nnp.asarray(RNG.normal(size=(3, 4)).astype("float32"))
D = nnp.asarray(RNG.normal(size=(3, 4)))
B = nnp.asarray(RNG.normal(size=(3, 4)).astype("float16"))
I = nnp.asarray(RNG.integers(-5, 5, (3, 4)))  # noqa: E741
U = nnp.asarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
M = nnp.asarray(RNG.random((3, 4)) > 0.5)
V = nnp.asarray(RNG.normal(size=4).astype("float32"))
S = nnp.asarray(np.float32(1.5))
W = nnp.exp(0.5)  # weak

CALLS: list[Callable[[], Any]] = [
    lambda: F + F, lambda: F * 2.5, lambda: 3 - F, lambda: D * 2.1, lambda: B * 0.1, lambda: F + I, lambda: I + 1, lambda: I / 2,
    lambda: U + 1, lambda: U == 300, lambda: U < -1, lambda: M + 1, lambda: M & M, lambda: F * 1j, lambda: F + V, lambda: F + S,
    lambda: V[:, None] + V, lambda: F + W, lambda: W * 2.0, lambda: S * 2.0, lambda: F**2, lambda: I**2, lambda: F**0.5,
    lambda: F**F, lambda: -F, lambda: ~M, lambda: abs(I), lambda: F > 0, lambda: F != D, lambda: F // 0.3, lambda: F % 0.3,
    lambda: U // 3,
    lambda: nnp.exp(F), lambda: nnp.exp(I), lambda: nnp.sin(B), lambda: nnp.maximum(F, 0), lambda: nnp.maximum(M, M),
    lambda: nnp.where(M, F, 0.0), lambda: nnp.where(M, 1, I), lambda: nnp.where(F, F, D), lambda: nnp.logical_and(F, M),
    lambda: F.sum(), lambda: F.sum(0), lambda: U.sum(axis=1, keepdims=True), lambda: M.sum(), lambda: B.sum(), lambda: F.mean(),
    lambda: I.mean(0), lambda: F.max(1), lambda: I.prod(), lambda: F.var(), lambda: F.argmax(0), lambda: F.any(), lambda: I.all(1),
    lambda: F @ F.T, lambda: V @ V, lambda: F @ V, lambda: I @ I.T, lambda: B @ B.T, lambda: F.T, lambda: F.reshape(4, 3),
    lambda: F.reshape((2, -1)), lambda: F[1], lambda: F[1, 2], lambda: F[1:, ::2], lambda: F[..., -1], lambda: F[::-1],
    lambda: F[None],
    lambda: F[nnp.asarray([0, -1])], lambda: F[:, nnp.asarray([0, 2])], lambda: F[M], lambda: S[()], lambda: F[:],
    lambda: nnp.concatenate([F, F]), lambda: nnp.stack([F, F], axis=-1), lambda: nnp.zeros((2, 3)), lambda: nnp.ones(3, "int8"),
    lambda: nnp.zeros_like(F), lambda: F.astype("int32"), lambda: F.astype("float32"), lambda: F.round(), lambda: F.clip(-1, 1),
    lambda: F.squeeze(), lambda: F.ravel(), lambda: nnp.asarray(1.0) + F, lambda: F.sort(axis=1), lambda: F.cumsum(0),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_later_calls_agree_with_the_first_one(call: Callable[[], Any]) -> None:
    with nnc.debug.eager():  # runs the functions themselves
        expected = call()
    for _ in range(TIMES):
        found = call()
        assert (found.spec, found.weak) == (expected.spec, expected.weak)
        np.testing.assert_array_equal(found, expected)


def test_numbers_are_operands_not_settings() -> None:
    results = [float(S * n) for n in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    assert results == [1.5, 3.0, 4.5, 6.0, 7.5, 9.0]


def test_settings_that_are_equal_but_not_the_same_have_recipes_of_their_own() -> None:
    for _ in range(TIMES):
        assert F.sum(axis=0).shape == (4,)
        assert F.sum(axis=(0,), keepdims=True).shape == (1, 4)
        assert nnp.ones((1,), "float32").spec != nnp.ones((1,), "int32").spec
        assert (F**1).spec == F.spec
        assert (I**2.0).dtype == nnp.float32
        assert (I**2).dtype == nnp.int64


def test_a_number_that_is_read_in_two_dtypes_keeps_both() -> None:
    @specialised(2)
    def both(x: Any, n: Any) -> Any:
        return x * n + (U * n).sum()

    for n in (1.5, 2.5, 3.25, 4.75, 5.125):
        np.testing.assert_allclose(both(D, n), np.asarray(D) * n + float((U * n).sum()), rtol=1e-15)


def test_a_weak_array_is_not_taken_for_a_setting() -> None:
    @specialised(1)
    def scaled(x: Any, mode: Any = None) -> Any:
        return x * S if mode is None else x * D

    for _ in range(TIMES):
        assert scaled(W + 0.0).shape == ()
        assert scaled(S, "weak").shape == D.shape
        assert scaled(S, True).shape == D.shape


def test_a_number_that_does_not_fit_raises_however_often_one_fitted() -> None:
    for n in range(TIMES):
        assert (U + n).dtype == nnp.uint8
    with pytest.raises(DTypeError, match="300"):
        U + 300


def test_an_index_out_of_range_raises_in_the_functions_words() -> None:
    for _ in range(TIMES):
        F[nnp.asarray([0, 2])]
    with pytest.raises(OutOfBoundsError, match="index 7"):
        F[nnp.asarray([0, 7])]


def test_a_donated_array_raises_in_the_functions_words() -> None:
    x = nnp.ones(3)
    for _ in range(TIMES):
        x + x
    x.delete()
    with pytest.raises(ArgumentTypeError, match="donated"):
        x + x


def fail(*_: Any) -> Any:
    raise KeyError("lost")


def new_sum() -> Callable[[Any, Any], Any]:
    """A function with a table of its own: one with many calls specialises later."""
    return specialised(2)(lambda x, y: nnp.add(x, y))


def test_the_function_does_not_hide_a_fault_of_a_specialised_call(monkeypatch: pytest.MonkeyPatch) -> None:
    function = new_sum()
    for _ in range(TIMES):
        function(F, 1.5)
    monkeypatch.setattr("nnc.trace.core.eager_call.new_array", fail)
    with pytest.raises(KeyError, match="lost"):
        function(F, 1.5)


def test_the_function_does_not_hide_a_fault_of_a_call_that_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, function = nnc.DynamicGraph().variable(F), new_sum()
    for _ in range(TIMES):
        function(x, 1.5)
    monkeypatch.setattr(type(x.owner), "follow", fail)
    with pytest.raises(KeyError, match="lost"):
        function(x, 1.5)


def test_derivatives_and_traces_do_not_meet_recipes() -> None:
    def f(x: Any) -> Any:
        return (x * x + 2.0).sum()

    for _ in range(TIMES):
        np.testing.assert_allclose(nnc.grad(f)(V), 2 * V)
        assert nnc.eval_shape(f, V).shape == ()
        np.testing.assert_allclose(nnc.vmap(lambda x: x * 2.0)(F), 2 * F)


def test_finite_checks_see_each_command() -> None:
    for _ in range(TIMES):
        nnp.log(F * 0)
    with nnc.debug.check_finite(), pytest.raises(nnc.errors.NncError):
        nnp.log(F * 0)


def test_functions_that_look_at_values_run_each_time() -> None:
    seen = []

    @specialised(1)
    def peek(x: Any) -> Any:
        seen.append(float(x))
        return x + 1 if float(x) > 0 else x - 1

    assert [float(peek(nnp.asarray(n))) for n in (1.0, -1.0, 2.0, -2.0, 3.0, -3.0)] == [2, -2, 3, -3, 4, -4]
    assert seen == [1, -1, 2, -2, 3, -3]


def test_a_kernel_that_is_added_later_is_used() -> None:
    x = nnp.asarray([0.25, 0.5])
    for _ in range(TIMES):
        nnp.tanh(x)
    before, called = kernel.get(command("tanh"), ()), []

    def run(inputs: Any, outputs: Any, params: Any) -> None:
        called.append(inputs[0].shape)
        np.tanh(inputs[0], out=outputs[0])

    add_kernel("tanh", Kernel("test_recipes", run, priority=1000))
    try:
        for _ in range(TIMES):
            np.testing.assert_allclose(nnp.tanh(x), np.tanh(np.asarray(x)))
        assert called == [(2,)] * TIMES
    finally:
        kernel.replace_cell(command("tanh"), before)


def test_results_cannot_be_written_to_through_numpy() -> None:
    for _ in range(TIMES):
        found = F + F
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(found)[0, 0] = 1


@pytest.mark.parametrize("weak", [False, True])
def test_a_recipe_that_returns_its_operand_gives_it_the_weakness_of_the_result(weak: bool) -> None:
    builder = GraphBuilder("identity")
    x = builder.input((3, 4), "float64")
    run = run_of(builder.build(x), [None], weak)
    for operand in (D, D.as_weak(True)):
        found = run([operand])
        assert found.weak == weak and found.dtype == D.dtype
        np.testing.assert_array_equal(found, D)


def test_threads_share_recipes() -> None:
    wrong = []

    def work(n: float) -> None:
        for _ in range(200):
            if float((S * n + n).sum()) != 2.5 * n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "complex64", "complex128", "float16"])
def test_a_choice_among_many_elements_is_numpy_s(dtype: str) -> None:
    mask = RNG.random((90, 70)) > 0.5
    x, y = (RNG.normal(size=(90, 70)).astype(dtype) for _ in range(2))
    if dtype.startswith("float"):
        x[0], y[1], y[2] = np.nan, -0.0, np.inf
    for _ in range(TIMES):
        found = nnp.where(nnp.asarray(mask), nnp.asarray(x), nnp.asarray(y))
        assert np.asarray(found).tobytes() == np.where(mask, x, y).tobytes()
        np.testing.assert_array_equal(
            nnp.where(nnp.asarray(mask.T), nnp.asarray(x[:, :1].T), nnp.asarray(y.T)), np.where(mask.T, x[:, :1].T, y.T)
        )
        np.testing.assert_array_equal(
            nnp.where(nnp.asarray(mask), 0, nnp.asarray(y)),
            np.where(mask, 0, y).astype(y.dtype if dtype != "bool" else int),
        )


def test_numbers_that_meet_no_array_keep_their_default_dtype():
    for condition in (M, F, D):
        for numbers in ((1.0, 0.0), (1, 0.5), (1j, 0.0)):
            dtypes = {nnp.where(condition, *numbers).dtype for _ in range(TIMES + 5)}
            assert dtypes == {nnp.result_type(*numbers)}


def test_slices_of_another_step_are_told_apart_when_calls_are_remembered() -> None:
    x = nnp.asarray(np.arange(12.0))
    slices = [slice(0, 12, 1), slice(0, 12, 2), slice(0, 12, 3), slice(1, 12, 2), slice(0, 11, 2), slice(None, None, 2)]
    slices += [slice(11, None, -1), slice(11, None, -2)]
    for index in slices:
        for _ in range(24):  # enough to have the call remembered
            assert x[index].tolist() == np.arange(12.0)[index].tolist()
    for index in slices:
        assert x[index].tolist() == np.arange(12.0)[index].tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_weak_array_stays_weak_when_calls_are_remembered(dtype: str) -> None:
    weak, strong = np.log(1000.0) * nnp.arange(4), nnp.ones(4, dtype)
    assert weak.weak
    for _ in range(24):  # enough to have the calls remembered
        assert (weak * strong).dtype == nnp.maximum(strong, weak).dtype == np.dtype(dtype)
        assert (weak + weak).weak
