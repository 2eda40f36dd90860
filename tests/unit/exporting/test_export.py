"""Exported programs, built with cc and run, give the bits that the same program gives in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.exporting.harness import check, unresolved
from tests.unit.exporting.programs import PROGRAMS, while_gradient

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
