"""Model-agnostic meta-learning (Finn, Abbeel and Levine, 2017): weights from which few steps learn a new sine wave.

The loss of the outer loop is the loss after three steps of gradient descent on ten points of a wave, so its gradient goes through
gradients, mapped over a batch of waves. Prints the errors on new waves after 0, 1, 3 and 10 steps, beside weights trained in
the ordinary way on the same points, and leaves a picture of one new wave in --out.

    pip install 'nnc[examples]'
    python examples/maml.py
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
Waves = tuple[NDArray, NDArray, NDArray, NDArray]  # x and y to learn from, x and y to be judged by: (waves, points, 1)

HIDDEN, POINTS, INNER_RATE, INNER_STEPS = 40, 10, 0.03, 3


def draw_waves(rng: np.random.Generator, waves: int) -> Waves:
    """Sines of random amplitude (0.1 to 5) and phase, at random points from -5 to 5."""
    amplitude, phase = rng.uniform(0.1, 5.0, (waves, 1, 1)), rng.uniform(0.0, np.pi, (waves, 1, 1))
    x = rng.uniform(-5.0, 5.0, (waves, 2 * POINTS, 1))
    x, y = x.astype(np.float32), (amplitude * np.sin(x - phase)).astype(np.float32)
    return x[:, :POINTS], y[:, :POINTS], x[:, POINTS:], y[:, POINTS:]


def new_params(key: Any) -> Any:
    """Three layers, as plain dicts."""
    sizes = ((1, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
    keys = nnc.random.split(key, len(sizes))
    return [
        {"w": nnc.random.normal(k, size) * np.float32((2 / size[0]) ** 0.5), "b": nnp.zeros(size[1])}
        for k, size in zip(keys, sizes, strict=True)
    ]


def network(params: Any, x: Any) -> Any:
    """(points, 1) -> (points, 1)."""
    *hidden, last = params
    for layer in hidden:
        x = nnp.tanh(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss(params: Any, x: Any, y: Any) -> Any:
    """Mean squared error."""
    return nnp.mean((network(params, x) - y) ** 2)


def adapt(params: Any, x: Any, y: Any, steps: int) -> Any:
    """The parameters after steps of gradient descent on one wave."""
    for _ in range(steps):
        grads = nnc.grad(loss)(params, x, y)
        params = nnc.tree.map(lambda p, g: p - INNER_RATE * g, params, grads)
    return params


def loss_after(params: Any, wave: Any, steps: int) -> Any:
    """The error on new points of a wave after learning from its first ones."""
    x, y, new_x, new_y = wave
    return loss(adapt(params, x, y, steps), new_x, new_y)


def train(key: Any, rng: np.random.Generator, steps: int, inner_steps: int, description: str) -> Any:
    """Weights that are good after `inner_steps`; with 0 that is ordinary training."""
    optimizer = optim.adam(optim.cosine_decay_schedule(3e-3, steps, alpha=0.05))

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, waves: Any) -> Any:
        def mean_loss(params: Any) -> Any:
            return nnp.mean(nnc.vmap(lambda wave: loss_after(params, wave, inner_steps))(waves))

        value, grads = nnc.value_and_grad(mean_loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    params = new_params(key)
    state = optimizer.init(params)
    with nnc.debug.progress(total=steps, description=description) as bar:
        for _ in range(steps):
            params, state, value = step(params, state, draw_waves(rng, 25))
            bar.update(loss=value)
    return params


def main() -> None:
    """Reads the command line, trains twice, compares, draws."""
    parser = argparse.ArgumentParser(description="Learn to learn sine waves.")
    parser.add_argument("--steps", type=int, default=3000, help="of the outer loop (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and waves (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    key, rng = nnc.random.key(options.seed), np.random.default_rng(options.seed)
    learned = {
        "meta-learned": train(key, rng, options.steps, INNER_STEPS, "meta-learning"),
        "trained on all": train(key, rng, options.steps, 0, "ordinary training"),
    }
    new, counts = draw_waves(np.random.default_rng(options.seed + 1), 200), (0, 1, 3, 10)
    errors = {
        name: [
            float(nnp.mean(nnc.compile(nnc.vmap(lambda wave, p=params, n=n: loss_after(p, wave, n)))(new)))
            for n in counts
        ]
        for name, params in learned.items()
    }  # fmt: skip
    print(
        table(["squared error after", *(f"{n} steps" for n in counts)], [[name, *row] for name, row in errors.items()])
    )

    wave = tuple(part[0] for part in new)
    chart = Chart("A new wave, learnt from ten points", "x", "y")
    grid = np.linspace(-5, 5, 201, dtype=np.float32)[:, None]
    chart.points(wave[0][:, 0], wave[1][:, 0], "the ten points", "#333333")
    for name, params in learned.items():
        chart.line(
            grid[:, 0], np.asarray(network(adapt(params, wave[0], wave[1], 10), grid))[:, 0], f"{name}, 10 steps"
        )
    chart.line(grid[:, 0], np.asarray(network(learned["meta-learned"], grid))[:, 0], "meta-learned, before", "#9bbfe0")
    chart.save(options.out / "maml.svg")
    print(f"the picture is {options.out / 'maml.svg'}")
    print(
        f"error after 10 steps: {errors['meta-learned'][-1]:.4f} meta-learned, {errors['trained on all'][-1]:.4f} trained on all"
    )


if __name__ == "__main__":
    main()
