"""Programs of new sizes that are made without a trace: functions see each size as in a trace of it."""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn

pytestmark = [
    pytest.mark.unguarded,  # programs on guarded memory are made for each size
    pytest.mark.filterwarnings("ignore::nnc.errors.RetraceWarning"),
]

SIZES = (40, 44, 46, 48, 50, 52, 43, 45, 49, 54, 56, 60, 63, 64, 41, 47, 70, 55, 53, 58, 35, 33, 66, 77)
TABLE = {49: 2.0, 64: 3.0}
ROW = [float(i % 11) for i in range(200)]
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@functools.cache
def remembered(n: int) -> float:
    return float(n % 5)


def matched(n: int) -> float:
    match n:
        case 49 | 64:
            return 2.0
        case int():
            return 1.0
        case _:
            return 0.0


def in_texts(n: int) -> float:
    try:
        return float(len(json.dumps({"n": n}))) + float(n == json.loads(json.dumps([n]))[0])
    except TypeError:
        return -1.0


# each asks for a size in another way
QUESTIONS: dict[str, Callable[[int], Any]] = {
    "remainder": lambda n: 2.0 if n % 7 == 0 else 1.0,
    "truth of a remainder": lambda n: 2.0 if n % 7 else 1.0,
    "comparison": lambda n: 2.0 if n > 55 else 1.0,
    "membership": lambda n: 2.0 if n in (49, 64) else 1.0,
    "membership of a set": lambda n: 2.0 if n in {49, 64} else 1.0,
    "look-up": lambda n: TABLE.get(n, 1.0),
    "index": lambda n: ROW[n],
    "slice of a list": lambda n: sum(ROW[:n]),
    "range": lambda n: float(sum(range(n))),
    "text": lambda n: 2.0 if f"{n}".endswith("5") else 1.0,
    "text of a tuple": lambda n: 2.0 if "5" in str((n, 3)) else 1.0,
    "old text": lambda n: 2.0 if "5" in "%d" % (n,) else 1.0,  # noqa: UP031
    "repr": lambda n: float(len(repr(n * 2))),
    "hash": lambda n: float(hash(n) % 3),
    "bits": lambda n: float(n & 5),
    "shift": lambda n: float(n >> 2),
    "length in bits": lambda n: float(n.bit_length()),
    "class": lambda n: 2.0 if isinstance(n, int) and n > 55 else 1.0,
    "class by type": lambda n: 2.0 if type(n) is int and n > 55 else 1.0,
    "class of the class": lambda n: 2.0 if n.__class__ is int and n > 55 else 1.0,
    "match": matched,
    "conversion": lambda n: float(int(n) % 7),
    "root": math.sqrt,
    "power": lambda n: n**0.5,
    "quotient": lambda n: 1 / n,
    "rounded quotient": lambda n: round(n / 7),
    "floor": lambda n: n // 7,
    "greatest": lambda n: max(n, 50),
    "remembered": remembered,
    "NumPy's number": lambda n: np.float32(n) * np.float32(0.5),
    "NumPy's product": lambda n: np.prod((n, 3)),
    "NumPy's array": lambda n: np.arange(n, dtype=np.float32).sum(),
    "JSON": in_texts,
    "copy": lambda n: copy.deepcopy({"n": n})["n"] * 2,
    "product of shapes": lambda n: math.prod((n, n, 3)),
    "sorted": lambda n: float(sorted([n, 50, 57]).index(50)),
    "multiple": lambda n: 2.5 * n - 1,
    "complex number": lambda n: abs(n * 1j),
    "list repeated": lambda n: float(len([0] * n)),
}


