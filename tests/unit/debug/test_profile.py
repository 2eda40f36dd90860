from __future__ import annotations

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, TraceError


def test_steps_with_loops_are_one_row_each() -> None:
    f = nnc.compile(lambda x: nnc.scan(lambda c, y: (c + y, nnp.sin(c)), 0.0, x)[1])
    run = nnc.debug.profile(f, nnp.ones(5))
    planned = f.lower(nnp.ones(5)).compile().schedule
    assert [row.command for row in run.rows] == [row.command for row in planned.rows] == ["copy", "scan"]
    assert run.rows[1].backend == "" and run.rows[1].duration > 0


def test_only_compiled_functions_outside_of_traces_are_measured() -> None:
    with pytest.raises(ArgumentTypeError, match=r"nnc\.debug\.profile: .* is no compiled function"):
        nnc.debug.profile(nnp.sin, 1.0)
    with pytest.raises(TraceError, match="captures a value of an enclosing trace"):
        nnc.grad(lambda x: nnc.debug.profile(nnc.compile(lambda y: x * y), 1.0))(2.0)


def test_methods_and_static_arguments_are_measured() -> None:
    class Model:
        @nnc.compile
        def call(self, x: nnc.Array) -> nnc.Array:
            return nnp.sin(x)

    assert [row.command for row in nnc.debug.profile(Model().call, nnp.ones(2)).rows] == ["fused"]
    power = nnc.compile(lambda x, n: x**n, static_argnums=1)
    assert nnc.debug.profile(power, nnp.ones(2), 2).name == "<lambda>"
