from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.garbage import collection_paused


def test_collection_goes_on_after_the_last_of_nested_blocks() -> None:
    with collection_paused():
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collection_paused():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_collections_that_the_program_switched_off_stay_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_of_several_threads_pause_together() -> None:
    inside, leave = threading.Event(), threading.Event()

    def pause() -> None:
        with collection_paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=pause)
    with collection_paused():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_objects_made_meanwhile_count_as_old() -> None:
    with collection_paused():
        made = [[i] for i in range(100_000)]
    assert len(gc.get_objects(generation=0)) < len(made) // 10
    assert len(gc.get_objects(generation=1)) < len(made) // 10


def test_frozen_objects_of_the_program_stay_frozen() -> None:
    kept: list[list[int]] = [[]]
    gc.freeze()
    try:
        with collection_paused():
            pass
        assert gc.get_freeze_count()
        assert not any(
            each is kept for each in gc.get_objects()
        )  # of all generations, but not the objects that are kept out
    finally:
        gc.unfreeze()
    assert any(each is kept for each in gc.get_objects())


def test_no_garbage_is_collected_while_a_function_is_compiled() -> None:
    runs: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if threading.current_thread() is threading.main_thread():  # one that reads compiled code may have begun
            runs.append(phase)

    lowered = nnc.compile(lambda x: nnp.sum(nnp.tanh(x @ x) * 2)).lower(np.ones((4, 4), np.float32))
    threshold = gc.get_threshold()
    gc.set_threshold(10)
    gc.callbacks.append(note)
    try:
        lowered.compile()
        compiled = len(runs)
        made = [[i] for i in range(1000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*threshold)
    assert len(runs) > compiled + len(made) // 100
    assert compiled < 60  # of the objects that stand around it; 240 and more without the pause


def test_no_garbage_is_collected_while_a_graph_is_made() -> None:
    seen: list[bool] = []

    def f(x: object) -> object:
        seen.append(gc.isenabled())
        return x

    nnc.make_graph(f)(np.ones(2, np.float32))
    assert seen == [False]
    assert gc.isenabled()


def test_temporary_objects_of_compiling_are_freed_at_once() -> None:
    def loss(w: Any, xs: Any, x: Any) -> Any:
        def forward(h: Any, v: Any) -> Any:
            h = nnp.tanh(h @ w + v)
            return h, h

        h, every = nnc.scan(forward, x, xs)
        h = nnp.concatenate([h, nnp.flip(h, 0), nnp.sort(h, axis=1)], axis=0)
        h = nnc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 1.5), (0, h), max_steps=5)[1]
        h = nnc.nn.softmax(h, axis=-1)
        return nnp.sum((h - nnp.mean(h, axis=0)) / nnp.sqrt(nnp.var(h, axis=0) + 1e-3)) + nnp.sum(every)

    def step(w: Any, xs: Any, x: Any) -> Any:
        return w - nnc.grad(loss)(w, xs, x)

    arrays = [np.ones(shape, np.float32) for shape in ((8, 8), (5, 4, 8), (4, 8))]
    lowered = nnc.compile(step, donate_argnums=0).lower(*arrays)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        executable = lowered.compile()
        gc.collect()
        left = {type(thing).__qualname__ for thing in gc.garbage if type(thing).__module__.startswith("nnc.")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert executable.memory_plan is not None
    assert left <= {"Options"}
