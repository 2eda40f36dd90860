"""Arrays that no memory holds, and memory that the system does not give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import random
from nnc.errors import NncError, OutOfMemoryError, ShapeError
from tests.errors.reports import reports

HUGE, LARGE = 2**61, 2**52  # elements: more than an address counts; more than any machine has
KEY = random.key(0)
X = nnp.ones(3)
OVERFLOWING: dict[str, Callable[[], object]] = {
    "zeros": lambda: nnp.zeros(HUGE),
    "zeros of two axes": lambda: nnp.zeros((2**40, 2**40)),
    "zeros of no element": lambda: nnp.zeros((0, 2**40, 2**40)),
    "ones": lambda: nnp.ones(2**70),
    "empty": lambda: nnp.empty(2**63),
    "full": lambda: nnp.full(HUGE, 1.0),
    "eye": lambda: nnp.eye(2**40),
    "tri": lambda: nnp.tri(2**40),
    "arange": lambda: nnp.arange(HUGE),
    "arange of floats": lambda: nnp.arange(0, 1e30, 1.0),
    "linspace": lambda: nnp.linspace(0, 1, HUGE),
    "tile": lambda: nnp.tile(X, HUGE),
    "repeat": lambda: nnp.repeat(X, HUGE),
    "pad": lambda: nnp.pad(X, HUGE),
    "broadcast_to": lambda: nnp.broadcast_to(X, (HUGE, 3)),
    "compiled broadcast_to": lambda: nnc.compile(lambda x: nnp.broadcast_to(x, (HUGE, 3)))(X),
    "compiled zeros": lambda: nnc.compile(lambda x: nnp.zeros(HUGE) + x[0])(X),
    "vmap": lambda: nnc.vmap(lambda: nnp.ones(3), axis_size=HUGE)(),
    "normal": lambda: random.normal(KEY, (HUGE,)),
    "permutation": lambda: random.permutation(KEY, HUGE),
}
NOT_TO_BE_HAD: dict[str, Callable[[], object]] = {
    "zeros": lambda: nnp.zeros(LARGE),
    "full": lambda: nnp.full(LARGE, 1.0),
    "eye": lambda: nnp.eye(2**26),
    "arange": lambda: nnp.arange(LARGE),
    "linspace": lambda: nnp.linspace(0, 1, LARGE),
    "tile": lambda: nnp.tile(X, LARGE),
    "repeat": lambda: nnp.repeat(X, LARGE),
    "repeat, each": lambda: nnp.repeat(X, np.asarray([LARGE, 1, 1])),
    "pad": lambda: nnp.pad(X, LARGE),
    "add": lambda: nnp.broadcast_to(X, (LARGE, 3)) + 1,
    "bincount": lambda: nnp.bincount(nnp.asarray([LARGE])),
    "normal": lambda: random.normal(KEY, (LARGE,)),
    "randint": lambda: random.randint(KEY, (LARGE,), 0, 3),
    "jacobian": lambda: nnc.jacrev(lambda x: x)(nnp.ones(2**26)),
}


MANY = (1,) * 65  # axes: more than NumPy has
DEEP = nnp.ones(MANY[1:])
TOO_MANY_AXES: dict[str, Callable[[], object]] = {
    "zeros": lambda: nnp.zeros(MANY),
    "reshape": lambda: X[:1].reshape(MANY),
    "broadcast_to": lambda: nnp.broadcast_to(X, (*MANY, 3)),
    "expand_dims": lambda: nnp.expand_dims(DEEP, 0),
    "index": lambda: DEEP[None],
    "places": lambda: nnp.ones((2, 2))[:, np.zeros(MANY[1:], int)],
    "take": lambda: nnp.take(nnp.ones((2, 2)), np.zeros(MANY[1:], int), axis=0),
    "stack": lambda: nnp.stack([DEEP, DEEP]),
    "tensordot": lambda: nnp.tensordot(DEEP, X, 0),
    "einsum": lambda: nnp.einsum("...,a->...a", DEEP, X),
    "meshgrid": lambda: nnp.meshgrid(*[X] * 65),
    "normal": lambda: random.normal(KEY, MANY),
    "array": lambda: nnp.array(1, ndmin=65),
    "compiled": lambda: nnc.compile(lambda x: x[None] + 1)(DEEP),
    "vmap": lambda: nnc.vmap(lambda x: DEEP + x)(X),
    "scan": lambda: nnc.scan(lambda carry, x: (carry, DEEP), 1.0, X),
    "hessian": lambda: nnc.hessian(lambda x: (x * x).sum())(nnp.ones(MANY[:33])),
}


@pytest.mark.parametrize("name", TOO_MANY_AXES)
def test_arrays_of_more_than_64_axes_are_refused_in_words(name: str) -> None:
    with reports(ShapeError, "axes; an array has at most 64"):
        TOO_MANY_AXES[name]()


def test_vectors_that_numpy_refuses_at_once_are_refused_in_words() -> None:
    with reports(OutOfMemoryError, "hanning: the system gives no memory for it: array is too big"):
        nnp.hanning(2**62)


def test_arrays_of_64_axes_are_indexed_and_broadcast() -> None:
    assert (DEEP[..., None, 0] + DEEP).shape == DEEP.shape
    assert nnp.ones(2)[np.zeros(MANY[1:], int)].shape == DEEP.shape


@pytest.mark.parametrize("name", OVERFLOWING)
def test_sizes_that_no_memory_holds(name: str) -> None:
    with pytest.raises(ShapeError) as caught:
        OVERFLOWING[name]()
    text = str(caught.value)
    assert "would have" in text and "bytes" in text and "test_memory.py:" in text and "\nFix: " in text


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_TO_BE_HAD)
def test_results_that_the_system_gives_no_memory_for(name: str) -> None:
    with pytest.raises(MemoryError) as caught:
        NOT_TO_BE_HAD[name]()
    text = str(caught.value)
    assert type(caught.value) is OutOfMemoryError
    assert "Unable to allocate" in text and "test_memory.py:" in text and "\nFix: " in text


def test_results_of_a_compiled_function() -> None:
    step = nnc.compile(lambda x: nnp.broadcast_to(x, (LARGE, 3)))
    with reports(OutOfMemoryError, "48.00 PiB", "for its results", "float32[4503599627370496,3]", "memory_budget"):
        step(X)
    with reports(OutOfMemoryError, "48.00 PiB"):
        step(X)


def test_the_arena_of_a_compiled_function() -> None:
    step = nnc.compile(lambda x: nnp.sum(nnp.sort(nnp.broadcast_to(x, (LARGE, 3)).ravel())[5:9]))
    with reports(OutOfMemoryError, "for values within it", "float32[13510798882111488]"):
        step(X)


@pytest.mark.unguarded  # which makes memory in another way
def test_memory_that_is_there_again_is_used_and_donated_arrays_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    step = nnc.compile(lambda x, y: (x + 1, nnp.sort(x @ y)), donate_argnums=0)
    x, y = nnp.ones((4, 4)) * 2, nnp.ones((4, 4))
    monkeypatch.setattr("nnc.run.program.aligned_bytes", _no_memory)
    monkeypatch.setattr("nnc.run.native_frame.aligned_bytes", _no_memory)
    with reports(OutOfMemoryError, "that a call needs"):
        step(x, y)
    monkeypatch.undo()
    assert not x.is_deleted() and x.tolist() == [[2.0] * 4] * 4
    first, second = step(x, y)
    assert first.tolist() == [[3.0] * 4] * 4 and second.tolist() == [[8.0] * 4] * 4
    assert x.is_deleted()


def _no_memory(nbytes: int, alignment: int = 64) -> Any:
    raise MemoryError


def test_a_memory_error_of_the_users_own_stays_theirs() -> None:
    def wrong(x: Any) -> Any:
        raise MemoryError("mine")

    with pytest.raises(MemoryError, match="^mine$") as caught:
        nnc.compile(lambda x: (nnc.debug.callback(wrong, x), x)[1])(X)
    assert not isinstance(caught.value, NncError)
    with pytest.raises(MemoryError, match="^mine$"):
        nnc.grad(wrong)(1.0)
