"""Generated calls of compiled functions agree with the function itself, however alike the calls before were."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc.base.context import with_mode

FEWER = settings(max_examples=settings.default.max_examples // 2)


class Pair(NamedTuple):
    """A container whose type is part of the structure."""

    first: Any
    second: Any


@dataclass
class Layer:
    """A container with settings."""

    weight: Any
    scale: Any
    kind: str = "plain"
    rate: Any = field(default=1, metadata={"static": True})


@dataclass
class Held:
    """Values that a function reads without being given them."""

    factor: Any = 2
    names: list[str] = field(default_factory=list)
    array: Any = None


HELD = Held(array=np.ones(1, np.float32))
CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "pair": Pair,
    "nested": lambda a, b: [(a,), {"x": b}],
    "dict": lambda a, b: {"x": a, "y": b},
    "dict from the end": lambda a, b: {"y": b, "x": a},
    "other keys": lambda a, b: {"x": a, "z": b},
    "more keys": lambda a, b: {"x": a, "y": b, "z": None},
    "layer": Layer,
    "other layer": lambda a, b: Layer(a, b, "other"),
    "rate": lambda a, b: Layer(a, b, rate=1.0),
    "true rate": lambda a, b: Layer(a, b, rate=True),
    "leaf": lambda a, b: a,
}
LEAVES: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: nnc.asarray(x),
    "double": lambda x: nnc.asarray(x.astype(np.float64)),
    "half": lambda x: nnc.asarray(x).astype("float16"),
    "integer": lambda x: nnc.asarray(x).astype("int32"),
    "weak": lambda x: nnc.asarray(x.ravel()[:1].sum()).as_weak(),
    "strong": lambda x: nnc.asarray(x.ravel()[:1].sum()),
    "numpy": lambda x: x,
    "numpy double": lambda x: x.astype(np.float64),
    "reversed": lambda x: x[::-1],
    "read-only": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "float64": lambda x: np.float64(x.ravel()[:1].sum()),
    "float32": lambda x: np.float32(x.ravel()[:1].sum()),
    "float": lambda x: float(x.ravel()[:1].sum()),
    "int": lambda x: int(x.ravel()[:1].sum()),
    "bool": lambda x: bool(x.ravel()[:1].sum() > 0),
    "none": lambda x: None,
    "text": lambda x: "text",
    "other text": lambda x: "other",
}
ALIKE = (
    ("weak", "strong"),
    ("float32", "float64", "float"),
    ("array", "integer", "numpy", "reversed"),
    ("text", "other text"),
)
MODES: list[Callable[[], AbstractContextManager[Any]]] = [
    nullcontext, nullcontext, nullcontext, nnc.debug.check_finite, lambda: with_mode("unspecialised"), nnc.DynamicGraph().no_grad,
]  # fmt: skip
STATIC = (1, 1.0, True, 0.0, -0.0, "x", (1,), (1.0,), (True,), None)


@dataclass(frozen=True)
class Call:
    """One call: its arguments, how they are passed, and the changes before it."""

    container: str
    leaves: tuple[str, str, str]
    size: int
    seed: int
    mode: int
    static: Any
    is_named: bool
    change: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, made anew."""
        rng = np.random.default_rng(self.seed)
        arrays = [np.round(rng.normal(size=self.size) * 3, 1).astype(np.float32) for _ in range(3)]
        a, b, c = (LEAVES[name](x) for name, x in zip(self.leaves, arrays, strict=True))
        tree = CONTAINERS[self.container](a, b)
        return ((tree,), {"other": c}) if self.is_named else ((tree, c), {})


@st.composite
def calls(draw: Any) -> list[Call]:
    """Calls of which each differs from the one before in one thing, or in its values alone."""
    kinds = st.sampled_from(
        draw(st.sampled_from([sorted(LEAVES), ["array", "weak", "strong", "half"]]))
    )  # arrays are called directly
    parts: dict[str, Any] = {
        "container": draw(st.sampled_from(sorted(CONTAINERS))), "size": draw(st.sampled_from((0, 1, 2, 17))), "mode": 0,
        "leaves": tuple(draw(st.lists(kinds, min_size=3, max_size=3))), "static": 1, "is_named": False,
    }  # fmt: skip
    found = []
    for _ in range(draw(st.integers(2, 7))):
        part, change = draw(st.sampled_from([*parts, "values", "values"])), ""
        if part == "container":
            parts[part] = draw(st.sampled_from(sorted(CONTAINERS)))
        elif part == "leaves":
            place = draw(st.integers(0, 2))
            near = [group for group in ALIKE if parts[part][place] in group]
            leaf = draw(st.sampled_from(sorted(near[0] if near and draw(st.booleans()) else LEAVES)))
            parts[part] = tuple(leaf if i == place else x for i, x in enumerate(parts[part]))
        elif part == "static":
            parts[part] = draw(st.sampled_from(STATIC))
        elif part == "mode":
            parts[part] = draw(st.integers(0, len(MODES) - 1))
        elif part == "is_named":
            parts[part] = not parts[part]
        else:
            change = draw(st.sampled_from(("", "factor", "names", "elements", "array")))
        found.append(Call(**parts, seed=draw(st.integers(0, 9)), change=change))
    return found


