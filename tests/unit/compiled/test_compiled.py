"""Compiled functions: their arguments, traces, results, and caches."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import inspect
import pickle
import threading
import time
import traceback
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MemoryBudgetError,
    TraceError,
    UnsupportedError,
)
from tests.counting import count_calls


def traces(f: Any) -> int:
    return int(f.cache_info().misses)


def reason(f: Any) -> str:
    return nnc.debug.explain(f).partition("because ")[2]


# -- functions that can be compiled ------------------------------------------------------------------------------------


def test_compile_is_a_decorator_with_and_without_arguments() -> None:
    @nnc.compile
    def plain(x: Any) -> Any:
        """Adds one."""
        return x + 1

    @nnc.compile(static_argnames="n")
    def configured(x: Any, n: int) -> Any:
        return x * n

    assert float(plain(1.0)) == 2
    assert float(configured(2.0, 3)) == 6
    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Adds one."
    assert list(inspect.signature(configured).parameters) == ["x", "n"]
    assert "plain" in repr(plain)


def test_lambdas_partials_callables_transforms_and_ufunc_like_functions_compile() -> None:
    class Twice:
        def __call__(self, x: Any) -> Any:
            return x * 2

    for fun, expected in (
        (lambda x: x * 2, 6),
        (functools.partial(lambda y, x: x * y, 2.0), 6),
        (functools.partial(lambda x, y: x * y, y=2.0), 6),
        (Twice(), 6),
        (Twice().__call__, 6),
        (nnc.grad(lambda x: x * x), 6),
        (nnc.compile(lambda x: x * 2), 6),
        (nnp.square, 9),
    ):
        assert float(nnc.compile(fun)(3.0)) == expected


def test_a_compiled_method_gets_its_object() -> None:
    class Model:
        def __init__(self, w: float) -> None:
            self.w = w

        @nnc.compile
        def plain(self, x: Any) -> Any:
            return x * self.w

        @nnc.compile(static_argnums=2)
        def power(self, x: Any, n: int) -> Any:
            return x**n * self.w

        @staticmethod
        @nnc.compile
        def free(x: Any) -> Any:
            return x + 1

        @classmethod
        @nnc.compile
        def of_class(cls, x: Any) -> Any:
            return x + len(cls.__name__)

    a, b = Model(2.0), Model(5.0)
    assert [float(m.plain(3.0)) for m in (a, b, a)] == [6, 15, 6]
    assert float(a.power(3.0, 2)) == 18
    assert float(a.free(1.0)) == 2
    assert float(a.of_class(1.0)) == 6
    assert float(a.plain.lower(3.0).compile()(a, 3.0)) == 6
    assert traces(Model.plain) == 2


def test_a_module_is_an_ordinary_argument_and_its_call_compiles() -> None:
    model = nnc.nn.Linear(3, 2, key=nnc.random.key(0))
    f = nnc.compile(lambda model, x: model(x))
    x = nnp.ones((4, 3))
    np.testing.assert_array_equal(f(model, x), model(x))
    other = nnc.tree.map(lambda w: w * 2, model)
    np.testing.assert_array_equal(f(other, x), other(x))
    assert traces(f) == 1
    assert nnc.compile(model)(x).shape == (4, 2)


# -- static arguments --------------------------------------------------------------------------------------------------


def power(x: Any, n: int = 2, *, flip: bool = False) -> Any:
    y = x
    for _ in range(n - 1):
        y = y * x
    return -y if flip else y


@pytest.mark.parametrize(
    "options", [{"static_argnums": 1}, {"static_argnums": -1}, {"static_argnums": (1,)}, {"static_argnames": "n"}]
)
def test_a_static_argument_is_named_by_number_or_name_and_given_either_way(options: dict[str, Any]) -> None:
    f = nnc.compile(power, **options)
    assert [float(f(2.0, 3)), float(f(2.0, n=3)), float(f(n=3, x=2.0))] == [8, 8, 8]
    assert traces(f) == 1
    assert float(f(2.0, 1)) == 2
    assert reason(f) == "static argument n changed from 3 to 1"
    assert float(f(2.0)) == 4
    assert reason(f) == "static argument n is no longer given"


def test_keyword_only_static_arguments() -> None:
    f = nnc.compile(power, static_argnums=1, static_argnames=["flip"])
    assert float(f(2.0, 2, flip=True)) == -4
    assert float(f(2.0, 2, flip=False)) == 4
    assert reason(f) == "static argument flip changed from True to False"


def test_static_arguments_of_functions_with_any_number_of_arguments() -> None:
    f = nnc.compile(lambda *xs: xs[0] * xs[-1], static_argnums=-1)
    assert float(f(2.0, 3)) == 6
    assert float(f(2.0, 0.0, 4)) == 8
    g = nnc.compile(lambda x, *rest, **named: x * named["n"], static_argnames="n")
    assert float(g(2.0, 1.0, n=3)) == 6


def test_equal_static_values_of_different_types_have_programs_of_their_own() -> None:
    f = nnc.compile(lambda x, s: x * s, static_argnums=1)
    x = nnp.asarray([1])
    assert [f(x, s).dtype.name for s in (2, 2.0, True)] == ["int64", "float32", "int64"]
    g = nnc.compile(lambda x, s: x * s[0], static_argnums=1)
    assert [g(x, s).dtype.name for s in ((2,), (2.0,))] == ["int64", "float32"]
    h = nnc.compile(lambda x, s: x / s, static_argnums=1)
    assert [float(h(1.0, s)) for s in (0.0, -0.0)] == [np.inf, -np.inf]
    h(1.0, float("nan")), h(1.0, float("nan"))
    assert traces(h) == 3


def test_leaves_that_are_no_arrays_are_static_by_themselves() -> None:
    @dataclasses.dataclass(frozen=True)
    class Layer:
        w: Any
        mode: str = "add"

    def fun(x: Any, mode: Any, layer: Any, extra: Any) -> Any:
        x = x + layer.w if layer.mode == "add" else x * layer.w
        x = x if extra is None else extra(x)
        return -x if mode == "negate" else x

    f = nnc.compile(fun)
    assert float(f(1.0, "negate", Layer(2.0), None)) == -3
    assert float(f(1.0, "keep", Layer(2.0), None)) == 3
    assert reason(f) == "argument mode changed from 'negate' to 'keep'"
    assert float(f(1.0, "keep", Layer(2.0, "mul"), None)) == 2
    assert float(f(1.0, "keep", Layer(2.0, "mul"), lambda x: x * 10)) == 20
    assert "argument extra is new" in reason(f)
    assert traces(f) == 4
    f(5.0, "keep", Layer(7.0), None)
    assert traces(f) == 4


def test_a_setting_that_trades_places_with_an_array_is_another_call() -> None:
    f = nnc.compile(lambda a, b: a * 2 if b == "s" else b * 3)
    assert float(f(1.0, "s")) == 2
    assert float(f("s", 1.0)) == 3


def test_a_static_leaf_without_a_hash_is_told_by_identity() -> None:
    class NoHash:
        __hash__ = None  # type: ignore[assignment]
        k = 2.0

    a, b = NoHash(), NoHash()
    f = nnc.compile(lambda x, o: x * o.k)
    f(1.0, a), f(1.0, a), f(1.0, b)
    assert traces(f) == 2


def test_python_numbers_are_dynamic_and_weak() -> None:
    f = nnc.compile(lambda x, s: x * s)
    half = nnp.ones(2, "float16")
    assert f(half, 2.0).dtype == nnp.float16
    f(half, 3.0), f(half, -0.5)
    assert traces(f) == 1
    f(half, 3)
    assert reason(f) == "argument s changed from float32[] (a Python number) to int64[] (a Python number)"
    f(half, np.float32(3))
    assert "to float32[]" in reason(f)
    f(half, True)
    assert traces(f) == 4


def test_a_result_of_python_numbers_alone_stays_weak() -> None:
    half = nnp.ones(2, "float16")
    assert (nnc.compile(lambda s: s * 2)(3.0) * half).dtype == nnp.float16
    assert (nnc.compile(lambda s: s * 2)(np.float32(3.0)) * half).dtype == nnp.float32


def test_a_python_integer_too_large_is_refused() -> None:
    with pytest.raises(DTypeError, match="does not fit into int64"):
        nnc.compile(lambda x: x)(2**70)


def test_a_python_float_too_large_for_the_default_is_infinite_without_a_warning() -> None:
    assert np.asarray(nnc.compile(lambda x: x)(1e300)) == np.inf
    assert float(nnc.compile(lambda x: x)(1e300)) == 1e300  # a number that meets no array keeps its digits


# -- retracing ---------------------------------------------------------------------------------------------------------


def test_only_shapes_dtypes_and_structures_retrace_and_the_parameter_is_named() -> None:
    f = nnc.compile(lambda params, x: x @ params["w"])
    w, x = nnp.ones((2, 3)), nnp.ones((4, 2))
    f({"w": w}, x)
    assert reason(f) == "it was the first call"
    f({"w": w * 2}, x + 1), f({"w": np.ones((2, 3), np.float32)}, x)
    assert traces(f) == 1
    assert nnc.debug.explain(f) == "<lambda>: the last call reused a program"
    f({"w": nnp.ones((2, 5))}, x)
    assert reason(f) == 'argument params["w"] changed from float32[2,3] to float32[2,5]'
    f({"w": nnp.ones((2, 5))}, x.astype("float64"))
    assert reason(f) == "argument x changed from float32[4,2] to float64[4,2]"
    f({"w": w, "b": x}, x)
    assert reason(f) == 'argument params["b"] is new'
    f({"w": w}, x)
    assert traces(f) == 4


def test_a_list_in_place_of_a_tuple_retraces() -> None:
    f = nnc.compile(lambda xs: xs[0] + xs[1])
    f((1.0, 2.0))
    f([1.0, 2.0])
    assert reason(f) == "argument xs is a list, and was a tuple"


def test_the_order_of_keywords_and_passing_by_name_do_not_retrace() -> None:
    def fun(x: Any, y: Any = 1.0, *, z: Any = 0.0) -> Any:
        return x - y + z

    f = nnc.compile(fun)
    calls = [f(5.0, 2.0, z=1.0), f(5.0, y=2.0, z=1.0), f(z=1.0, y=2.0, x=5.0), f(y=2.0, x=5.0, z=1.0)]
    assert list(map(float, calls)) == [4] * 4
    assert traces(f) == 1
    assert float(f(5.0)) == 4
    assert "argument y is no longer given" in reason(f)


def test_missing_and_unknown_arguments_raise_as_python_does() -> None:
    f = nnc.compile(lambda x, y: x + y)
    for args, kwargs in (((1.0,), {}), ((1.0, 2.0, 3.0), {}), ((1.0, 2.0), {"x": 1.0}), ((1.0,), {"why": 1.0})):
        with pytest.raises(TypeError, match="argument"):
            f(*args, **kwargs)
    assert float(f(1.0, 2.0)) == 3


def test_any_number_of_arguments_and_keywords_are_named_in_the_explanation() -> None:
    f = nnc.compile(lambda first, *rest, **named: first + rest[0] + named["k"])
    f(1.0, 2.0, k=3.0)
    f(1.0, nnp.ones(2), k=nnp.ones(1))
    assert "argument rest[0] changed" in reason(f)
    assert "argument k changed" in reason(f)


def test_max_traces_raises_with_the_difference_and_leaves_the_programs_usable() -> None:
    f = nnc.compile(lambda params: params["w"] * 2, max_traces=1)
    f({"w": nnp.ones(2)})
    with pytest.raises(
        TraceError, match=r'max_traces=1: argument params\["w"\] changed from float32\[2\] to float32\[3\]'
    ):
        f({"w": nnp.ones(3)})
    assert f({"w": nnp.ones(2)}).shape == (2,)
    f.cache_clear()
    assert f({"w": nnp.ones(3)}).shape == (3,)


def test_cache_info_counts_and_cache_clear_forgets() -> None:
    f = nnc.compile(lambda x: x)
    f(1.0), f(2.0), f(nnp.ones(1))
    assert f.cache_info() == nnc.compiled.compiled.CacheInfo(hits=1, misses=2, size=2, families=2)
    f.cache_clear()
    assert f.cache_info() == nnc.compiled.compiled.CacheInfo(0, 0, 0, 0)
    f(1.0)
    assert reason(f) == "it was the first call"


def test_side_effects_happen_once_for_each_trace() -> None:
    seen: list[Any] = []

    @nnc.compile
    def f(xs: Any) -> Any:
        seen.append(1)
        return sum(x for x in (y * 2 for y in xs))

    assert float(f([1.0, 2.0])) == 6
    assert float(f([3.0, 2.0])) == 10
    assert len(seen) == 1


# -- arguments: donated, unread, kept ----------------------------------------------------------------------------------


def test_donated_nnc_arrays_are_used_up_and_numpy_arrays_are_not() -> None:
    f = nnc.compile(lambda state, x: {"w": state["w"] + x}, donate_argnums=0)
    state = {"w": nnp.ones(2)}
    new = f(state, 1.0)
    assert state["w"].is_deleted()
    assert repr(state["w"]) == "Array(<donated>, float32[2])"
    with pytest.raises(ArgumentTypeError, match="donated array"):
        state["w"] + 1
    with pytest.raises(ArgumentTypeError, match="donated array"):
        f(state, 1.0)
    kept = np.ones(2, np.float32)
    f({"w": kept}, 1.0)
    assert kept.tolist() == [1, 1]
    assert f(new, 1.0)["w"].tolist() == [3, 3]


def test_a_donated_numpy_array_that_is_given_back_stays_its_owner_s() -> None:
    f = nnc.compile(lambda x: (x, x * 2), donate_argnums=0)
    for i in range(4):
        x = np.full(3, float(i))
        same, _ = f(x)
        x[:] = -1
        np.testing.assert_array_equal(same, np.full(3, float(i)))


@pytest.mark.parametrize("options", [{"donate_argnames": "x"}, {"donate_argnums": 0}, {"donate_argnums": -2}])
def test_donated_arguments_are_named_by_number_or_name_and_given_either_way(options: dict[str, Any]) -> None:
    f = nnc.compile(lambda x, y: x + y, **options)
    for call in (lambda a: f(a, 1.0), lambda a: f(y=1.0, x=a)):
        x = nnp.ones(2)
        call(x)
        assert x.is_deleted()


def test_an_array_donated_and_passed_twice_or_returned_gives_the_right_result() -> None:
    x = nnp.asarray([1.0, 2.0])
    f = nnc.compile(lambda a, b: (a, a + b), donate_argnums=0)
    same, total = f(x, x)
    assert same.tolist() == [1, 2]
    assert total.tolist() == [2, 4]
    assert x.is_deleted()


def test_the_memory_of_a_donated_array_is_used_again() -> None:
    step = nnc.compile(lambda p, g: {k: p[k] - 0.5 * g[k] for k in p}, donate_argnums=0)
    params, grads = {"w": nnp.ones((50, 50)), "b": nnp.zeros(3)}, {"w": nnp.ones((50, 50)), "b": nnp.ones(3)}
    plan = step.lower(params, grads).compile().memory_plan
    assert plan.output_bytes == 0
    before = {k: np.asarray(x).ctypes.data for k, x in params.items()}
    params = step(params, grads)
    assert {k: np.asarray(x).ctypes.data for k, x in params.items()} == before
    assert params["w"][0, 0] == 0.5 and params["b"][0] == -0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(3.0)[::-1],
        lambda: np.array([[1.0, 2], [3, 4]]).T,
        lambda: np.array([[1.0, 2], [3, 4]])[:, ::-1],
        lambda: np.arange(4).view(np.float64),
        lambda: np.array(0x40E00000, np.int32).view(np.float32),
    ],
)
def test_a_donated_array_that_sees_its_memory_otherwise_keeps_its_values(make: Callable[[], Any]) -> None:
    f = nnc.compile(lambda x: (x, x * 2), donate_argnums=0)
    same, twice = f(nnc.asarray(make()))
    np.testing.assert_array_equal(same, make())
    np.testing.assert_array_equal(twice, make() * 2)


@pytest.mark.parametrize("options", [{}, {"donate_argnums": 0}])
def test_arrays_in_another_byte_order_are_converted(options: dict[str, Any]) -> None:
    f = nnc.compile(lambda x, n: x * 2 + n, **options)
    for x in (np.arange(3.0), np.arange(3.0).astype(">f8"), np.arange(3.0)):
        assert f(x, np.array(1, ">i4")).tolist() == [1, 3, 5]
        assert x.tolist() == [0, 1, 2]
        assert nnc.grad(lambda x: (x**2).sum())(x).tolist() == [0, 2, 4]
        assert nnc.vmap(lambda x: x * 2)(x).tolist() == [0, 2, 4]
    assert traces(f) == 1


def test_donated_memory_that_others_see_is_copied() -> None:
    f = nnc.compile(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))
    x = nnp.ones(3)
    view = np.asarray(x)
    assert f(x, nnp.ones(3))[0].tolist() == [2, 2, 2]
    assert view.tolist() == [1, 1, 1]
    twice = nnp.ones(3)
    first, second = f(twice, twice)
    assert first.tolist() == second.tolist() == [2, 2, 2]
    local = np.ones(3)
    f(nnc.asarray(local), local)
    assert local.tolist() == [1, 1, 1]


def test_an_array_donated_and_captured_is_refused_at_the_next_call() -> None:
    x = nnp.ones(2)
    f = nnc.compile(lambda a: a + x, donate_argnums=0)
    assert f(x).tolist() == [2, 2]
    with pytest.raises(ArgumentTypeError, match="donated array"):
        f(nnp.ones(2))


def test_a_call_that_fails_uses_up_nothing() -> None:
    x = nnp.ones(2)
    f = nnc.compile(lambda a, i: a[i], donate_argnums=0)
    with pytest.raises(IndexError):
        f(x, 7)
    assert not x.is_deleted()


def test_an_argument_cannot_be_static_and_donated() -> None:
    with pytest.raises(ArgumentError, match="both static and donated"):
        nnc.compile(lambda x: x, static_argnums=0, donate_argnames="x")


def test_an_unread_argument_costs_nothing() -> None:
    f = nnc.compile(lambda x, unread: (x + 1, (unread * 2).shape[0]))
    big = np.ones((2000, 2000)).T[::2]  # copying it would be seen
    plan = f.lower(nnp.ones(2), big).compile().memory_plan
    assert "float64[1000,2000]" not in str(plan)
    f(nnp.ones(2), big)
    tracemalloc.start()
    f(nnp.ones(2), big)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < big.nbytes / 10
    gone = nnp.ones(2)
    gone.delete()
    assert f(nnp.ones(2), nnp.ones((1000, 2000)))[0].tolist() == [2, 2]
    assert nnc.compile(lambda x, unread: x)(1.0, gone) == 1


def test_arguments_and_results_are_not_kept_alive() -> None:
    f = nnc.compile(lambda x, unread: (x * 2, x))
    lowered = f.lower(nnp.ones(1), nnp.ones(1))
    x, y = nnp.ones(3), nnp.ones(3)
    result = f(x, y)
    references = [weakref.ref(value) for value in (x, y, *result)]
    executable = lowered.compile()
    z = nnp.ones(1)
    references.append(weakref.ref(z))
    executable(z, z)
    del x, y, z, result
    gc.collect()
    assert [r() for r in references] == [None] * 5


def test_results_are_fresh_and_independent_of_later_calls() -> None:
    constant = nnp.asarray([7.0, 7.0])
    local = np.array([1.0, 2.0])
    f = nnc.compile(lambda x: {"same": x, "twice": (x * 2, x * 2), "view": x[::-1], "constant": constant, "np": local})
    x = np.array([1.0, 2.0], np.float32)
    first = f(x)
    x[:] = 9
    local[:] = 9
    second = f(x)
    assert first["same"].tolist() == [1, 2]
    assert first["view"].tolist() == [2, 1]
    assert first["np"].tolist() == [1, 2]
    assert first["twice"][0].tolist() == first["twice"][1].tolist() == [2, 4]
    assert second["same"].tolist() == [9, 9]
    assert second["np"].tolist() == [9, 9]
    assert not np.shares_memory(np.asarray(second["same"]), x)
    assert not np.shares_memory(np.asarray(second["constant"]), np.asarray(constant))


def test_results_of_every_kind() -> None:
    class Pair(NamedTuple):
        a: Any
        b: Any

    def fun(x: Any) -> Any:
        y = x + 1
        return Pair(y, [y, x, None, "label", 3, 2.5, True, nnp.zeros((0, 2))]), {}

    (pair, empty) = nnc.compile(fun)(nnp.ones(1))
    assert type(pair).__name__ == "Pair"
    assert pair.a.tolist() == pair.b[0].tolist() == [2]
    assert pair.b[1].tolist() == [1]
    assert pair.b[2:4] == [None, "label"]
    assert [np.asarray(v).item() for v in pair.b[4:7]] == [3, 2.5, True]
    assert pair.b[7].shape == (0, 2)
    assert empty == {}


def test_functions_without_arguments_and_without_arrays() -> None:
    assert nnc.compile(lambda: nnp.arange(3))().tolist() == [0, 1, 2]
    assert nnc.compile(lambda: None)() is None
    assert nnc.compile(lambda x: None)(nnp.ones(2)) is None
    assert nnc.compile(lambda: "text")() == "text"


def test_zero_size_arrays() -> None:
    f = nnc.compile(lambda x: (x * 2, x.sum(), x.reshape(0, 7)))
    doubled, total, shaped = f(nnp.ones((0, 3)))
    assert (doubled.shape, float(total), shaped.shape) == ((0, 3), 0, (0, 7))


def test_strided_and_read_only_arguments() -> None:
    base = np.arange(12.0).reshape(3, 4)
    f = nnc.compile(lambda x: x + 1)
    np.testing.assert_array_equal(f(base.T), base.T + 1)
    np.testing.assert_array_equal(f(base[::-1, ::2]), base[::-1, ::2] + 1)
    base.flags.writeable = False
    np.testing.assert_array_equal(f(base), base + 1)


# -- nesting -----------------------------------------------------------------------------------------------------------


def test_compiled_functions_within_compiled_functions_and_transforms() -> None:
    inner = nnc.compile(lambda x: x**3)
    outer = nnc.compile(lambda x: inner(x) * 2)
    assert float(outer(2.0)) == 16
    assert traces(inner) == 0
    assert float(nnc.grad(outer)(2.0)) == 24
    assert float(nnc.grad(nnc.compile(nnc.grad(outer)))(2.0)) == 24
    assert nnc.vmap(outer)(nnp.asarray([1.0, 2.0])).tolist() == [2, 16]
    assert nnc.compile(nnc.vmap(nnc.grad(outer)))(nnp.asarray([1.0, 2.0])).tolist() == [6, 24]


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "compile"])
def test_a_compiled_function_that_captures_a_value_of_an_enclosing_trace(transform: str) -> None:
    x = nnp.asarray([1.0, 2.0])

    def outer(w: Any) -> Any:
        return nnc.compile(lambda x: (x * w).sum())(x)

    if transform == "grad":
        assert float(nnc.grad(outer)(2.0)) == 3
    elif transform == "vmap":
        assert nnc.vmap(outer)(x).tolist() == [3, 6]
    elif transform == "jvp":
        assert [float(v) for v in nnc.jvp(outer, (2.0,), (1.0,))] == [6, 3]
    else:
        assert float(nnc.compile(outer)(2.0)) == 6


def test_a_shared_compiled_function_is_right_inside_and_outside_of_a_trace_that_it_captures() -> None:
    box: dict[str, Any] = {"w": nnp.asarray(2.0)}
    f = nnc.compile(lambda x: x * box["w"])

    def loss(w: Any) -> Any:
        box["w"] = w
        return f(3.0)

    assert float(f(3.0)) == 6
    assert float(nnc.grad(loss)(5.0)) == 3
    box["w"] = nnp.asarray(4.0)
    assert float(f(3.0)) == 12


def test_lowering_a_function_that_captures_a_value_of_an_enclosing_trace_is_refused_when_compiled() -> None:
    def outer(w: Any) -> Any:
        lowered = nnc.compile(lambda x: x * w).lower(1.0)
        with pytest.raises(TraceError, match="captures a value of an enclosing trace"):
            lowered.compile()
        return w

    nnc.grad(outer)(2.0)


def test_recursion_with_a_static_depth() -> None:
    @nnc.compile(static_argnums=1)
    def f(x: Any, n: int) -> Any:
        return x if n == 0 else x * f(x, n - 1)

    assert float(f(2.0, 3)) == 16
    assert traces(f) == 1


def test_an_exception_in_the_function_reaches_the_user_and_caches_nothing() -> None:
    fail = True

    @nnc.compile
    def f(x: Any) -> Any:
        if fail:
            raise KeyError("mine")
        return x + 1

    with pytest.raises(KeyError, match="mine"):
        f(1.0)
    assert f.cache_info().size == 0
    fail = False
    assert float(f(1.0)) == 2
    assert (nnp.ones(2) + 1).tolist() == [2, 2]  # no trace is left open


def test_an_error_while_tracing_caches_nothing_and_its_traceback_ends_in_the_user_s_line() -> None:
    @nnc.compile
    def f(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    with pytest.raises(TraceError) as caught:
        f(1.0)
    assert f.cache_info().size == 0
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "if x > 0:"


# -- threads -----------------------------------------------------------------------------------------------------------


def test_eight_threads_call_one_function_from_its_first_call_on() -> None:
    seen: list[int] = []

    @nnc.compile
    def f(x: Any, s: Any) -> Any:
        seen.append(1)
        y = x
        for _ in range(5):
            y = nnp.tanh(y @ x) + s
        return y

    x = nnp.asarray(np.random.default_rng(0).normal(size=(30, 30)))
    barrier = threading.Barrier(8)
    wrong: list[Any] = []

    def work(i: int) -> None:
        barrier.wait()
        expected = f(x, float(i))
        for _ in range(20):
            if not np.array_equal(f(x, float(i)), expected):
                wrong.append(i)
        y = np.asarray(x)
        z = y
        for _ in range(5):
            z = np.tanh(z @ y) + i
        if not np.allclose(expected, z):
            wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(seen) == traces(f) == 1
    assert f.cache_info().hits == 8 * 21 - 1


# -- ahead of time -----------------------------------------------------------------------------------------------------


def test_lower_and_compile_from_shapes_alone() -> None:
    f = nnc.compile(lambda params, x: x @ params["w"])
    struct = nnc.ShapeDtypeStruct
    lowered = f.lower({"w": struct((2, 3), "float32")}, struct((4, 2), "float32"))
    assert "float32[4,2]" in lowered.as_text()
    executable = lowered.compile()
    assert executable.memory_plan.peak == 4 * 3 * 4
    assert executable.cost.flops > 0
    assert "dot" in executable.as_text()
    assert executable({"w": nnp.ones((2, 3))}, nnp.ones((4, 2))).tolist() == [[2] * 3] * 4
    assert executable(x=nnp.ones((4, 2)), params={"w": nnp.ones((2, 3))}).shape == (4, 3)
    assert traces(f) == 0


def test_an_executable_names_the_argument_that_differs() -> None:
    executable = nnc.compile(lambda params, mode: params["w"] * 2).lower({"w": nnp.ones(2)}, "a").compile()
    for args, problem in (
        (({"w": nnp.ones(3)}, "a"), r'argument params\["w"\] changed from float32\[2\] to float32\[3\]'),
        (({"w": np.ones(2)}, "a"), r"to float64\[2\]"),
        (({"w": 1.0}, "a"), r"to float32\[\]"),
        (({"w": nnp.ones(2)}, "b"), "argument mode changed from 'a' to 'b'"),
        (({"v": nnp.ones(2)}, "a"), r'argument params\["w"\] is no longer given'),
        (({"w": nnp.ones(2)},), "argument mode is no longer given"),
    ):
        with pytest.raises(ArgumentTypeError, match=problem):
            executable(*args)


def test_an_executable_leaves_static_arguments_out() -> None:
    executable = nnc.compile(power, static_argnames="n").lower(2.0, n=3).compile()
    assert float(executable(2.0)) == 8
    assert float(executable(x=3.0)) == 27


def test_numbers_for_an_executable_keep_their_kind() -> None:
    executable = nnc.compile(lambda x: x + 1).lower(nnc.ShapeDtypeStruct((), "float32")).compile()
    assert float(executable(1.5)) == 2.5
    with pytest.raises(ArgumentTypeError, match="int64"):
        executable(1)


def test_a_shape_in_place_of_an_array_is_refused_when_called() -> None:
    with pytest.raises(ArgumentTypeError, match="only stands for one"):
        nnc.compile(lambda x: x + 1)(nnc.ShapeDtypeStruct((2,), "float32"))


@pytest.mark.parametrize("streams", [1, 2])
def test_kernels_that_run_in_python_warn_of_no_nan(streams: int) -> None:
    x = np.full((16, 16), np.inf, np.complex64)
    x[0] = np.nan
    products = nnc.compile(lambda x: [nnp.matmul(x * i, x) for i in range(4)], streams=streams)
    assert all(np.isnan(y).all() for y in products(x))


def test_a_memory_budget_is_held_before_anything_runs() -> None:
    f = nnc.compile(lambda x: nnp.sum(nnp.sort(x[:, None] + x)), memory_budget="10 kB")
    assert f(nnp.ones(10)) > 0
    with pytest.raises(MemoryBudgetError, match="memory_budget"):
        f(nnp.ones(1000))
    assert f.cache_info().size == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "cuda"}, UnsupportedError),
        ({"streams": 0}, ArgumentError),
        ({"streams": 1.5}, ArgumentTypeError),
        ({"autotune": "yes"}, ArgumentTypeError),
        ({"contract": 1}, ArgumentTypeError),
        ({"max_traces": 0}, ArgumentError),
        ({"max_traces": "many"}, ArgumentError),
        ({"memory_budget": -1}, ArgumentError),
        ({"static_argnums": "x"}, ArgumentTypeError),
        ({"static_argnums": 5}, ArgumentError),
        ({"static_argnums": -3}, ArgumentError),
        ({"static_argnames": "why"}, ArgumentError),
        ({"donate_argnums": 2}, ArgumentError),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        nnc.compile(lambda x, y: x, **options)


@nnc.compile
def doubled(x: Any) -> Any:
    return 2 * x


def cubed(x: Any, n: int = 3) -> Any:
    return x**n


def test_a_compiled_function_goes_to_another_process_as_its_function() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    f = nnc.compile(cubed, static_argnums=1, max_traces=1)
    assert f(2.0) == 8
    for g in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f), copy.copy(f)):
        assert g is not f and g(3.0, 2) == 9
        with pytest.raises(TraceError, match="max_traces=1"):
            g(3.0, 3)


def test_the_overhead_of_a_cached_call() -> None:
    x = nnp.ones(3)
    tree = {f"layer{i}": {"w": x, "b": x} for i in range(20)}
    cases: list[tuple[str, Callable[..., Any], Any]] = [
        ("one array", nnc.compile(lambda x: x + 1), x),
        ("a tree of 40 arrays", nnc.compile(lambda t: t["layer0"]["w"] + 1), tree),
    ]
    for name, f, argument in cases:
        f(argument)
        before = time.perf_counter()
        for _ in range(200):
            f(argument)
        print(f"cached call with {name}: {(time.perf_counter() - before) / 200 * 1e6:.1f} us")
        assert f.cache_info().hits == 200


def test_twice_as_many_arguments_are_compiled_with_twice_the_calls() -> None:
    def calls(n: int) -> int:
        return count_calls(nnc.compile(lambda xs: nnp.concatenate(xs)), [np.ones(1 + k % 7) for k in range(n)])

    calls(5)
    assert calls(800) <= 2.2 * calls(400)
