"""Gaussian-process regression on the diabetes data of Efron, Hastie, Johnstone and Tibshirani (2004): 442 patients, ten measures.

The kernel's length scale of each measure, its size and the noise maximise the marginal likelihood, by L-BFGS through a
Cholesky factorisation. Prints a table beside ordinary least squares and leaves a picture of the predictions with their 95 %
intervals in --out.

    pip install 'nnc[examples]'
    python examples/gp_regression.py
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from report import Chart, table
from sklearn.datasets import load_diabetes

import nnc
import nnc.numpy as nnp
from nnc import optim

NDArray = np.ndarray[Any, Any]


def read(seed: int, rows: int) -> tuple[NDArray, NDArray, NDArray, NDArray, list[str]]:
    """Measures and progression of the disease to learn from and to be judged by, standardised; the names of the measures."""
    data = load_diabetes()
    order = np.random.default_rng(seed).permutation(len(data.target))[:rows]
    x, y = data.data[order], data.target[order]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = (y - y.mean()) / y.std()
    cut = round(0.75 * rows)
    return x[:cut], y[:cut], x[cut:], y[cut:], list(data.feature_names)


def kernel(params: Any, a: Any, b: Any) -> Any:
    """size · exp(−½ Σ ((aᵢ − bᵢ) / lengthᵢ)²), for every row of a and of b."""
    a, b = a / nnp.exp(params["log_lengths"]), b / nnp.exp(params["log_lengths"])
    squares = nnp.sum(a * a, axis=1)[:, None] + nnp.sum(b * b, axis=1)[None] - 2 * (a @ b.T)
    return nnp.exp(params["log_size"] - 0.5 * nnp.maximum(squares, 0.0))


def factor(params: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The Cholesky factor of the covariance of the data, and that covariance's inverse times y."""
    covariance = kernel(params, x, x) + (nnp.exp(params["log_noise"]) + 1e-6) * nnp.eye(len(y), dtype=y.dtype)
    lower = nnp.linalg.cholesky(covariance)
    half = nnp.linalg.solve_triangular(lower, y, lower=True)
    return lower, nnp.linalg.solve_triangular(lower.T, half, lower=False)


def surprise(params: Any, x: Any, y: Any) -> Any:
    """The negative log marginal likelihood for each row."""
    lower, weights = factor(params, x, y)
    log_determinant = 2 * nnp.sum(nnp.log(nnp.diagonal(lower)))
    return 0.5 * (nnp.sum(y * weights) + log_determinant + len(y) * math.log(2 * math.pi)) / len(y)


@nnc.compile
def predict(params: Any, x: Any, y: Any, new: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of new observations."""
    lower, weights = factor(params, x, y)
    across = kernel(params, x, new)
    half = nnp.linalg.solve_triangular(lower, across, lower=True)
    variance = nnp.exp(params["log_size"]) + nnp.exp(params["log_noise"]) - nnp.sum(half * half, axis=0)
    return across.T @ weights, nnp.sqrt(variance)


def fit(x: NDArray, y: NDArray, steps: int) -> tuple[Any, float]:
    """Hyperparameters that maximise the likelihood, and the surprise that is left."""
    params: Any = {
        "log_lengths": nnp.asarray(np.full(x.shape[1], math.log(3.0))),
        "log_size": nnp.asarray(np.float64(0.0)),
        "log_noise": nnp.asarray(np.float64(-1.0)),
    }
    optimizer = optim.lbfgs()

    def loss(params: Any) -> Any:
        return surprise(params, x, y)

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any) -> Any:
        value, grads = optim.value_and_grad_from_state(loss)(params, state=state)
        updates, state = optimizer.update(grads, state, params, value=value, grad=grads, value_fn=loss)
        return optim.apply_updates(params, updates), state, state[-1].value

    state, value = optimizer.init(params), math.inf
    with nnc.debug.progress(total=steps, description="maximising the likelihood") as bar:
        for _ in range(steps):
            params, state, value = step(params, state)
            bar.update(surprise=value)
    return params, float(value)


def main() -> None:
    """Reads the command line, fits, judges, draws."""
    parser = argparse.ArgumentParser(description="Gaussian-process regression of the progression of diabetes.")
    parser.add_argument(
        "--rows", type=int, default=442, help="patients, a quarter of them held out (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=40, help="of L-BFGS (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    x, y, new_x, new_y, names = read(options.seed, options.rows)
    params, left = fit(x, y, options.steps)
    mean, deviation = (np.asarray(part) for part in predict(params, x, y, new_x))
    with_ones = np.column_stack([x, np.ones(len(x))])
    line, *_ = np.linalg.lstsq(with_ones, y, rcond=None)
    straight = np.column_stack([new_x, np.ones(len(new_x))]) @ line
    spread = np.std(y - with_ones @ line)

    def judge(name: str, mean: NDArray, deviation: Any) -> list[Any]:
        error = new_y - mean
        inside = np.mean(np.abs(error) < 1.96 * deviation)
        density = -0.5 * (error / deviation) ** 2 - np.log(deviation) - 0.5 * math.log(2 * math.pi)
        return [name, float(np.sqrt(np.mean(error**2))), float(np.mean(density)), float(inside)]

    header = ["model", "rms error", "log density", "inside 95 %"]
    print(table(header, [judge("gaussian process", mean, deviation), judge("least squares", straight, spread)]))
    lengths = np.exp(np.asarray(params["log_lengths"]))
    print(f"measures by weight: {', '.join(names[i] for i in np.argsort(lengths))}")

    order = np.argsort(mean)
    chart = Chart("Progression of diabetes, patients held out", "patients, by prediction", "progression (standardised)")
    rank = np.arange(len(order))
    chart.band(rank, (mean - 1.96 * deviation)[order], (mean + 1.96 * deviation)[order], "95 % interval")
    chart.line(rank, mean[order], "prediction", "#1f6fb4")
    chart.points(rank, new_y[order], "measured", "#333333")
    chart.save(options.out / "gp_regression.svg")
    print(f"the picture is {options.out / 'gp_regression.svg'}")
    print(f"surprise for each patient: {left:.4f}")


if __name__ == "__main__":
    main()