def described(tree: Any, other: Any = None, static: Any = 1) -> Any:
    """Everything that a function can tell of its arguments: structure, settings, dtypes, weakness, values."""
    structure = sum(
        ord(x) * (i + 1) for i, x in enumerate(f"{nnc.tree.structure((tree, other))} {static!r} {HELD.names}")
    )
    results: list[Any] = [nnp.asarray(structure, dtype="int64"), nnp.sum(nnp.asarray(HELD.array)) * HELD.factor]
    for leaf in nnc.tree.leaves((tree, other)):
        if isinstance(leaf, str):
            results.append(nnp.asarray(len(leaf)))
        else:
            results += [nnp.asarray(leaf) * 2, leaf + nnp.ones((), "float16"), leaf + nnp.ones((), "int16")]
    return {"results": results, "tree": tree}


def change(what: str, number: int) -> None:
    """Changes a value that the function reads beside its arguments."""
    if what == "factor":
        HELD.factor = (1, 1.0, True, 2, np.float32(2))[number % 5]
    elif what == "names":
        HELD.names.append("x" * number)
    elif what == "elements":
        HELD.array[...] += 1
    elif what == "array":
        HELD.array = np.ones(number % 3, np.float32)


def check_equal(found: Any, expected: Any) -> None:
    """Holds results against each other: structure, dtypes, weakness and bits."""
    assert nnc.tree.structure(found) == nnc.tree.structure(expected)
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
        if isinstance(y, str):
            assert x == y
            continue
        assert type(x) is type(y) and x.spec == y.spec and x.weak == y.weak, (x, y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), (x, y)


def expect(call: Call, keywords: dict[str, Any]) -> Any:
    """The function's own result for a call."""
    args, kwargs = call.arguments()
    with nnc.debug.eager():
        return nnc.compile(described, static_argnames="static")(*args, **kwargs, **keywords)


def run(fun: Any, script: Sequence[Call], is_static: bool) -> None:
    """Makes the calls, each three times, and holds every result against the function's own, also when all are over."""
    HELD.factor, HELD.names, HELD.array = 2, [], np.ones(1, np.float32)
    before = []
    for number, call in enumerate(script):
        change(call.change, number)
        keywords = {"static": call.static} if is_static else {}
        expected = expect(call, keywords)
        for _ in range(3):
            args, kwargs = call.arguments()
            with MODES[call.mode](), warnings.catch_warnings():
                found = fun(*args, **kwargs, **keywords)
            check_equal(found, expected)
            for x in nnc.tree.leaves((args, kwargs)):
                if type(x) is np.ndarray and x.flags.writeable:
                    x[...] = -77  # the result is of the elements as they were
            before.append((found, expected))
    for found, expected in before:
        check_equal(found, expected)


@given(calls())
def test_calls_alike_are_told_apart(script: list[Call]) -> None:
    run(nnc.compile(described), script, is_static=False)


@FEWER
@given(calls())
def test_static_arguments_are_told_apart(script: list[Call]) -> None:
    run(nnc.compile(described, static_argnames="static"), script, is_static=True)


@FEWER
@given(calls())
def test_calls_that_donate_are_told_apart(script: list[Call]) -> None:
    run(nnc.compile(described, donate_argnums=(0, 1)), script, is_static=False)


@FEWER
@given(calls())
def test_threads_that_call_in_turns_have_their_own_results(script: list[Call]) -> None:
    HELD.factor, HELD.names, HELD.array = 2, [], np.ones(1, np.float32)
    fun = nnc.compile(described)
    expected = [expect(call, {}) for call in script]

    def work(number: int) -> None:
        for i in range(6):
            at = (number * i) % len(script)
            args, kwargs = script[at].arguments()
            check_equal(fun(*args, **kwargs), expected[at])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, (1, 2, 3)))
