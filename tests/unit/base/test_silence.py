"""NumPy's functions without its warnings."""

import threading

import numpy as np
import pytest

from nnc.base.silence import silently, strictly


def test_a_division_by_zero_raises_no_warning() -> None:
    assert np.isinf(silently(np.divide, np.float32(1), np.float32(0)))


def test_the_callers_own_settings_are_as_they_were() -> None:
    with np.errstate(all="raise"):
        silently(np.divide, np.float32(1), np.float32(0))
        with pytest.raises(FloatingPointError):
            np.divide(np.float32(1), np.float32(0))


def test_it_works_within_itself_and_in_other_threads() -> None:
    def nested() -> float:
        return float(silently(np.log, np.float32(0)))

    assert silently(nested) == -np.inf
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(nested())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [-np.inf] * 4


def test_an_error_of_the_function_is_raised() -> None:
    with pytest.raises(OverflowError):
        silently(np.array, 300, np.uint8)


def test_invalid_operations_are_raised_where_they_are_asked_for() -> None:
    with np.errstate(all="ignore"):
        with pytest.raises(FloatingPointError):
            strictly(np.array([np.nan], np.float32).astype, np.int32)
        assert np.isinf(strictly(np.divide, np.float32(1), np.float32(0)))
        assert np.isnan(np.subtract(np.float32(np.inf), np.float32(np.inf)))
