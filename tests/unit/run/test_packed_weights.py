"""Packed forms of arguments: kept while the same arrays are passed, made anew for others, gone with the arrays."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn.library import library
from nnc.run.packed_weights import PackedWeights
from nnc.run.store import stored

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

RNG = np.random.default_rng(0)


def values(*shape: int) -> Any:
    return 0.1 * RNG.standard_normal(shape, np.float32)


def arrays(*shape: int) -> Any:
    return nnp.asarray(values(*shape), copy=True)


def network(x: Any, w: Any, v: Any) -> Any:
    return nnp.mean(nn.conv(nn.relu(nn.conv(x, w, padding=1)), v, padding=1), (2, 3))


X = values(2, 16, 8, 8)


class Watched:
    """The compiled network, and how many weights its calls packed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: Any = network, **options: Any) -> None:
        self.function, self.compiled, self.count = function, nnc.compile(function, **options), 0
        original = PackedWeights._make

        def make(kept: PackedWeights, source: int, rows: Any, owner: Any) -> Any:
            self.count += 1
            return original(kept, source, rows, owner)

        monkeypatch.setattr(PackedWeights, "_make", make)

    def __call__(self, *args: Any) -> int:
        """Counts the weights that a call packs, and checks its result."""
        before, expected = self.count, np.asarray(self.function(*args))
        np.testing.assert_allclose(np.asarray(self.compiled(*args)), expected, rtol=1e-4, atol=1e-5)
        return self.count - before

    @property
    def executable(self) -> Any:
        (executable,) = self.compiled._entries.values()
        return executable

    @property
    def kept(self) -> PackedWeights:
        return self.executable._kept


def test_the_same_arrays_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    call, w, v = Watched(monkeypatch), arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    assert [call(X, w, v) for _ in range(3)] == [2, 0, 0]
    assert call(2 * X, w, v) == 0
    assert call.kept.nbytes == call.executable.memory_plan.kept_bytes > 0


def test_an_array_that_is_new_is_packed_and_takes_the_place_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    call, w, v = Watched(monkeypatch), arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    other = arrays(32, 16, 3, 3)
    assert [call(X, w, v), call(X, other, v), call(X, other, v), call(X, w, v)] == [2, 1, 0, 1]
    assert call.kept.nbytes == call.executable.memory_plan.kept_bytes


def test_packed_forms_are_freed_with_their_array(monkeypatch: pytest.MonkeyPatch) -> None:
    call, w, v = Watched(monkeypatch), arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    call(X, w, v)
    both = call.kept.nbytes
    del w
    gc.collect()
    assert 0 < call.kept.nbytes < both
    del v
    gc.collect()
    assert call.kept.nbytes == 0


@pytest.mark.parametrize("part", [False, True])
def test_memory_that_numpy_can_write_to_is_packed_in_each_call(monkeypatch: pytest.MonkeyPatch, part: bool) -> None:
    call, v = Watched(monkeypatch), arrays(16, 32, 3, 3)
    call(X, arrays(32, 16, 3, 3), v)
    mine = values(2, 32, 16, 3, 3) if part else values(32, 16, 3, 3)
    w = nnp.asarray(mine[1] if part else mine)
    assert [call(X, w, v) for _ in range(2)] == [1, 1]
    mine *= 2  # against the rule; the result must still be computed from the present values
    assert call(X, w, v) == 1


def test_arrays_of_numpy_are_packed_in_each_call_into_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    call, w, v = Watched(monkeypatch), values(32, 16, 3, 3), values(16, 32, 3, 3)
    call(X, arrays(*w.shape), arrays(*v.shape))
    assert call(X, w, v) == 2
    before = [array.ctypes.data for array in call.kept.arrays([X, w, v])]
    w *= 2
    assert call(X, w, v) == 2
    assert [array.ctypes.data for array in call.kept.arrays([X, w, v])] == before


