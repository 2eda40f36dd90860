"""The suites of control flow and of gradients on a simulated device: their tests hold there, too, and each command and each program
that they run has the CPU's results, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.array.array import Array, as_value
from nnc.base.context import set_context
from nnc.base.dtypes import TAPE
from nnc.compiled.device_program import DeviceProgram
from nnc.trace.core.eager import EagerInterpreter
from nnc.trace.core.on_device import DeviceInterpreter, _has_effect
from tests.unit.trace.core import (
    test_backward,
    test_custom,
    test_differentiate,
    test_dual,
    test_jacobian,
    test_subgraphs,
    test_vectorize,
)
from tests.unit.trace.loops import (
    test_branch_rules,
    test_control_flow,
    test_loop_rules,
    test_replay_rules,
    test_weak_results,
)

MODULES = (
    test_backward, test_branch_rules, test_control_flow, test_custom, test_differentiate, test_dual, test_jacobian, test_loop_rules,
    test_replay_rules, test_subgraphs, test_vectorize, test_weak_results,
)  # fmt: skip

ELSEWHERE = {
    "test_memory_of_the_tape_keeps_its_promise": "the meter of tapes counts on the CPU alone",
    "test_results_of_control_flow_are_weak_where_all_values_are": "an array of the CPU meets the results",
    "test_each_value_of_a_carry_is_told_by_itself": "an array of the CPU meets the results",
    "test_aux_passes_through_every_transform": "the type of arrays of the CPU is asked for",
    "test_only_residuals_of_the_reverse_pass_are_kept": "its arrays lie on the CPU",
    "test_a_product_keeps_each_factor_once": "its arrays lie on the CPU",
    "test_outputs_that_do_not_move_are_marked": "its arrays lie on the CPU",
}

LONG = {  # the others run the same commands and transforms
    "test_a_branch_raises_for_rows_that_take_it_alone",
    "test_derivatives_of_every_order_of_a_scan_around_a_while_agree_with_finite_differences",
    "test_hessians_agree_with_finite_differences_in_all_four_orders_of_modes",
    "test_rows_equal_runs_by_themselves",
    "test_rows_that_choose_a_branch_keep_the_tapes_of_loops_within_its_loops",
    "test_rows_that_choose_a_branch_may_share_its_tape",
    "test_second_derivatives_of_rows_that_choose_loops_of_unknown_length_within_a_scan",
    "test_third_derivatives_agree_in_mixed_modes",
    "test_values_and_derivatives_are_those_of_the_function",
}


def _tests() -> dict[str, Callable[..., Any]]:
    """The tests of the suites, by name, less those that cannot pass elsewhere than on the CPU and those that take long."""
    found: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if name.startswith("test_") and getattr(function, "__module__", None) == module.__name__:
                assert name not in found, f"two tests are called {name}"
                found[name] = function
    left_out = ELSEWHERE.keys() | LONG
    assert left_out <= found.keys()
    return {name: function for name, function in found.items() if name not in left_out}


globals().update(_tests())


def _on_host(x: Any) -> Any:
    """A copy of an array on the CPU, which nobody else sees; other values as they are."""
    if not isinstance(x, (Array, np.ndarray)) or x.dtype == TAPE:
        return x
    return Array(np.array(_elements(x)))


def _elements(x: Any) -> Any:
    """The elements of an array as they are in memory, where a weak float has 64 bits."""
    return x.to_device("cpu").data if isinstance(x, Array) else np.asarray(x)


def _check_bits(name: str, found: Sequence[Array], wanted: Sequence[Any]) -> None:
    for x, y in zip(found, map(_elements, wanted), strict=True):
        there = _elements(x)
        assert (there.dtype, there.shape, there.tobytes()) == (y.dtype, y.shape, y.tobytes()), f"{name} differs"


@pytest.fixture(autouse=True)
def _on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test on the device, and the same work on the CPU beside it. Errors of elements are raised in the call, as there."""
    monkeypatch.setenv("NNC_SYNC", "1")
    process, run = DeviceInterpreter.process, DeviceProgram.run

    def process_both(self: Any, command: Any, args: Any, params: Any, graphs: Any) -> Any:
        found = process(self, command, args, params, graphs)
        if not _has_effect(command, graphs) and not any(x.dtype == TAPE for x in found):
            with set_context(device=None):
                wanted = EagerInterpreter().process(command, [as_value(_on_host(x)) for x in args], params, graphs)
            _check_bits(command.name, found, wanted)
        return found

    def run_both(self: Any, leaves: Any) -> Any:
        inputs = [np.asarray(_on_host(leaves[i]), spec.dtype) for i, spec in self._inputs.reads]
        inputs += [np.asarray(_on_host(x)) for x in self._inputs.captured]
        found = run(self, leaves)
        if not self._has_effects:
            arrays = [x for x in nnc.tree.leaves(found) if isinstance(x, Array)]
            with set_context(device=None):
                _check_bits(self._name, arrays, self._program.run(inputs))
        return found

    monkeypatch.setattr(DeviceInterpreter, "process", process_both)
    monkeypatch.setattr(DeviceProgram, "run", run_both)
    with nnc.default_device("sim:0"):
        yield
