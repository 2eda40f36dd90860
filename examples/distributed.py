"""Trains the network of digits.py, or a small GPT, on several processes, each of which works on its share of every batch.

The step is that of one process; `data_parallel` is the one line more. Every process makes its own rows of each batch alone, in an
order that the seed decides; the weights are the same on all of them. Rank 0 shows a progress bar, with images or tokens a second,
and the share of a step that collectives take: `nnc.debug.profile` measures it in one step of fifty, and waiting for other processes
is part of it. On the last line it prints the accuracy on digits that were held out, or on the next letters of a text:
`help("topics")`.

    pip install 'nnc[examples,mpi]'
    python -m nnc.distributed run -n 2 examples/distributed.py [--model gpt]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import char_lstm
import digits
import numpy as np

import nnc
from nnc import data, distributed, nn, optim

FEATURES, HEADS, LAYERS, LENGTH = 64, 4, 2, 32  # of the GPT; the length in letters
COLLECTIVES = ("psum", "psum_scatter", "all_gather", "all_gather_same")
MEASURED = 50  # steps from one measurement of the collectives to the next


class GPT(nn.Module):
    """A decoder of letters (Radford et al., 2018): int[n, length] -> scores of each next letter."""

    letters: nn.Embedding
    positions: nnc.Array
    layers: list[nn.TransformerEncoderLayer]
    norm: nn.LayerNorm
    head: nn.Linear

    def __init__(self, symbols: int, key: Any) -> None:
        keys = nnc.random.split(key, LAYERS + 3)
        self.letters = nn.Embedding(symbols, FEATURES, key=keys[0])
        self.positions = nnc.random.normal(keys[1], (LENGTH, FEATURES)) * np.float32(0.02)
        self.layers = [
            nn.TransformerEncoderLayer(FEATURES, HEADS, key=k, norm_first=True, activation=nn.gelu) for k in keys[3:]
        ]
        self.norm = nn.LayerNorm(FEATURES)
        self.head = nn.Linear(FEATURES, symbols, key=keys[2])

    def __call__(self, text: Any) -> Any:
        """The scores of the letter after each."""
        x = self.letters(text) + self.positions
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))


class Task(NamedTuple):
    """Inputs and labels to learn from, others to be judged by, a model, and the unit in which progress is counted."""

    train: tuple[Any, Any]
    test: tuple[Any, Any]
    model: Any
    unit: str
    transform: Callable[..., Any] | None


def read_task(name: str, seed: int) -> Task:
    """The task of this name."""
    key = nnc.random.key(seed)
    if name == "digits":
        found = digits.read_digits(seed)
        train, test = (found.train_images, found.train_labels), (found.test_images, found.test_labels)
        return Task(train, test, digits.Network(key), "images", digits.shifted)
    texts = char_lstm.read(seed, 100_000)
    alphabet = sorted(set("".join(texts)))
    train, test = (_windows(text, alphabet) for text in texts)
    return Task(train, test, GPT(len(alphabet), key), "tokens", None)


def _windows(text: str, alphabet: list[str]) -> tuple[Any, Any]:
    """Pieces of a text as numbers, and the same a letter later."""
    number = {letter: i for i, letter in enumerate(alphabet)}
    codes = np.array([number[letter] for letter in text], np.int32)
    count = (len(codes) - 1) // LENGTH * LENGTH
    return codes[:count].reshape(-1, LENGTH), codes[1 : count + 1].reshape(-1, LENGTH)


def share_of_collectives(step: Any, *arguments: Any) -> float:
    """The share of a step that collectives take in this process; all processes call it together."""
    run = nnc.debug.profile(step, *arguments)
    return sum(row.duration for row in run.rows if row.command in COLLECTIVES) / run.duration


def main() -> None:
    """Reads the command line, trains, judges."""
    parser = argparse.ArgumentParser(description="Train a network on several processes.")
    parser.add_argument("--model", choices=["digits", "gpt"], default="digits", help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, help="passes over the training data (default: 20, of gpt 4)")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        help="images or pieces of text in a step, of all processes (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    options = parser.parse_args()

    task = read_task(options.model, options.seed)
    source = data.batches(
        task.train, options.batch_size, nnc.random.key(options.seed), prefetch=2,
        epochs=options.epochs or {"digits": 20, "gpt": 4}[options.model], drop_last=True, transform=task.transform,
        share=(distributed.rank(), distributed.size()),
    )  # fmt: skip
    steps, counted = len(source), options.batch_size * (LENGTH if options.model == "gpt" else 1)
    schedule = optim.warmup_cosine_decay_schedule(
        0.0, 4e-3, warmup_steps=max(1, steps // 10), decay_steps=max(2, steps)
    )
    optimizer = optim.sharded(optim.adamw(schedule, weight_decay=1e-2), "data")

    def step(model: Any, state: Any, x: Any, labels: Any) -> Any:
        (loss, accuracy), grads = nnc.value_and_grad(digits.loss_and_accuracy, has_aux=True)(model, x, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss, accuracy

    parallel = nnc.compile(distributed.data_parallel(step, batch_argnums=(2, 3), local_batch=True))
    model, share = task.model, 0.0
    state = optimizer.init(model)
    shows = distributed.rank() == 0
    progress = nnc.debug.progress(total=steps * counted, unit=task.unit) if shows else nullcontext()
    with source, progress as bar:
        for i, (x, labels) in enumerate(source):
            model, state, loss, accuracy = parallel(model, state, x, labels)
            if i % MEASURED == min(5, steps - 1):
                share = share_of_collectives(parallel, model, state, x, labels)
            if bar is not None:
                bar.update(counted, accuracy=f"{float(accuracy):.3f}", loss=loss, communication=f"{100 * share:.0f}%")
    if shows:
        x, labels = task.test
        found = np.asarray(digits.predict(model, x))
        print(f"processes: {distributed.size()}")
        print(f"test accuracy: {np.mean(found == labels):.3f}")


if __name__ == "__main__":
    main()