def test_a_program_that_is_made_for_arrays_of_numpy_keeps_nothing_of_them() -> None:
    executable = nnc.compile(network).lower(X, values(32, 16, 3, 3), arrays(16, 32, 3, 3)).compile()
    assert [source for source, _ in executable._program.bound.kept] == [2]
    struct = nnc.ShapeDtypeStruct((32, 16, 3, 3), "float32")
    executable = nnc.compile(network).lower(X, struct, arrays(16, 32, 3, 3)).compile()
    assert [source for source, _ in executable._program.bound.kept] == [1, 2]


def test_numpy_can_look_at_an_array_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    call, w, v = Watched(monkeypatch), arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    seen = np.asarray(w)
    assert [call(X, w, v) for _ in range(2)] == [2, 0]
    assert not seen.flags.writeable


def test_captured_arrays_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    w, v = arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    call = Watched(monkeypatch, lambda x: network(x, w, v))
    assert [call(X) for _ in range(3)] == [2, 0, 0]


def test_nothing_is_kept_of_donated_weights() -> None:
    compiled = nnc.compile(lambda x, w: (nnp.mean(nn.conv(x, w, padding=1), (2, 3)), w * 0.9), donate_argnums=1)
    w = arrays(16, 16, 3, 3)
    for _ in range(3):
        expected = network_mean(X, w)
        found, w = compiled(X, w)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
    (executable,) = compiled._entries.values()
    assert executable._kept is None


def network_mean(x: Any, w: Any) -> Any:
    return np.asarray(nnp.mean(nn.conv(x, w, padding=1), (2, 3)))


def test_threads_with_weights_of_their_own_do_not_disturb_each_other() -> None:
    compiled = nnc.compile(network)
    given = [(arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)) for _ in range(4)]
    given += [(values(32, 16, 3, 3), values(16, 32, 3, 3)) for _ in range(2)]
    expected = [np.asarray(network(X, w, v)) for w, v in given]
    compiled(X, *given[0])
    with ThreadPoolExecutor(6) as pool:
        for _ in range(10):
            found = list(pool.map(lambda pair: np.asarray(compiled(X, *pair)), given))
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.unguarded
def test_the_memory_plan_has_a_line_for_packed_forms_and_the_arena_has_its_size() -> None:
    executable = nnc.compile(network).lower(X, arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)).compile()
    plan = executable.memory_plan
    assert "kept between calls" in str(plan)
    assert sum(row.size for row in plan.rows if row.kind == "kept") == plan.kept_bytes > 0
    assert plan.input_bytes == X.nbytes + 2 * 4 * 32 * 16 * 9
    program = executable._program
    assert program._make_frame().arena.nbytes == plan.arena_bytes


def test_a_program_with_a_budget_keeps_nothing() -> None:
    executable = (
        nnc.compile(network, memory_budget="1GiB").lower(X, arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)).compile()
    )
    assert executable.memory_plan.kept_bytes == 0


@pytest.mark.unguarded
def test_a_stored_program_keeps_its_packed_forms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: Callable[[], None]
) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")  # others may be changing them
    w, v = arrays(32, 16, 3, 3), arrays(16, 32, 3, 3)
    plans = []
    for _ in range(2):
        call = Watched(monkeypatch)
        assert [call(X, w, v) for _ in range(2)] == [2, 0]
        written()
        plans.append(call.executable._program.bound)
    assert plans[0].kept == plans[1].kept != ()
    assert "reading the program" in str(call.executable.timings)
    assert "pass pack" not in str(call.executable.timings)


def test_a_dynamic_graph_calls_a_function_that_keeps_weights() -> None:
    g = nnc.DynamicGraph()
    compiled, w, v = nnc.compile(network), values(32, 16, 3, 3), values(16, 32, 3, 3)
    compiled(X, arrays(*w.shape), arrays(*v.shape))
    x = g.variable(X)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(compiled(x, w, v)), np.asarray(network(X, w, v)), rtol=1e-4, atol=1e-5)
