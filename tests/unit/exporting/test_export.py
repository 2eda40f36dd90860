"""Exported programs, built with cc and run, give the bits that the same program gives in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nnc.numpy as nnp
from tests.unit.exporting.harness import build, check, in_python, run, unresolved
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
    check(tmp_path / "out", fun, *args, max_steps=30)


def test_threads_share_loops_and_end(tmp_path: Path) -> None:
    x, w = draw(400, 300), draw(300, 200, seed=1)

    def f(x: Any, w: Any) -> Any:
        return nnp.tanh(x @ w), nnp.exp(x).sum(0), nnp.sort(x, axis=1)

    exported = check(tmp_path / "out", f, x, w, threads=3)
    assert exported.threads == 3
    assert unresolved(tmp_path / "out") <= ALLOWED | {"pthread_create", "pthread_join", "syscall", "sched_yield"}
    build(tmp_path / "out", "program", "-DSTART=program_start", "-DSTOP=program_stop", "-fsanitize=address,undefined")
    found = run(tmp_path / "out-built" / "caller", exported, (x, w))
    for a, b in zip(in_python(f, (x, w)), found, strict=True):
        assert a.tobytes() == b.tobytes()
