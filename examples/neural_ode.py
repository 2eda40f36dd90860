"""A neural ordinary differential equation (Chen et al., 2018) of hares and lynxes: the furs that Hudson's Bay Company bought,
1900 to 1920, as Howard (2009) gives them.

A small network says how fast the logarithms of both numbers change. Fehlberg's method of order 4 and 5 with steps of its own
choice solves the equation in a `while_loop`, and the gradient flows back through however many steps it took. A linear equation
is fitted in the same way. Prints the errors of forecasts of four years, also of the guess that nothing changes, and leaves a
picture of the whole course in --out.

    pip install 'nnc[examples]'
    python examples/neural_ode.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from report import Chart, table

import nnc
import nnc.numpy as nnp
from nnc import optim

NDArray = np.ndarray[Any, Any]

YEARS = np.arange(1900, 1921)
HARES = [
    30,
    47.2,
    70.2,
    77.4,
    36.3,
    20.6,
    18.1,
    21.4,
    22,
    25.4,
    27.1,
    40.3,
    57,
    76.6,
    52.3,
    19.5,
    11.2,
    7.6,
    14.6,
    16.2,
    24.7,
]
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4, 8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]
COURSE = np.log(np.array([HARES, LYNXES])).T.astype(np.float64)  # thousands of furs, (years, 2)
AHEAD, HIDDEN = 4, 16

# -- the solver --------------------------------------------------------------------------------------------------------

NODES = (  # of Fehlberg's pair (1969): each stage from those before
    (),
    (1 / 4,),
    (3 / 32, 9 / 32),
    (1932 / 2197, -7200 / 2197, 7296 / 2197),
    (439 / 216, -8.0, 3680 / 513, -845 / 4104),
    (-8 / 27, 2.0, -3544 / 2565, 1859 / 4104, -11 / 40),
)
FIFTH = (16 / 135, 0.0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55)
FOURTH = (25 / 216, 0.0, 1408 / 2565, 2197 / 4104, -1 / 5, 0.0)


def combine(weights: Any, stages: Any) -> Any:
    """The sum of stages by weights, without those that are 0."""
    parts = [w * k for w, k in zip(weights, stages, strict=True) if w]
    return sum(parts[1:], parts[0])


def solve(slope: Any, y: Any, length: float, tolerance: float = 1e-4) -> tuple[Any, Any]:
    """y after the time `length`, where dy/dt = slope(y), and how many steps were tried.

    A step whose error is above the tolerance is made again, smaller.
    """

    def attempt(carry: Any) -> Any:
        t, y, step, tried = carry
        step = nnp.minimum(step, length - t)
        stages: list[Any] = []
        for weights in NODES:
            stages.append(slope(y + step * combine(weights, stages) if weights else y))
        new = y + step * combine(FIFTH, stages)
        error = nnp.max(nnp.abs(nnc.stop_gradient(new - y - step * combine(FOURTH, stages)))) / tolerance
        good = error <= 1.0
        factor = nnp.clip(0.9 * nnp.maximum(error, 1e-8) ** -0.2, 0.2, 4.0)
        return nnp.where(good, t + step, t), nnp.where(good, new, y), step * factor, tried + 1

    first = (nnp.zeros((), y.dtype), y, nnp.asarray(0.1).astype(y.dtype), 0)
    _, y, _, tried = nnc.while_loop(lambda carry: (carry[0] < length - 1e-9) & (carry[3] < 1000), attempt, first)
    return y, tried


def forecast(slope: Any, start: Any, years: int) -> Any:
    """The next years, (years, 2)."""

    def year(y: Any, _: Any) -> Any:
        y, _ = solve(slope, y, 1.0)
        return y, y

    return nnc.scan(year, start, length=years)[1]


# -- the equations -----------------------------------------------------------------------------------------------------


def network(params: Any, y: Any) -> Any:
    """The rate of change of the logarithms, by two layers."""
    centred = y - COURSE.mean(axis=0)
    hidden = nnp.tanh(centred @ params["w"] + params["b"])
    return hidden @ params["out"] + params["c"]


def linear(params: Any, y: Any) -> Any:
    """The same, by one matrix."""
    return (y - COURSE.mean(axis=0)) @ params["w"] + params["c"]


def new_params(key: Any, sizes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Small random matrices, and zeros."""
    keys = nnc.random.split(key, len(sizes))
    return {
        name: 0.3 * nnc.random.normal(k, size, np.float64) if len(size) == 2 else nnp.zeros(size, np.float64)
        for (name, size), k in zip(sizes.items(), keys, strict=True)
    }


