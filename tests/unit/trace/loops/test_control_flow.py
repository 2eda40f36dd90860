"""Loops and branches as users call them: carries of every kind, lengths, mistakes; eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, OutOfBoundsError, ShapeError, TraceError, TreeError

RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
X = np.array([0.3, 0.8, -0.4])


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(np.asarray(a, np.complex128), np.asarray(b, np.complex128), rtol=1e-9, atol=1e-12))


# -- carries -----------------------------------------------------------------------------------------------------------


@RUN
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "bfloat16", "float64", "complex64"])
def test_carries_of_every_dtype_keep_it(run: Callable[..., Any], dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.array([1, 0, 1]).astype(kind)
    double = (lambda i, c: ~c) if dtype == "bool" else (lambda i, c: c + c)
    result = run(lambda x: nnc.fori_loop(0, 3, double, x))(x)
    assert result.dtype == kind
    assert np.array_equal(np.asarray(result), ~x if dtype == "bool" else x * np.asarray(8, kind))


@RUN
def test_a_scan_of_no_iterations_returns_its_carry_and_empty_rows(run: Callable[..., Any]) -> None:
    for options in ({"length": 0}, {"length": 0, "reverse": True}, {"length": 0, "unroll": 2}):
        last, rows = run(lambda x, options=options: nnc.scan(lambda c, _: (c * 2, c[:2]), x, None, **options))(X)
        assert same(last, X) and rows.shape == (0, 2) and rows.dtype == X.dtype
    last, rows = run(lambda x: nnc.scan(lambda c, y: (c + y, y), x, nnp.zeros((0, 3))))(X)
    assert same(last, X) and rows.shape == (0, 3)


def test_trees_with_settings_are_carried() -> None:
    start = {"n": 0, "name": "net", "none": None, "f": len, "pair": (np.ones(2), [np.float32(1)])}

    def step(c: Any) -> Any:
        return {**c, "n": c["n"] + 1, "pair": (c["pair"][0] * 2, [c["pair"][1][0] + 1])}

    end = nnc.while_loop(lambda c: c["n"] < 3, step, start)
    assert (int(end["n"]), end["name"], end["none"], end["f"]) == (3, "net", None, len)
    assert same(end["pair"][0], [8, 8]) and float(end["pair"][1][0]) == 4


@pytest.mark.parametrize("after", ["other", 1.5, None])
def test_a_setting_that_changes_from_round_to_round_is_refused(after: Any) -> None:
    with pytest.raises(TreeError, match=r'\["name"\]'):
        nnc.fori_loop(0, 2, lambda i, c: {"x": c["x"], "name": after}, {"x": 1.0, "name": "net"})
    with pytest.raises(TreeError, match=r'\["name"\]'):
        nnc.scan(lambda c, _: ({"x": c["x"], "name": "net"}, None), {"x": 1.0, "name": after}, length=2)


def test_a_setting_that_differs_between_branches_is_refused() -> None:
    with pytest.raises(TreeError, match="'low' in .*, 'high' in "):
        nnc.cond(True, lambda x: (x, "high"), lambda x: (x, "low"), 1.0)
    with pytest.raises(TreeError, match="an array in"):
        nnc.cond(True, lambda x: (x, 1.0), lambda x: (x, "low"), 1.0)
    assert nnc.cond(True, lambda x: (x, "same"), lambda x: (-x, "same"), 1.0)[1] == "same"


@RUN
def test_python_numbers_as_carries_take_the_dtype_of_the_array_they_meet(run: Callable[..., Any]) -> None:
    grown = run(lambda a: nnc.while_loop(lambda c: c < 10, lambda c: c * a, 1))(np.float64(1.5))
    assert grown.dtype == np.float64 and float(grown) == 1.5**6
    assert nnc.fori_loop(0, 4, lambda i, c: c * 1.5, 1).dtype == np.float32
    assert nnc.fori_loop(0, 4, lambda i, c: c + i, 0).dtype == np.int64
    assert nnc.fori_loop(0, 4, lambda i, c: 0.5, np.float64(0)).dtype == np.float64


def test_no_value_is_cut_to_an_integer_in_silence() -> None:
    with pytest.raises(ShapeError, match="float32.* at first, int64"):
        nnc.fori_loop(0, 0, lambda i, c: i, 1.5)
    with pytest.raises(ShapeError, match="int64.* float32"):
        nnc.cond(True, lambda x: 1.5, lambda x: x, np.int64(3))
    with pytest.raises(ShapeError, match="int64.* float32"):
        nnc.switch(1, [lambda x: 1, lambda x: 1.5, lambda x: x], np.int64(3))
    assert nnc.cond(True, lambda x: 1, lambda x: x, np.float64(3)).dtype == np.float64


@RUN
def test_loops_may_carry_nothing(run: Callable[..., Any]) -> None:
    assert run(lambda x: nnc.while_loop(lambda _: False, lambda c: c, ()))(X) == ()
    assert run(lambda x: nnc.fori_loop(0, 3, lambda i, c: None, None))(X) is None
    carry, ys = run(lambda x: nnc.scan(lambda c, r: (None, r * 2), None, x))(X)
    assert carry is None and same(ys, X * 2)
    assert run(lambda x: nnc.scan(lambda c, _: ((), ()), (), length=4))(X) == ((), ())


@RUN
def test_carries_may_swap_lag_and_be_one_value_twice(run: Callable[..., Any]) -> None:
    def lag(x: Any, y: Any, z: Any) -> Any:
        return nnc.fori_loop(0, 5, lambda i, c: (c[1], c[2], c[0] * 0.5 + c[2]), (x, y, z))

    a, b, c = X
    for _ in range(5):
        a, b, c = b, c, a * 0.5 + c
    assert same(run(lag)(*X), (a, b, c))
    assert same(run(lambda x, y: nnc.fori_loop(0, 5, lambda i, c: c[::-1], (x, y)))(1.0, 2.0), (2, 1))
    twice = run(lambda x: nnc.fori_loop(0, 3, lambda i, c: (c[0] * 2, c[1] + c[0]), (x, x)))(X)
    assert same(twice, (X * 8, X * 8))
    one = run(lambda x: nnc.fori_loop(0, 2, lambda i, c: (c[0] + c[1],) * 2, (x, x)))(X)
    assert same(one, (X * 4, X * 4))


@RUN
def test_inputs_and_captured_arrays_stay_as_they_were(run: Callable[..., Any]) -> None:
    x, w = X.copy(), nnp.asarray(X + 1)
    f = run(lambda x: (nnc.fori_loop(0, 3, lambda i, c: c * w + x, x), x + w))
    first, second = f(x), f(x)
    assert np.array_equal(x, X) and same(w, X + 1)
    assert same(first[0], second[0]) and same(first[1], 2 * X + 1)


def test_a_donated_input_may_be_carried() -> None:
    w = np.full(3, 2.0)
    f = nnc.compile(lambda x: nnc.fori_loop(0, 3, lambda i, c: c * w, x), donate_argnums=0)
    assert all(same(f(nnp.asarray(X.copy())), X * 8) for _ in range(3))


# -- iterations ------------------------------------------------------------------------------------------------------------


@RUN
def test_bounds_may_be_values_and_the_wrong_way_round(run: Callable[..., Any]) -> None:
    f = run(lambda a, b, x: nnc.fori_loop(a, b, lambda i, c: c + i, x))
    for a, b in ((0, 4), (2, 7), (3, 3), (5, 1), (-2, 2)):
        assert int(f(np.int64(a), np.int64(b), np.int64(10))) == 10 + sum(range(a, b))
        assert int(nnc.fori_loop(a, b, lambda i, c: c + i, 10)) == 10 + sum(range(a, b))


@RUN
def test_loops_nest_and_inner_ones_read_outer_counters(run: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        def outer(i: Any, c: Any) -> Any:
            inner = nnc.fori_loop(0, i + 1, lambda j, d: nnc.fori_loop(0, 2, lambda k, e: e + i * j * x + k, d), c)
            return nnc.cond(
                i % 2 == 0, lambda d: nnc.while_loop(lambda v: v < 5, lambda v: v + x, d), lambda d: d, inner
            )

        return nnc.fori_loop(0, 4, outer, 0.0)

    x, c = 0.7, 0.0
    for i in range(4):
        for j in range(i + 1):
            for k in range(2):
                c += i * j * x + k
        while i % 2 == 0 and c < 5:
            c += x
    assert np.isclose(float(run(f)(np.float64(x))), c)


@RUN
def test_max_steps_counts_rounds_exactly(run: Callable[..., Any]) -> None:
    def f(most: int) -> Any:
        return run(lambda x: nnc.while_loop(lambda c: c < 10, lambda c: c + 1, x, max_steps=most))(np.int64(0))

    assert int(f(10)) == 10
    with pytest.raises(ArgumentError, match="max_steps=9"):
        f(9)
    with pytest.raises(ArgumentError, match="max_steps=2"):
        nnc.grad(lambda a: nnc.while_loop(lambda c: c < 10, lambda c: c * a, a, max_steps=2))(1.5)
    for wrong in (-1, 2.0, True):
        with pytest.raises(ArgumentError, match="max_steps"):
            nnc.while_loop(lambda c: c < 10, lambda c: c + 1, 0, max_steps=wrong)  # type: ignore[arg-type]


@RUN
def test_nodes_behind_the_test_do_not_run_in_the_last_iteration(run: Callable[..., Any]) -> None:
    table = np.arange(5.0)

    def total(n: Any) -> Any:
        def go(c: Any) -> Any:
            unused = nnp.sin(c[1]) * 3
            unused = unused * unused + unused * 2 - unused
            return c[0] < n

        return nnc.while_loop(go, lambda c: (c[0] + 1, c[1] + nnp.asarray(table)[c[0]]), (0, 0.0))[1]

    assert float(run(total)(np.int64(5))) == 10
    with pytest.raises(OutOfBoundsError):
        run(total)(np.int64(6))


@RUN
def test_compiled_functions_are_called_in_conditions_and_rounds(run: Callable[..., Any]) -> None:
    small = nnc.compile(lambda c: nnp.sin(c) * 0.1 + c < 10)
    step = nnc.compile(lambda c: nnp.abs(c) * 2 + 1)
    assert float(run(lambda x: nnc.while_loop(small, step, x))(np.float64(1))) == 15


def test_many_rounds_are_done_and_pulled_back() -> None:
    f = nnc.compile(
        nnc.grad(lambda a, n: nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * a), (0, a))[1])
    )
    assert np.isclose(float(f(np.float64(1.001), np.int64(2000))), 2001 * 1.001**2000)


def test_threads_run_one_compiled_loop() -> None:
    f = nnc.compile(lambda x: nnc.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, c[1] + x), (0, x))[1])
    with ThreadPoolExecutor(4) as pool:
        assert [float(y) for y in pool.map(lambda k: f(np.float64(k)), range(40))] == [51.0 * k for k in range(40)]


# -- scan, map, associative_scan ---------------------------------------------------------------------------------------


def mixed(xs: Any, unroll: int, reverse: bool) -> Any:
    def step(c: Any, x: Any) -> Any:
        new = nnp.tanh(c["s"]) * x["a"] + x["b"]
        return {"s": new, "n": c["n"] + 1}, (new * c["s"], None)

    return nnc.scan(step, {"s": 0.5 * xs["a"][0], "n": 0}, xs, reverse=reverse, unroll=unroll)


@RUN
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [2, 3, 7, 9])
def test_unrolled_scans_equal_plain_ones_in_value_and_gradient(
    run: Callable[..., Any], unroll: int, reverse: bool
) -> None:
    xs = {"a": np.linspace(-1, 2, 7), "b": np.cos(np.arange(7.0))}

    def loss(xs: Any, unroll: int) -> Any:
        carry, (ys, _) = mixed(xs, unroll, reverse)
        return carry["s"] * nnp.sum(ys * np.arange(7.0))

    for a, b in zip(
        nnc.tree.leaves(run(lambda v: mixed(v, unroll, reverse))(xs)),
        nnc.tree.leaves(mixed(xs, 1, reverse)),
        strict=True,
    ):
        assert same(a, b)
    found, wanted = (run(nnc.grad(lambda v, u=u: loss(v, u)))(xs) for u in (unroll, 1))
    assert same(found["a"], wanted["a"]) and same(found["b"], wanted["b"])


@RUN
@pytest.mark.parametrize("unroll", [1, 2, 3, 7, 9, True, False, None, np.int64(2)])
def test_unrolled_fori_loops_equal_plain_ones_in_value_and_gradient(run: Callable[..., Any], unroll: Any) -> None:
    def loop(x: Any, **options: Any) -> Any:
        return nnc.fori_loop(
            3, 10, lambda i, c: {"x": nnp.sin(c["x"] * i) + x, "n": c["n"] + i}, {"x": x, "n": 0}, **options
        )

    x = nnp.asarray([0.5, -1.0])
    found, wanted = run(lambda v: loop(v, unroll=unroll))(x), loop(x)
    np.testing.assert_allclose(found["x"], wanted["x"], rtol=1e-5)
    assert int(found["n"]) == sum(range(3, 10))
    gradients = (run(nnc.grad(lambda v, o=o: loop(v, **o)["x"].sum()))(x) for o in ({"unroll": unroll}, {}))
    np.testing.assert_allclose(*gradients, rtol=1e-4)
    assert float(nnc.fori_loop(5, 2, lambda i, c: c + 1, 1.5, unroll=unroll)) == 1.5


def test_an_iteration_of_an_unrolled_loop_holds_the_body_several_times() -> None:
    def bodies(unroll: Any) -> int:
        graph = nnc.make_graph(lambda x: nnc.fori_loop(0, 6, lambda i, c: nnp.sin(c) + i, x, unroll=unroll))(1.0)
        return sum(node.command.name == "sin" for node in graph.walk())

    assert [bodies(unroll) for unroll in (1, 3, 6, True)] == [1, 3, 6, 6]
    assert bodies(4) == 4 + 1, "the iterations that are left over are a loop of their own"
    rows = nnc.make_graph(lambda x: nnc.scan(lambda c, _: (c + 1, c), x, length=6, unroll=True))(1.0)
    assert [node.params["length"] for node in rows.nodes if node.command.name == "scan"] == [1], "True is all, not 1"


@RUN
@pytest.mark.parametrize("unroll", [1, 3])
def test_scans_of_no_rounds_yield_empty_rows_and_zero_gradients(run: Callable[..., Any], unroll: int) -> None:
    def f(c: Any, xs: Any) -> Any:
        return nnc.scan(lambda c, x: (c * 2, (x.sum(), x * c)), c, xs, unroll=unroll)

    xs = np.zeros((0, 2))
    carry, (sums, rows) = run(f)(np.float64(3), xs)
    assert float(carry) == 3 and sums.shape == (0,) and rows.shape == (0, 2)
    to_c, to_xs = run(nnc.grad(lambda c, xs: f(c, xs)[0] + f(c, xs)[1][1].sum(), (0, 1)))(np.float64(3), xs)
    assert float(to_c) == 1 and to_xs.shape == (0, 2)


@RUN
def test_map_runs_rows_one_by_one_or_in_batches(run: Callable[..., Any]) -> None:
    rows = {"a": np.arange(5.0), "b": np.arange(10.0).reshape(5, 2)}
    f = lambda r: {"s": r["a"] * r["b"].sum(), "b": r["b"]}
    for size in (None, 1, 2, 5, 8):
        found = run(lambda r, size=size: nnc.map(f, r, batch_size=size))(rows)
        assert same(found["s"], rows["a"] * rows["b"].sum(1)) and same(found["b"], rows["b"])
        slope = run(nnc.grad(lambda r, size=size: nnp.sum(nnc.map(f, r, batch_size=size)["s"])))(rows)
        assert same(slope["a"], rows["b"].sum(1)) and same(slope["b"], np.stack([rows["a"]] * 2, 1))


@pytest.mark.parametrize("n", range(9))
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_gives_every_prefix(n: int, reverse: bool) -> None:
    x = np.linspace(0.5, 1.5, 2 * n).reshape(2, n)
    ordered = x[:, ::-1] if reverse else x
    wanted = np.cumprod(ordered, axis=1)
    found = nnc.associative_scan(lambda a, b: a * b, x, reverse=reverse, axis=-1)
    assert same(found, wanted[:, ::-1] if reverse else wanted)


def test_associative_scan_of_affine_maps_has_the_gradient_of_the_recurrence() -> None:
    a, b = np.linspace(0.2, 1.1, 7), np.cos(np.arange(7.0))
    compose = lambda p, q: {"m": p["m"] * q["m"], "c": q["m"] * p["c"] + q["c"]}

    def prefixes(a: Any, b: Any) -> Any:
        return nnp.sum(nnp.sin(nnc.associative_scan(compose, {"m": a, "c": b})["c"]))

    def recurrence(a: Any, b: Any) -> Any:
        step = lambda c, r: (r[0] * c + r[1],) * 2
        return nnp.sum(nnp.sin(nnc.scan(step, np.float64(0), (a, b))[1]))

    assert same(prefixes(a, b), recurrence(a, b))
    for f in (nnc.grad, nnc.jacfwd):
        assert all(map(same, f(prefixes, (0, 1))(a, b), f(recurrence, (0, 1))(a, b)))
    assert same(nnc.hessian(prefixes)(a, b), nnc.hessian(recurrence)(a, b))


# -- Python around and within ------------------------------------------------------------------------------------------


def test_the_round_is_traced_once_so_python_effects_happen_once() -> None:
    seen: list[Any] = []
    nnc.fori_loop(0, 10, lambda i, c: (seen.append(c), c + 1.0)[1], np.float32(0))
    assert len(seen) == 1
    with pytest.raises(TraceError, match="ended"):
        seen[0] + 1


def test_python_decisions_on_values_fail_in_rounds_and_work_under_grad() -> None:
    with pytest.raises(TraceError, match=r"nnc\.cond"):
        nnc.fori_loop(0, 10, lambda i, c: c + 1 if c > 2 else c, 0.0)

    def squared(x: Any) -> Any:
        while x < 10:
            x = nnc.fori_loop(0, 1, lambda i, c: c * c, x)
        return x

    assert np.isclose(float(nnc.grad(squared)(np.float64(1.5))), 8 * 1.5**7)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def message(kind: type[NncError], f: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        f()
    return str(caught.value)


def test_a_carry_that_changes_is_listed_path_by_path() -> None:
    start = {"i": np.int64(0), "w": [np.ones(3), np.ones(2)], "ok": np.float32(1)}

    def step(c: Any) -> Any:
        return {"i": c["i"] + 0.5, "w": [c["w"][0][:2], c["w"][1]], "ok": c["ok"]}

    text = message(ShapeError, lambda: nnc.while_loop(lambda c: c["i"] < 5, step, start))
    assert 'carry["i"]: int64[] at first, float32[] after an iteration' in text
    assert 'carry["w"][0]: float64[3] at first, float64[2] after an iteration' in text
    assert "ok" not in text and "step returns" in text and "test_control_flow.py" in text
    text = message(
        TreeError, lambda: nnc.scan(lambda c, x: ({"a": 1.0, "c": (c["a"],)}, None), {"a": 1.0, "b": 2.0}, X)
    )
    assert '["b"]' in text and '["c"][0]' in text and "test_control_flow.py" in text


def test_branches_that_differ_are_listed_path_by_path() -> None:
    def left(x: Any) -> Any:
        return {"a": x, "b": x[:2], "c": x}

    def right(x: Any) -> Any:
        return {"a": x.astype("int32"), "b": x, "c": x}

    text = message(ShapeError, lambda: nnc.cond(True, left, right, X))
    assert 'result["a"]: int32[3] from right, float64[3] from left' in text
    assert 'result["b"]: float64[3] from right, float64[2] from left' in text
    assert '"c"' not in text and "test_control_flow.py" in text
    text = message(TreeError, lambda: nnc.switch(0, [left, right, lambda x: {"a": x, "d": (x, x)}], X * 1))
    assert "differ" in text and "left's result" in text


@pytest.mark.parametrize(
    ("kind", "call", "said"),
    [
        (ShapeError, lambda: nnc.while_loop(lambda c: c < 3, lambda c: c, X), "bool scalar"),
        (ShapeError, lambda: nnc.while_loop(lambda c: 1, lambda c: c, 1), "bool scalar"),
        (TreeError, lambda: nnc.while_loop(lambda c: (True,), lambda c: c, 1), "one bool"),
        (ArgumentTypeError, lambda: nnc.while_loop(True, lambda c: c, 1), "cond_fun"),  # type: ignore[arg-type]
        (ArgumentTypeError, lambda: nnc.scan(lambda c, x: c, 1, X), "pair"),
        (ArgumentTypeError, lambda: nnc.fori_loop(0, 2.5, lambda i, c: c, 1), "upper"),
        (ArgumentError, lambda: nnc.scan(lambda c, x: (c, x), 1), "length=n"),
        (ArgumentError, lambda: nnc.scan(lambda c, x: (c, x), 1, X, unroll=0), "unroll"),
        (ArgumentError, lambda: nnc.fori_loop(0, 3, lambda i, c: c, 1, unroll=-1), "nnc.fori_loop: unroll is -1"),
        (ArgumentError, lambda: nnc.fori_loop(0, 3, lambda i, c: c, 1, unroll=1.5), "unroll is 1.5"),
        (
            ArgumentError,
            lambda: nnc.fori_loop(0, nnp.asarray(3), lambda i, c: c, 1, unroll=2),
            "iterations is not known",
        ),
        (ShapeError, lambda: nnc.scan(lambda c, x: (c, x), 1, (X, X[:2])), "lengths differ"),
        (ShapeError, lambda: nnc.scan(lambda c, x: (c, x), 1, X, 4), "lengths differ"),
        (ShapeError, lambda: nnc.map(lambda x: x, 3.0), "nnc.map.*0-d"),
        (ArgumentError, lambda: nnc.map(lambda x: x, None), "nnc.map"),
        (ArgumentError, lambda: nnc.map(lambda x: x, X, batch_size=0), "chunk_size|batch_size"),
        (ShapeError, lambda: nnc.associative_scan(nnp.add, (X, X[:2])), "nnc.associative_scan.*lengths differ"),
        (ShapeError, lambda: nnc.cond(X > 0, lambda: 1, lambda: 2), "scalar"),
        (ArgumentError, lambda: nnc.switch(0, []), "no branch"),
        (ArgumentError, lambda: nnc.switch(0, [len], mode="wrap"), "mode"),
        (ArgumentTypeError, lambda: nnc.switch(0.5, [lambda: 1]), "integer"),
        (ShapeError, lambda: nnc.case_of(0, [lambda x: x[:2]], X), "shapes or dtypes"),
        (ArgumentError, lambda: nnc.case_of(0, [], X), "nnc.case_of: there is no branch"),
    ],
)
def test_mistakes_are_named_with_their_place(kind: type[NncError], call: Callable[[], Any], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        call()
    assert "test_control_flow.py" in str(caught.value)


@RUN
def test_an_error_within_a_round_names_the_users_line(run: Callable[..., Any]) -> None:
    def look_up(t: Any, i: Any) -> Any:
        return t[i]  # the line that fails

    def f(t: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] + look_up(t, c[0])), (0, 0.0))[1]

    for g in (f, nnc.grad(f)):
        with pytest.raises(OutOfBoundsError, match=r"index [38] is out of range") as caught:
            run(g)(nnp.asarray(X.astype(np.float32)))
        assert "return t[i]  # the line that fails" in str(caught.value)


@pytest.mark.parametrize("length", [-1, 2.5, "3", np.array([3])])
def test_a_scan_of_no_such_length_is_refused(length: Any) -> None:
    with pytest.raises(ArgumentError, match="length is .*; it must be an integer of 0 or more"):
        nnc.scan(lambda c, x: (c, x), 0.0, None, length)
    assert nnc.scan(lambda c, x: (c + 1, x), 0.0, None, nnp.asarray(3))[0] == 3


@pytest.mark.parametrize("derivative", ["jvp", "linearize", "grad"])
def test_derivatives_keep_the_bound_on_the_number_of_rounds(derivative: str) -> None:
    def f(x: Any) -> Any:
        return nnc.while_loop(lambda c: c < 100, lambda c: c * 2, x, max_steps=3)

    calls = {
        "jvp": lambda x: nnc.jvp(f, (x,), (1.0,)),
        "linearize": lambda x: nnc.linearize(f, x)[0],
        "grad": nnc.value_and_grad(f),
    }
    call = calls[derivative]
    for run in (call, nnc.compile(call)) if derivative != "linearize" else (call,):
        assert float(nnc.tree.leaves(run(20.0))[0]) == 160
        with pytest.raises(ArgumentError, match="3 iterations"):
            run(2.0)


@pytest.mark.parametrize("pred", [0, 1, 2, -1, 0.0, 0.5, np.float32(1.0), np.int8(1), False, True])
def test_a_number_chooses_as_python_would(pred: Any) -> None:
    choose = lambda p: nnc.cond(p, lambda: 1.0, lambda: 2.0)
    want = 1.0 if pred else 2.0
    assert float(choose(pred)) == want
    assert float(nnc.compile(choose)(nnp.asarray(pred))) == want
