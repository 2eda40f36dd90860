"""Trains a small convolutional network on the 1,797 handwritten digits of UCI (Alpaydin and Kaynak, 1998).

The images come from scikit-learn's copy. Prints a progress bar, the confusion table of the held-out digits and, on the last
line, the accuracy on them. Leaves the model and a picture of the misread digits in --out.

    pip install 'nnc[examples]'
    python examples/digits.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import nnc
import nnc.numpy as nnp
from nnc import data, nn, optim

Images = np.ndarray[Any, Any]  # float32[n, 1, 8, 8], from 0 to 1
Labels = np.ndarray[Any, Any]  # int64[n]

CLASSES = 10


class Digits(NamedTuple):
    """Images and labels to learn from, and others to be judged by."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels


def read_digits(seed: int, test_share: float = 0.2) -> Digits:
    """The digits, split at random so that each class has the same share in both parts."""
    found = load_digits()
    images = (found.images / 16).astype(np.float32)[:, None]
    labels = found.target.astype(np.int64)
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), bool)
    for digit in range(CLASSES):
        members = np.flatnonzero(labels == digit)
        held_out[rng.permutation(members)[: round(test_share * len(members))]] = True
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out])


# -- the model ---------------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Two convolutions, pooling, a third, and a linear layer: float32[n, 1, 8, 8] -> one score for each class."""

    first: nn.Conv
    second: nn.Conv
    third: nn.Conv
    head: nn.Linear

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 4)
        self.first = nn.Conv(1, 16, 3, key=keys[0], padding="SAME")
        self.second = nn.Conv(16, 32, 3, key=keys[1], padding="SAME")
        self.third = nn.Conv(32, 64, 3, key=keys[2], padding="SAME")
        self.head = nn.Linear(64 * 2 * 2, CLASSES, key=keys[3])

    def __call__(self, images: Any) -> Any:
        """The scores of each image."""
        x = nn.relu(self.first(images))
        x = nn.max_pool(nn.relu(self.second(x)), 2)
        x = nn.max_pool(nn.relu(self.third(x)), 2)
        return self.head(nnp.reshape(x, (x.shape[0], -1)))


def loss_and_accuracy(model: Network, images: Any, labels: Any) -> tuple[Any, Any]:
    """Mean cross-entropy, and the share of images read right."""
    scores = model(images)
    accuracy = nnp.mean(nnp.argmax(scores, axis=-1) == labels)
    return nnp.mean(nn.softmax_cross_entropy(scores, labels)), accuracy


@nnc.compile
def predict(model: Network, images: Any) -> Any:
    """The digit with the highest score."""
    return nnp.argmax(model(images), axis=-1)


# -- training ----------------------------------------------------------------------------------------------------------


def shifted(key: Any, batch: tuple[Images, Labels]) -> tuple[Images, Labels]:
    """Every other image, at random, moved by -1, 0 or 1 pixels along both axes."""
    images, labels = batch
    rng = np.random.default_rng(np.asarray(key))
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    move = rng.random((len(images), 1, 1)) < 0.5
    down, right = np.where(move, rng.integers(0, 3, (2, len(images), 1, 1)), 1)
    rows, columns = down + np.arange(8)[:, None], right + np.arange(8)
    return padded[np.arange(len(images))[:, None, None], 0, rows, columns][:, None], labels


