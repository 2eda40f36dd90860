"""Low-rank adaptation (Hu et al., 2021): a transformer learns turned digits by 1.5 % of its parameters.

A small transformer, which takes the rows of an image as its tokens, is trained on the 1,797 handwritten digits of UCI. Then it
meets the digits turned by a quarter. `nnc.tree.at` puts a product of two thin matrices beside projections of each attention, and
`nnc.nn.trainable(model, only="*.lora_?")` trains nothing else. Prints parameters, memory of the optimizer and accuracies before
and after, beside training all parameters, checks that the merged model predicts the same, and leaves a picture in --out.

    pip install 'nnc[examples]'
    python examples/lora.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from report import Chart, table
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import nnc
import nnc.numpy as nnp
from nnc import data, nn, optim

FEATURES, HEADS, LAYERS = 64, 4, 2
HELD_OUT = 359  # a fifth


class RowTransformer(nn.Module):
    """The rows of an image as tokens: float32[n, 8, 8] -> one score for each digit."""

    embed: nn.Linear
    positions: nnc.Array
    layers: list[nn.TransformerEncoderLayer]
    norm: nn.LayerNorm
    head: nn.Linear

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, LAYERS + 3)
        self.embed = nn.Linear(8, FEATURES, key=keys[0])
        self.positions = nnc.random.normal(keys[1], (8, FEATURES)) * np.float32(0.02)
        self.layers = [
            nn.TransformerEncoderLayer(FEATURES, HEADS, key=k, norm_first=True, activation=nn.gelu) for k in keys[3:]
        ]
        self.norm = nn.LayerNorm(FEATURES)
        self.head = nn.Linear(FEATURES, 10, key=keys[2])

    def __call__(self, images: Any) -> Any:
        """The scores of each image."""
        x = self.embed(images) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(nnp.mean(self.norm(x), axis=-2))


# -- the adaptation ----------------------------------------------------------------------------------------------------


class LoRA(nn.Module):
    """A linear layer whose weights are `base.weight + scale * lora_b @ lora_a`; the sum is that of `base` before training."""

    base: nn.Linear
    lora_a: nnc.Array
    lora_b: nnc.Array
    scale: float = nn.field(static=True)

    def __init__(self, base: nn.Linear, rank: int, scale: float, key: Any) -> None:
        outs, ins = base.weight.shape
        self.base, self.scale = base, scale
        self.lora_a = nnc.random.normal(key, (rank, ins)) / np.float32(ins**0.5)
        self.lora_b = nnp.zeros((outs, rank))

    def __call__(self, x: Any) -> Any:
        """(..., in) -> (..., out), by way of `rank` numbers."""
        return self.base(x) + self.scale * ((x @ self.lora_a.T) @ self.lora_b.T)

    def merged(self) -> nn.Linear:
        """The linear layer that computes the same."""
        return self.base.replace(weight=self.base.weight + self.scale * self.lora_b @ self.lora_a)


def projections(model: Any) -> list[Any]:
    """The layers that are adapted: queries, values and outputs of each attention."""
    return [
        x for layer in model.layers for x in (layer.self_attn.q_proj, layer.self_attn.v_proj, layer.self_attn.out_proj)
    ]


def with_lora(model: RowTransformer, rank: int, key: Any) -> RowTransformer:
    """The model with LoRA in place of the projections."""
    keys = iter(nnc.random.split(key, len(projections(model))))
    return nnc.tree.at(projections, model, replace_fn=lambda linear: LoRA(linear, rank, 2.0, next(keys)))


def merged(model: RowTransformer) -> RowTransformer:
    """The model with linear layers again, to be saved and run at no more cost than before."""
    return nnc.tree.at(projections, model, replace_fn=LoRA.merged)


# -- training ----------------------------------------------------------------------------------------------------------


def train(
    model: Any, mask: Any, images: Any, labels: Any, steps: int, rate: float, name: str
) -> tuple[Any, int, list[float]]:
    """The model after training the leaves that `mask` marks, the bytes of the optimizer's state, and the losses."""
    params, frozen = nn.partition(model, mask)
    optimizer = optim.adam(optim.cosine_decay_schedule(rate, steps))
    source = data.batches((images, labels), 64, nnc.random.key(1), epochs=None, drop_last=True)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        scores = nn.combine(params, frozen)(images)
        return nnp.mean(nn.softmax_cross_entropy(scores, labels))

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    state, losses = optimizer.init(params), []
    with nnc.debug.progress(total=steps, description=name) as bar:
        for _, (some_images, some_labels) in zip(range(steps), source, strict=False):
            params, state, value = step(params, state, some_images, some_labels)
            losses.append(float(value))
            bar.update(loss=value)
    return nn.combine(params, frozen), sum(x.nbytes for x in nnc.tree.leaves(state)), losses


def accuracy(model: Any, images: Any, labels: Any) -> float:
    """The share of images read right."""
    return float(np.mean(np.argmax(np.asarray(nnc.compile(model)(images)), axis=-1) == labels))


def main() -> None:
    """Reads the command line, trains, adapts in two ways, compares, draws."""
    parser = argparse.ArgumentParser(description="Adapt a transformer to turned digits by LoRA.")
    parser.add_argument("--steps", type=int, default=400, help="of training on upright digits (default: %(default)s)")
    parser.add_argument("--adapting-steps", type=int, default=200, help="on turned digits (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=2, help="of the adaptation (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and split (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    order = np.random.default_rng(options.seed).permutation(len(digits.target))
    images, labels = (digits.images[order] / 16).astype(np.float32), digits.target[order].astype(np.int64)
    turned = np.ascontiguousarray(np.rot90(images, axes=(1, 2)))
    new, seen = slice(None, HELD_OUT), slice(HELD_OUT, None)
    key, for_lora = nnc.random.split(nnc.random.key(options.seed))

    with threadpool_limits(1):  # matrices of this size take longer on many threads
        base = RowTransformer(key)
        base, _, _ = train(base, nn.trainable(base), images[seen], labels[seen], options.steps, 3e-3, "upright digits")
        adapted = with_lora(base, options.rank, for_lora)
        ways = {
            "all parameters": (base, nn.trainable(base), 1e-3),
            f"LoRA of rank {options.rank}": (adapted, nn.trainable(adapted, only="*.lora_?"), 1e-2),
        }
        rows: list[list[Any]] = [["upright digits alone", 0, 0, accuracy(base, turned[new], labels[new])]]
        chart = Chart("Learning turned digits", "step", "loss")
        for name, (model, mask, rate) in ways.items():
            trained = sum(x.size for x in nnc.tree.leaves(nn.partition(model, mask)[0]))
            found, nbytes, losses = train(model, mask, turned[seen], labels[seen], options.adapting_steps, rate, name)
            rows.append([name, trained, nbytes, accuracy(found, turned[new], labels[new])])
            chart.line(np.arange(len(losses)), losses, name)

    print(table(["trained", "parameters", "bytes of state", "accuracy"], rows))
    difference = float(nnp.max(nnp.abs(found(turned[new]) - merged(found)(turned[new]))))
    print(f"scores of the merged model differ by {difference:.1e}")
    chart.save(options.out / "lora.svg")
    print(f"the picture is {options.out / 'lora.svg'}")


if __name__ == "__main__":
    main()
