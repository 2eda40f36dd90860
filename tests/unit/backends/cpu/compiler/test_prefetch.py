"""Memory of first calls, touched while their programs are made: pages are present, values stay, nothing is held afterwards.
An arena begins with the size that a file tells."""

from __future__ import annotations

import mmap
import resource
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler import prefetch
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.compiler.prefetch import Prefetcher, Preparing
from nnc.base.machine import available_memory
from nnc.run.background import WRITER, deferring, in_background
from nnc.run.native_frame import CallMemory, NativeFrame
from nnc.run.packed_weights import is_alone
from nnc.run.store.cache import Cache, CacheEntry
from tests.figures import HERE

_MEMORY = HERE.memory

pytestmark = [
    pytest.mark.skipif(compiler() is None or available_memory() is None, reason="LLVM is not installed, or no Linux"),
    pytest.mark.unguarded,
]

MANY = 1 << 24  # bytes: 4096 pages of the smallest kind


def own() -> Prefetcher:
    found = compiler()
    assert found is not None
    return found.prefetch()


def finish(touching: Preparing) -> None:
    """Waits until all is touched."""
    with touching._changed:
        assert touching._changed.wait_for(lambda: is_idle(touching), 60)


def finish_keeping() -> None:
    """Waits for the threads that write files after a call."""
    for thread in threading.enumerate():
        if thread.name == WRITER:
            thread.join()


def is_idle(touching: Preparing) -> bool:
    """Whether nothing is touched, nor will be."""
    return not touching._waiting and not touching._running


def fresh(nbytes: int = MANY, advice: int = mmap.MADV_NOHUGEPAGE) -> Any:
    """Zeros whose pages, small ones unless it is told otherwise, the system has not found yet."""
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    return np.frombuffer(memory, np.uint8)


