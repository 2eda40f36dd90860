"""Functions that are traced time and again say so, once, with the reason and the fix."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import RetraceWarning

LR = {"rate": 0.5}
EACH_SIZE: dict[str, Any] = {"dynamic_axes": {}}  # each size is traced


@contextmanager
def retraces() -> Iterator[list[str]]:
    """The texts of the warnings within the block, each of which must point into this file and name the fix."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        yield found
    for one in log:
        assert one.category is RetraceWarning and one.filename == __file__
        assert "test_retraces.py:" in str(one.message) and "\nFix: " in str(one.message)
        found.append(str(one.message))


def sizes(*numbers: int) -> list[Any]:
    return [np.ones(n, np.float32) for n in numbers]


def test_the_eighth_trace_and_doublings_after_warn_once_each() -> None:
    @nnc.compile(**EACH_SIZE)
    def step(x: Any) -> Any:
        return x * 2

    with retraces() as found:
        for x in sizes(*range(1, 34)):
            step(x)
            step(x)
    assert len(found) == 3
    assert "step: it was traced 8 times in 15 calls" in found[0]
    assert "argument x changed from float32[7] to float32[8]" in found[0] and "pad it" in found[0]
    assert "traced 16 times" in found[1] and "traced 32 times" in found[2]


def test_seven_traces_are_no_reason_for_a_warning() -> None:
    step = nnc.compile(lambda x: x + 1)
    with retraces() as found:
        for x in sizes(*range(1, 8)) * 3:
            step(x)
    assert not found


def test_the_reason_names_the_trace_that_is_most_alike() -> None:
    step = nnc.compile(lambda x, y: (x, y), **EACH_SIZE)
    one, two = sizes(1, 2)
    with retraces() as found:
        for n in range(3, 9):
            step(np.ones(n), np.ones((n, n)))
        step(one, two)
        step(one, np.ones(7, np.float64))
    assert len(found) == 1 and "argument y changed from float32[2] to float64[7]" in found[0]
    assert "argument x" not in found[0]


def traced_often(fun: Any, values: list[Any], **settings: Any) -> str:
    compiled = nnc.compile(fun, **EACH_SIZE, **settings)
    with retraces() as found:
        for value in values:
            compiled(1.0, value)
    assert len(found) == 1
    return found[0]


def test_a_dtype_that_changes() -> None:
    kinds = ["int8", "int16", "int32", "int64", "uint8", "uint16", "float32", "float64"]
    text = traced_often(lambda x, y: y, [np.ones(2, kind) for kind in kinds])
    assert "argument y changed from float32[2] to float64[2]" in text and ".astype" in text


def test_a_number_in_place_of_an_array() -> None:
    values = [*sizes(*range(1, 7)), np.float32(1), 2.0]
    assert "a Python number" in traced_often(lambda x, y: y, values)


def test_a_static_argument_that_changes() -> None:
    text = traced_often(lambda x, k: x * k, list(range(8)), static_argnums=1)
    assert "static argument k changed from 6 to 7" in text and "static_argnums" in text


def test_a_fresh_function_in_each_call() -> None:
    text = traced_often(lambda x, f: f(x), [lambda x, i=i: x for i in range(8)], static_argnums=1)
    assert "static argument f changed from <function" in text and "outside of the loop" in text


def test_a_setting_that_changes() -> None:
    text = traced_often(lambda x, mode: x, [f"mode {i}" for i in range(8)])
    assert "argument mode changed from 'mode 6' to 'mode 7'" in text


def test_a_structure_that_changes() -> None:
    text = traced_often(lambda x, d: x, [{f"k{j}": 1.0 for j in range(i)} for i in range(8)])
    assert 'argument d["k6"] is new' in text and "keys" in text


def test_a_field_that_is_a_setting() -> None:
    class Model(nnc.nn.Module):
        w: Any
        n: int

    text = traced_often(lambda x, m: m.w[: m.n], [Model(nnp.ones(9), i) for i in range(8)])
    assert "argument m.n changed from 6 to 7" in text and "make the field an array" in text and "PyTreeSpec" not in text


