"""Float results are weak where all float operands are, in every function: they take the dtype of an array that they meet."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.scipy import special

# A number of Python as an array, which shows float32, and one of `numpy.float64`, which shows float64.
NUMBER = nnp.stack([0.3, 0.2, 0.7, 0.9])
WIDE = np.float64(0.25) * nnp.arange(1, 5)
MODULES: tuple[ModuleType, ...] = (nnp, nnp.linalg, nnp.fft, nn, special)  # type: ignore[assignment]

NEW = (  # functions that make new arrays: float32 unless a dtype is given
    "arange", "array", "asarray", "from_dlpack", "empty", "eye", "fromiter", "full", "geomspace", "identity", "indices",
    "linspace", "logspace", "ones", "tri", "zeros", "one_hot", "diag_indices", "bartlett", "blackman", "hamming", "hanning",
    "kaiser", "fftfreq", "rfftfreq",
)  # fmt: skip
CONVERSIONS = (  # functions that are told a dtype
    "astype", "cast", "cdouble", "complex64", "complex128", "complex_", "csingle", "double", "float16", "float32", "float64",
    "float_", "half", "single", "bfloat16",
)  # fmt: skip


def calls(x: Any) -> list[tuple[Any, ...]]:
    """Arguments of which some fit most functions."""
    m = x.reshape(2, 2)
    return [
        (x,), (m,), (m[None, None],), (x, x), (m, m), ([x, x],), (x, 1), (x[0],), (x[0], x[0]), (x, x, x), (x[0], x[0], x[0]),
        (2, x), (x > 0, x, x), ([m, m],), (m, x), (m, 1, 0), (x, 2, 0), (x, (2, 2)), (x, x, x, x), (m[None, ..., None], 2),
        (m, nnp.arange(2), 2),
        ("i,i->i", x, x), (x, nnp.asarray([0, 1, 1, 0]), 2), (m, nnp.asarray([[0], [1]]), 1), (0.5,), (0.5, 0.5), (0.5, 0.5, 0.5),
        (m @ m.T,), (m @ m.T, 2), (x[:3], x[:3]), (lambda v: v * 2, 0, m), (m[None, None], m[None, None]),
        (x, [x > 0], [x]), (x.reshape(1, 1, 4), 2), (m[None],),
    ]  # fmt: skip


def result_of(function: Any, x: Any) -> list[Any]:
    """The float arrays that a function returns for the first arguments that it takes."""
    for args in calls(x):
        try:
            found = nnc.tree.leaves(function(*args))
        except Exception:  # these arguments do not fit
            continue
        arrays = [leaf for leaf in found if hasattr(leaf, "spec")]
        if arrays:
            return [leaf for leaf in arrays if nnp.issubdtype(leaf.dtype, nnp.inexact)]
    return []


def functions(module: ModuleType) -> list[Any]:
    """The public functions of a module."""
    found = [(name, getattr(module, name)) for name in sorted(module.__all__)]
    return [(name, f) for name, f in found if callable(f) and not inspect.isclass(f) and not name.startswith("_")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_float_results_of_weak_operands_are_weak(module: ModuleType) -> None:
    wrong = []
    for name, function in functions(module):
        for x in (NUMBER, WIDE):
            arrays = result_of(function, x)
            if name in CONVERSIONS:
                continue
            if name in NEW:
                is_right = all(not y.weak and (x is WIDE or y.dtype in (nnp.float32, nnp.complex64)) for y in arrays)
            else:
                is_right = all(y.weak for y in arrays)
            if not is_right:
                wrong.append((name, "a number" if x is NUMBER else "a numpy.float64", [str(y.shown) for y in arrays]))
    assert wrong == []


ELEMENTWISE = (
    "exp",
    "log",
    "sqrt",
    "sin",
    "tanh",
    "arctan",
    "log1p",
    "square",
    "reciprocal",
    "cbrt",
    "sinc",
    "deg2rad",
    "i0",
)
OTHERS = ("median", "std", "logsumexp", "sum", "max", "cumsum", "sort", "ptp")
ACTIVATIONS = (
    "relu",
    "gelu",
    "silu",
    "softplus",
    "elu",
    "sigmoid",
    "tanh",
    "log_sigmoid",
    "mish",
    "softmax",
    "selu",
    "celu",
)
SPECIAL = ("erf", "gammaln", "digamma", "expit", "ndtr", "i0e", "xlogy", "log_ndtr", "entr")


EXACT = [
    *((nnp, name) for name in ELEMENTWISE + OTHERS),
    *((nn, name) for name in ACTIVATIONS),
    *((special, name) for name in SPECIAL),
]


@pytest.mark.parametrize(("module", "name"), EXACT, ids=str)
def test_functions_of_numbers_are_those_of_float64(module: ModuleType, name: str) -> None:
    function, numbers = getattr(module, name), np.array([0.3, 0.7])
    operands = (numbers, numbers) if name == "xlogy" else (numbers,)
    wide = function(*operands)
    for run in (function, nnc.compile(function)):
        found = run(*[nnp.stack(x.tolist()) for x in operands])
        assert found.weak and found.dtype == nnp.float32
        np.testing.assert_allclose(nnp.ones((), "float64") * found, wide, rtol=2e-15)


def test_a_python_number_alone_is_a_weak_operand_too() -> None:
    for f in (nn.softplus, nnp.median, nnp.logsumexp, nnp.std, nn.log_sigmoid, nnp.heaviside):
        args = (0.3, 0.5) if f is nnp.heaviside else (0.3,)
        assert f(*args).weak and f(*args).dtype == nnp.float32
        assert float(f(*args)) == float(f(*map(np.float64, args)))
    assert float(nn.softplus(1) * nnp.ones((), "float64")) == float(nn.softplus(np.ones(())))


def test_a_strong_operand_makes_the_result_strong() -> None:
    x32, x64 = nnp.ones(4), nnp.ones(4, "float64")
    for x in (x32, x64):
        for f in (
            nnp.append,
            nn.mse,
            lambda a, b: nnp.stack([a, b]),
            lambda a, b: nnp.concatenate([b, a]),
            nnp.heaviside,
            nn.huber,
        ):
            assert (
                f(NUMBER, x).dtype == f(x, NUMBER).dtype == x.dtype and not f(NUMBER, x).weak and not f(x, NUMBER).weak
            )
    assert nnp.pad(x32, 1, constant_values=WIDE[0]).dtype == nnp.float32
    assert nnp.heaviside(nnp.arange(4), NUMBER).dtype == nnp.float32 and not nnp.heaviside(nnp.arange(4), NUMBER).weak


def test_a_list_of_numbers_is_a_new_array() -> None:
    for f in (nnp.median, nnp.logsumexp, nnp.sort, nn.softmax):
        found = f([0.3, 0.7])
        assert found.dtype == nnp.float32 and not found.weak


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile])
def test_an_array_that_is_written_whole_stays_strong(wrap: Any) -> None:
    for dtype in ("float32", "float64"):
        found = wrap(lambda x, n: x.at[:1].set(n))(nnp.ones(1, dtype), 0.1)
        assert found.dtype.name == dtype and not found.weak


def test_a_weak_value_of_a_dynamic_graph_shows_float32() -> None:
    x = nnc.DynamicGraph().variable(nnp.ones(1))
    number, _ = nnc.fori_loop(0, 2, lambda i, c: (c[0] * 2, c[1]), (nnp.log(2.0), x))
    assert type(number) is not nnc.Array and np.asarray(number).dtype == number.dtype == np.float32
    assert np.asarray(number, "float64") == 4 * np.log(2.0)


def test_weak_values_that_are_joined_stay_weak_in_derivatives_and_batches() -> None:
    for x in (nnp.asarray(0.25).as_weak(), nnp.asarray(0.25, "float64").as_weak(nnc.base.dtypes.NUMBER), 0.25):
        for f in (
            lambda x: nnp.stack([x]),
            lambda x: nnp.concatenate([nnp.reshape(x, 1)] * 2),
            lambda x: nnp.stack([x, x]) * 1,
        ):
            want = f(x)
            mapped = nnc.vmap(f)(nnp.stack([x, x]))
            for found in (nnc.vjp(f, x)[0], nnc.jvp(f, (x,), (nnp.ones(()),))[0], mapped):
                assert (found.dtype, found.weak) == (want.dtype, want.weak) and found.dtype == nnp.float32


def test_weak_results_of_a_dynamic_graph_take_cotangents_in_the_dtype_that_they_show() -> None:
    graph = nnc.DynamicGraph()
    x = graph.variable(nnp.ones(2))
    y, number = nnc.checkpoint(lambda x, n: (x * 2, nnp.sin(n)))(x, 0.5)
    graph.backward([y, number], [nnp.ones(2, y.dtype), nnp.ones((), number.dtype)])
    assert x.grad.dtype == np.float32 and x.grad.tolist() == [2, 2]
    graph.backward([nnp.sum(y), number])
    assert x.grad.tolist() == [4, 4]


def test_weak_values_keep_their_weakness_in_dynamic_graphs() -> None:
    graph = nnc.DynamicGraph()

    def f(a: Any, x: Any) -> Any:
        return nnp.stack([a, a])[:1] * x

    for _ in range(4):
        found = graph.evaluate(f, 0.1, graph.variable(nnp.ones(1, "float64")))
        assert found.dtype == nnp.float64 and float(found[0]) == 0.1


INDEXED: dict[str, Callable[[Any, Any], Any]] = {  # of a weak array, by an index
    "index": lambda x, i: x[i],
    "indices": lambda x, i: x[i + nnp.arange(2)],
    "take": nnp.take,
    "set": lambda x, i: x.at[i].set(5),
    "add": lambda x, i: x.at[i].add(1),
    "take_along_axis": lambda x, i: nnp.take_along_axis(x, i + nnp.arange(2), 0),
    "roll": nnp.roll,
    "choose": lambda x, i: nnp.choose(i, [x, x]),
    "where": lambda x, i: nnp.where(x > i, x, 3),
}


@pytest.mark.parametrize("number", [3, 3.0, 3j])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_do_not_make_weak_values_strong(name: str, number: complex) -> None:
    if name == "where" and isinstance(number, complex):
        return
    x, f = nnp.stack([number, number * 2, number]), INDEXED[name]
    for run in (f, nnc.compile(f), lambda x, i: nnc.vmap(lambda i: f(x, i))(nnp.stack([i, i]))[0]):
        assert run(x, nnp.asarray(1)).weak


MASKED: dict[str, Callable[[Any, Any], Any]] = {  # with a value that stands for elements that do not count
    "sum": lambda x, m: nnp.sum(x, where=m),
    "prod": lambda x, m: nnp.prod(x, where=m),
    "mean": lambda x, m: nnp.mean(x, where=m),
    "max": lambda x, m: nnp.max(x, where=m, initial=0),
    "min": lambda x, m: nnp.min(x, initial=0),
    "tril": lambda x, m: nnp.tril(x[None] * x),
    "std": lambda x, m: nnp.std(x, where=m),
    "pad": lambda x, m: nnp.pad(x, 1),
    "diag": lambda x, m: nnp.diag(x),
    "full_like": lambda x, m: nnp.full_like(x, 2),
}


@pytest.mark.parametrize("name", MASKED)
def test_values_in_the_place_of_others_do_not_make_weak_values_strong(name: str) -> None:
    x, f = nnp.stack([3.0, 6.0, 3.0]), MASKED[name]
    for run in (f, nnc.compile(f)):
        y = run(x, np.array([True, False, True]))
        assert y.weak and (y * nnp.ones(1, "float32")).dtype == "float32"


@pytest.mark.parametrize("number", [3, 3.0, 3j])
def test_copies_made_by_array_are_strong(number: complex) -> None:
    x = nnp.stack([number])
    for y in (nnp.array(x), nnc.compile(nnp.array)(x), nnc.vmap(nnp.array)(x), nnc.compile(lambda: nnp.array(x))()):
        assert not y.weak and y.dtype == x.dtype == y.spec.dtype


MOVED: dict[str, Callable[[Any], Any]] = {  # numbers of the operand, and others that are written beside them
    "pad": lambda x: nnp.pad(x, 1),
    "tril": lambda x: nnp.tril(x[None]),
    "triu": lambda x: nnp.triu(x[None], 1),
    "diag": nnp.diag,
    "diagflat": nnp.diagflat,
    "insert": lambda x: nnp.insert(x, 1, 5),
    "piecewise": lambda x: nnp.piecewise(x, [x > 1], [lambda y: y * 2, 3]),
    "place": lambda x: nnp.place(x, x > 1, x[:1]),
    "put": lambda x: nnp.put(x, [1], 5),
    "polyadd": lambda x: nnp.polyadd(x, x),
    "nanmax": nnp.nanmax,
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("number", [2, 2.0])
def test_moved_weak_integers_and_floats_stay_weak(name: str, number: float) -> None:
    x = nnp.stack([number, 0 * number, number])
    for run in (lambda f: f, nnc.compile):
        y = run(MOVED[name])(x)
        assert y.weak and (y * nnp.ones((), "float16")).dtype == "float16"
        if isinstance(number, int):
            assert (y * nnp.ones((), "int8")).dtype == "int8"
    strong = MOVED[name](nnp.asarray([2, 0, 2], "int32"))
    assert not strong.weak and strong.dtype == "int32"


def test_places_and_exponents_of_weak_numbers_are_strong() -> None:
    assert not nnp.top_k(nnp.stack([2, 3]), 1)[1].weak
    assert not nnp.frexp(nnp.stack([2.0, 3.0]))[1].weak
