"""Transformations that change nothing and keep measurements of the updates in their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import shorten
from nnc.optim.accumulate import ema
from nnc.optim.arguments import Scalar, check_state
from nnc.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    extended,
    map_trainable,
    run_update,
    stateful,
    stateless,
)
from nnc.typing import DTypeLike

__all__ = ["MonitorState", "SnapshotState", "measure_with_ema", "monitor", "snapshot"]

Measure = Callable[[Any], Any]


def _check_measure(where: str, name: str, measure: Any) -> None:
    if not callable(measure):
        problem = f"{name} is {shorten(measure)}, not a function of the updates."
        raise user_error(ArgumentTypeError, where, problem, fix="pass a function such as nnc.optim.global_norm.")


def _measuring(measure: Measure) -> GradientTransformation:
    return stateless("monitor", lambda updates, params: measure(updates))


class SnapshotState(NamedTuple):
    """The last measurement.

    Attributes:
        measurement: {name: measurement}.

    Example:
        >>> state = nnc.optim.snapshot("norm", nnc.optim.global_norm).init(nnp.ones(2))
        >>> state.measurement
        {'norm': Array(1.4142135, dtype=float32)}
    """

    measurement: dict[str, Any]


@spelled
def snapshot(measure_name: str, measure: Measure) -> GradientTransformation:
    """Keeps a measurement of the last updates in its state, and passes them on unchanged.

    Args:
        measure_name: its name.
        measure: function of the updates; `init` measures the parameters.

    Raises:
        ArgumentTypeError: measure is no function.

    Example:
        >>> optimizer = nnc.optim.chain(nnc.optim.snapshot("norm", nnc.optim.global_norm), nnc.optim.sgd(0.1))
        >>> updates, state = optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.ones(2)))
        >>> state[0].measurement["norm"]
        Array(5., dtype=float32)
    """
    _check_measure("snapshot", "measure", measure)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return updates, SnapshotState({measure_name: measure(updates)})

    return stateful("snapshot", SnapshotState, lambda params: SnapshotState({measure_name: measure(params)}), update_fn)


class MonitorState(NamedTuple):
    """The last measurements, and states of those that have one.

    Attributes:
        measurements: {name: measurement}.
        measure_states: states of the measurements, in their order.

    Example:
        >>> state = nnc.optim.monitor({"norm": nnc.optim.global_norm}).init(nnp.ones(2))
        >>> state.measurements
        {'norm': Array(0., dtype=float32)}
    """

    measurements: dict[str, Any]
    measure_states: tuple[Any, ...]


@spelled
def monitor(measures: Mapping[str, Measure | GradientTransformation]) -> GradientTransformationExtraArgs:
    """Keeps several measurements of the updates in its state, and passes them on unchanged.

    Args:
        measures: {name: function of the updates}, or in place of functions transformations with a state, such as
            `measure_with_ema`. `init` measures zeros.

    Raises:
        ArgumentTypeError: one is neither.

    Example:
        >>> seen = nnc.optim.monitor({
        ...     "norm": nnc.optim.global_norm, "mean": nnc.optim.measure_with_ema(nnc.optim.global_norm, 0.5)
        ... })
        >>> state = seen.init(nnp.zeros(1))
        >>> for g in (1.0, 4.0):
        ...     updates, state = seen.update(nnp.asarray([g]), state)
        >>> state.measurements["norm"], state.measurements["mean"]
        (Array(4., dtype=float32), Array(3., dtype=float32))
    """
    where = "monitor"
    if not isinstance(measures, Mapping):
        problem = f"measures is a {type(measures).__name__}, not a dict."
        raise user_error(ArgumentTypeError, where, problem, fix='pass {"name": measure}.')
    parts: dict[str, GradientTransformation] = {}
    for name, measure in measures.items():
        if isinstance(measure, GradientTransformation):
            parts[name] = measure
        else:
            _check_measure(where, f"measures[{name!r}]", measure)
            parts[name] = _measuring(measure)

    def measured(updates: Any, states: Any, params: Any, extra: dict[str, Any]) -> MonitorState:
        results = [
            run_update(part, updates, state, params, extra) for part, state in zip(parts.values(), states, strict=True)
        ]
        return MonitorState(
            {name: value for name, (value, _) in zip(parts, results, strict=True)}, tuple([new for _, new in results])
        )

    def init_fn(params: Any) -> MonitorState:
        states = tuple([part.init(params) for part in parts.values()])
        zeros = map_trainable(where, nnp.zeros_like, "params", params)
        return MonitorState(measured(zeros, states, params, {}).measurements, states)

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, MonitorState)
        return updates, measured(updates, state.measure_states, params, extra)

    return GradientTransformationExtraArgs(init_fn, update_fn)


@spelled
def measure_with_ema(
    measure: Measure, decay: Scalar, debias: bool = True, accumulator_dtype: DTypeLike | None = None
) -> GradientTransformation:
    """Averages a measurement over updates, for `monitor`; its own updates are the means.

    Args:
        measure: function of the updates, whose results are floating-point arrays.
        decay: the decay of the mean, in [0, 1).
        debias: divide by 1 − decayᵗ, as the mean starts at 0.
        accumulator_dtype: dtype of the mean; default the measurement's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError: measure is no function.

    Example:
        >>> mean = nnc.optim.measure_with_ema(nnc.optim.global_norm, 0.5)
        >>> mean.update(nnp.asarray([3.0, 4.0]), mean.init(nnp.zeros(2)))[0]
        Array(5., dtype=float32)
    """
    _check_measure("measure_with_ema", "measure", measure)
    mean = ema(decay, debias, accumulator_dtype)

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return run_update(mean, measure(updates), state, params, extra)

    return extended(lambda params: mean.init(measure(params)), update_fn, mean)