def test_fields_are_named_wherever_they_stand() -> None:
    class Inner(nnc.nn.Module):
        w: Any
        act: Any
        name: str = "a"

    @dataclass
    class Outer:
        parts: list[Any]
        kept: int = nnc.nn.field(default=0, static=True)

    shared: Any = nnp.tanh
    trees = [{"m": Outer([1.0, Inner(nnp.ones(2), shared, str(i))], kept=i)} for i in range(8)]
    text = traced_often(lambda x, d: d["m"].parts[1].w, trees)
    assert 'argument d["m"].kept changed from 6 to 7' in text and "PyTreeSpec" not in text
    assert """argument d["m"].parts[1].name changed from '6' to '7'""" in text
    text = traced_often(lambda x, m: m.w, [Inner(nnp.ones(2), lambda x: x) for _ in range(8)])
    assert "argument m.act changed from <function" in text and "outside of the loop" in text
    compiled = nnc.compile(lambda m: m[0])
    compiled((nnp.ones(2),))
    compiled([nnp.ones(2)])
    assert "argument m is a list, and was a tuple" in nnc.debug.explain(compiled)


def test_a_captured_value_that_changes() -> None:
    @nnc.compile
    def step(x: Any) -> Any:
        return x * LR["rate"]

    with retraces() as found:
        for i in range(8):
            LR["rate"] = i / 2
            step(1.0)
    assert len(found) == 1 and "captured LR['rate'] changed from 3.0 to 3.5" in found[0]
    assert "pass it as an argument" in found[0]


def test_compiling_anew_in_each_round_of_a_loop() -> None:
    def loss(x: Any) -> Any:
        return x * x

    with retraces() as found:
        for _ in range(16):
            nnc.compile(nnc.grad(loss))(1.0)
    assert len(found) == 2
    assert "loss: nnc.compile made 8 functions of it" in found[0] and "outside of the loop" in found[0]
    assert "16 functions" in found[1]


def test_a_lambda_compiled_anew_in_each_round_of_a_loop() -> None:
    with retraces() as found:
        for i in range(8):
            nnc.compile(lambda x, i=i: x + i)(1.0)
    assert len(found) == 1 and "nnc.compile made 8 functions" in found[0]


def test_compiled_functions_that_are_called_again_are_not_counted() -> None:
    with retraces() as found:
        for _ in range(20):
            step = nnc.compile(lambda x: x + 1)
            step(1.0)
            step(2.0)
    assert not found


def test_different_functions_compiled_at_one_line_are_not_counted_together() -> None:
    functions = [nnp.sin, nnp.cos, nnp.tanh, nnp.exp, nnp.log1p, nnp.sqrt, nnp.abs, nnp.square, nnp.erf]
    transforms = [nnc.grad, nnc.value_and_grad, nnc.jacrev, nnc.hessian, nnc.jacfwd, nnc.checkpoint]

    def own(x: Any) -> Any:
        return x * 3

    with retraces() as found:
        for fun in [*functions, *(change(own) for change in transforms)]:
            nnc.compile(fun)(1.0)
    assert not found


def test_sizes_without_a_trace_are_no_reason_for_a_warning() -> None:
    step = nnc.compile(lambda x: x + 1, max_traces=8)
    with retraces() as found:
        for x in sizes(*range(20, 40)):
            step(x)
    assert not found and step.cache_info().misses == 20


def test_max_traces_says_that_so_many_are_wanted() -> None:
    step = nnc.compile(lambda x: x + 1, max_traces=20)
    with retraces() as found:
        for x in sizes(*range(1, 20)):
            step(x)
    assert not found


def test_the_standard_filter_silences_the_warning_and_makes_it_an_error_that_loses_nothing() -> None:
    step = nnc.compile(lambda x: x + 1, **EACH_SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RetraceWarning)
        for x in sizes(*range(1, 9)):
            step(x)
        warnings.simplefilter("error", RetraceWarning)
        for x in sizes(*range(9, 16)):
            step(x)
        with pytest.raises(RetraceWarning, match="16 times"):
            step(np.ones(16, np.float32))
        assert step(np.ones(16, np.float32)).shape == (16,)
    assert step.cache_info().misses == 16


def test_threads_that_compile_anew_are_counted_together() -> None:
    found: list[Any] = []

    def work() -> None:
        nnc.compile(lambda x: x - 1)(1.0)

    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found += log
    assert [one.category for one in found] == [RetraceWarning]


def test_explain_still_tells_the_last_difference() -> None:
    step = nnc.compile(lambda x: x + 1)
    step(nnp.ones(2))
    step(nnp.ones(3))
    assert nnc.debug.explain(step).endswith("because argument x changed from float32[2] to float32[3]")
