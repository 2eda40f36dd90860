"""Programs for tests of remembered calls: every operand fits, and the same settings come up in several spellings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.calls.specialise import specialised_in_traces

SIZES = (0, 1, 2, 17, 129)
KEY = nnc.random.key(3)
NUMBERS = (0.0, -0.0, 1, 1.0, True, 2, 0.5, np.float32(0.5), np.float64(0.5))
DTYPES = ("float32", "float32", "float64", "float16", "bfloat16", "int32", "int16")


@dataclass(frozen=True)
class Step:
    """One operation of a program on the values `i` and `j`, counted round, and a number."""

    name: str
    i: int
    j: int
    number: Any


def _layer(x: Any, scale: Any, *, power: int = 2) -> Any:
    """Computes a layer, as a network applies it many times: two results, of which one can be an operand."""
    return scale * (x - 1) ** power / (1 + abs(x)) + x, scale


LAYER = specialised_in_traces(_layer)


def _captures(x: Any, y: Any, c: Any) -> Any:
    """A function that is made for this place and holds a value of the program, applied three times."""
    step = specialised_in_traces(lambda z, w: z * y - w, may_capture=True)
    return step(x, c) + step(y, c) + step(x, y)


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda x, y, c: x + y,
    "sub": lambda x, y, c: x - y,
    "mul": lambda x, y, c: nnp.tanh(x * y),
    "max": lambda x, y, c: nnp.maximum(x, y),
    "div": lambda x, y, c: x / (2 + abs(y)),
    "where": lambda x, y, c: nnp.where(x > y, x, y),
    "clip": lambda x, y, c: nnp.clip(x, -1, y),
    "equal": lambda x, y, c: nnp.where(x == y, x, y),
    "mean": lambda x, y, c: nnp.mean(y[None] + 1) + x,
    "arctan2": lambda x, y, c: nnp.arctan2(x, 1 + abs(y)),
    "x + c": lambda x, y, c: x + c,
    "c - x": lambda x, y, c: c - x,
    "x * c": lambda x, y, c: x * c,
    "x ** 2": lambda x, y, c: nnp.tanh(x**2),
    "choose c": lambda x, y, c: nnp.where(x > 0, x, c),
    "full": lambda x, y, c: nnp.full_like(x, c) + y,
    "below c": lambda x, y, c: nnp.minimum(x, c),
    "leaky": lambda x, y, c: nn.leaky_relu(x, float(c)),
    "elu": lambda x, y, c: nn.elu(x, float(c)),
    "roll": lambda x, y, c: nnp.roll(x, int(c)),
    "sum": lambda x, y, c: nnp.sum(x, axis=-1 if x.ndim else None, keepdims=True),
    "sum all": lambda x, y, c: nnp.sum(x),
    "softmax": lambda x, y, c: nn.softmax(x * 1.0, axis=-1) if x.ndim and x.size else x,
    "gelu": lambda x, y, c: nn.gelu(x * 1.0),
    "astype": lambda x, y, c: x.astype(y.dtype),
    "flip": lambda x, y, c: nnp.flip(x),
    "same": lambda x, y, c: x,
    "stop": lambda x, y, c: nnc.stop_gradient(x) + y,
    "layer": lambda x, y, c: LAYER(x, y)[0],
    "layer c": lambda x, y, c: LAYER(y, c, power=3)[0],
    "two layers": lambda x, y, c: LAYER(*LAYER(x, y)[::-1])[0],
    "norm": lambda x, y, c: nn.layer_norm(x * 1.0) if x.ndim and x.size else x,
    "captures": _captures,
    "draw": lambda x, y, c: x + nnc.random.normal(nnc.random.fold_in(KEY, int(abs(c))), y.shape),
}


def steps(names: Sequence[str] = tuple(OPERATIONS), most: int = 10) -> st.SearchStrategy[list[Step]]:
    """Operations that follow one another."""
    places = st.integers(0, 30)
    step = st.builds(Step, st.sampled_from(list(names)), places, places, st.sampled_from(NUMBERS))
    return st.lists(step, min_size=2, max_size=most)


@st.composite
def leaves(draw: Any, dtypes: Sequence[str] = DTYPES, least: int = 2) -> list[Any]:
    """Arrays of shapes that broadcast to (3, n), and a number that is weak beside one of its dtype that is not."""
    n = draw(st.sampled_from(SIZES))
    shapes = [(), (1,), (n,), (1, n), (3, n), (3, 1), ()]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = []
    for shape, dtype in draw(
        st.lists(st.tuples(st.sampled_from(shapes), st.sampled_from(dtypes)), min_size=least, max_size=5)
    ):
        x = nnc.asarray(np.round(rng.normal(size=shape) * 2, 2)).astype(dtype)
        is_weak = shape == () and dtype in ("float32", "int32") and draw(st.booleans())
        found.append(x.as_weak() if is_weak else x)
    number = nnc.asarray(np.asarray(0.75, draw(st.sampled_from([x for x in dtypes if x.startswith("float")]))))
    return [*found, number, number.as_weak()]


def run(program: Sequence[Step], inputs: Sequence[Any]) -> list[Any]:
    """The values of a program, in which every value may be read again and again."""
    values = list(inputs)
    for step in program:
        x, y = values[step.i % len(values)], values[step.j % len(values)]
        values.append(OPERATIONS[step.name](x, y, step.number))
    return values[len(inputs) :]


def check_same(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Holds values, dtypes and weakness against each other: bit by bit, or with a tolerance relative to the largest value."""
    a, b = nnc.tree.leaves(found), nnc.tree.leaves(expected)
    assert len(a) == len(b)
    floats = [np.asarray(y).astype(np.float64) for y in b if rtol and nnp.issubdtype(y.dtype, nnp.floating)]
    largest = max([float(np.abs(y[np.isfinite(y)]).max(initial=1.0)) for y in floats], default=1.0)
    for x, y in zip(a, b, strict=True):
        assert x.spec == y.spec and x.weak == y.weak, (x, y)
        left, right = np.asarray(x), np.asarray(y)
        if rtol and nnp.issubdtype(x.dtype, nnp.floating):
            wide = left.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol * largest)
        else:
            assert left.tobytes() == right.tobytes(), (x, y)
