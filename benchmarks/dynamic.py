"""Eager training on the digits example: the dynamic graph beside the compiled step, and PyTorch's eager mode.

    python -m benchmarks.dynamic [--steps 100] [--batch-size 32]

Prints milliseconds of a step, each the median of interleaved rounds on one thread, and ratios. PyTorch is left out where it
is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nnc
from examples.digits import Digits, Network, loss_and_accuracy, read_digits
from nnc import optim

RATE, DECAY = 4e-3, 1e-2
WARM_UP = 60  # steps, within which the dynamic graph compiles all calls that are worth it
Step = Callable[[Any, Any], float]


def compiled_step(model: Network) -> Step:
    """The step as the example has it: one program for loss, gradients and update."""
    optimizer = optim.adamw(RATE, weight_decay=DECAY)
    kept = [model, optimizer.init(model)]

    @nnc.compile
    def step(model: Network, state: Any, images: Any, labels: Any) -> Any:
        (loss, _), grads = nnc.value_and_grad(loss_and_accuracy, has_aux=True)(model, images, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss

    def run(images: Any, labels: Any) -> float:
        kept[0], kept[1], loss = step(*kept, images, labels)
        return float(loss)

    return run


def dynamic_step(model: Network, evaluated: bool = False) -> Step:
    """The same, command by command on variables; `evaluated` lets the graph compile the loss, which repeats."""
    g = nnc.DynamicGraph()
    variables = nnc.tree.map(g.variable, model)
    optimizer = optim.adamw(RATE, weight_decay=DECAY)

    def run(images: Any, labels: Any) -> float:
        arguments = variables, images, labels
        loss, _ = g.evaluate(loss_and_accuracy, *arguments) if evaluated else loss_and_accuracy(*arguments)
        g.minimize(loss, optimizer)
        return float(loss)

    return run


def torch_step(model: Network) -> Step:
    """The same model, weights and optimizer in PyTorch."""
    torch = importlib.import_module("torch")
    layers = torch.nn
    convs = [model.first, model.second, model.third]
    parts = [layers.Conv2d(*reversed(conv.weight.shape[:2]), 3, padding=1) for conv in convs]
    parts.append(layers.Linear(*reversed(model.head.weight.shape)))
    with torch.no_grad():
        for part, layer in zip(parts, [*convs, model.head], strict=True):
            part.weight.copy_(torch.from_numpy(np.array(layer.weight)))
            part.bias.copy_(torch.from_numpy(np.array(layer.bias).reshape(-1)))
    first, second, third, head = parts
    pool, relu = layers.functional.max_pool2d, layers.functional.relu
    params = [p for part in parts for p in part.parameters()]
    optimizer = torch.optim.AdamW(params, lr=RATE, weight_decay=DECAY)

    def run(images: Any, labels: Any) -> float:
        x = relu(first(torch.from_numpy(images)))
        x = pool(relu(second(x)), 2)
        x = pool(relu(third(x)), 2)
        scores = head(x.flatten(1))
        loss = layers.functional.cross_entropy(scores, torch.from_numpy(labels))
        (scores.argmax(-1) == torch.from_numpy(labels)).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return run


def batches(digits: Digits, size: int, count: int) -> Iterator[tuple[Any, Any]]:
    """Batches of training digits, drawn at random."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows = rng.choice(len(digits.train_labels), size, replace=False)
        yield digits.train_images[rows], digits.train_labels[rows]


def measure(steps: dict[str, Step], digits: Digits, count: int, batch_size: int) -> dict[str, list[float]]:
    """Milliseconds of each step, the ways taking turns; steps of the warm-up are not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    losses: dict[str, float] = {}
    for i, (images, labels) in enumerate(batches(digits, batch_size, count + WARM_UP)):
        for name, step in steps.items():
            start = time.perf_counter()
            losses[name] = step(images, labels)
            if i >= WARM_UP:
                times[name].append((time.perf_counter() - start) * 1e3)
    print("last losses: " + ", ".join(f"{name} {loss:.6f}" for name, loss in losses.items()))
    return times


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Times eager training on the digits.")
    parser.add_argument("--steps", type=int, default=100, help="steps that count (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="digits in a step (default: %(default)s)")
    options = parser.parse_args()
    model = Network(nnc.random.key(0))
    ways = {"compiled": compiled_step(model), "dynamic": dynamic_step(model), "evaluate": dynamic_step(model, True)}
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").set_num_threads(1)
        ways["torch eager"] = torch_step(model)
    with threadpool_limits(1):
        times = measure(ways, read_digits(0), options.steps, options.batch_size)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:12} {median:8.2f} ms a step")
    for name in [name for name in medians if name != "dynamic"]:
        print(f"dynamic / {name}: {medians['dynamic'] / medians[name]:.2f}")


if __name__ == "__main__":
    main()
