"""Tracers: their texts, and operations that they refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import TraceError

X = np.array([0.3, -1.2, 0.7])


def seen(transform: Callable[..., Any], look: Callable[[Any], Any]) -> Any:
    """Returns the result of `look` on the tracer that `transform` makes for a row of three floats."""
    found: list[Any] = []
    transform(lambda x: (found.append(look(x)), nnp.sum(x))[1])
    return found[0]


TRANSFORMS = {
    "grad": lambda f: nnc.grad(f)(X), "jvp": lambda f: nnc.jvp(f, (X,), (X,)), "graph": lambda f: nnc.make_graph(f)(X),
    "vmap": lambda f: nnc.vmap(f)(X[None]), "compile": lambda f: nnc.compile(f)(X),
    "nested": lambda f: nnc.make_graph(nnc.vmap(nnc.grad(f)))(X[None]),
}  # fmt: skip
EACH = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


@EACH
def test_a_tracer_knows_its_shape_and_dtype(transform: Any) -> None:
    facts = seen(
        transform, lambda x: (x.shape, x.dtype.name, x.ndim, x.size, x.nbytes, x.itemsize, len(x), x.device, x.T.shape)
    )
    assert facts == ((3,), "float64", 1, 3, 24, 8, 3, "cpu", (3,))


@EACH
def test_numpy_operands_on_either_side_give_tracers(transform: Any) -> None:
    def look(x: Any) -> list[str]:
        return [
            type(y).__name__
            for y in (X + x, x + X, X @ x, 2 * x, np.float64(2) * x, -x, abs(x), x[0], x[::-1] ** 2, x > X)
        ]

    names = seen(transform, look)
    assert "Array" not in names[:9] and "ndarray" not in names


@EACH
def test_tracers_are_unhashable_immutable_and_not_stored(transform: Any) -> None:
    for act in (hash, lambda x: x.__setitem__(0, 1), pickle.dumps):
        with pytest.raises((TypeError, TraceError)):
            seen(transform, act)


@EACH
def test_text_forms_never_fail_and_name_the_spec(transform: Any) -> None:
    texts = seen(transform, lambda x: [repr(x), str(x), f"{x}", f"{x[0]:.3f}"])
    assert all("float64" in text for text in texts[:3]) and isinstance(texts[3], str)


@EACH
def test_copies_of_a_tracer_are_the_same_value(transform: Any) -> None:
    assert seen(transform, lambda x: (copy.copy(x).spec == x.spec, copy.deepcopy({"x": x})["x"].owner is x.owner)) == (
        True,
        True,
    )
    assert np.allclose(np.asarray(nnc.grad(lambda x: nnp.sum(copy.deepcopy(x) * x))(X)), 2 * X)


def test_iterating_unpacking_and_sequences_of_tracers_are_differentiated() -> None:
    def f(x: Any) -> Any:
        a, b, c = x
        return a * b + sum(nnp.array([c, a * 2])) + max(a, b)

    assert np.allclose(np.asarray(nnc.grad(f)(X)), [X[1] + 2 + 1, X[0], 1])


def test_escaped_tracers_of_every_kind_are_reported() -> None:
    for transform in TRANSFORMS.values():
        tracer = seen(transform, lambda x: x)
        for act in (lambda x: x + 1, float, lambda x: np.asarray(x), lambda x: nnc.grad(lambda y: nnp.sum(y * x))(X)):
            with pytest.raises(TraceError, match="ended"):
                act(tracer)
        assert "float64" in repr(tracer)
