"""Trains the network of digits.py on several processes, each of which works on its share of every batch.

The step is that of one process; `data_parallel` is the one line more. Every process reads the digits and draws the same batches,
so the weights are the same on all of them. Rank 0 shows a progress bar and, on the last line, prints the accuracy on digits that
were held out.

    pip install 'nnc[examples,mpi]'
    python -m nnc.distributed run -n 2 examples/distributed.py
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import numpy as np
from digits import Network, loss_and_accuracy, predict, read_digits, shifted

import nnc
from nnc import data, distributed, optim


def main() -> None:
    """Reads the command line, trains, judges."""
    parser = argparse.ArgumentParser(description="Train the network of digits.py on several processes.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training digits (default: %(default)s)")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="digits in a step, of all processes (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    options = parser.parse_args()

    digits = read_digits(options.seed)
    source = data.batches(
        (digits.train_images, digits.train_labels), options.batch_size, nnc.random.key(options.seed), prefetch=2,
        epochs=options.epochs, drop_last=True, transform=shifted,
    )  # fmt: skip
    steps = len(source)
    schedule = optim.warmup_cosine_decay_schedule(
        0.0, 4e-3, warmup_steps=max(1, steps // 10), decay_steps=max(2, steps)
    )
    optimizer = optim.sharded(optim.adamw(schedule, weight_decay=1e-2), "data")

    def step(model: Network, state: Any, images: Any, labels: Any) -> Any:
        (loss, accuracy), grads = nnc.value_and_grad(loss_and_accuracy, has_aux=True)(model, images, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss, accuracy

    parallel = nnc.compile(distributed.data_parallel(step, batch_argnums=(2, 3)))
    model = Network(nnc.random.key(options.seed))
    state = optimizer.init(model)
    shows = distributed.rank() == 0
    progress = nnc.debug.progress(total=steps * options.batch_size, unit="images") if shows else nullcontext()
    with source, progress as bar:
        for images, labels in source:
            model, state, loss, accuracy = parallel(model, state, images, labels)
            if bar is not None:
                bar.update(options.batch_size, accuracy=f"{float(accuracy):.3f}", loss=loss)
    if shows:
        found = np.asarray(predict(model, digits.test_images))
        print(f"processes: {distributed.size()}")
        print(f"test accuracy: {np.mean(found == digits.test_labels):.3f}")


if __name__ == "__main__":
    main()
