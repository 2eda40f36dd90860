"""Mistakes with compiled functions."""

from __future__ import annotations

from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, MemoryBudgetError, OutOfBoundsError, TraceError
from tests.errors.reports import reports


def test_compiling_the_result_instead_of_the_function() -> None:
    with reports(ArgumentTypeError, "nnc.compile", "must be a function"):
        nnc.compile(nnp.ones(2))


def test_a_static_argument_that_has_no_hash() -> None:
    scale = nnc.compile(lambda x, factors: x * factors[0], static_argnums=1)
    with reports(ArgumentTypeError, "list", "tuple"):
        scale(nnp.ones(2), [2.0])


def test_static_argnums_out_of_range() -> None:
    with reports(ArgumentError, "static_argnums", "3"):
        nnc.compile(lambda x: x, static_argnums=3)(1.0)


def test_a_static_argname_that_the_function_does_not_have() -> None:
    def scale(x: Any, factor: float = 2.0) -> Any:
        return x * factor

    with reports(ArgumentError, "static_argnames", "'fcator'", "factor"):
        nnc.compile(scale, static_argnames="fcator")(1.0)


def test_static_argnums_that_are_names() -> None:
    with reports(ArgumentTypeError, "static_argnums", "'x'"):
        nnc.compile(lambda x: x, static_argnums="x")


def test_a_number_of_traces_that_is_none() -> None:
    with reports(ArgumentError, "max_traces", "0"):
        nnc.compile(lambda x: x, max_traces=0)


def test_a_number_of_streams_that_is_none() -> None:
    with reports(ArgumentError, "streams", "0", '"auto"'):
        nnc.compile(lambda x: x, streams=0)
    with reports(ArgumentError, "streams", "'many'", '"auto"'):
        nnc.compile(lambda x: x, streams="many")
    with reports(ArgumentTypeError, "streams", "True", '"auto"'):
        nnc.compile(lambda x: x, streams=True)


def test_tensors_that_no_process_can_hold() -> None:
    def twice(x: Any) -> Any:
        turned = nnp.exp(x)[::-1]  # the tensor that is too large
        return nnp.sin(turned)[::-1]

    lowered = nnc.compile(twice).lower(nnc.ShapeDtypeStruct((2**60,), "float32"))
    with reports(MemoryBudgetError, "twice", "8.00 EiB", "float32[1152921504606846976] (4.00 EiB)", at="nnp.exp(x)"):
        lowered.compile()


def test_a_step_that_fails_on_another_stream() -> None:
    def far(x: Any, table: Any, i: Any) -> Any:
        return nnp.tanh(x @ x) @ x + (nnp.tanh(table @ table) @ table)[i]  # the row that is not there

    with reports(OutOfBoundsError, "70", "64", at="the row that is not there"):
        nnc.compile(far, streams=2)(nnp.zeros((64, 64)), nnp.zeros((64, 64)), nnp.asarray(70))


def test_a_donated_array_used_again() -> None:
    x = nnp.ones(3)
    nnc.compile(lambda x: x * 2, donate_argnums=0)(x)
    with reports(ArgumentTypeError, "donated", "float32[3]", "donate_argnums"):
        x + 1


def test_more_traces_than_allowed() -> None:
    double = nnc.compile(lambda x: x * 2, max_traces=2)
    double(nnp.ones(1))
    double(nnp.ones(2))
    with reports(TraceError, "max_traces", "2", "float32[3]", "float32[2]"):
        double(nnp.ones(3))


def test_a_memory_budget_that_is_too_small() -> None:
    outer = nnc.compile(lambda x: nnp.sum(nnp.sort(x[:, None] + x[None, :])), memory_budget=1000)
    with reports(MemoryBudgetError, "1000", "memory_budget"):
        outer(nnp.ones(100))


def test_a_memory_budget_that_is_no_number_of_bytes() -> None:
    with reports(ArgumentError, "memory_budget", "'2 gigs'", "2GiB"):
        nnc.compile(lambda x: x, memory_budget="2 gigs")(1.0)


def test_a_dynamic_index_out_of_range_when_a_compiled_function_runs() -> None:
    def pick(x: Any, i: Any) -> Any:
        return x[i]

    compiled = nnc.compile(pick)
    assert float(compiled(nnp.ones(3), 1)) == 1
    with reports(OutOfBoundsError, "index 8", "axis 0", "size 3", at="return x[i]"):
        compiled(nnp.ones(3), 8)


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_loop_or_a_branch_that_cannot_go_on_when_a_compiled_function_runs(
    native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNC_NATIVE", native)

    def count(x: Any) -> Any:
        return nnc.while_loop(lambda c: c < 10, lambda c: c + 1, x, max_steps=9)

    def choose(i: Any) -> Any:
        return nnc.switch(i, [lambda x: x, lambda x: -x], 1.0)

    counted, chosen = nnc.compile(count), nnc.compile(choose)
    assert (int(counted(1)), float(chosen(1))) == (10, -1)
    with reports(ArgumentError, "while_loop", "max_steps=9", at="nnc.while_loop(lambda c: c < 10"):
        counted(0)
    with reports(OutOfBoundsError, "switch", "index 2", "2 branches", at="nnc.switch(i, ["):
        chosen(2)


def test_an_executable_called_with_another_shape() -> None:
    executable = nnc.compile(lambda x: x * 2).lower(nnp.ones(3)).compile()
    with reports(ArgumentTypeError, "float32[3]", "float32[4]"):
        executable(nnp.ones(4))


def test_a_compiled_function_that_returns_a_set() -> None:
    with reports(ArgumentTypeError, "a set"):
        nnc.compile(lambda x: {1, 2})(1.0)


def test_an_argument_that_is_both_static_and_donated_is_named_once() -> None:
    with reports(ArgumentError, "nnc.compile: x is both static and donated"):
        nnc.compile(lambda x: x, static_argnums=0, donate_argnums=0)
