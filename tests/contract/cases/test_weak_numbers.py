"""Programs with Python numbers that once lost digits, wrapped around, or changed dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

TENTH = 0.1  # which float32 rounds by 1.5e-9
X = nnp.ones(2, "float64")
Fun = Callable[..., Any]

product = nnc.custom_vjp(lambda x, a: x * a)
product.defvjp(lambda x, a: (x * a, (x, a)), lambda kept, ct: (ct * kept[1], nnp.sum(ct * kept[0])))
pushed = nnc.custom_jvp(lambda x, a: x * a)
pushed.defjvp(lambda p, t: (p[0] * p[1], t[0] * p[1] + p[0] * t[1]))

# functions of a float64 array and a number, whose first element is that number
WITH_FLOATS: dict[str, Fun] = {
    "product": lambda x, a: x * a,
    "formula": lambda x, a: x * nnp.exp(nnp.log(a)) + (a - a),
    "full": lambda x, a: nnp.full(2, a, "float64"),
    "full_like": lambda x, a: nnp.full_like(x, a),
    "set": lambda x, a: x.at[0].set(a),
    "clip": lambda x, a: nnp.clip(x, 0, a),
    "where": lambda x, a: nnp.where(x > 0, a, x),
    "pad": lambda x, a: nnp.pad(x, 1, constant_values=a),
    "append": lambda x, a: nnp.append(x, a)[::-1],
    "stacked": lambda x, a: nnp.stack([a, a]) * x,
    "minimum": lambda x, a: nnp.minimum(x, a),
    "custom_vjp": product,
    "custom_jvp": pushed,
    "gradient": lambda x, a: nnc.grad(lambda x: nnp.sum(x * a))(x),
    "gradient of the number": lambda x, a: x * nnc.grad(lambda b: b * b / 2)(a),
    "second derivative": lambda x, a: x * nnc.grad(nnc.grad(lambda b: b**3 / 6))(a),
    "gradient by rules": lambda x, a: nnc.grad(lambda x: nnp.sum(product(x, a) + pushed(x, a)))(x) / 2,
    "checkpoint": lambda x, a: nnc.grad(lambda x: nnp.sum(nnc.checkpoint(lambda x, a: x * a)(x, a)))(x),
    "jvp": lambda x, a: nnc.jvp(lambda x: x * a, (x,), (x,))[1],
    "jvp by the number": lambda x, a: nnc.jvp(lambda b: x * b, (1.0,), (a,))[1],
    "vmap": lambda x, a: nnc.vmap(lambda x, a: x * a, (0, None))(x, a),
    "cond": lambda x, a: nnc.cond(True, lambda x, a: x * a, lambda x, a: x, x, a),
    "cond within vmap": lambda x, a: nnc.vmap(lambda x: nnc.cond(x > 0, lambda a: a * x, lambda a: a, a))(x),
    "switch": lambda x, a: x * nnc.switch(0, [lambda: a, lambda: 1.0]),
    "fori_loop": lambda x, a: nnc.fori_loop(0, 3, lambda i, c: c, (x * a, a))[1] * x,
    "while_loop": lambda x, a: nnc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1]), (0, a))[1] * x,
    "scan": lambda x, a: nnc.scan(lambda c, x: (c, x * c), a, x)[1],
    "rows of a scan": lambda x, a: nnc.scan(lambda c, _: (c, c), a, length=2)[1] * x,
    "derivative of a scan": lambda x, a: nnc.grad(
        lambda x: nnp.sum(nnc.scan(lambda c, x: (c, x * c), a, x)[1])
    )(x),
    "a compiled function": lambda x, a: nnc.compile(lambda a: a)(a) * x,
    "rate": lambda x, a: -optim.sgd(a).update(x, optim.sgd(a).init(x))[0],
    "activation": lambda x, a: x * nn.leaky_relu(a),
    "reductions": lambda x, a: x * nnp.mean(nnp.stack([a, a])),
}  # fmt: skip
RUNS: dict[str, Callable[[Fun, Any, Any], Any]] = {
    "eagerly": lambda f, x, a: f(x, a),
    "compiled": lambda f, x, a: nnc.compile(f)(x, a),
    "mapped": lambda f, x, a: nnc.vmap(f, (0, None))(x[None], a)[0],
    "in a branch": lambda f, x, a: nnc.cond(True, f, f, x, a),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", WITH_FLOATS)
def test_a_float_keeps_its_digits_until_it_meets_an_array(name: str, run: str) -> None:
    f = WITH_FLOATS[name]
    if run == "mapped" and name == "rate":
        return  # an optimizer's state is none of its arguments
    found = RUNS[run](f, X, TENTH)
    assert found.dtype == nnp.float64 and abs(float(found[0]) - TENTH) < 1e-16
    narrow = RUNS[run](f, X.astype("float32"), TENTH)
    assert narrow.dtype == (nnp.float64 if name == "full" else nnp.float32)


def test_a_compiled_float_times_a_float64_array_is_exact() -> None:
    assert np.all(np.asarray(nnc.compile(lambda x, a: x * a)(np.ones(2), 0.1) - 0.1) == 0)
    assert complex(nnc.compile(lambda x, a: x * a)(np.ones(1, complex), 0.1j)[0]) == 0.1j


@pytest.mark.parametrize("number", [300, -1, 256, 2**40, 2**63])
def test_an_integer_that_does_not_fit_raises_in_every_mode(number: int) -> None:
    x = nnp.asarray([1, 2], "uint8")
    functions: list[Fun] = [
        lambda x, a: x + a, lambda x, a: x.at[0].set(a), lambda x, a: nnp.clip(x, a, a), lambda x, a: nnp.where(x > 1, x, a),
        lambda x, a: nnp.append(x, a),
        lambda x, a: nnp.pad(x, 1, constant_values=a), lambda x, a: nnp.full(2, a, "uint8"), lambda x, a: nnp.maximum(x, a),
        lambda x, a: nnp.full_like(x, a), lambda x, a: a - x, lambda x, a: x & a,
    ]  # fmt: skip
    for f in functions:
        for run in RUNS.values():
            with pytest.raises(OverflowError, match=rf"the number {number} does not fit into uint8"):
                run(f, x, number)


def test_the_error_names_the_users_line() -> None:
    with pytest.raises(nnc.errors.NumberRangeError, match=r"x \+ a") as found:
        nnc.compile(lambda x, a: x + a)(np.array([1], "uint8"), 300)
    assert isinstance(found.value, nnc.errors.DTypeError)


def test_integers_of_all_dtypes_are_compared_exactly() -> None:
    compares: list[Fun] = [
        lambda x, a: x > a, lambda x, a: x == a, lambda x, a: a <= x, lambda x, a: x != a, lambda x, a: a > x, lambda x, a: x < a,
    ]  # fmt: skip
    numbers = (-(2**63), -3, 0, 127, 255, 300, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
    for dtype in ("int8", "uint8", "int32", "int64", "uint64"):
        info = np.iinfo(dtype)
        values = [int(info.min), 0, 1, int(info.max)]
        x = nnp.asarray(np.array(values, dtype))
        for f in compares:
            compiled, mapped = nnc.compile(f), nnc.vmap(f, (0, None))
            for number in numbers:
                want = [bool(f(v, number)) for v in values]
                assert f(x, number).tolist() == compiled(x, number).tolist() == mapped(x, number).tolist() == want


def test_powers_by_a_python_integer_wrap_and_refuse_as_eagerly() -> None:
    x = nnp.asarray([2, 3], "int8")
    power = nnc.compile(lambda x, a: x**a)
    for number in (0, 1, 5, 255, 256, 2**40, 2**63 - 1):
        assert (
            power(x, number).tolist()
            == (x**number).tolist()
            == np.array([2, 3], "int8").astype(object).__pow__(number % 128).astype("int64").astype("int8").tolist()
            if number < 6
            else power(x, number).tolist() == (x**number).tolist()
        )
    for number in (-1, -256):
        for f in (power, lambda x, a: x**a):
            with pytest.raises(nnc.errors.DTypeError):
                f(x, number)


COUNTERS: dict[str, Fun] = {
    "fori_loop": lambda u: nnc.fori_loop(0, 301, lambda i, c: c + (u < i), 0),
    "unrolled": lambda u: nnc.fori_loop(0, 301, lambda i, c: c + (u < i), 0, unroll=4),
    "of unknown length": lambda u: nnc.fori_loop(0, nnp.asarray(301), lambda i, c: c + (u < i), 0),
    "while_loop": lambda u: nnc.while_loop(lambda c: c[0] < 301, lambda c: (c[0] + 1, c[1] + (u < c[0])), (0, 0))[1],
    "scan": lambda u: nnc.scan(lambda c, _: ((c[0] + 1, c[1] + (u < c[0])), None), (0, 0), length=301)[0][1],
    "axis_index": lambda u: nnp.sum(nnc.vmap(lambda _: u < nnc.axis_index("i"), axis_name="i")(nnp.zeros(301))),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_narrow_integer_is_compared_exactly_with_a_counter(name: str) -> None:
    f, values = COUNTERS[name], nnp.asarray([200, 250], "uint8")
    want = [sum(v < i for i in range(301)) for v in (200, 250)]
    assert [int(f(v)) for v in values] == want
    assert [int(nnc.compile(f)(v)) for v in values] == want
    assert nnc.vmap(f)(values).tolist() == want
    assert int(nnc.cond(True, f, f, values[0])) == want[0]


def test_counters_that_do_not_fit_raise_as_python_integers_do() -> None:
    def f(u: Any) -> Any:
        return nnc.fori_loop(0, 301, lambda i, c: c + (u + i), nnp.asarray(0, "uint8"))

    for run in (f, nnc.compile(f), lambda u: nnc.vmap(f)(u[None])):
        with pytest.raises(OverflowError, match="256 does not fit into uint8"):
            run(nnp.asarray(200, "uint8"))


def test_rows_that_take_no_part_refuse_no_number() -> None:
    def f(p: Any, a: Any) -> Any:
        return nnc.cond(p, lambda a: nnp.asarray(1, "uint8") + a, lambda a: nnp.asarray(2, "uint8"), a)

    assert nnc.vmap(f, (0, None))(nnp.asarray([False, False]), 300).tolist() == [2, 2]
    with pytest.raises(OverflowError):
        nnc.vmap(f, (0, None))(nnp.asarray([False, True]), 300)


def test_new_arrays_of_numbers_are_float32_eagerly_and_compiled() -> None:
    for number in (0.5, np.float64(3)):
        for f in (lambda a: nnp.full(2, a), lambda a: nnp.linspace(a, 1.0, 3), lambda a: nnp.full((), a)):
            assert f(number).dtype == nnc.compile(f)(number).dtype == nnp.float32
    assert nnc.compile(lambda a: nnp.full(2, a))(7).dtype == nnp.full(2, 7).dtype == nnp.int64


def test_a_sinusoidal_encoding_in_float64_numbers_stays_weak() -> None:
    f = np.log(1000.0) * nnp.arange(4)
    for made in (
        f[:, None], nnp.concatenate([f, f]), f.mean(), nnp.stack([f, f]), nnp.pad(f, 1), nnp.sort(f), nnp.cumsum(f), f.std(),
        f.reshape(2, 2), nnp.take(f, nnp.asarray([0, 1])), nnp.median(f), nnp.linalg.norm(f), nn.softmax(f), nnp.outer(f, f),
    ):  # fmt: skip
        assert (made.reshape(-1)[0] * nnp.ones(4)).dtype == nnp.float32
    assert ((np.log(1000.0) * nnp.arange(4))[:, None] * nnp.ones(4)).dtype == nnp.float32


def test_functions_of_python_numbers_are_exact_in_float64_programs() -> None:
    for f in (
        nnp.log,
        nnp.sqrt,
        nn.softplus,
        nn.gelu,
        lambda a: nnp.mean(nnp.stack([a, 1.0])),
        lambda a: 1 / (1 + nnp.exp(-a)),
    ):
        found = X[0] * f(2 * np.pi)
        assert found.dtype == nnp.float64
        assert float(found) == float(X[0] * f(np.float64(2 * np.pi))) == float(nnc.compile(f)(2 * np.pi))
        assert (nnp.ones(1) * f(2 * np.pi)).dtype == nnp.float32
    assert float(X[0] * nnp.log(2 * np.pi)) == np.log(2 * np.pi)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_injected_hyperparameters_have_the_dtype_of_the_parameters(dtype: str) -> None:
    p, own = nnp.ones(3, dtype), "float64" if dtype == "float64" else "float32"
    optimizer = optim.inject_hyperparams(optim.adam)(learning_rate=1e-2)
    state = optimizer.init(p)
    assert state.hyperparams["learning_rate"].dtype.name == own and not state.hyperparams["learning_rate"].weak

    @nnc.compile
    def step(p: Any, state: Any) -> Any:
        updates, state = optimizer.update(p, state, p)
        return optim.apply_updates(p, updates), state

    for k in range(4):
        p, state = step(p, state)
        state.hyperparams["learning_rate"] = nnp.asarray(1e-3 * k, own)
    assert step.cache_info().misses == 1
    (p, state), _ = nnc.scan(lambda c, _: (step(*c), None), (p, state), length=2)
    assert p.dtype.name == dtype and state.hyperparams["learning_rate"].dtype.name == own


def test_schedules_keep_float64_digits() -> None:
    for schedule in (
        optim.exponential_decay(0.1, 1, 0.9),
        optim.constant_schedule(0.09),
        optim.linear_schedule(0.1, 0.0, 10),
    ):
        optimizer = optim.sgd(schedule)
        _, state = optimizer.update(X, optimizer.init(X))
        updates, _ = optimizer.update(X, state)
        assert updates.dtype == nnp.float64 and abs(float(updates[0]) + 0.09) < 1e-16


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax"])
def test_collectives_of_numbers_are_numbers(name: str) -> None:
    rule = nnc.custom_vjp(lambda v: getattr(nnc, name)(v, "i"))
    rule.defvjp(lambda v: (getattr(nnc, name)(v, "i"), None), lambda _, ct: (ct,))
    for f in (lambda n: getattr(nnc, name)(nnp.sin(n), "i"), lambda n: rule(nnp.sin(n))):
        mapped = lambda x, n, f=f: nnc.vmap(lambda _: f(n), axis_name="i")(nnp.ones(2))
        for run in RUNS.values():
            found = run(mapped, X, 0.5)
            assert found.dtype == nnp.float32 and (found * nnp.ones(2)).dtype == nnp.float32
            wanted = np.sin(0.5) * (2 if name == "psum" else 1)
            assert (found * nnp.ones(2, "float64")).tolist() == [wanted] * 2


def test_numbers_as_results_show_one_dtype() -> None:
    results: dict[str, Any] = {
        "compiled": nnc.compile(lambda x: 0.01)(X), "mapped": nnc.vmap(lambda x: 0.01)(X),
        "aux": nnc.value_and_grad(lambda x: (nnp.sum(x), 0.01), has_aux=True)(X)[0][1], "gradient": nnc.grad(lambda x: x * x)(3.0),
        "branch": nnc.cond(True, lambda: 0.01, lambda: 0.1), "rows": nnc.scan(lambda c, _: (c, 0.01), 0.1, length=2)[1],
        "carry": nnc.scan(lambda c, _: (0.01, None), 0.1, length=2)[0], "loop": nnc.fori_loop(0, 2, lambda i, c: c + 0.5, 0),
        "pulled": nnc.vjp(lambda x: x * 2, 3.0)[1](1.0)[0], "pushed": nnc.jvp(lambda x: x * 2, (3.0,), (nnp.ones(()),))[1],
        "checkpoint": nnc.grad(nnc.checkpoint(lambda x: x * x))(3.0), "mapped rows": nnc.map(lambda x: 0.01, X),
    }  # fmt: skip
    for name, found in results.items():
        assert found.weak and found.dtype == np.asarray(found).dtype == nnp.float32, name
        assert (X[0] * found).dtype == nnp.float64 and (nnp.ones(2) * found.reshape(-1)[0]).dtype == nnp.float32, name
    assert float(results["compiled"]) == 0.01 and results["mapped"].tolist() == [0.01, 0.01]


@pytest.mark.parametrize("name", ["set", "add", "subtract", "multiply", "divide", "min", "max", "power"])
def test_updates_of_numbers_by_numbers_stay_weak_in_every_mode(name: str) -> None:
    x = nnp.stack([0.1, 0.2])
    for number in (0.3, 2, np.float64(0.3), x[0]):
        found = [run(lambda x, a: getattr(x.at[:1], name)(a), x, number) for run in (RUNS["eagerly"], RUNS["compiled"])]
        found.append(nnc.compile(lambda x, a=number: getattr(x.at[:1], name)(a))(x))
        assert {(bool(y.weak), y.dtype, (y * nnp.ones(2)).dtype.name) for y in found} == {
            (True, found[0].dtype, "float32")
        }
        np.testing.assert_allclose([y[0].item() for y in found], found[0][0].item(), rtol=1e-15)
        assert not getattr(X.at[:1], name)(number).weak
