"""A training step of ResNet-50 (He et al., 2016) in the shapes of CIFAR-10, and its memory plan, known before it runs.

Reads CIFAR-10 from the folder --data (data_batch_1.bin … of cs.toronto.edu/~kriz/cifar-10-binary.tar.gz); without one it draws
images of the same shapes, in which a colour and the direction of stripes stand for the class. Prints the plan and its largest
tensors with the lines that make them, trains some steps, and leaves a picture of the plan in --out: time to the right, memory
upwards.

    pip install 'nnc[examples]'
    python examples/resnet_cifar.py
"""

from __future__ import annotations

import argparse
import colorsys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from report import table

import nnc
import nnc.numpy as nnp
from nnc import data, nn, optim

NDArray = np.ndarray[Any, Any]

CLASSES, SIDE = 10, 32
MODELS = {name: getattr(nn.models, name) for name in ("resnet18", "resnet34", "resnet50", "resnet101")}


def read_cifar(folder: Path) -> tuple[NDArray, NDArray]:
    """The 50,000 training images, as bytes (n, 3, 32, 32), and their labels."""
    rows = np.concatenate(
        [np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * SIDE**2) for path in sorted(folder.glob("data_batch_*.bin"))]
    )
    return rows[:, 1:].reshape(-1, 3, SIDE, SIDE), rows[:, 0].astype(np.int64)