def sizes_of(name: str) -> Callable[[Any], Any]:
    return lambda x: nnp.sum(nnp.tanh(x) * 2, axis=1) * QUESTIONS[name](x.shape[0])


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: sizes_of(name) for name in QUESTIONS},
    "length": lambda x: x * (2.0 if len(x) > 50 else 1.0),
    "size": lambda x: x * (2.0 if x.size > 150 else 1.0) / x.size,
    "half": lambda x: x[: x.shape[0] // 2] * 2,
    "tail": lambda x: x[x.shape[0] - 5 :] * 2,
    "all but the last": lambda x: x[:-1] - x[1:],
    "row": lambda x: x[x.shape[0] // 3] * 2,
    "pairs": lambda x: nnp.sum(x[:, None] * x[None], axis=2),
    "numbers": lambda x: x * nnp.arange(x.shape[0], dtype=nnp.float32)[:, None],
    "zeros": lambda x: nnp.concatenate([x, nnp.zeros((x.shape[0], 2))], axis=1) * 2,
    "full": lambda x: nnp.full((x.shape[0],), x.shape[0] * 0.5) + x[:, 0],
    "one hot": lambda x: nn.one_hot(nnp.arange(4), x.shape[0]) @ x,
    "broadcast": lambda x: nnp.broadcast_to(x[0], x.shape) + x,
    "mean": lambda x: nnp.mean(x, axis=0),
    "product": lambda x: nn.softmax(x @ W),
    "derivative": lambda x: nnc.grad(lambda x: nnp.mean(nn.log_softmax(x @ W)[:, 0]))(x),
    "map": lambda x: nnc.vmap(lambda row: nnp.dot(row, row))(x),
}


def rows(n: int) -> np.ndarray[Any, Any]:
    return np.sin(np.arange(3 * n, dtype=np.float32)).reshape(n, 3)


def calls_without_trace(fun: Any, sizes: Any = SIZES, make: Callable[[int], Any] = rows) -> int:
    """Calls a compiled function at some sizes, and returns how many of its programs were made without a trace."""
    count = 0
    for n in sizes:
        np.testing.assert_allclose(fun(make(n)), fun.fun(nnp.asarray(make(n))), rtol=2e-5, atol=1e-6, err_msg=str(n))
        count += "without a trace" in fun.explain()
    return count


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_a_trace_at_each_size(name: str) -> None:
    calls_without_trace(nnc.compile(FUNCTIONS[name]))


@pytest.mark.parametrize(
    "name",
    ["comparison", "quotient", "multiple", "greatest", "product of shapes", "half", "all but the last", "zeros", "mean",
     "product", "derivative", "map", "size", "broadcast", "power"],
)  # fmt: skip
def test_arithmetic_on_sizes_needs_no_trace(name: str) -> None:
    assert calls_without_trace(nnc.compile(FUNCTIONS[name])) > 5


@pytest.mark.parametrize(
    "name", ["look-up", "index", "range", "text", "hash", "conversion", "root", "class by type", "remembered", "length"]
)
def test_uses_that_fix_a_size_are_traced(name: str) -> None:
    fun = nnc.compile(FUNCTIONS[name])
    assert calls_without_trace(fun) == 0


def test_explain_says_why_each_size_is_traced() -> None:
    fun = nnc.compile(FUNCTIONS["class by type"])
    calls_without_trace(fun)
    assert "each new size is traced: NncError: <lambda> asks for the type of a value" in fun.explain()


def test_a_captured_value_that_changes_is_seen() -> None:
    settings = {"scale": 2.0}
    fun = nnc.compile(lambda x: nnp.sum(x * settings["scale"], axis=1))
    assert calls_without_trace(fun, SIZES[:10])
    settings["scale"] = 3.0
    calls_without_trace(fun, SIZES[10:])


def test_a_value_drawn_while_tracing_is_drawn_for_each_size() -> None:
    draws = np.random.default_rng(0)
    fun = nnc.compile(lambda x: nnp.sum(x, axis=1) * float(draws.normal()))
    found = {float(np.asarray(fun(np.ones((n, 3), np.float32)))[0]) for n in SIZES}
    assert len(found) == len(SIZES)


def test_sizes_that_were_equal_may_differ() -> None:
    fun = nnc.compile(lambda x, y: nnp.sum(x, axis=1).sum() + nnp.sum(y * 2, axis=1).sum())
    for n in SIZES[:12]:
        fun(rows(n), rows(n))
    for n in SIZES[12:]:
        wanted = rows(n).sum() + 2 * rows(n + 3).sum()
        np.testing.assert_allclose(fun(rows(n), rows(n + 3)), wanted, rtol=1e-4)


def test_results_hold_no_size_of_the_trace_for_many() -> None:
    fun = nnc.compile(lambda x: {"x": x * 2, "n": x.shape[0]})
    for n in SIZES:
        found = fun(rows(n))
        assert int(found["n"]) == n and found["x"].shape == (n, 3)


def test_the_graph_of_a_program_made_without_a_trace_is_that_of_its_size() -> None:
    fun = nnc.compile(lambda x: nnp.mean(nnp.tanh(x)))
    assert calls_without_trace(fun) > 5
    n = next(n for n in (57, 59, 61) if fun(rows(n)) is not None and "without a trace" in fun.explain())
    executable, _ = fun.find(rows(n))
    traced, _ = nnc.compile(fun.fun, dynamic_axes={}).find(rows(n))
    assert [s.spec for node in executable.graph.nodes for s in node.outputs] == [
        s.spec for node in traced.graph.nodes for s in node.outputs
    ]
    assert f"float32[{n},3]" in str(executable.graph) and "Size" not in str(executable.graph)
