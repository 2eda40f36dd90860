"""Exports a whole training step, gradient and Adam included, that fits a microcontroller's 256 KiB.

training.c and training.rs draw points on two spirals and train on them, without Python.

    python examples/exported/training.py --out out/training
    cc -Iout/training examples/exported/training.c out/training/training.o -lm -o spirals && ./spirals
    rustc -O -C link-arg=out/training/training.o -o spirals_rs examples/exported/training.rs && ./spirals_rs
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

BATCH, HIDDEN = 64, 48
OPTIMIZER = optim.adam(1e-2)


def scores(params: Any, points: Any) -> Any:
    """The score of each class, for points float32[n, 2]."""
    x = points
    for w, b in params[:-1]:
        x = nnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def training(params: Any, state: Any, points: Any, labels: Any) -> Any:
    """One step: the loss, new parameters, and a new state of Adam."""

    def loss(params: Any) -> Any:
        return nnp.mean(nn.softmax_cross_entropy(scores(params, points), labels))

    value, grads = nnc.value_and_grad(loss)(params)
    updates, state = OPTIMIZER.update(grads, state, params)
    return value, optim.apply_updates(params, updates), state


def start(key: Any) -> Any:
    """The first parameters and state, from a random key."""
    sizes = [2, HIDDEN, HIDDEN, 2]
    keys = nnc.random.split(key, len(sizes))
    params = [
        (nnc.random.normal(k, (n, m)) / n**0.5, nnp.zeros(m))
        for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]
    return params, OPTIMIZER.init(params)


def main() -> None:
    """Exports the step and the start into two folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/training"), help="folder to make")
    parser.add_argument("--target", default="native", help="processor: native, aarch64, armv7, ...")
    options = parser.parse_args()
    key = nnc.random.key(0)
    params, state = nnc.eval_shape(start, key)
    points, labels = nnc.ShapeDtypeStruct((BATCH, 2), "float32"), nnc.ShapeDtypeStruct((BATCH,), "int32")
    for function, specs, folder in (
        (training, (params, state, points, labels), options.out),
        (start, (key,), options.out.with_name(f"{options.out.name}_start")),
    ):
        print(nnc.export(function, *specs, path=folder, target=options.target, memory_budget="256KiB"))


if __name__ == "__main__":
    main()
