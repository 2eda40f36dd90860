"""Line searches with many functions and settings, and the finds of Optax's search in each.

python -m tests.unit.optim.line_searches        records Optax's finds, in recorded_line_searches.npz: Optax must be installed
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import optim

RECORDED = Path(__file__).with_name("recorded_line_searches.npz")

# name: function of the module of NumPy's names and of a vector of two
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "bowl": lambda np, p: np.sum((p - 1.0) ** 2 + 0.1 * (p - 1.0) ** 4),
    "steep bowl": lambda np, p: 50.0 * np.sum((p - 0.3) ** 2 + (p - 0.3) ** 4),
    "far bowl": lambda np, p: 1e-2 * np.sum((p - 40.0) ** 2) + 1e-6 * np.sum((p - 40.0) ** 4),
    "waves": lambda np, p: np.sum(np.cosh(0.5 * p) - np.sin(3.0 * p)),
    "valley": lambda np, p: 10.0 * (p[1] - p[0] ** 2) ** 2 + (1.0 - p[0]) ** 2,
    "slope without end": lambda np, p: np.sum(-p),
    "ridge": lambda np, p: np.sum(np.sqrt(1e-3 + p**2)),
    "cubic": lambda np, p: np.sum(p**3 - 2.0 * p),
    "cliff": lambda np, p: np.sum(np.where(p > 0.8, np.inf, -p)),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"max_linesearch_steps": 20},
    "few steps": {"max_linesearch_steps": 3},
    "one step": {"max_linesearch_steps": 1},
    "narrow": {"max_linesearch_steps": 15, "curv_rtol": 0.01, "approx_dec_rtol": None},
    "no decrease": {"max_linesearch_steps": 12, "slope_rtol": 0.4, "curv_rtol": 0.5, "tol": 0.01},
    "largest": {"max_linesearch_steps": 10, "max_learning_rate": 1.5, "increase_factor": 3.0},
    "coarse": {
        "max_linesearch_steps": 12,
        "stepsize_precision": 0.2,
        "curv_rtol": 0.001,
        "initial_guess_strategy": "one",
    },
}
STARTS = (np.array([-1.2, 0.7]), np.array([0.4, -0.1]))
LENGTHS = (0.07, 1.1, 8.3)  # of the direction, in gradients
CASES = list(itertools.product(FUNCTIONS, SETTINGS))
TURNS = 2  # searches one after the other, the second from where the first ended

Row = list[float]


def summary(state: Any, params: Any) -> Row:
    """Returns step, value, number of steps, both errors and the parameters."""
    info = state.info
    numbers = (state.learning_rate, state.value, info.num_linesearch_steps, info.decrease_error, info.curvature_error)
    return [*map(float, numbers), *map(float, params)]


def searches(
    np_module: Any, o: Any, grad: Callable[..., Any], compiled: Callable[..., Any], case: tuple[str, str]
) -> np.ndarray:
    """Returns the summaries of all searches of a case, made with the functions of a framework."""
    function, settings = FUNCTIONS[case[0]], SETTINGS[case[1]]
    loss = lambda p: function(np_module, p)
    search = o.scale_by_zoom_linesearch(**settings)

    @compiled
    def turn(p: Any, state: Any, length: Any) -> Any:
        value, gradient = grad(loss)(p)
        updates, state = search.update(-length * gradient, state, p, value=value, grad=gradient, value_fn=loss)
        return o.apply_updates(p, updates), state

    rows: list[Row] = []
    for start, length in itertools.product(STARTS, LENGTHS):
        p = np_module.asarray(start)
        state = search.init(p)
        for _ in range(TURNS):
            p, state = turn(p, state, np_module.asarray(length, dtype="float64"))
            rows.append(summary(state, p))
    return np.array(rows)


def nnc_searches(case: tuple[str, str]) -> np.ndarray:
    return searches(nnp, optim, nnc.value_and_grad, nnc.compile, case)


def recorded_searches(case: tuple[str, str]) -> np.ndarray:
    with np.load(RECORDED) as file:
        return file["/".join(case)]


def record() -> None:
    import jax  # noqa: PLC0415  optional peers
    import optax  # noqa: PLC0415

    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        rows = {"/".join(case): searches(jax.numpy, optax, jax.value_and_grad, jax.jit, case) for case in CASES}
    np.savez_compressed(RECORDED, **rows)


if __name__ == "__main__":
    record()
