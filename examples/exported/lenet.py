"""Trains LeNet on handwritten digits and exports it: lenet.c reads a picture with it, without Python.

pip install 'nnc[examples]'
python examples/exported/lenet.py --out out/lenet
cc -Iout/lenet examples/exported/lenet.c out/lenet/lenet.o -o read_digit && ./read_digit out/lenet.pgm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

SIDE = 28


class LeNet(nn.Module):
    """Two convolutions, each with a pool, and two linear layers: float32[n, 1, 28, 28] -> one score for each digit."""

    first: nn.Conv
    second: nn.Conv
    hidden: nn.Linear
    head: nn.Linear

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 4)
        self.first = nn.Conv(1, 6, 5, key=keys[0])
        self.second = nn.Conv(6, 16, 5, key=keys[1])
        self.hidden = nn.Linear(256, 84, key=keys[2])
        self.head = nn.Linear(84, 10, key=keys[3])

    def __call__(self, images: Any) -> Any:
        """The scores of each image."""
        x = nn.max_pool(nn.relu(self.first(images)), 2)
        x = nn.max_pool(nn.relu(self.second(x)), 2)
        return self.head(nn.relu(self.hidden(nnp.reshape(x, (x.shape[0], -1)))))


def read_digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pictures of 28 × 28 pixels from 0 to 1, in random order, and their digits."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    large = np.kron(found.images[order] / 16, np.ones((3, 3)))
    return np.pad(large, ((0, 0), (2, 2), (2, 2)))[:, None].astype(np.float32), found.target[order]


def train(model: LeNet, images: Any, labels: Any, steps: int, batch: int = 64) -> LeNet:
    """The trained model."""
    optimizer = optim.adam(2e-3)

    def loss(model: LeNet, images: Any, labels: Any) -> Any:
        return nnp.mean(nn.softmax_cross_entropy(model(images), labels))

    @nnc.compile
    def step(model: LeNet, state: Any, images: Any, labels: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(model, images, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    state = optimizer.init(model)
    rng = np.random.default_rng(1)
    with nnc.debug.progress(total=steps, unit="steps") as bar:
        for _ in range(steps):
            chosen = rng.integers(0, len(labels), batch)
            model, state, value = step(model, state, images[chosen], labels[chosen])
            bar.update(1, loss=value)
    return model


def main() -> None:
    """Trains, exports, and writes a picture that was not learnt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/lenet"), help="folder to make")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--target", default="native", help="processor: native, aarch64, wasm32, ...")
    options = parser.parse_args()
    images, labels = read_digits()
    model = train(LeNet(nnc.random.key(0)), images[:1500], labels[:1500], options.steps)

    def lenet(image: Any) -> Any:
        return nn.softmax(model(image[None, None]))[0]

    print(nnc.export(lenet, nnc.ShapeDtypeStruct((SIDE, SIDE), "float32"), path=options.out, target=options.target))
    predicted = np.argmax(np.asarray(nnc.compile(lambda x: model(x))(images[1500:])), axis=1)
    picture = options.out.with_suffix(".pgm")
    pixels = np.round(images[1500, 0] * 255).astype(np.uint8)
    picture.write_bytes(b"P5\n%d %d\n255\n" % (SIDE, SIDE) + pixels.tobytes())
    print(f"{picture} shows {labels[1500]}")
    print(f"held out, read right: {np.mean(predicted == labels[1500:]):.3f}")


if __name__ == "__main__":
    main()
