"""The bound of memories of calls: the entry that was asked for least recently goes first, by number or by size."""

from __future__ import annotations

import threading

from nnc.base.bounded import BoundedCache


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(3)
    for i, key in enumerate("abc"):
        assert cache.keep(key, i) == i
    assert cache.find("a") == 0 and cache.glance("b") == 1  # a glance does not count
    cache.keep("d", 3)
    assert [cache.glance(key) for key in "abcd"] == [0, None, 2, 3] and len(cache) == 3


def test_sizes_are_added_up_and_kept_below_the_limit() -> None:
    cache: BoundedCache[str, list[int]] = BoundedCache(10, limit=5, size=len)
    cache.keep("a", [1, 2])
    cache.keep("b", [1, 2, 3])
    assert cache.total == 5
    cache.keep("a", [1])  # another value for a key that is known
    assert cache.total == 4 and len(cache) == 2
    cache.keep("c", [1, 2, 3])
    assert cache.total == 4 and cache.find("b") is None
    cache.drop("c"), cache.drop("never kept")
    assert cache.total == 1 and len(cache) == 1
    cache.clear()
    assert cache.total == 0 == len(cache)


def test_threads_share_one_that_is_always_full() -> None:
    cache: BoundedCache[int, int] = BoundedCache(4)
    wrong: list[object] = []

    def work(start: int) -> None:
        for i in range(5000):
            key = (start + i) % 9
            found = cache.find(key)
            if found is None:
                found = cache.keep(key, key * key)
            if found != key * key:
                wrong.append((key, found))
            cache.drop(i % 5)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(cache) <= 4
