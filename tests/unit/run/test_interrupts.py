"""Long loops that a signal's handler ends: of each kind that looks for interrupts in another way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

if not hasattr(signal, "setitimer"):
    pytest.skip("needs a timer that sends a signal", allow_module_level=True)

ENDLESS = 10**14  # iterations: days


def inner(length: Any) -> Callable[[Any, Any], Any]:
    """A loop whose own iterations never last long enough for it to look for interrupts."""
    return lambda i, x: nnc.fori_loop(0, length, lambda j, x: x * 0.999 + j, x)


def unknown(i: Any, x: Any) -> Any:
    return nnc.while_loop(lambda s: s[0] < 50000, lambda s: (s[0] + 1, s[1] * 0.999), (0, x))[1]


ONE, VECTOR, MATRIX = np.float64(1), np.ones(100), np.ones((300, 300))
LOOPS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "while_loop": (lambda x, n: nnc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.999), (0, x))[1], ONE),
    "fori_loop": (lambda x, n: nnc.fori_loop(0, n, lambda i, x: x * 0.999 + i, x), ONE),
    "of vectors": (lambda x, n: nnc.fori_loop(0, n, lambda i, x: x * 0.999 + i, x), VECTOR),
    "of products": (lambda x, n: nnc.fori_loop(0, n, lambda i, x: x @ x * 1e-3, x), MATRIX),
    "of large arrays, in threads": (lambda x, n: nnc.fori_loop(0, n, lambda i, x: nnp.sin(x) + i, x), np.ones(10**6)),
    "of loops": (lambda x, n: nnc.fori_loop(0, n, inner(1000), x), ONE),
    "of loops of loops": (
        lambda x, n: nnc.fori_loop(0, n, lambda i, x: nnc.fori_loop(0, 3000, inner(200), x), x), ONE,
    ),
    "of loops of unknown length": (lambda x, n: nnc.fori_loop(0, n, unknown, x), ONE),
    "of loops of loops of unknown length": (
        lambda x, n: nnc.fori_loop(0, n, lambda i, x: nnc.fori_loop(0, 100, unknown, x), x), ONE,
    ),
    "of branches with loops": (
        lambda x, n: nnc.fori_loop(0, n, lambda i, x: nnc.cond(i >= 0, lambda x: unknown(i, x), lambda x: x, x), x), ONE,
    ),
}  # fmt: skip


class HandlerError(Exception):
    """The error that the handler raises."""


@pytest.fixture
def _signals() -> Iterator[None]:
    def handle(number: int, frame: object) -> None:
        raise HandlerError

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("warm", [False, True])
def test_a_signal_ends_a_long_loop_and_leaves_the_function_usable(name: str, warm: bool) -> None:
    function, start = LOOPS[name]
    compiled, x = nnc.compile(function), nnp.asarray(start)
    expected = np.asarray(compiled(x, nnp.asarray(2)))
    for _ in range(5 if warm else 0):  # then CPython may call the program itself
        compiled(x, nnp.asarray(2))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(HandlerError):
        compiled(x, nnp.asarray(ENDLESS))
    np.testing.assert_array_equal(compiled(x, nnp.asarray(2)), expected)
