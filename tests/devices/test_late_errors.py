"""Errors on devices that depend on memory and on elements: no memory, an index out of range, a callback that fails."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    OutOfBoundsError,
    OutOfMemoryError,
)
from tests.devices.wrong import Use, X, check_told, new_device, rows, there

# -- memory that ends --------------------------------------------------------------------------------------------------

_SMALL = 1 << 18  # bytes
_BIG = np.ones((300, 300), np.float32)  # more than that


def _with_captured(a: Any, big: Any = _BIG) -> Any:
    return a @ big


ENDS: dict[str, tuple[Use, Use]] = {  # the arguments, and the function that needs more
    "an eager result": (lambda: np.ones((2, 300), "f4"), lambda a: nnp.broadcast_to(a, (200, 2, 300))),
    "a compiled result": (lambda: np.ones((2, 300), "f4"), nnc.compile(lambda a: a + nnp.zeros((200, 2, 300)))),
    "an arena": (
        lambda: np.ones((100, 300), "f4"),
        nnc.compile(lambda a: nnp.sum(nnp.tanh(a.T @ a) @ nnp.sin(a.T @ a))),
    ),
    "a captured array": (lambda: np.ones((2, 300), "f4"), nnc.compile(_with_captured)),
    "a host operand": (lambda: np.ones((2, 300), "f4"), lambda a: a @ _BIG),
    "a gradient": (lambda: np.ones((100, 300), "f4"), nnc.grad(lambda a: nnp.sum(nnp.tanh(nnp.tanh(a))))),
}


@pytest.mark.parametrize(("argument", "use"), ENDS.values(), ids=ENDS)
def test_memory_that_ends_is_told_and_nothing_is_lost(argument: Use, use: Use) -> None:
    device, name = new_device(_SMALL)
    x = there(argument(), name)
    before = device.pool.used
    for _ in range(2):
        check_told(lambda: use(x), OutOfMemoryError, f"{name}:", "bytes do not fit", f"of {_SMALL:,}", f"{x.spec} (")
        there(np.ones(1, "f4"), name)  # frees dropped memory
    gc.collect()
    there(np.ones(1, "f4"), name)
    assert device.pool.used <= before + 3 * 256 + 256  # scalars, and memory of no size
    device.pool.capacity = 64 << 20
    np.testing.assert_allclose(use(x), use(argument()), rtol=1e-4)


def test_a_donated_argument_is_given_back_where_the_results_do_not_fit() -> None:
    device, name = new_device(3 << 18)
    x = there(np.ones(100_000, "f4"), name)
    f = nnc.compile(lambda a: (a + 1, nnp.concatenate([a, a])), donate_argnums=0)
    check_told(lambda: f(x), OutOfMemoryError, "do not fit", "float32[100000]")
    assert not x.is_deleted()
    device.pool.capacity = 64 << 20
    assert float(f(x)[0].sum()) == 200_000 and x.is_deleted()


# -- errors that only the elements show --------------------------------------------------------------------------------


def bad_pick(number: int = 5) -> Any:
    return nnp.take(there(), there(np.array([number])), axis=0)


WAITS: dict[str, Use] = {
    "read": np.asarray,
    "printed": repr,
    "pickled": pickle.dumps,
    "waited for": lambda x: x.block_until_ready(),
    "waited for in a tree": lambda x: nnc.block_until_ready({"a": X, "b": [x]}),
    "sent on": lambda x: nnc.device_put(x, "sim:1"),
    "asked": lambda x: bool((x > 0).all()),
    "used by a program": lambda x: nnc.compile(lambda a: a * 2)(x).tolist(),
    "donated": lambda x: nnc.compile(lambda a: a * 2, donate_argnums=0)(x).tolist(),
    "looped over": lambda x: nnc.while_loop(lambda c: nnp.sum(c) < 9, lambda c: c + 1, x).tolist(),
}


@rows(WAITS)
def test_an_index_out_of_range_is_told_wherever_the_host_waits(use: Use) -> None:
    result = bad_pick()
    check_told(
        lambda: use(result), OutOfBoundsError, "index 5 is out of range for axis 0, which has size 2", "in bad_pick"
    )


def test_each_of_two_failed_calls_tells_its_own_error() -> None:
    pick = nnc.compile(
        lambda x, i: nnp.take(x, i, axis=0) @ (x.T @ x)
    )  # a step behind the failing one writes the arena
    calls = {number: pick(there(), there(np.array([number]))) for number in (5, 1, 7)}
    for number in (7, 5, 7):
        check_told(lambda number=number: np.asarray(calls[number]), OutOfBoundsError, f"index {number} is out of range")  # type: ignore[misc]
    assert np.array_equal(calls[1], X[1:] @ (X.T @ X))


def test_an_error_whose_result_nobody_needs_disturbs_nothing() -> None:
    bad_pick()
    assert np.array_equal(there() + 1, X + 1)


def test_other_errors_of_work_are_told_with_the_line() -> None:
    check_told(lambda: np.asarray(nnp.linalg.inv(there(np.zeros((3, 3), "f4")))), nnc.errors.LinAlgError, "singular")
    factor = nnc.compile(nnp.linalg.cholesky)(there(-np.eye(3, dtype="f4")))
    check_told(lambda: np.asarray(factor), nnc.errors.LinAlgError, "not positive definite")


def fail(*_: Any) -> None:
    raise ValueError("mine")


CALLBACKS: dict[str, Use] = {
    "eager": lambda x: nnc.debug.callback(fail, x),
    "alone": nnc.compile(lambda x: nnc.debug.callback(fail, x)),
    "beside a result": nnc.compile(lambda x: (nnc.debug.callback(fail, x), x + 1)[1]),
    "in a loop": nnc.compile(lambda x: nnc.fori_loop(0, 2, lambda i, c: (nnc.debug.callback(fail, c), c + 1)[1], x)),
}


@rows(CALLBACKS)
def test_an_error_of_a_callback_is_raised_in_the_call(use: Use) -> None:
    for _ in range(4):
        with pytest.raises(ValueError, match="mine"):
            use(there())
