"""A deep-equilibrium layer (Bai, Kolter and Koltun, 2019) that reads handwritten digits: its output is a fixed point.

    z = tanh(W z + U x + b)

`while_loop` iterates until z stays. The gradient is found in two ways: through the loop, which keeps a tape of all rounds, and by
the implicit function theorem, a second fixed point in a `custom_vjp`, which keeps nothing. Prints how far the two agree and the
memory each keeps, trains by the second, prints the accuracy, and leaves a picture of the convergence in --out.

    pip install 'nnc[examples]'
    python examples/implicit.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from report import Chart, table
from sklearn.datasets import load_digits

import nnc
import nnc.numpy as nnp
from nnc import data, nn, optim

NDArray = np.ndarray[Any, Any]

WIDTH, CLASSES, TOLERANCE, MOST_ROUNDS = 48, 10, 1e-5, 200


def read(seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Images and labels to learn from, and a fifth of them to be judged by."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    cut = len(labels) // 5
    return images[cut:], labels[cut:], images[:cut], labels[:cut]


# -- the layer ---------------------------------------------------------------------------------------------------------


def new_params(key: Any) -> dict[str, Any]:
    """Random weights."""
    keys = nnc.random.split(key, 3)
    scale = np.float32(0.25 / WIDTH**0.5)
    return {
        "w": scale * nnc.random.normal(keys[0], (WIDTH, WIDTH)),
        "u": nnc.random.normal(keys[1], (64, WIDTH)) / np.float32(4.0),
        "b": nnp.zeros(WIDTH),
        "head": nnc.random.normal(keys[2], (WIDTH, CLASSES)) / np.float32(WIDTH**0.5),
    }


def layer(params: Any, x: Any, z: Any) -> Any:
    """One round. W is held at a spectral norm below 1, so that there is one fixed point and every start leads to it."""
    size = nnp.abs(params["w"])
    bound = nnp.sqrt(nnp.max(nnp.sum(size, axis=0)) * nnp.max(nnp.sum(size, axis=1)))  # no less than the norm
    w = params["w"] * nnp.minimum(0.95 / bound, 1.0)
    return nnp.tanh(z @ w + x @ params["u"] + params["b"])


def iterate(f: Any, start: Any) -> Any:
    """Solves z = f(z) by repetition until z moves by less than TOLERANCE of its size; returns the number of rounds, too."""

    def moves(carry: Any) -> Any:
        before, now, i = carry
        return (nnp.max(nnp.abs(now - before)) > TOLERANCE * nnp.max(nnp.abs(now))) & (i < MOST_ROUNDS)

    _, z, rounds = nnc.while_loop(moves, lambda carry: (carry[1], f(carry[1]), carry[2] + 1), (start, f(start), 1))
    return z, rounds


def through_the_loop(params: Any, x: Any) -> Any:
    """The fixed point; its gradient goes through every round."""
    return iterate(lambda z: layer(params, x, z), nnp.zeros((x.shape[0], WIDTH)))[0]


@nnc.custom_vjp
def implicit(params: Any, x: Any) -> Any:
    """The fixed point; its gradient is a fixed point itself."""
    return through_the_loop(params, x)


def _forward(params: Any, x: Any) -> Any:
    z = through_the_loop(params, x)
    return z, (params, x, z)


def _backward(kept: Any, ct: Any) -> Any:
    """With z = f(p, z): dz/dp = (1 − ∂f/∂z)⁻¹ ∂f/∂p, so the cotangent of f is v = ct + (∂f/∂z)ᵀ v."""
    params, x, z = kept
    _, pull_z = nnc.vjp(lambda z: layer(params, x, z), z)
    v, _ = iterate(lambda v: ct + pull_z(v)[0], ct)
    _, pull = nnc.vjp(lambda params, x: layer(params, x, z), params, x)
    return pull(v)


implicit.defvjp(_forward, _backward)


def loss_and_accuracy(params: Any, images: Any, labels: Any, solve: Any = implicit) -> tuple[Any, Any]:
    """Mean cross-entropy, and the share of images read right."""
    scores = solve(params, images) @ params["head"]
    accuracy = nnp.mean(nnp.argmax(scores, axis=-1) == labels)
    return nnp.mean(nn.softmax_cross_entropy(scores, labels)), accuracy


# -- training and judging ----------------------------------------------------------------------------------------------


def train(params: Any, images: NDArray, labels: NDArray, epochs: int, seed: int) -> Any:
    """The trained parameters."""
    source = data.batches((images, labels), 64, nnc.random.key(seed), prefetch=2, epochs=epochs, drop_last=True)
    optimizer = optim.adam(optim.cosine_decay_schedule(3e-3, max(len(source), 1)))

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        (loss, accuracy), grads = nnc.value_and_grad(loss_and_accuracy, has_aux=True)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss, accuracy

    state = optimizer.init(params)
    with nnc.debug.progress(total=len(source), description="training") as bar:
        for x, y in source:
            params, state, loss, accuracy = step(params, state, x, y)
            bar.update(loss=loss, accuracy=accuracy)
    return params


def compare(params: Any, images: NDArray, labels: NDArray) -> tuple[list[list[Any]], float]:
    """A row for each way to find the gradient, and the largest relative difference of the two gradients."""
    rows, found = [], []
    for name, solve in (("through the loop", through_the_loop), ("implicit", implicit)):
        with nnc.debug.tape_memory() as memory:
            grads = nnc.grad(lambda params, solve=solve: loss_and_accuracy(params, images, labels, solve)[0])(params)
        found.append([np.asarray(g) for g in nnc.tree.leaves(grads)])
        rows.append([name, memory.peak, float(sum((g * g).sum() for g in found[-1])) ** 0.5])
    return rows, max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(*found, strict=True))


def main() -> None:
    """Reads the command line, compares gradients, trains, judges, draws."""
    parser = argparse.ArgumentParser(description="Read digits with a layer that is a fixed point.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the digits (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    images, labels, test_images, test_labels = read(options.seed)
    params = train(new_params(nnc.random.key(options.seed)), images, labels, options.epochs, options.seed)
    rows, difference = compare(params, images[:64], labels[:64])
    print(table(["gradient", "bytes kept", "norm"], rows))
    print(f"the gradients differ by {difference:.1e} of their size")

    z, sizes = nnp.zeros((len(test_images), WIDTH)), []
    for _ in range(60):
        before, z = z, layer(params, test_images, z)
        sizes.append(float(nnp.max(nnp.abs(z - before))))
    chart = Chart("Rounds of the trained layer", "round", "log10 of the largest change")
    chart.line(np.arange(1, len(sizes) + 1), np.log10(np.maximum(sizes, 1e-9)))
    chart.save(options.out / "implicit.svg")
    print(f"the picture is {options.out / 'implicit.svg'}")
    _, accuracy = loss_and_accuracy(params, test_images, test_labels)
    print(f"test accuracy: {float(accuracy):.3f}")


if __name__ == "__main__":
    main()