def draw_images(count: int, seed: int) -> tuple[NDArray, NDArray]:
    """Stripes of ten colours and directions, with noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    angle = np.pi * labels / CLASSES + rng.normal(0, 0.1, count)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    wave = np.sin(
        20 * (np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y) + rng.uniform(0, 6, (count, 1, 1))
    )
    color = np.array([colorsys.hsv_to_rgb(k / CLASSES, 0.6, 1.0) for k in range(CLASSES)])[labels]
    images = 128 + 60 * wave[:, None] * color[:, :, None, None] + rng.normal(0, 20, (count, 3, SIDE, SIDE))
    return np.clip(images, 0, 255).astype(np.uint8), labels


def prepare(key: Any, batch: tuple[NDArray, NDArray]) -> tuple[NDArray, NDArray]:
    """Bytes as floats around 0, every image mirrored or not."""
    images, labels = batch
    mirrored = np.asarray(nnc.random.bernoulli(key, 0.5, (len(images), 1, 1, 1)))
    images = np.where(mirrored, images[..., ::-1], images)
    return ((images - np.float32(125.0)) / np.float32(63.0)).astype(np.float32), labels


def loss(params: Any, rest: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """Mean cross-entropy; the share of images read right, and the running averages after the batch."""
    scores, model = nn.combine(params, rest)(images)
    accuracy = nnp.mean(nnp.argmax(scores, axis=-1) == labels)
    return nnp.mean(nn.softmax_cross_entropy(scores, labels)), (accuracy, nn.partition(model)[1])


def make_step(optimizer: optim.GradientTransformation) -> Any:
    """The compiled training step."""

    @nnc.compile(max_traces=1)
    def step(params: Any, rest: Any, state: Any, images: Any, labels: Any) -> Any:
        (value, (accuracy, rest)), grads = nnc.value_and_grad(loss, has_aux=True)(params, rest, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), rest, state, value, accuracy

    return step


# -- the plan ----------------------------------------------------------------------------------------------------------


def megabytes(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**20:,.1f} MiB"


def describe(plan: Any, steps: int) -> str:
    """The plan in few lines, and the largest tensors of the arena."""
    inside = [row for row in plan.rows if row.offset is not None]
    alone = sum(row.size for row in inside)
    lines = [
        f"{steps} kernels; parameters, state and batch take {megabytes(plan.input_bytes)}, results {megabytes(plan.output_bytes)}",
        f"arena {megabytes(plan.arena_bytes)}, at least {megabytes(plan.lower_bound)} live at once; "
        f"without sharing {megabytes(alone)}",
    ]
    largest = sorted(inside, key=lambda row: -row.size * (row.last - row.first))[:8]
    header = ["tensor", "memory", "from", "to", "made at"]
    rows = [[str(row.spec), megabytes(row.size), row.first, row.last, str(row.source or "")] for row in largest]
    return "\n".join([*lines, "the most memory for the longest time:", table(header, rows)])


def draw_plan(path: Path, plan: Any, width: int = 1000, height: int = 500) -> None:
    """A rectangle for each tensor: from its first to its last kernel, at its place in the arena."""
    inside = [row for row in plan.rows if row.offset is not None and row.size]
    end = max(row.last for row in inside) + 1
    picture = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(picture)
    for i, row in enumerate(inside):
        left, right = (round(t / end * (width - 1)) for t in (row.first, row.last + 1))
        low, high = (round((1 - b / plan.arena_bytes) * (height - 1)) for b in (row.offset, row.offset + row.size))
        red, green, blue = colorsys.hsv_to_rgb(i * 0.618 % 1, 0.45, 0.95)
        fill = (round(255 * red), round(255 * green), round(255 * blue))
        pen.rectangle((left, high, max(right, left), max(low, high)), fill=fill)
    picture.save(path)


def main() -> None:
    """Reads the command line, plans, trains."""
    parser = argparse.ArgumentParser(description="Train a ResNet on images of the shape of CIFAR-10.")
    parser.add_argument("--model", choices=MODELS, default="resnet50", help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="of training (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images in a step (default: %(default)s)")
    parser.add_argument(
        "--data", type=Path, help="a folder with CIFAR-10's data_batch_*.bin (default: images are drawn)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where the network is trained (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    examples = draw_images(4 * options.batch_size, options.seed) if options.data is None else read_cifar(options.data)
    print(f"images: {'drawn, of the shape of CIFAR-10' if options.data is None else 'CIFAR-10'}, {len(examples[0])}")
    model = MODELS[options.model](key=nnc.random.key(options.seed), num_classes=CLASSES, small_images=True)
    params, rest = nn.partition(nnc.device_put(model, options.device))
    rate = optim.cosine_decay_schedule(0.05, options.steps + 1)
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0), optim.sgd(rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
    )
    state, step = optimizer.init(params), make_step(optimizer)
    count = sum(x.size for x in nn.parameters(model).values())
    print(f"{options.model}: {count:,} parameters")

    shape = (options.batch_size, 3, SIDE, SIDE)
    batch = nnc.ShapeDtypeStruct(shape, np.float32), nnc.ShapeDtypeStruct(shape[:1], np.int64)
    program = step.lower(params, rest, state, *batch).compile()
    print(describe(program.memory_plan, len(program.cost.rows)))
    print(f"a step takes {program.cost.flops / 1e9:,.1f} thousand million operations")
    draw_plan(options.out / "resnet_cifar.png", program.memory_plan)
    print(f"the picture of the plan is {options.out / 'resnet_cifar.png'}")

    rows, total = [], options.steps * options.batch_size
    source = data.batches(
        examples,
        options.batch_size,
        nnc.random.key(options.seed),
        prefetch=2,
        epochs=None,
        drop_last=True,
        transform=prepare,
        device=options.device,
    )
    with source, nnc.debug.progress(total=total, description="training", unit="images") as bar:
        for i in range(options.steps):
            params, rest, state, value, accuracy = step(params, rest, state, *next(source))
            rows.append([i + 1, float(value), float(accuracy)])
            bar.update(options.batch_size, loss=value, accuracy=accuracy)
    print(table(["step", "loss", "accuracy"], rows[:: max(1, len(rows) // 10)]))
    if not bool(optim.all_finite((params, rest))):
        raise SystemExit("the parameters are not finite any more")
    print(f"loss after {options.steps} steps: {rows[-1][1]:.4f}")


if __name__ == "__main__":
    main()