STARTS, TARGETS = COURSE[:-AHEAD], np.stack([COURSE[i + 1 : i + 1 + AHEAD] for i in range(len(COURSE) - AHEAD)])


def train(slope: Any, params: Any, steps: int, description: str) -> Any:
    """Parameters whose forecasts of AHEAD years from every year have the least squared error."""
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0), optim.adamw(optim.cosine_decay_schedule(0.03, steps), weight_decay=0.01)
    )

    def loss(params: Any) -> Any:
        courses = nnc.vmap(lambda start: forecast(lambda y: slope(params, y), start, AHEAD))(nnp.asarray(STARTS))
        return nnp.mean((courses - TARGETS) ** 2)

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    state = optimizer.init(params)
    with nnc.debug.progress(total=steps, description=description) as bar:
        for _ in range(steps):
            params, state, value = step(params, state)
            bar.update(loss=value)
    return params


def main() -> None:
    """Reads the command line, trains, compares, draws."""
    parser = argparse.ArgumentParser(description="Fit differential equations to the furs of hares and lynxes.")
    parser.add_argument("--steps", type=int, default=400, help="of training (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    key = nnc.random.key(options.seed)
    sizes = {"w": (2, HIDDEN), "b": (HIDDEN,), "out": (HIDDEN, 2), "c": (2,)}
    fitted = {
        "neural": (network, train(network, new_params(key, sizes), options.steps, "neural")),
        "linear": (linear, train(linear, new_params(key, {"w": (2, 2), "c": (2,)}), options.steps, "linear")),
    }

    def errors(courses: NDArray) -> list[float]:
        return [float(e) for e in np.sqrt(np.mean((courses - TARGETS) ** 2, axis=(0, 2)))]

    rows, whole = [["nothing changes", *errors(np.repeat(STARTS[:, None], AHEAD, axis=1))]], {}
    for name, (slope, params) in fitted.items():
        run = nnc.compile(nnc.vmap(lambda start, f=slope, p=params: forecast(lambda y: f(p, y), start, AHEAD)))
        rows.append([name, *errors(np.asarray(run(STARTS)))])
        course = forecast(lambda y, f=slope, p=params: f(p, y), nnp.asarray(COURSE[0]), len(YEARS) - 1)
        whole[name] = np.exp(np.vstack([COURSE[:1], np.asarray(course)]))
    print(table(["rms error of log furs after", *(f"{n + 1} years" for n in range(AHEAD))], rows))
    slope, params = fitted["neural"]
    _, tried = solve(lambda y: slope(params, y), nnp.asarray(COURSE[0]), 20.0)
    print(f"the solver tries {int(tried)} steps for the twenty years")

    chart = Chart("Hares and lynxes, from the numbers of 1900 alone", "year", "thousand furs")
    for i, (animal, color) in enumerate((("hares", "#1f6fb4"), ("lynxes", "#d9541e"))):
        chart.points(YEARS, np.exp(COURSE[:, i]), f"{animal}, bought", color)
        chart.line(YEARS, whole["neural"][:, i], f"{animal}, neural", color)
    chart.save(options.out / "neural_ode.svg")
    print(f"the picture is {options.out / 'neural_ode.svg'}")
    print(
        f"mean rms error: {np.mean(rows[1][1:]):.4f} neural, {np.mean(rows[2][1:]):.4f} linear, "
        f"{np.mean(rows[0][1:]):.4f} unchanged"
    )


if __name__ == "__main__":
    main()
