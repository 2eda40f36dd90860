from __future__ import annotations

import gc
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.data import batches
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError

KEY = nnc.random.key(3)


def rows(source: Any) -> list[list[int]]:
    return [np.asarray(part).tolist() for part in source]


def threads() -> int:
    return sum(thread.name == "nnc.data.batches" for thread in threading.enumerate())


def test_without_a_key_rows_come_in_order() -> None:
    x = np.arange(7)
    assert rows(batches(x, 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert rows(batches(x, 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert rows(batches(x, 10)) == [list(range(7))]


@given(
    n=st.integers(1, 20), batch=st.integers(1, 8), epochs=st.integers(0, 3), step=st.integers(0, 30),
    drop_last=st.booleans(), shuffled=st.booleans(), prefetch=st.integers(0, 3),
)  # fmt: skip
def test_resuming_gives_the_rest_of_the_same_batches(
    n: int, batch: int, epochs: int, step: int, drop_last: bool, shuffled: bool, prefetch: int
) -> None:
    if drop_last and n < batch:
        return
    key = KEY if shuffled else None
    whole = rows(batches(np.arange(n), batch, key, epochs=epochs, drop_last=drop_last))
    rest = batches(np.arange(n), batch, key, prefetch, epochs=epochs, drop_last=drop_last, step=step)
    assert len(rest) == len(whole[step:])
    assert rows(rest) == whole[step:] and rest.step == max(step, len(whole))
    per_epoch = len(whole) // epochs if epochs else 0
    for i in range(epochs):
        seen = sorted(n for part in whole[i * per_epoch : (i + 1) * per_epoch] for n in part)
        assert len(set(seen)) == len(seen) and len(seen) == (n - n % batch if drop_last else n)


def test_each_epoch_has_an_order_of_its_own_which_the_key_decides() -> None:
    first, second = rows(batches(np.arange(50), 50, KEY, epochs=2))
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    assert rows(batches(np.arange(50), 50, KEY)) == [first]
    assert rows(batches(np.arange(50), 50, nnc.random.key(4))) != [first]


def test_trees_keep_their_structure_kinds_and_rows_together() -> None:
    data = {"x": nnp.asarray(np.arange(6.0)), "y": (np.arange(6) * 10, None), "name": "digits"}
    for part in batches(data, 4, KEY):
        assert isinstance(part["x"], nnc.Array) and isinstance(part["y"][0], np.ndarray)
        assert np.array_equal(part["x"] * 10, part["y"][0]) and part["name"] == "digits" and part["y"][1] is None


def test_memory_maps_are_read_batch_by_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    parts = list(batches(np.load(tmp_path / "x.npy", mmap_mode="r"), 4, KEY))
    assert sorted(n for part in rows(parts) for n in part) == list(range(10)) and not any(
        isinstance(p, np.memmap) for p in parts
    )


def test_without_end_the_epochs_go_on() -> None:
    source = batches(np.arange(4), 3, KEY, 2, epochs=None)
    seen = [next(source) for _ in range(9)]
    assert source.step == 9 and source.epoch == 4 and len(seen[-1]) == 3
    with pytest.raises(TypeError, match="without end"):
        len(source)
    source.close()
    assert list(source) == []


def test_transforms_have_a_key_for_each_step_and_resume() -> None:
    def noisy(key: Any, part: Any) -> Any:
        return part + np.asarray(nnc.random.uniform(key, part.shape))

    whole = rows(batches(np.arange(6.0), 2, KEY, epochs=2, transform=noisy))
    assert rows(batches(np.arange(6.0), 2, KEY, 2, epochs=2, step=3, transform=noisy)) == whole[3:]
    noise = [value % 1 for part in whole for value in part]
    assert len(set(noise)) == len(noise)
    assert rows(batches(np.arange(2), 2, transform=lambda key, part: [key is None])) == [[True]]


@given(
    parts=st.integers(1, 4), rows_of_part=st.integers(1, 3), n=st.integers(1, 40), step=st.integers(0, 5), shuffled=st.booleans(),
    prefetch=st.integers(0, 2),
)  # fmt: skip
def test_shares_of_all_processes_put_together_are_the_batches(
    parts: int, rows_of_part: int, n: int, step: int, shuffled: bool, prefetch: int
) -> None:
    batch, key = parts * rows_of_part, KEY if shuffled else None
    drop_last = bool(n % batch % parts)
    if drop_last and n < batch:
        return
    whole = rows(batches(np.arange(n), batch, key, epochs=2, drop_last=drop_last, step=step))
    shares = [
        rows(batches(np.arange(n), batch, key, prefetch, epochs=2, drop_last=drop_last, step=step, share=(k, parts)))
        for k in range(parts)
    ]
    assert [list(chain(*found)) for found in zip(*shares, strict=True)] == whole
    assert all(len({len(part) for part in found}) == 1 for found in zip(*shares, strict=True))


def test_transforms_of_other_shares_have_other_keys_and_one_share_that_of_the_whole() -> None:
    def draw(key: Any, part: Any) -> Any:
        return np.asarray(nnc.random.uniform(key, (1,)))

    whole, first, second, only = (
        rows(batches(np.arange(4), 2, KEY, transform=draw, share=share)) for share in (None, (0, 2), (1, 2), (0, 1))
    )
    assert only == whole
    assert len({value for found in (whole, first, second) for (value,) in found}) == 6


# -- the thread --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_is_raised_where_its_batch_was_due(prefetch: int) -> None:
    def fail(key: Any, part: Any) -> Any:
        if part[0] == 4:
            raise OSError("the disk is gone")
        return part

    source = batches(np.arange(10), 2, None, prefetch, transform=fail)
    assert rows([next(source), next(source)]) == [[0, 1], [2, 3]]
    with pytest.raises(OSError, match="disk is gone"):
        next(source)
    assert list(source) == [] and threads() == 0


def test_the_thread_prefetches_so_many_batches_and_no_more() -> None:
    made: list[int] = []
    with batches(np.arange(20), 1, None, 3, transform=lambda key, part: made.append(int(part[0]))) as source:
        next(source)
        for _ in range(100):
            if len(made) >= 5:
                break
            time.sleep(0.01)
        time.sleep(0.02)
        assert len(made) == 5  # one taken, three waiting, one in hand
    assert threads() == 0


def test_the_thread_ends_with_the_data_by_close_and_when_it_is_forgotten() -> None:
    assert len(list(batches(np.arange(5), 1, None, 2))) == 5 and threads() == 0
    source = batches(np.arange(1000), 1, KEY, 2, epochs=None)
    next(source)
    assert threads() == 1
    source.close()
    source.close()
    assert threads() == 0
    for part in batches(np.arange(1000), 1, None, 2):
        assert part == 0
        break
    gc.collect()
    assert threads() == 0


def test_two_iterators_do_not_disturb_each_other() -> None:
    a, b = batches(np.arange(30), 2, KEY, 2), batches(np.arange(30), 2, KEY, 1)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_second_loop_over_batches_that_were_all_taken_is_refused(prefetch: int) -> None:
    parts = batches(np.arange(8), 4, prefetch=prefetch)
    next(parts)
    assert rows(parts) == [[4, 5, 6, 7]]  # the rest, in a loop of its own
    with pytest.raises(ArgumentError, match="all 2 batches were taken.*\n.*\n?.*epochs="):
        rows(parts)
    resumed = batches(np.arange(8), 4, step=2)
    assert rows(resumed) == rows(resumed) == []  # a training that had ended


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: next(batches(np.arange(8), 4, KEY, transform=lambda b: b)),
        ArgumentTypeError,
        r"define it as transform\(key, batch\)",
    ),
    (lambda: batches({"x": np.zeros(3), "y": [np.zeros(4)]}, 2), ShapeError, r'arrays\["x"\] 3, arrays\["y"\]\[0\] 4'),
    (lambda: batches([np.zeros(3), 1.0], 2), ArgumentTypeError, r"arrays\[1\] is a float"),
    (lambda: batches(np.zeros(()), 2), ShapeError, "no rows"),
    (lambda: batches(np.zeros((0, 3)), 2), ArgumentError, "have no rows"),
    (lambda: batches({}, 2), ArgumentError, "has no arrays"),
    (lambda: batches(np.zeros(3), 0), ArgumentError, "batch is 0"),
    (lambda: batches(np.zeros(3), 2.0), ArgumentTypeError, "batch is a float"),
    (lambda: batches(np.zeros(3), 4, drop_last=True), ArgumentError, "3 rows do not fill a batch of 4"),
    (lambda: batches(np.zeros(3), 2, np.zeros(2)), nnc.errors.DTypeError, "keys are uint32"),
    (lambda: batches(np.zeros(3), 2, prefetch=-1), ArgumentError, "prefetch is -1"),
    (lambda: batches(np.zeros(3), batch_size=2), ArgumentTypeError, "write batch="),
    (lambda: batches(np.zeros(3), 2, shuffle=True), ArgumentTypeError, "write key="),
    (lambda: batches(np.zeros(3), 2, transform="flip"), ArgumentTypeError, "not a function"),
    (lambda: batches(np.zeros(9), 3, share=(0, 2)), ShapeError, "batch of 3 rows cannot be split evenly among 2"),
    (lambda: batches(np.zeros(7), 4, share=(0, 2)), ShapeError, "last batch of an epoch has 3 rows"),
    (lambda: batches(np.zeros(8), 4, share=(2, 2)), ArgumentError, "no rank 2 among 2"),
    (lambda: batches(np.zeros(8), 4, share=2), ArgumentTypeError, "not a pair"),
    (lambda: batches(np.zeros(8), 4, share=(0, 0)), ArgumentError, r"share\[1\] is 0"),
]


@pytest.mark.parametrize(("call", "kind", "text"), MISTAKES, ids=[text for _, _, text in MISTAKES])
def test_the_mistake_is_named_with_a_remedy(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as error:
        call()
    assert "Fix:" in str(error.value)
