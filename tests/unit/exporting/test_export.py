"""Exported programs, built with cc and run, give the bits that the same program gives in Python."""

from __future__ import annotations

import gc
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.exporting import loading
from tests.unit.exporting.harness import build, check, check_stack, in_python, run, unresolved
from tests.unit.exporting.programs import PROGRAMS, draw, while_gradient

LIBM = {"exp", "expf", "log", "logf", "pow", "powf", "fmod", "fmodf", "fma", "fmaf", "sin", "cos", "sinf", "cosf"}
ALLOWED = {"memcpy", "memmove", "memset", "_GLOBAL_OFFSET_TABLE_"} | LIBM


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_built_with_cc_gives_the_bits_of_python(name: str, tmp_path: Path) -> None:
    fun, args = PROGRAMS[name]()
    check(tmp_path / "out", fun, *args, sanitize=name in ("mlp", "edges", "scatters"))
    assert unresolved(tmp_path / "out") <= ALLOWED


def test_a_loop_of_unknown_length_has_a_gradient_within_a_bound(tmp_path: Path) -> None:
    fun, args = while_gradient()
    exported = check(tmp_path / "out", fun, *args, max_steps=30)
    assert any("max_steps=30" in message for message in exported.errors.values())
    for x, y in zip(nnc.load_exported(tmp_path / "out")(*args), nnc.compile(fun)(*args), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


def root(a: Any) -> Any:
    return nnc.while_loop(lambda s: nnp.abs(s * s - a) > 1e-5, lambda s: 0.5 * (s + a / s), a)


def roots(xs: Any) -> Any:
    return nnc.scan(lambda total, x: (total + root(x), root(x)), np.float32(0), xs)[0]


def powers(a: Any) -> Any:
    return nnc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, root(s[1]) + 1), (0, a))[1]


def sines(a: Any) -> Any:
    return nnc.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, nnp.sin(s[1])), (0, a), checkpoint="sqrt")[1]


def sums(xs: Any) -> Any:
    return nnc.scan(lambda h, x: (nnp.sin(h + x), h), np.float32(0), xs, checkpoint="binomial")[0]


