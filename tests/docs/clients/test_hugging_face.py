"""Weights in the layouts of BERT and GPT-2 become models of nnc's layers, which give the numbers of transformers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import nnc
import nnc.numpy as nnp
from nnc import nn
from tests.docs.clients import hugging_face as hf

LAYER = partial(nn.TransformerEncoderLayer, hf.FEATURES, hf.HEADS, hf.HIDDEN)


def exact_gelu(x: Any) -> Any:
    return nn.gelu(x, approximate=False)


class Bert(nn.Module):
    """BERT: embeddings of words, positions and kinds; layers with their norms behind the sums; a layer on the first word."""

    words: nn.Embedding
    positions: nn.Embedding
    kinds: nn.Embedding
    norm: nn.LayerNorm
    layers: list[nn.TransformerEncoderLayer]
    pooler: nn.Linear

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 4 + hf.LAYERS)
        rows = (hf.WORDS, hf.PLACES, 2)
        self.words, self.positions, self.kinds = (nn.Embedding(n, hf.FEATURES, key=keys[i]) for i, n in enumerate(rows))
        self.norm = nn.LayerNorm(hf.FEATURES, eps=1e-12)
        self.layers = [LAYER(key=k, activation=exact_gelu, eps=1e-12) for k in keys[4:]]
        self.pooler = nn.Linear(hf.FEATURES, hf.FEATURES, key=keys[3])

    def __call__(self, ids: Any, kinds: Any) -> Any:
        x = self.norm(self.words(ids) + self.positions(nnp.arange(ids.shape[-1])) + self.kinds(kinds))
        for layer in self.layers:
            x = layer(x)
        return x, nnp.tanh(self.pooler(x[..., 0, :]))


class GPT2(nn.Module):
    """GPT-2: causal layers with their norms ahead of each part."""

    wte: nn.Embedding
    wpe: nn.Embedding
    h: list[nn.TransformerEncoderLayer]
    ln_f: nn.LayerNorm

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 2 + hf.LAYERS)
        self.wte, self.wpe = (
            nn.Embedding(n, hf.FEATURES, key=k) for n, k in ((hf.WORDS, keys[0]), (hf.PLACES, keys[1]))
        )
        self.h = [LAYER(key=k, activation=nn.gelu, norm_first=True) for k in keys[2:]]
        self.ln_f = nn.LayerNorm(hf.FEATURES)

    def __call__(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(nnp.arange(ids.shape[-1]))
        for layer in self.h:
            x = layer(x, is_causal=True)
        return self.ln_f(x)


OF_BERT = {
    "layers.": "encoder.layer.", "words.": "embeddings.word_embeddings.", "positions.": "embeddings.position_embeddings.",
    "kinds.": "embeddings.token_type_embeddings.", "self_attn.q_proj_": "attention.self.query.",
    "self_attn.k_proj_": "attention.self.key.", "self_attn.v_proj_": "attention.self.value.",
    "self_attn.out_proj.": "attention.output.dense.", "norm1.": "attention.output.LayerNorm.", "norm2.": "output.LayerNorm.",
    "linear1.": "intermediate.dense.", "linear2.": "output.dense.", "pooler.": "pooler.dense.",
}  # fmt: skip
OF_GPT2 = {
    "self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj.": "attn.c_proj.", "norm1.": "ln_1.", "norm2.": "ln_2.",
    "linear1.": "mlp.c_fc.", "linear2.": "mlp.c_proj.",
}  # fmt: skip


def rename(words: dict[str, str], name: str) -> str:
    if name.startswith("norm."):
        return f"embeddings.LayerNorm.{name.removeprefix('norm.')}"
    for ours, theirs in words.items():
        name = name.replace(ours, theirs)
    return name


def test_bert_gives_the_numbers_of_transformers(tmp_path: Path) -> None:
    save_file(hf.draw(hf.bert()), tmp_path / "model.safetensors", metadata={"format": "pt"})
    state = nnc.io.load(tmp_path / "model.safetensors")
    empty = nnc.eval_shape(Bert, nnc.random.key(0))
    model = nn.load_torch(empty, state, rename=partial(rename, OF_BERT))
    out, pooled = nnc.compile(model)(hf.IDS, hf.KINDS)
    np.testing.assert_allclose(out[0].sum(0), hf.OUTPUTS["bert"], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(pooled[0], hf.OUTPUTS["pooled"], rtol=2e-5, atol=2e-5)


def test_gpt2_gives_the_numbers_of_transformers(tmp_path: Path) -> None:
    masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, hf.PLACES, hf.PLACES), np.float32)) for i in range(hf.LAYERS)}
    save_file({**hf.draw(hf.gpt2()), **masks}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    state = nnc.io.load(tmp_path / "model.safetensors")
    turned = {n: x.T if ".c_" in n and x.ndim == 2 else x for n, x in state.items() if not n.endswith(".attn.bias")}
    model = nn.load_torch(nnc.eval_shape(GPT2, nnc.random.key(0)), turned, rename=partial(rename, OF_GPT2))
    out = nnc.compile(model)(hf.IDS)
    np.testing.assert_allclose(out[0].sum(0), hf.OUTPUTS["gpt2"], rtol=2e-5, atol=2e-5)


def test_the_recorded_numbers_are_those_of_transformers() -> None:
    pytest.importorskip("transformers", reason="the numbers are recorded; transformers computes them again")
    pytest.importorskip("torch", reason="transformers computes with torch")
    for name, numbers in hf.by_transformers().items():
        np.testing.assert_allclose(numbers, hf.OUTPUTS[name], rtol=1e-5, atol=1e-5)
