"""Steps in a row are called with all their operands, and until one is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import OutOfBoundsError, user_error
from nnc.graph import GraphBuilder, register
from nnc.graph.rules import Rules
from nnc.lower.kernels.native import Native
from tests.unit.lower.kernels.kernels import chooser, jit

pytestmark = pytest.mark.usefixtures("own_registries")


def weighted(step: Any, *, packed: bool) -> Native:
    """A kernel for scalars: its operands times 1, 2, … and the numbers 3 and 5; it refuses sums above 1000."""
    n = len(step.inputs)
    lines, numbers = [], ["%number0", "%number1"]
    pointers = [*(f"%in{i}" for i in range(n)), "%out0"]
    parameters = ", ".join([*(f"ptr {p}" for p in pointers), "i64 %number0", "i64 %number1"])
    if packed:
        parameters = "ptr %table"
        for k, (kind, name) in enumerate([("i64", x) for x in numbers] + [("ptr", p) for p in pointers]):
            lines += [f"{name}.at = getelementptr i64, ptr %table, i64 {k}", f"{name} = load {kind}, ptr {name}.at"]
    lines += ["%both = mul i64 %number0, %number1", "%sum0 = sitofp i64 %both to double"]
    for i in range(n):
        lines += [
            f"%x{i} = load double, ptr %in{i}",
            f"%y{i} = fmul double %x{i}, {i + 1}.0",
            f"%sum{i + 1} = fadd double %sum{i}, %y{i}",
        ]
    lines += [
        f"store double %sum{n}, ptr %out0",
        f"%large = fcmp ogt double %sum{n}, 1000.0",
        "%status = zext i1 %large to i64",
        "ret i64 %status",
    ]
    text = "\n  ".join([f"define i64 @KERNEL({parameters}) {{", *lines])
    return Native(f"{text}\n}}\n", numbers=(3, 5), packed=packed)


def refer(*xs: Any) -> Any:
    total = 15 + sum((i + 1) * x for i, x in enumerate(xs))
    if total > 1000:
        raise user_error(OutOfBoundsError, "weighted", f"{total} is above 1000.", fix="pass less.")
    return np.asarray(total)


@pytest.mark.parametrize("count", [1, 5, 24])
@pytest.mark.parametrize("packed", [False, True])
def test_a_step_gets_all_its_operands_and_stops_the_program_if_it_refuses_them(count: int, packed: bool) -> None:
    register("test_weighted", Rules(infer=lambda *xs: xs[0], reference=refer), arity=None)
    b = GraphBuilder("sums")
    xs = [b.input((), "float64") for _ in range(count)]
    first = b.add("test_weighted", *xs)
    again = b.add("test_weighted", *xs[1:], first)  # the line to be named
    program = lower(
        b.build(again, first), Options(), chooser({"test_weighted": lambda step: weighted(step, packed=packed)}), jit()
    )
    assert program.code is not None
    small = [np.asarray(i % 3 / 100) for i in range(count)]
    second, sum_ = program.run(small)
    np.testing.assert_allclose([sum_, second], [refer(*small), refer(*small[1:], sum_)])
    for _ in range(2):
        with pytest.raises(OutOfBoundsError, match=r"(?s)is above 1000.*the line to be named"):
            program.run([*(np.asarray(0.0) for _ in range(count - 1)), np.asarray(980 / count)])
        assert program.run(small)[0] == second
