"""Threads that begin while a signal's handler raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from nnc.base.fork import undisturbed


class HandlerError(Exception):
    """The error that the handler raises."""


@pytest.fixture
def _interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal arrives whenever a thread has been started, and its handler raises."""

    def handle(number: int, frame: object) -> None:
        raise HandlerError

    name = next(name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name))
    before, start = signal.signal(signal.SIGUSR1, handle), getattr(threading, name)

    def start_and_signal(*arguments: object, **options: object) -> object:
        begun = start(*arguments, **options)
        signal.raise_signal(signal.SIGUSR1)
        return begun

    monkeypatch.setattr(threading, name, start_and_signal)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_interrupted")
def test_a_handler_that_raises_while_a_thread_begins_is_heard_and_the_thread_runs() -> None:
    begun = threading.Event()
    thread = threading.Thread(target=begun.set)

    def start_and_wait() -> None:
        undisturbed(thread.start)
        threading.Event().wait(5)  # where the signal came late

    with pytest.raises(HandlerError):
        start_and_wait()
    assert begun.wait(5)
    thread.join(5)
    assert not thread.is_alive()


def test_results_and_errors_are_those_of_the_function() -> None:
    assert undisturbed(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 // 0)


def test_other_threads_run_the_function_themselves() -> None:
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(undisturbed(threading.get_ident) == threading.get_ident()),
    )
    thread.start()
    thread.join()
    assert found == [True]
