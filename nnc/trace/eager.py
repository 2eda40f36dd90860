"""The interpreter at the bottom: runs commands on concrete arrays at once, with the best kernel that takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nnc.array import Array, as_value
from nnc.commands.loop import run_graph
from nnc.errors import InternalError
from nnc.graph import Command, TensorSpec, find_kernel, infer_specs, reference, set_eager, spec_of

NDArray = np.ndarray[Any, Any]


class EagerInterpreter:
    """Runs each command when it is called."""

    level = -1
    alive = True

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Any, ...]
    ) -> Sequence[Any]:
        """Runs a command at once."""
        values = [as_value(arg) for arg in args]
        arrays = [value.data for value in values]
        specs = tuple(value.spec for value in values)
        if graphs:
            outputs = infer_specs(command, specs, params, graphs)
            results = reference[command](*arrays, graphs=graphs, run=run_graph, **params)
            return [Array(np.asarray(x)) for x in checked(command, results, outputs)]
        outputs = _infer_cached(command, specs, tuple(params.items()))
        return [Array(x) for x in run_kernel(command, arrays, specs, outputs, params)]


@lru_cache(maxsize=8192)
def _infer_cached(command: Command, specs: tuple[TensorSpec, ...], params: tuple[Any, ...]) -> tuple[TensorSpec, ...]:
    return infer_specs(command, specs, dict(params))


def run_kernel(
    command: Command, arrays: Sequence[NDArray], specs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...],
    params: Mapping[str, Any],
) -> list[NDArray]:  # fmt: skip
    """The outputs of a command on NumPy arrays."""
    chosen = find_kernel(command, specs, params)
    if chosen is None:
        return checked(command, reference[command](*arrays, **params), outputs)
    results = [np.empty(spec.shape, spec.dtype) for spec in outputs]
    chosen.run(arrays, results, params)
    return results


def checked(command: Command, results: Any, outputs: tuple[TensorSpec, ...]) -> list[NDArray]:
    """The results of a reference as a list, held against what was inferred."""
    listed = list(results) if isinstance(results, (tuple, list)) else [results]
    found = [np.asarray(x) for x in listed]
    if [(x.shape, x.dtype) for x in found] != [(spec.shape, spec.dtype) for spec in outputs]:
        raise InternalError(
            f"{command.name}: the reference gave {', '.join(str(spec_of(x)) for x in found)}, "
            f"the infer rule says {', '.join(map(str, outputs))}"
        )
    return found


set_eager(EagerInterpreter())
