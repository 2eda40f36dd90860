"""Files in the layouts of BERT and GPT-2 of transformers, with drawn weights, and the outputs of transformers for them.

`python -m tests.docs.clients.hugging_face` computes the numbers in OUTPUTS anew; it needs transformers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WORDS, PLACES, FEATURES, HEADS, LAYERS, HIDDEN = 11, 7, 8, 2, 2, 16
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
KINDS = np.array([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
OUTPUTS: dict[
    str, list[float]
] = {  # of the first sequence, by transformers 5.24 and torch 2.13: sums over positions, and BERT's pooler
    "bert": [14.984013, 6.682619, -7.736656, -0.859891, -2.175683, -1.483262, 1.056328, 5.125103],
    "pooled": [-0.900337, 0.668932, 0.937967, -0.992314, 0.917874, -0.799442, -0.727490, 0.268665],
    "gpt2": [3.661006, -5.543319, -1.101302, 4.138034, 2.610914, -5.094007, -3.523100, 2.898885],
}

Shapes = dict[str, tuple[int, ...]]


def pair(name: str, *shape: int) -> Shapes:
    """The weight and the bias of a layer, of as many elements as the weight's first axis has."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def bert() -> Shapes:
    """Names and shapes of `BertModel`."""
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (WORDS, FEATURES),
        "embeddings.position_embeddings.weight": (PLACES, FEATURES),
        "embeddings.token_type_embeddings.weight": (2, FEATURES),
        **pair("embeddings.LayerNorm", FEATURES),
    }
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= pair(f"{at}.{name}", FEATURES, FEATURES)
        shapes |= pair(f"{at}.attention.output.LayerNorm", FEATURES)
        shapes |= pair(f"{at}.intermediate.dense", HIDDEN, FEATURES) | pair(f"{at}.output.dense", FEATURES, HIDDEN)
        shapes |= pair(f"{at}.output.LayerNorm", FEATURES)
    return shapes | pair("pooler.dense", FEATURES, FEATURES)


def gpt2() -> Shapes:
    """Names and shapes of `GPT2Model`, whose linear layers have their weights as (inputs, outputs)."""
    shapes: Shapes = {"wte.weight": (WORDS, FEATURES), "wpe.weight": (PLACES, FEATURES)}
    for i in range(LAYERS):
        for name, m, n in (
            ("attn.c_attn", FEATURES, 3 * FEATURES), ("attn.c_proj", FEATURES, FEATURES),
            ("mlp.c_fc", FEATURES, HIDDEN), ("mlp.c_proj", HIDDEN, FEATURES),
        ):  # fmt: skip
            shapes |= {f"h.{i}.{name}.weight": (m, n), f"h.{i}.{name}.bias": (n,)}
        shapes |= pair(f"h.{i}.ln_1", FEATURES) | pair(f"h.{i}.ln_2", FEATURES)
    return shapes | pair("ln_f", FEATURES)


def draw(shapes: Shapes) -> dict[str, np.ndarray]:
    """Weights of these shapes, the same on each machine."""
    rng = np.random.default_rng(0)
    norms = ("LayerNorm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")
    return {
        name: (rng.normal(size=shape) * 0.4 + name.endswith(norms)).astype(np.float32) for name, shape in shapes.items()
    }


def by_transformers() -> dict[str, list[float]]:
    """The outputs of transformers' models with the drawn weights."""
    import torch  # noqa: PLC0415  (both are optional)
    import transformers  # noqa: PLC0415

    sizes = {"vocab_size": WORDS, "attn_implementation": "eager"}
    found: dict[str, Any] = {
        "bert": transformers.BertModel(
            transformers.BertConfig(
                hidden_size=FEATURES,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                intermediate_size=HIDDEN,
                max_position_embeddings=PLACES,
                **sizes,
            )
        ),
        "gpt2": transformers.GPT2Model(
            transformers.GPT2Config(
                n_embd=FEATURES, n_layer=LAYERS, n_head=HEADS, n_inner=HIDDEN, n_positions=PLACES, **sizes
            )
        ),
    }
    outputs = {}
    for name, shapes in (("bert", bert()), ("gpt2", gpt2())):
        model = found[name].eval()
        state = {key: torch.from_numpy(value) for key, value in draw(shapes).items()}
        model.load_state_dict(state, strict=True)
        kinds = {"token_type_ids": torch.from_numpy(KINDS)} if name == "bert" else {}
        with torch.no_grad():
            result = model(torch.from_numpy(IDS), **kinds)
        outputs[name] = result.last_hidden_state[0].sum(0).tolist()
        if name == "bert":
            outputs["pooled"] = result.pooler_output[0].tolist()
    return outputs


if __name__ == "__main__":
    for name, numbers in by_transformers().items():
        print(f'    "{name}": [{", ".join(f"{x:.6f}" for x in numbers)}],')
