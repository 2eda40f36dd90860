"""Whether a call came about: its status words are read once its event is reached, and no sooner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.device.cuda import Completion, Lease


class LateEvent:
    """An event that is reached when somebody waits for it, or when a test says so.

    Args:
        finish: the work before it.
    """

    def __init__(self, finish: Callable[[], None] = lambda: None) -> None:
        self._finish, self.done, self.waits = finish, False, 0

    def is_done(self) -> bool:
        return self.done

    def wait(self) -> None:
        self.waits += 1
        if not self.done:
            self._finish()
        self.done = True


def completion(event: LateEvent, words: Any, made: list[int] | None = None) -> Completion:
    def word_error(number: int) -> BaseException:
        if made is not None:
            made.append(number)
        return ValueError(f"word {number}")

    return Completion(event, words, word_error)


def test_a_call_is_known_to_be_right_when_its_event_is_reached() -> None:
    event = LateEvent()
    call = completion(event, np.zeros(2))
    assert not call.is_known_fine() and event.waits == 0
    event.done = True
    assert call.is_known_fine() and event.waits == 0
    event.done = False  # it is asked no more
    assert call.is_known_fine()


def test_words_are_read_behind_the_event() -> None:
    words, made = np.zeros(3), list[int]()

    def finish() -> None:
        words[1:] = 1

    call = completion(LateEvent(finish), words, made)
    with pytest.raises(ValueError, match="word 1") as first:
        call.check()
    with pytest.raises(ValueError, match="word 1") as second:
        call.check()
    assert first.value is second.value and made == [1]
    assert not call.is_known_fine()


def test_a_right_call_is_awaited_once() -> None:
    event = LateEvent()
    call = completion(event, np.zeros(2))
    call.check()
    call.check()
    assert event.waits == 1 and call.is_known_fine()


def test_a_wrong_call_is_not_taken_for_a_right_one() -> None:
    event = LateEvent()
    event.done = True
    call = completion(event, np.ones(1))
    assert not call.is_known_fine() and not call.is_known_fine()
    with pytest.raises(ValueError, match="word 0"):
        call.check()


def test_a_block_forgets_calls_that_are_known_to_be_right() -> None:
    early, late = LateEvent(), LateEvent()
    lease = Lease(None, None)
    assert not lease.completions
    calls = completion(early, np.zeros(1)), completion(late, np.zeros(1))
    lease.depend_on(calls)
    assert lease.completions and lease.pending() == calls
    early.done = True
    assert lease.pending() == calls[1:]
    late.done = True
    assert lease.pending() == () and not lease.completions