def train(model: Network, digits: Digits, *, epochs: int, batch_size: int, seed: int, device: str) -> Network:
    """The trained model."""
    source = data.batches(
        (digits.train_images, digits.train_labels), batch_size, nnc.random.key(seed), prefetch=2, epochs=epochs,
        drop_last=True, transform=shifted, device=device,
    )  # fmt: skip
    steps = len(source)
    schedule = optim.warmup_cosine_decay_schedule(
        0.0, 4e-3, warmup_steps=max(1, steps // 10), decay_steps=max(2, steps)
    )
    optimizer = optim.adamw(schedule, weight_decay=1e-2)

    @nnc.compile(max_traces=1)
    def step(model: Network, state: Any, images: Any, labels: Any) -> Any:
        (loss, accuracy), grads = nnc.value_and_grad(loss_and_accuracy, has_aux=True)(model, images, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss, accuracy

    state = optimizer.init(model)
    with source, nnc.debug.progress(total=steps * batch_size, unit="images") as bar:
        for images, labels in source:
            bar.describe(f"epoch {-(-source.step // source.per_epoch)}/{epochs}")
            model, state, loss, accuracy = step(model, state, images, labels)
            bar.update(batch_size, accuracy=f"{float(accuracy):.3f}", loss=loss)
    return model


# -- results ----------------------------------------------------------------------------------------------------------


def confusion_table(labels: Labels, predicted: Labels) -> str:
    """Counts how often each digit (rows) was read as each digit (columns)."""
    counts = np.zeros((CLASSES, CLASSES), np.int64)
    np.add.at(counts, (labels, predicted), 1)
    lines = ["true \\ read" + "".join(f"{digit:5}" for digit in range(CLASSES))]
    for digit, row in enumerate(counts):
        lines.append(f"{digit:11}" + "".join(f"{n or '.':>5}" for n in row))
    return "\n".join(lines)


def draw_misread(path: Path, images: Images, labels: Labels, predicted: Labels, columns: int = 8) -> int:
    """Writes a picture of the digits that were misread, "true > read" below each, and returns how many there are."""
    wrong = np.flatnonzero(labels != predicted)
    cell, caption = 64, 16
    rows = max(1, -(-len(wrong) // columns))
    sheet = Image.new("L", (columns * (cell + 8) + 8, rows * (cell + caption + 8) + 8), 255)
    pen = ImageDraw.Draw(sheet)
    if not len(wrong):
        pen.text((8, 8), "no digit was misread", fill=0)
    for place, i in enumerate(wrong):
        left = 8 + place % columns * (cell + 8)
        top = 8 + place // columns * (cell + caption + 8)
        ink = Image.fromarray((255 * (1 - images[i, 0])).astype(np.uint8))
        sheet.paste(ink.resize((cell, cell), Image.Resampling.NEAREST), (left, top))
        pen.text((left + 16, top + cell + 2), f"{labels[i]} > {predicted[i]}", fill=0)
    sheet.save(path)
    return len(wrong)


def main() -> None:
    """Reads the command line, trains, judges, saves."""
    parser = argparse.ArgumentParser(description="Train a small convolutional network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training digits (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="digits in a step (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where the network is trained (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    digits = read_digits(options.seed)
    print(f"{len(digits.train_labels)} digits to learn from, {len(digits.test_labels)} held out")
    model = nnc.device_put(Network(nnc.random.key(options.seed)), options.device)
    with threadpool_limits(1):  # matrices of this size take longer on many threads
        model = train(
            model,
            digits,
            epochs=options.epochs,
            batch_size=options.batch_size,
            seed=options.seed,
            device=options.device,
        )

    predicted = np.asarray(predict(model, digits.test_images))
    print(confusion_table(digits.test_labels, predicted))
    picture = options.out / "misread.png"
    print(f"{draw_misread(picture, digits.test_images, digits.test_labels, predicted)} misread digits are in {picture}")

    path = options.out / "digits.safetensors"
    nnc.io.save(path, model)
    restored = nnc.io.load(path, like=Network(nnc.random.key(options.seed + 1)), device=options.device)
    if not np.array_equal(predict(restored, digits.test_images), predicted):
        raise SystemExit(f"the model in {path} predicts otherwise than the one that was saved")
    print(f"the model is in {path}; loaded again, it predicts the same")
    print(f"test accuracy: {np.mean(predicted == digits.test_labels):.3f}")


if __name__ == "__main__":
    main()
