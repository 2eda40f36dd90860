from __future__ import annotations

from typing import Any

import pytest

import nnc
import nnc.numpy as nnp


def test_timings_list_each_part_of_the_compilation_once() -> None:
    def compiled_by_no_other_test(x: Any) -> Any:
        return nnp.sum(nnp.sin(x))

    program = nnc.compile(compiled_by_no_other_test).lower(nnp.ones(4)).compile()
    parts = [part for part, _ in program.timings.rows]
    assert len(parts) == len(set(parts))
    assert parts[0] == "tracing" and {"pass dce", "pass simplify", "binding buffers", "planning memory"} < set(parts)
    lowering = [part for part in parts if part not in ("reading the program", "keeping the program")]
    assert "printing kernels" in lowering and lowering[-1] == "compiling kernels"
    assert all(seconds >= 0 for _, seconds in program.timings.rows)
    assert program.timings.total == pytest.approx(sum(program.timings[part] for part in parts))
    assert str(program.timings).splitlines()[0].split() == ["part", "ms", "%"]