GRADIENTS = {
    "of a scan that keeps few states": (nnc.grad(sums), draw(40)),
    "in a scan": (nnc.grad(roots), np.array([1.5, 2.5, 3.5], np.float32)),
    "in a loop": (nnc.grad(powers), np.float32(3)),
    "mapped": (nnc.vmap(nnc.grad(root)), np.array([1.5, 2.5, 3.5], np.float32)),
    "second": (nnc.grad(nnc.grad(root)), np.float32(3)),
    "with checkpoints": (nnc.grad(sines), np.float32(3)),
    "forward": (lambda a: nnc.jvp(root, (a,), (a,)), np.float32(3)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_loops_of_unknown_length_are_those_of_python(name: str, tmp_path: Path) -> None:
    fun, x = GRADIENTS[name]
    nnc.export(fun, x, path=tmp_path / "out", name="f", max_steps=20)
    found = nnc.load_exported(tmp_path / "out")(x)
    expected = nnc.compile(fun)(x)
    for a, b in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_threads_share_loops_and_end(tmp_path: Path) -> None:
    x, w = draw(400, 300), draw(300, 200, seed=1)

    def f(x: Any, w: Any) -> Any:
        return nnp.tanh(x @ w), nnp.exp(x).sum(0), nnp.sort(x, axis=1)

    exported = check(tmp_path / "out", f, x, w, threads=3)
    assert exported.threads == 3
    assert unresolved(tmp_path / "out") <= ALLOWED | {
        "pthread_create",
        "pthread_join",
        "syscall",
        "sched_yield",
        "getrusage",
    }
    build(tmp_path / "out", "program", "-DSTART=program_start", "-DSTOP=program_stop", "-fsanitize=address,undefined")
    found = run(tmp_path / "out-built" / "caller", exported, (x, w))
    for a, b in zip(in_python(f, (x, w)), found, strict=True):
        assert a.tobytes() == b.tobytes()


def test_constants_are_results(tmp_path: Path) -> None:
    """LLVM, which sees no values, may take none for them."""
    few, many, none = np.array([7.0, -1.5]), np.arange(20, dtype=np.int32), np.zeros((0, 3), np.float32)
    check(tmp_path / "out", lambda x: (few, x + few[1], many[::-1], none, np.float32(2.5)), np.float64(1))
    assert [x.tolist() for x in nnc.load_exported(tmp_path / "out")(1.0)[:2]] == [[7.0, -1.5], -0.5]
    nnc.export(lambda: none, path=tmp_path / "empty", name="f")
    assert nnc.load_exported(tmp_path / "empty")().shape == (0, 3)


def test_constants_may_lie_in_a_file(tmp_path: Path) -> None:
    fun, args = PROGRAMS["lenet"]()
    inside = nnc.export(fun, *args, path=tmp_path / "inside", name="f")
    apart = nnc.export(fun, *args, path=tmp_path / "apart", name="f", constants="file")
    assert (tmp_path / "apart" / "f.bin").stat().st_size == apart.constant_bytes == inside.constant_bytes > 20_000
    assert (tmp_path / "apart" / "f.o").stat().st_size < (tmp_path / "inside" / "f.o").stat().st_size - 20_000
    x, y = (nnc.load_exported(tmp_path / each)(*args) for each in ("inside", "apart"))
    assert x.tobytes() == y.tobytes()


def test_a_call_allocates_nothing(tmp_path: Path) -> None:
    fun, args = PROGRAMS["mlp"]()
    exported = nnc.export(fun, *args, path=tmp_path / "out", name="program")
    found = run(build(tmp_path / "out", "program", "-DCOUNT"), exported, args)
    assert not isinstance(found, str), found


def test_exports_run_side_by_side_and_are_the_same(tmp_path: Path) -> None:
    fun, args = PROGRAMS["kalman"]()

    def one(i: int) -> bytes:
        nnc.export(fun, *args, path=tmp_path / str(i), name="f")
        return (tmp_path / str(i) / "f.o").read_bytes()

    with ThreadPoolExecutor(10) as threads:
        assert len(set(threads.map(one, range(10)))) == 1


def test_calls_at_the_same_time_have_an_arena_each(tmp_path: Path) -> None:
    fun, args = PROGRAMS["attention_gradient"]()
    nnc.export(fun, *args, path=tmp_path / "out", name="f")
    f = nnc.load_exported(tmp_path / "out")
    expected = [x.tobytes() for x in f(*args)]
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: f(*args), range(40)):
            assert [x.tobytes() for x in found] == expected


def test_a_budget_holds(tmp_path: Path) -> None:
    def f(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = nnp.tanh(x @ w)
        return x.sum()

    args = draw(64, 32), draw(32, 32, seed=1)
    free = nnc.export(nnc.grad(f), *args, path=tmp_path / "free", name="f")
    bound = nnc.export(nnc.grad(f), *args, path=tmp_path / "bound", name="f", memory_budget=free.arena_bytes - 4096)
    assert bound.arena_bytes + bound.outputs[0].bytes <= free.arena_bytes - 4096
    x, y = (nnc.load_exported(tmp_path / each)(*args) for each in ("free", "bound"))
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_stack_is_as_deep_as_the_record_says(name: str, tmp_path: Path) -> None:
    check_stack(tmp_path / "out", PROGRAMS[name](), "native", "-Wl,-z,now")


def test_the_header_is_for_c_and_cpp(tmp_path: Path) -> None:
    fun, args = PROGRAMS["edges"]()
    nnc.export(fun, *args, path=tmp_path / "out", name="f", threads=2, constants="file")
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    for language in (["cc", "-std=c99", "-xc"], ["c++", "-std=c++11", "-xc++"]):
        subprocess.run([*language, *strict, "f.h"], cwd=tmp_path / "out", check=True)


def test_loading_starts_the_threads_and_dropping_ends_them(tmp_path: Path) -> None:
    nnc.export(nnp.sin, draw(4), path=tmp_path / "out", name="f", threads=4)

    def count() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = count()
    f = nnc.load_exported(tmp_path / "out")
    assert count() == before + 3
    del f
    gc.collect()
    assert count() == before


@pytest.mark.slow
def test_a_residual_network_gives_the_bits_of_python(tmp_path: Path) -> None:
    model = nn.inference_mode(nn.models.resnet18(key=nnc.random.key(0)))
    exported = check(tmp_path / "out", lambda x: model(x)[0], draw(1, 3, 96, 96))
    assert 40 << 20 < exported.constant_bytes < 50 << 20
    assert exported.code_bytes < 200_000


def test_a_compiled_function_keeps_its_static_arguments_and_options(tmp_path: Path) -> None:
    @partial(nnc.compile, static_argnums=1, donate_argnums=0, flush_denormals=False)
    def power(x: Any, n: int) -> Any:
        return x**n * np.float32(0.5)

    x = np.array([2.0, 1e-39], np.float32)
    exported = nnc.export(power, x, 1, path=tmp_path / "kept")
    assert [each.path for each in exported.inputs] == ["x"]
    assert nnc.load_exported(tmp_path / "kept")(x).tolist() == (x * np.float32(0.5)).tolist()
    flushing = nnc.compile(power.fun, static_argnums=1, flush_denormals=True)
    nnc.export(flushing, x, 1, path=tmp_path / "flushed")
    assert nnc.load_exported(tmp_path / "flushed")(x).tolist() == [1.0, 0.0]


def test_an_export_gets_elements_at_multiples_of_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, found = list[Any](), loading._pointers

    def pointers(arrays: list[Any]) -> Any:
        given.extend(arrays)
        return found(arrays)

    nnc.export(nnp.negative, np.ones(3), path=tmp_path / "neg")
    monkeypatch.setattr(loading, "_pointers", pointers)
    displaced = np.frombuffer(b"." + np.arange(3.0).tobytes(), np.float64, offset=1)
    assert nnc.load_exported(tmp_path / "neg")(displaced).tolist() == [0, -1, -2]
    assert [array.flags.aligned for array in given] == [True, True]
