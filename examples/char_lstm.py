"""A recurrent network (Hochreiter and Schmidhuber, 1997) that reads English letter by letter.

The text is that of `help("topics")`, 460,000 characters that every Python carries; a tenth of the topics is held out. Prints
the bits per character beside those of an order-5 n-gram model with Witten-Bell smoothing, trained on the same text, and a sample
of the network's text. Leaves the model and a picture of the training in --out.

    pip install 'nnc[examples]'
    python examples/char_lstm.py
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from report import Chart, table

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

NDArray = np.ndarray[Any, Any]

ORDER = 5


def read(seed: int, limit: int) -> tuple[str, str]:
    """The text to learn from, and the text held out: topics in random order, each a whole."""
    names = sorted(topics)
    order = np.random.default_rng(seed).permutation(len(names))
    texts = [topics[names[i]] for i in order]
    cut = len(texts) // 10
    return "\n".join(texts[cut:])[:limit], "\n".join(texts[:cut])[: max(limit // 8, 1000)]


def n_gram_bits(text: str, held_out: str, symbols: int, order: int = ORDER) -> float:
    """Bits per character of an n-gram model: each order is mixed with the next lower one (Witten and Bell, 1991).

    p(c | h) = (n(h c) + d(h) · p(c | h without its first)) / (n(h) + d(h)),  d(h) = how many different characters follow h
    """
    follow: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for n in range(order):
        for i in range(n, len(text)):
            follow[text[i - n : i]][text[i]] += 1
    totals = {context: sum(counts.values()) for context, counts in follow.items()}
    bits = 0.0
    for i, c in enumerate(held_out):
        p = 1 / symbols
        for n in range(min(order - 1, i) + 1):
            context = held_out[i - n : i]
            if context not in totals:
                break
            counts = follow[context]
            p = (counts.get(c, 0) + len(counts) * p) / (totals[context] + len(counts))
        bits -= math.log2(p)
    return bits / len(held_out)


# -- the model ---------------------------------------------------------------------------------------------------------


class Writer(nn.Module):
    """Characters in, scores of the next character out."""

    embedding: nn.Embedding
    lstm: nn.LSTM
    head: nn.Linear

    def __init__(self, symbols: int, hidden: int, key: Any) -> None:
        keys = nnc.random.split(key, 3)
        self.embedding = nn.Embedding(symbols, 64, key=keys[0])
        self.lstm = nn.LSTM(64, hidden, key=keys[1])
        self.head = nn.Linear(hidden, symbols, key=keys[2])

    def __call__(self, symbols: Any, state: Any) -> tuple[Any, Any]:
        """(streams, length) integers and a state -> (streams, length, symbols) scores and the next state."""
        outputs, state = self.lstm(self.embedding(symbols), state)
        return self.head(outputs), state

    def rest(self, streams: int) -> Any:
        """The state before the first character."""
        zeros = nnp.zeros((streams, self.lstm.layers[0][0].hidden_features))
        return ((nn.LSTMState(zeros, zeros),),)


def loss(model: Writer, state: Any, window: Any) -> tuple[Any, Any]:
    """Mean cross-entropy of each next character of (streams, length + 1), and the state after."""
    scores, state = model(window[:, :-1], state)
    return nnp.mean(nn.softmax_cross_entropy(scores, window[:, 1:])), nnc.tree.map(nnc.stop_gradient, state)


evaluate = nnc.compile(loss)


def windows_of(codes: NDArray, streams: int, length: int) -> list[NDArray]:
    """The text as parallel streams, cut into windows (streams, length + 1) that overlap by one character."""
    long = (len(codes) - 1) // streams
    count = max(long // length, 1)
    rows = np.stack([codes[i * long : i * long + min(count * length, long) + 1] for i in range(streams)])
    return [rows[:, i * length : (i + 1) * length + 1] for i in range(count)]


def bits_per_character(model: Writer, codes: NDArray, length: int) -> float:
    """On text that was held out; the state goes from window to window."""
    streams = 8
    state, total, parts = model.rest(streams), 0.0, windows_of(codes, streams, length)
    for window in parts:
        value, state = evaluate(model, state, window)
        total += float(value)
    return total / len(parts) / math.log(2)


def train(
    model: Writer, codes: NDArray, held_out: NDArray, *, epochs: int, streams: int, length: int
) -> tuple[Writer, list[float], list[float]]:
    """The trained model; bits per character of each step, and on the text held out after each epoch."""
    parts = windows_of(codes, streams, length)
    steps = epochs * len(parts)
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0),
        optim.adamw(
            optim.warmup_cosine_decay_schedule(0.0, 4e-3, max(1, steps // 50), steps + 1, 1e-4), weight_decay=0.01
        ),
    )

    @nnc.compile(max_traces=1)
    def step(model: Writer, optimizer_state: Any, state: Any, window: Any) -> Any:
        (value, state), grads = nnc.value_and_grad(loss, has_aux=True)(model, state, window)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, model)
        return optim.apply_updates(model, updates), optimizer_state, state, value

    optimizer_state, course, judged = optimizer.init(model), [], []
    with nnc.debug.progress(total=steps * streams * length, unit="characters") as bar:
        for epoch in range(epochs):
            bar.describe(f"epoch {epoch + 1}/{epochs}")
            state = model.rest(streams)
            for window in parts:
                model, optimizer_state, state, value = step(model, optimizer_state, state, window)
                course.append(float(value) / math.log(2))
                bar.update(streams * length, bits=course[-1], **({"held_out": judged[-1]} if judged else {}))
            judged.append(bits_per_character(model, held_out, length))
    return model, course, judged


def write(model: Writer, alphabet: str, key: Any, start: str, length: int, temperature: float = 0.7) -> str:
    """Returns the text that the model writes after a start, each character drawn from its scores."""
    state, codes = model.rest(1), np.array([[alphabet.index(c) for c in start]])
    if len(start) > 1:
        _, state = model(codes[:, :-1], state)

    @nnc.compile
    def draw_all(model: Writer, state: Any, last: Any, keys: Any) -> Any:
        def draw(carry: Any, key: Any) -> Any:
            state, last = carry
            scores, state = model(last[None, None], state)
            drawn = nnc.random.categorical(key, scores[0, 0] / temperature)
            return (state, drawn), drawn

        return nnc.scan(draw, (state, last), keys)[1]

    drawn = draw_all(model, state, nnp.asarray(codes[0, -1]), nnc.random.split(key, length))
    return start + "".join(alphabet[int(i)] for i in np.asarray(drawn))


def main() -> None:
    """Reads the command line, trains, judges, writes, draws."""
    parser = argparse.ArgumentParser(description="Learn to write Python's help, letter by letter.")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the text (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=256, help="size of the state (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=32, help="places read at once (default: %(default)s)")
    parser.add_argument("--length", type=int, default=64, help="characters between updates (default: %(default)s)")
    parser.add_argument("--characters", type=int, default=10**6, help="most that are read (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and sample (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where the network is trained (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    text, held_out = read(options.seed, options.characters)
    alphabet = "".join(sorted(set(text + held_out)))
    codes, held_codes = (np.array([alphabet.index(c) for c in part]) for part in (text, held_out))
    print(f"{len(text)} characters to learn from, {len(held_out)} held out, {len(alphabet)} different")
    baseline = n_gram_bits(text, held_out, len(alphabet))
    with nnc.default_device(options.device):
        key, for_sample = nnc.random.split(nnc.random.key(options.seed))
        model = Writer(len(alphabet), options.hidden, key)
        model, course, judged = train(
            model, codes, held_codes, epochs=options.epochs, streams=options.streams, length=options.length
        )
        sample = write(model, alphabet, for_sample, "The ", 400)

    rows = [["uniform", math.log2(len(alphabet))], [f"order-{ORDER} n-gram", baseline], ["lstm", judged[-1]]]
    print(table(["model", "bits per character, held out"], rows))
    print("-" * 72)
    print(sample)
    print("-" * 72)
    path = options.out / "char_lstm.safetensors"
    nnc.io.save(path, {"model": model, "alphabet": alphabet})
    chart = Chart("Reading Python's help", "step", "bits per character")
    chart.line(np.arange(len(course)), course, "lstm, training")
    chart.points((np.arange(len(judged)) + 1) * len(course) / len(judged), judged, "lstm, held out")
    chart.line([0, len(course)], [baseline] * 2, f"order-{ORDER} n-gram, held out")
    chart.save(options.out / "char_lstm.svg")
    print(f"the model is in {path}, the picture is {options.out / 'char_lstm.svg'}")
    print(f"bits per character: {judged[-1]:.3f} lstm, {baseline:.3f} n-gram")


if __name__ == "__main__":
    main()
