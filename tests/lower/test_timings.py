from __future__ import annotations

import pytest

import nnc
import nnc.numpy as nnp


def test_timings_list_each_part_of_the_compilation_once() -> None:
    program = nnc.compile(lambda x: nnp.sum(nnp.sin(x))).lower(nnp.ones(4)).compile()
    parts = [part for part, _ in program.timings.rows]
    assert len(parts) == len(set(parts))
    assert parts[0] == "tracing" and {"pass dce", "pass simplify", "binding buffers", "planning memory"} < set(parts)
    assert parts[-2:] == ["printing kernels", "compiling kernels"]
    assert all(seconds >= 0 for _, seconds in program.timings.rows)
    assert program.timings.total == pytest.approx(sum(program.timings[part] for part in parts))
    assert str(program.timings).splitlines()[0].split() == ["part", "ms", "%"]
