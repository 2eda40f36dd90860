"""A small language model that learns from texts of unequal lengths without padding.

The texts are the paragraphs of `help("topics")`, from a few characters to a thousand. As many as fit stand one behind the other in
each step; `segment_ids` keeps attention within a paragraph, so that a step costs as much as its paragraphs by themselves, and one
program serves all steps. Prints how much padding was saved, and the bits per character beside those of a model that knows only
how often characters follow each other. Leaves the model and a picture of the training in --out.

    pip install 'nnc[examples]'
    python examples/packed_texts.py
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
from report import Chart, table

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

NDArray = np.ndarray[Any, Any]

SHORTEST, LONGEST = 16, 1024  # characters of a paragraph


class Pack(NamedTuple):
    """Texts one behind the other: the character, the one to predict, the text's number and the place in it, of each token."""

    codes: NDArray
    following: NDArray
    segments: NDArray
    places: NDArray


def read(seed: int, limit: int) -> tuple[list[str], list[str]]:
    """The paragraphs to learn from, and those of topics that are held out."""
    names = sorted(topics)
    order = np.random.default_rng(seed).permutation(len(names))
    parts = [[p[:LONGEST] for p in topics[names[i]].split("\n\n") if len(p) >= SHORTEST] for i in order]
    cut = len(parts) // 10
    held_out, learn = ([*chain.from_iterable(part)] for part in (parts[:cut], parts[cut:]))
    return learn[:limit], held_out[: max(limit // 8, 16)]


def packs(texts: Sequence[NDArray], tokens: int) -> Iterator[Pack]:
    """Packs of so many tokens, each text whole and in one of them; -1 numbers the tokens behind the last text."""
    chosen: list[NDArray] = []
    for text in [*texts, None]:
        if text is None or sum(len(x) - 1 for x in chosen) + len(text) - 1 > tokens:
            lengths = [len(x) - 1 for x in chosen]
            rest = tokens - sum(lengths)
            columns = (
                np.concatenate([x[:-1] for x in chosen]), np.concatenate([x[1:] for x in chosen]),
                np.repeat(np.arange(len(chosen)), lengths), np.concatenate([np.arange(n) for n in lengths]),
            )  # fmt: skip
            yield Pack(*(np.pad(x, (0, rest), constant_values=-1 if i == 2 else 0) for i, x in enumerate(columns)))
            chosen = []
        if text is not None:
            chosen.append(text)


def pair_bits(texts: Sequence[NDArray], held_out: Sequence[NDArray], symbols: int) -> float:
    """Bits per character of a model of pairs of characters, each pair counted once more than it was seen."""
    counts = np.ones((symbols, symbols))
    for text in texts:
        np.add.at(counts, (text[:-1], text[1:]), 1)
    bits = -np.log2(counts / counts.sum(1, keepdims=True))
    return float(np.concatenate([bits[x[:-1], x[1:]] for x in held_out]).mean())


# -- the model ---------------------------------------------------------------------------------------------------------


class Reader(nn.Module):
    """Characters and their places in, scores of the next character out."""

    embedding: nn.Embedding
    places: nn.Embedding
    layers: nn.TransformerEncoder
    head: nn.Linear

    def __init__(self, symbols: int, features: int, layers: int, key: Any) -> None:
        keys = nnc.random.split(key, layers + 3)
        options: dict[str, Any] = {"norm_first": True, "activation": nn.gelu}
        self.embedding = nn.Embedding(symbols, features, key=keys[0])
        self.places = nn.Embedding(LONGEST, features, key=keys[1])
        self.head = nn.Linear(features, symbols, key=keys[2])
        self.layers = nn.TransformerEncoder(
            [nn.TransformerEncoderLayer(features, 4, key=k, **options) for k in keys[3:]], nn.LayerNorm(features)
        )

    def __call__(self, pack: Pack) -> Any:
        """A pack -> (tokens, symbols) scores."""
        x = self.embedding(pack.codes) + self.places(pack.places)
        return self.head(self.layers(x, segment_ids=pack.segments, is_causal=True))


def loss(model: Reader, pack: Pack) -> Any:
    """Mean cross-entropy of the tokens that are part of a text."""
    is_text = pack.segments >= 0
    return nnp.sum(nn.softmax_cross_entropy(model(pack), pack.following), where=is_text) / nnp.sum(is_text)


evaluate = nnc.compile(loss)


def bits_per_character(model: Reader, texts: Sequence[NDArray], tokens: int) -> float:
    """On texts that were held out."""
    parts = [(float(evaluate(model, pack)), (pack.segments >= 0).sum()) for pack in packs(texts, tokens)]
    return sum(value * n for value, n in parts) / sum(n for _, n in parts) / math.log(2)


def train(
    model: Reader, texts: Sequence[NDArray], held_out: Sequence[NDArray], *, epochs: int, tokens: int, seed: int
) -> tuple[Reader, list[float], list[float]]:
    """The trained model; bits per character of each step, and on the texts held out after each epoch."""
    total = sum(len(text) - 1 for text in texts)
    steps = epochs * -(-total // tokens)
    schedule = optim.warmup_cosine_decay_schedule(0.0, 5e-3, max(1, steps // 20), steps + 1, 1e-4)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(schedule, weight_decay=0.01))

    @nnc.compile(max_traces=1)
    def step(model: Reader, state: Any, pack: Pack) -> Any:
        value, grads = nnc.value_and_grad(loss)(model, pack)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    state, course, judged = optimizer.init(model), [], []
    rng = np.random.default_rng(seed)
    with nnc.debug.progress(total=epochs * total, unit="characters") as bar:
        for epoch in range(epochs):
            bar.describe(f"epoch {epoch + 1}/{epochs}")
            for pack in packs([texts[i] for i in rng.permutation(len(texts))], tokens):
                model, state, value = step(model, state, pack)
                course.append(float(value) / math.log(2))
                bar.update(int((pack.segments >= 0).sum()), bits=course[-1])
            judged.append(bits_per_character(model, held_out, tokens))
    return model, course, judged


def main() -> None:
    """Reads the command line, trains, judges, draws."""
    parser = argparse.ArgumentParser(description="Learn from paragraphs of unequal lengths without padding.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the texts (default: %(default)s)")
    parser.add_argument("--features", type=int, default=96, help="size of the hidden states (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="layers of the transformer (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=2048, help="characters of a step (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=10**6, help="most that are read (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    learn, held_out = read(options.seed, options.texts)
    alphabet = "".join(sorted(set("".join(learn + held_out))))
    number = {c: i for i, c in enumerate(alphabet)}
    texts, others = ([np.array([number[c] for c in text]) for text in part] for part in (learn, held_out))
    lengths = np.array([len(text) - 1 for text in texts])
    counts = [int((pack.segments >= 0).sum()) for pack in packs(texts, options.tokens)]
    print(f"{len(texts)} texts of {lengths.min() + 1} to {lengths.max() + 1} characters, {len(others)} held out")
    padded, packed = 1 - lengths.mean() / lengths.max(), 1 - sum(counts) / (len(counts) * options.tokens)
    print(f"padding: {packed:.1%} of the tokens, {padded:.1%} if each text were as long as the longest")

    model = Reader(len(alphabet), options.features, options.layers, nnc.random.key(options.seed))
    model, course, judged = train(model, texts, others, epochs=options.epochs, tokens=options.tokens, seed=options.seed)
    pairs = pair_bits(texts, others, len(alphabet))
    rows = [["uniform", math.log2(len(alphabet))], ["pairs of characters", pairs], ["transformer", judged[-1]]]
    print(table(["model", "bits per character, held out"], rows))
    path = options.out / "packed_texts.safetensors"
    nnc.io.save(path, {"model": model, "alphabet": alphabet})
    chart = Chart("Reading paragraphs", "step", "bits per character")
    chart.line(np.arange(len(course)), course, "training")
    chart.points((np.arange(len(judged)) + 1) * len(course) / len(judged), judged, "held out")
    chart.line([0, len(course)], [pairs] * 2, "pairs of characters, held out")
    chart.save(options.out / "packed_texts.svg")
    print(f"the model is in {path}, the picture is {options.out / 'packed_texts.svg'}")
    print(f"bits per character: {judged[-1]:.3f} transformer, {pairs:.3f} pairs")


if __name__ == "__main__":
    main()
