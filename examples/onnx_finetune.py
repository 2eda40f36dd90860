"""Fine-tunes an imported ONNX model: a classifier of files learns which package of Python's library a piece of source is from.

The model is the one of the package `magika`, which tells 200 kinds of files apart by their bytes. All its weights and a new last
layer are trained by `nnc.grad`. The last line prints the accuracy on files held out, before and after.

    pip install nnc 'nnc[onnx]' && pip install --no-deps magika
    python examples/onnx_finetune.py
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

PACKAGES = ("asyncio", "email", "unittest")
LENGTH, PADDING = 2048, 256  # bytes that the model reads, and the number that it takes for none


def find_model() -> Path:
    """The file within the installed package."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps magika, or give --model, the path of its model.onnx")
    return sorted(Path(spec.origin).parent.glob("models/*/model.onnx"))[-1]


def read_pieces(draw: np.random.Generator, count: int) -> tuple[Any, Any, Any, Any]:
    """Pieces of source, int32[n, LENGTH], and their packages; those of every fourth file are held out."""
    pieces: dict[bool, list[tuple[Any, int]]] = {True: [], False: []}
    for label, name in enumerate(PACKAGES):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        files = sorted(Path(spec.origin).parent.rglob("*.py"))
        texts = [data for path in files if len(data := path.read_bytes()) > LENGTH]
        for _ in range(count):
            index = int(draw.integers(0, len(texts)))
            begin = int(draw.integers(0, len(texts[index]) - LENGTH + 1))
            piece = np.frombuffer(texts[index][begin : begin + LENGTH], np.uint8).astype(np.int32)
            pieces[index % 4 == 0].append((piece, label))
    (tests, test_labels), (trained, labels) = (zip(*pieces[held_out], strict=True) for held_out in (True, False))
    return np.stack(trained), np.array(labels), np.stack(tests), np.array(test_labels)


def main() -> None:
    """Trains, and prints losses and accuracies."""
    parser = argparse.ArgumentParser(description="Fine-tunes a model of the package magika.")
    parser.add_argument("--model", type=Path, help="its model.onnx (default: that of the installed package)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--pieces", type=int, default=120, help="pieces of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    x, labels, x_test, test_labels = read_pieces(draw, options.pieces)

    model = nnc.onnx.load(options.model or find_model(), trainable=True)
    (name,) = (value.name for value in model.inputs)
    kinds = model.outputs[0].shape[-1]
    head = nn.Linear(kinds, len(PACKAGES), key=nnc.random.key(options.seed))
    count = sum(int(np.prod(value.shape)) for value in model.params.values())
    print(f"{len(model.params)} weights with {count:,} numbers; {len(x)} pieces to learn from, {len(x_test)} held out")

    def scores(params: Any, x: Any) -> Any:
        weights, head = params
        (shares,) = model.apply(weights, {name: x})  # of the kinds of files
        return head(nnp.log(shares + 1e-6) / 8)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return nnp.mean(-nnp.take_along_axis(nn.log_softmax(scores(params, x)), labels[:, None], axis=-1))

    optimizer = optim.adam(1e-3)

    @nnc.compile(donate_argnums=(0, 1))
    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        value, gradients = nnc.value_and_grad(loss)(params, x, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optim.apply_updates(params, updates), state, value

    predict: Callable[..., Any] = nnc.compile(lambda params, x: nnp.argmax(scores(params, x), axis=-1))

    def accuracy(params: Any) -> float:
        return float(np.mean(np.asarray(predict(params, x_test)) == test_labels))

    params = (model.params, head)
    state, before = optimizer.init(params), accuracy(params)
    with nnc.debug.progress(total=options.steps, unit="steps") as bar:
        for _ in range(options.steps):
            chosen = draw.integers(0, len(x), options.batch)
            params, state, value = step(params, state, x[chosen], labels[chosen])
            bar.update(1, loss=value)
    options.out.mkdir(parents=True, exist_ok=True)
    nnc.io.save(options.out / "finetuned.safetensors", params)
    print(f"accuracy on files held out: {before:.3f} before, {accuracy(params):.3f} after")


if __name__ == "__main__":
    main()
