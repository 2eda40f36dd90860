"""Generated runs of a dynamic graph give the same values, gradients and history with everything remembered as with nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc.base.context import with_mode
from nnc.calls import specialise
from nnc.trace.dynamic import routine as dynamic_routine
from tests.fuzz.programs.generated import NUMBERS, OPERATIONS, SIZES, Step, steps

DTYPES = ("float32", "float32", "float64", "int32")
SMOOTH = [
    x for x in OPERATIONS if x not in ("max", "where", "clip", "equal", "choose c", "below c", "leaky", "elu", "astype")
]
WITH_NUMBER = ("x * c", "choose c", "x + c", "full", "leaky")
ACTIONS = ("do", "do", "do", "no grad", "buffer", "numbers", "change buffer", "set",
           "write", "backward", "backward", "twice", "to one",
           "detach", "forget", "clear", "donate", "look")  # fmt: skip
FEWER = settings(max_examples=settings.default.max_examples // 2)
STATE: dict[str, Any] = {"scale": 0.5}


@pytest.fixture(scope="module", autouse=True)
def at_once() -> Iterator[None]:
    """Eager calls are specialised when they are made for the second time, however many others there are."""
    with patch.object(specialise, "THRESHOLD", 0), patch.object(specialise, "KEYS_PER_CALL", 1 << 60):
        yield


@dataclass(frozen=True)
class Action:
    """Something that is done to a graph; `step` selects its values and its operation."""

    kind: str
    step: Step


def actions(names: Sequence[str], kinds: Sequence[str] = ACTIONS) -> st.SearchStrategy[list[Action]]:
    """Actions that follow one another; each run of them begins with some values."""
    step = steps(names, most=2).map(lambda some: some[0])
    return st.lists(st.builds(Action, st.sampled_from(list(kinds)), step), min_size=4, max_size=16)


def scaled(x: Any, y: Any) -> Any:
    """Reads a number that changes between runs."""
    return nnp.tanh(x * STATE["scale"]) + y


def decides(x: Any, y: Any) -> Any:
    """Does one thing or another by the values."""
    return nnp.sin(x) if float(nnp.sum(x)) > 1 else x * y


def shares(x: Any, y: Any) -> Any:
    """Reads one value in several places, and yields several results."""
    z = x * y + x
    return z - y, nnp.sum(z * z), z


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    scaled,
    decides,
    shares,
    lambda x, y: nnp.exp(-abs(x)) @ nnp.ones(x.shape[-1:]) * y if x.ndim else y,
]


@dataclass
class Session:
    """Values of a graph, and everything that was seen of them."""

    graph: nnc.DynamicGraph
    n: int
    dtypes: Sequence[str]
    compiled: Sequence[Any] = ()
    seen: list[Any] = field(default_factory=list)
    declared: list[Any] = field(default_factory=list)
    pool: list[Any] = field(default_factory=list)

    def begin(self, seed: int) -> None:
        """Makes variables; the pool begins with them."""
        rng, n = np.random.default_rng(seed), self.n
        shapes = [(n,), (3, n), (), (3, 1), (1,)]
        arrays = [
            np.asarray(np.round(rng.normal(size=s), 1)).astype(d) for s, d in zip(shapes, self.dtypes, strict=False)
        ]
        self.buffer = np.full((3, n), 0.5, np.float32)
        self.declared = [self.graph.variable(x) for x in arrays[:-1]] + [
            self.graph.constant(arrays[-1]),
            self.graph.variable(self.buffer),
        ]
        for x in arrays:
            x[...] = 7  # nobody may see this
        self.pool = list(self.declared)

    def do(self, action: Action, number: int) -> None:
        """Does one thing, and records its visible results."""
        kind, step, graph = action.kind, action.step, self.graph
        x, y = self.pool[step.i % len(self.pool)], self.pool[step.j % len(self.pool)]
        root = self.declared[step.j % len(self.declared)]
        try:
            if kind in ("do", "no grad"):
                for block in (nullcontext(),) if kind == "do" else (graph.no_grad(), nullcontext()):
                    with block:
                        self.add(OPERATIONS[step.name](x, y, step.number))
            elif kind == "buffer":
                self.add(OPERATIONS[step.name](x, self.buffer, step.number))
                self.add(OPERATIONS[step.name](self.buffer, x, step.number))
            elif kind == "numbers":
                for constant in (*NUMBERS, *NUMBERS):
                    self.add(OPERATIONS[WITH_NUMBER[step.j % len(WITH_NUMBER)]](x, y, constant))
            elif kind == "change buffer":
                self.buffer[...] += number % 3 - 1
            elif kind == "set":
                root.set(np.full(root.shape, float(step.number) + number % 2, root.dtype))
            elif kind == "write":
                root[..., :1] = step.number
                self.add(root)
            elif kind in ("backward", "twice", "to one"):
                for _ in range(2 if kind == "twice" else 1):
                    graph.backward(x, np.cos(np.arange(x.size)).reshape(x.shape), [y] if kind == "to one" else None)
                self.seen.append([self.note(getattr(z, "grad", None)) for z in (*self.declared, y)])
            elif kind == "evaluate":
                for z in nnc.tree.leaves(graph.evaluate(FUNCTIONS[step.i % len(FUNCTIONS)], x, y)):
                    self.add(z)
            elif kind == "evaluate compiled":
                for block in (graph.no_grad(), nullcontext()):
                    with block:
                        found = graph.evaluate(self.compiled[step.i % len(self.compiled)], x, y)
                    for z in nnc.tree.leaves(found):
                        self.add(z)
            elif kind == "another scale":
                STATE["scale"] = float(step.number)
            elif kind == "detach" and hasattr(x, "detach"):
                x.detach()
            elif kind == "forget" and len(self.pool) > 5:
                self.pool.remove(self.pool[-1])
            elif kind == "clear":
                root.grad = None
            elif kind == "donate":
                getattr(x, "array", x).delete()
            elif kind == "look":
                self.seen.append([self.note(z) for z in self.pool])
                self.seen.append(graph.depends(x, [z for z in self.declared if z.is_bound]))
        except nnc.errors.NncError as error:
            self.seen.append(type(error).__name__)

    def add(self, x: Any) -> None:
        """One more value; some operations return one of their operands."""
        if isinstance(x, np.ndarray):
            return
        self.pool.append(x)
        self.seen.append(self.note(x))

    def note(self, x: Any) -> Any:
        """All that can be seen of a value."""
        if x is None:
            return None
        try:
            return type(x).__name__, x.spec, x.weak, getattr(x, "constant", None), np.array(x)
        except nnc.errors.NncError as error:
            return type(error).__name__


def session(script: Sequence[Action], n: int, dtypes: Sequence[str], iterations: int = 3) -> list[Any]:
    """Everything that is seen where a script runs several times on one graph."""
    STATE["scale"] = 0.5
    found = Session(nnc.DynamicGraph(), n, dtypes, [nnc.compile(f, flush_denormals=False) for f in (scaled, shares)])
    for again in range(iterations):
        found.begin(again // 2)
        for number, action in enumerate(script):
            found.do(action, number)
        found.seen.append(found.graph.bookkeeping())
    return found.seen


def check_seen(found: Any, expected: Any, rtol: float) -> None:
    """Compares the visible results; with a tolerance, values relative to the largest one so far."""
    largest = [1.0]

    def check(a: Any, b: Any) -> None:
        assert type(a) is type(b), (a, b)
        if isinstance(b, (list, tuple)):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                check(x, y)
        elif isinstance(b, np.ndarray):
            finite = np.abs(b[np.isfinite(b)].astype(np.float64))
            largest[0] = max(largest[0], float(finite.max(initial=0.0)))
            if rtol:
                np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * largest[0])
            else:
                assert a.tobytes() == b.tobytes(), (a, b)
        else:
            assert a == b

    check(found, expected)


Script = st.tuples(st.sampled_from(SIZES), st.lists(st.sampled_from(DTYPES), min_size=5, max_size=5))


@given(actions(list(OPERATIONS)), Script)
def test_remembered_results_change_no_bit(script: list[Action], start: tuple[int, list[str]]) -> None:
    with with_mode("unspecialised"):
        expected = session(script, *start)
    with patch.object(dynamic_routine, "ENOUGH", inf):
        check_seen(session(script, *start), expected, 0.0)


@FEWER
@given(actions(SMOOTH), Script)
def test_routines_that_are_compiled_change_only_the_last_digits(
    script: list[Action], start: tuple[int, list[str]]
) -> None:
    with with_mode("unspecialised"):
        expected = session(script, *start)
    with patch.object(dynamic_routine, "ENOUGH", 1e-9):
        check_seen(session(script, *start), expected, 2e-5)


EVALUATED = (
    "evaluate",
    "evaluate",
    "evaluate compiled",
    "another scale",
    "do",
    "backward",
    "set",
    "change buffer",
    "no grad",
)


@FEWER
@given(actions(SMOOTH, EVALUATED), Script)
def test_functions_that_were_compiled_for_equal_runs_agree_with_the_first_runs(
    script: list[Action], start: tuple[int, list[str]]
) -> None:
    with with_mode("unspecialised"):
        expected = session(script, *start, iterations=5)
    found = session(script, *start, iterations=5)
    counts = lambda seen: [
        x for x in seen if not isinstance(x, tuple) or len(x) != 2
    ]  # a compiled function is one operation
    check_seen(counts(found), counts(expected), 2e-5)


@FEWER
@given(actions(list(OPERATIONS), ("do", "do", "buffer", "backward", "set", "no grad")), Script)
def test_threads_share_remembered_results(script: list[Action], start: tuple[int, list[str]]) -> None:
    with with_mode("unspecialised"):
        expected = session(script, *start)

    def work(_: int) -> list[Any]:
        return session(script, *start)

    with patch.object(dynamic_routine, "ENOUGH", inf), ThreadPoolExecutor(3) as pool:
        for found in pool.map(work, range(3)):
            check_seen(found, expected, 0.0)