def faults_of_writing(array: Any) -> int:
    """Counts the page faults of this thread when it writes to an array."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    array[::4096] = 1
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_memory_that_was_touched_is_there_when_it_is_written_to() -> None:
    touched, other = fresh(), fresh()
    with own() as block:
        block.arrays.begin([touched[: MANY // 2], touched[MANY // 2 :]])
        finish(block.arrays)
    assert faults_of_writing(touched) < 100 < 3000 < faults_of_writing(other)


def test_touching_changes_no_value() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, MANY // 4 + odd, np.uint8) for odd in (0, 1, 4095)]
    expected = [array.copy() for array in arrays]
    with own() as block:
        block.arrays.begin([array[1:] for array in arrays])
        finish(block.arrays)
    assert all(np.array_equal(array, copied) for array, copied in zip(arrays, expected, strict=True))


def test_memory_that_is_written_meanwhile_is_unchanged() -> None:
    array = np.zeros(MANY, np.uint8)
    with own() as block:
        for value in range(1, 9):
            block.arrays.begin([array])
            array[::4096] = value
            finish(block.arrays)
            assert np.all(array[::4096] == value)


def test_the_block_ends_though_not_all_is_touched_and_holds_nothing() -> None:
    array = fresh(64 * MANY)
    count = sys.getrefcount(array)
    with own() as block:
        block.arrays.begin([array])
    assert is_idle(block.arrays) and sys.getrefcount(array) == count
    assert faults_of_writing(array[-MANY:]) > 0


def test_a_thread_that_comes_too_late_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Any] = []
    monkeypatch.setattr(
        "nnc.backends.cpu.compiler.prefetch._thread.start_new_thread",
        lambda run, given: late.append(partial(run, *given)),
    )
    array = fresh()
    count = sys.getrefcount(array)
    with own() as block:
        block.arrays.begin([array])
    late[0]()
    assert is_idle(block.arrays) and sys.getrefcount(array) == count
    assert faults_of_writing(array) > 3000


def test_the_block_can_end_before_the_compiler() -> None:
    array, ready = fresh(), threading.Event()
    with Prefetcher(lambda: None if ready.wait(60) else 0, _MEMORY) as block:
        block.arrays.begin([array])
    assert not ready.is_set() and is_idle(block.arrays)
    ready.set()


def test_background_tasks_of_its_threads_wait_as_those_of_the_call() -> None:
    done: list[int] = []
    asked, did = threading.Event(), threading.Event()

    def find() -> None:
        in_background(lambda: (done.append(1), did.set()))
        asked.set()

    with deferring(), Prefetcher(find, _MEMORY) as block:
        block.arrays.begin([fresh()])
        assert asked.wait(60)
        assert not done
    assert did.wait(60)


def test_where_memory_is_short_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "available_memory", lambda: 2 * MANY)
    array = fresh()
    with own() as block:
        block.arrays.begin([array])
        assert is_idle(block.arrays)
    assert faults_of_writing(array) > 3000


def test_without_a_compiler_that_works_nothing_is_touched() -> None:
    array = fresh()
    asked = threading.Event()
    with Prefetcher(asked.set, _MEMORY) as block:
        block.arrays.begin([array])
        assert asked.wait(60)
    assert faults_of_writing(array) > 3000


# -- first calls -------------------------------------------------------------------------------------------------------


def update(state: Any, x: Any) -> Any:
    y = nnp.matmul(x, x)
    return [s + 1 for s in state], nnp.matmul(nnp.tanh(nnp.matmul(y, x)), y)


def program_of(compiled: Any) -> Any:
    (executable,) = compiled._entries.values()
    return executable._program


class Notes(Preparing):
    """Notes the memory that is touched."""

    def __init__(self, find: Any, memory: Any) -> None:
        super().__init__(find, memory)
        self.touched: list[tuple[int, int]] = []

    def begin(self, touched: Any, copied: Any = ()) -> None:
        self.touched += [(array.ctypes.data, array.nbytes) for array in touched]
        super().begin(touched, copied)


class Watched(Prefetcher):
    """A block that records the pages it touched."""

    blocks: list[Watched]

    def __init__(self, find: Any, memory: Any) -> None:
        super().__init__(find, memory)
        notes = Notes(find, memory), Notes(find, memory)
        self.arrays, self.arena = notes
        self.touched = [note.touched for note in notes]
        self.blocks.append(self)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """The blocks in which programs are made."""
    Watched.blocks = []
    monkeypatch.setattr("nnc.backends.cpu.compiler.jit._make_prefetcher", Watched)
    return Watched.blocks


def test_a_first_call_runs_in_prefetched_memory(blocks: list[Watched]) -> None:
    compiled = nnc.compile(update, donate_argnums=0)
    state, x = [nnp.zeros((600, 600)) for _ in range(2)], nnp.ones((600, 600)) / 600
    given = {(leaf.data.ctypes.data, leaf.nbytes) for leaf in state}
    added, result = compiled(state, x)
    (block,) = blocks
    (*donated, made), (arena,) = block.touched
    assert set(donated) == given
    (frame,) = program_of(compiled).idle
    assert (frame.arena.ctypes.data, frame.arena.nbytes) == arena and arena[1] > 1 << 20
    assert made == (result.data.ctypes.data, result.nbytes)
    assert is_alone(result) and block.room is None
    assert all(np.all(np.asarray(s) == 1) for s in added)
    np.testing.assert_allclose(result, np.full((600, 600), np.tanh(1 / 600)), rtol=1e-4)


def test_a_second_call_has_outputs_of_its_own(blocks: list[Watched]) -> None:
    compiled, x = nnc.compile(lambda x: nnp.matmul(x, x) + 1), nnp.ones((700, 700))
    first, second = compiled(x), compiled(2 * x)
    assert float(first[0, 0]) == 701 and float(second[0, 0]) == 2801
    assert len(blocks) == 1


def test_a_stored_program_is_prepared_for_as_well(blocks: list[Watched]) -> None:
    x = nnp.ones((601, 601))
    for _ in range(2):
        compiled = nnc.compile(lambda x: nnp.tanh(nnp.matmul(nnp.matmul(x, x), x)))
        compiled(x)
        (frame,) = program_of(compiled).idle
        assert blocks.pop().touched[1] == [(frame.arena.ctypes.data, frame.arena.nbytes)]


def test_an_arena_that_may_not_be_needed_is_left_alone(blocks: list[Watched]) -> None:
    def iterations(x: Any, count: Any) -> Any:
        def turn(state: Any) -> Any:
            return state[0] + 1, nnp.sin(state[1])

        return nnp.sum(nnc.while_loop(lambda state: state[0] < count, turn, (0, x), max_steps=100)[1])

    def branches(x: Any, count: Any) -> Any:
        return nnc.cond(count > 0, lambda x: nnp.matmul(nnp.matmul(x, x), x), lambda x: x, x)

    x = nnp.ones((600, 600))
    for function in (nnc.grad(iterations), branches):
        compiled = nnc.compile(function)
        compiled(x, 2)
        assert program_of(compiled).planned.arena_bytes > 1 << 20
        assert blocks.pop().touched[1] == []
    compiled = nnc.compile(lambda x: nnc.scan(lambda c, _: (nnp.matmul(c, c), nnp.sum(c)), x, None, length=3))
    compiled(x)
    assert blocks.pop().touched[1]


def test_arrays_that_others_see_are_left_alone(blocks: list[Watched]) -> None:
    memory = np.zeros((600, 600), np.float32)
    x = nnp.asarray(memory)  # which shares it
    assert np.all(nnc.compile(lambda x: x + 1, donate_argnums=0)(x) == 1) and not memory.any()
    assert memory.ctypes.data not in dict(blocks[0].touched[0])


def test_arrays_that_others_see_are_copied_when_they_are_donated() -> None:
    rng = np.random.default_rng(0)
    seen = [rng.normal(size=(600, 600 + odd)).astype(np.float32) for odd in range(3)]
    expected = [memory.copy() for memory in seen]
    given = [nnp.asarray(memory) for memory in seen]
    with own() as block:
        block.prefetch_donated(given)
        finish(block.arrays)
    assert all(is_alone(x) and not np.shares_memory(x.data, memory) for x, memory in zip(given, seen, strict=True))
    for memory in seen:
        memory[:] = 0
    assert all(np.array_equal(x.data, values) for x, values in zip(given, expected, strict=True))


def test_an_array_that_is_gone_when_it_has_been_copied_stays_gone() -> None:
    ready, x = threading.Event(), nnp.asarray(np.ones((600, 600)))
    address = own().arrays._find()
    with Prefetcher(lambda: address if ready.wait(60) else None, _MEMORY) as block:
        block.prefetch_donated([x])
        x.delete()
        ready.set()
        finish(block.arrays)
    assert x.is_deleted()


def test_a_copy_that_is_not_finished_is_not_used() -> None:
    memory = np.ones(16 * MANY, np.uint8)
    x, block = nnp.asarray(memory), own()
    block.arrays._stop.value = 1
    block.prefetch_donated([x])
    finish(block.arrays)
    assert np.shares_memory(x.data, memory)


def test_compiling_in_advance_takes_no_memory_for_calls() -> None:
    executable = nnc.compile(lambda x: nnp.matmul(x, x)).lower(nnp.ones((600, 600))).compile()
    assert executable._program.idle == []


def test_a_function_that_fails_leaves_nothing_behind(blocks: list[Watched]) -> None:
    def wrong(state: Any) -> Any:
        raise ValueError("stop")

    state = nnp.zeros((1000, 1000))
    with pytest.raises(ValueError, match="stop"):
        nnc.compile(wrong, donate_argnums=0)(state)
    (block,) = blocks
    assert [len(part) for part in block.touched] == [1, 0] and block.room is None and is_idle(block.arrays)
    assert is_alone(state)
    assert float(state[0, 0]) == 0


def test_the_arena_is_touched_until_it_is_there_unless_there_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = nnc.compile(lambda x: nnp.matmul(x, x))
    compiled(nnp.ones((8, 8)))
    outside, rooms = program_of(compiled).outside, [CallMemory(fresh(4 * MANY), []) for _ in range(2)]
    monkeypatch.setattr(CallMemory, "of", lambda *_: rooms[-1])
    with own() as block:
        block.expect(outside)
    finish(block.arena)
    assert faults_of_writing(rooms.pop().arena) < 100
    block = own()
    block.expect(outside)
    block.__exit__(ValueError)
    assert is_idle(block.arena)
    assert faults_of_writing(rooms.pop().arena) > 100


def test_a_room_of_another_size_is_not_used() -> None:
    compiled, other = nnc.compile(lambda x: nnp.matmul(x, x)), nnc.compile(lambda x: nnp.matmul(x, x))
    compiled(nnp.ones((64, 64)))
    other(nnp.ones((32, 32)))
    program = program_of(compiled)
    before = len(program.idle)
    with own() as block:
        block.expect(program_of(other).outside)
        assert block.room is not None
        program.make_ready(block.room)
        assert len(program.idle) == before
        block.expect(program.outside)
        program.make_ready(block.room)
    assert len(program.idle) == before + 1 and isinstance(program.idle[-1], NativeFrame)


# -- the arena of the last call like this one --------------------------------------------------------------------------


def squared(x: Any) -> Any:
    return nnp.sum(nnp.matmul(nnp.tanh(x), x))


def arenas_of(compiled: Any) -> list[tuple[int, int]]:
    (frame,) = program_of(compiled).idle
    return [(frame.arena.ctypes.data, frame.arena.nbytes)]


def test_the_next_process_touches_the_arena_before_the_function_is_traced(blocks: list[Watched]) -> None:
    before: list[int] = []

    def traced(x: Any) -> Any:
        before.append(len(blocks[-1].touched[1]))
        return squared(x)

    x = nnp.ones((611, 611))
    for known in (0, 1):
        compiled = nnc.compile(traced)
        assert float(compiled(x)) == pytest.approx(611**3 * np.tanh(1), rel=1e-4)
        finish_keeping()
        assert before.pop() == known
        assert blocks.pop().touched[1] == arenas_of(compiled)
    nnc.compile(traced)(nnp.ones((612, 612)))  # other calls
    nnc.compile(traced, contract=True)(x)
    assert before == [0, 0]


def defined_here(fun: Any) -> Any:
    """A twin of the function `fun` that is defined in this file."""

    def work(x: Any) -> Any:
        return fun(x)

    return nnc.compile(work)


def test_an_arena_of_another_size_is_not_used_and_its_size_is_told_next(blocks: list[Watched]) -> None:
    def larger(x: Any) -> Any:
        return squared(x) + nnp.sum(nnp.matmul(nnp.matmul(x, x), nnp.sin(nnp.matmul(x, x + 1))))

    x, first, sizes = nnp.ones((613, 613)), defined_here(squared), []
    first(x)
    finish_keeping()
    for _ in range(2):
        compiled = defined_here(larger)
        compiled(x)
        finish_keeping()
        assert blocks[-1].touched[1][-1:] == arenas_of(compiled)
        sizes.append([nbytes for _, nbytes in blocks[-1].touched[1]])
    ((_, small),), ((_, large),) = arenas_of(first), arenas_of(compiled)
    assert small < large and sizes == [[small, large], [large]]


def test_functions_defined_elsewhere_do_not_take_it_for_theirs(blocks: list[Watched]) -> None:
    x = nnp.ones((616, 616))
    one = nnc.compile(lambda x: squared(x))
    other = nnc.compile(lambda x: squared(x) + nnp.sum(nnp.matmul(nnp.matmul(x, x), nnp.sin(nnp.matmul(x, x + 1)))))
    for compiled in (one, other):
        compiled(x)
        finish_keeping()
        assert blocks.pop().touched[1] == arenas_of(compiled)


def test_of_a_function_that_may_leave_its_arena_alone_none_is_touched_next(blocks: list[Watched]) -> None:
    def perhaps(x: Any) -> Any:
        return nnc.cond(x[0, 0] > 0, squared, lambda x: x[0, 0], x)

    x = nnp.ones((614, 614))
    for work in (squared, perhaps, perhaps):
        defined_here(work)(x)
        finish_keeping()
    assert [len(block.touched[1]) for block in blocks] == [1, 1, 0]


@pytest.mark.parametrize("told", ["many", None, -1, 1 << 60])
def test_impossible_sizes_of_arenas_are_not_believed(told: Any, tmp_path: Path) -> None:
    entry = CacheEntry(Cache(tmp_path), "arenas", {"function": "f"})
    entry.write(told)
    with own() as block:
        block.recall(entry)
        assert block._likely is None and is_idle(block.arena)


def test_where_there_is_no_program_the_arena_is_not_touched_any_more(tmp_path: Path) -> None:
    entry = CacheEntry(Cache(tmp_path), "arenas", {"function": "f"})
    entry.write(64 * MANY)
    with own() as block:
        block.recall(entry)
        assert block._likely is not None
    assert is_idle(block.arena)


def test_without_a_folder_nothing_is_told(blocks: list[Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", "")
    for _ in range(2):
        nnc.compile(squared)(nnp.ones((615, 615)))
        assert len(blocks.pop().touched[1]) == 1
