"""The runs in PyTorch: its modules, under the names of the weights, and its own optimizers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.with_torch.networks import ResNet, load
from benchmarks.training.curves import Curve
from benchmarks.training.runs import TIMES, Batch, Run

silu = functional.silu
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adamw": partial(torch.optim.AdamW, weight_decay=0.01),
    "sgd": partial(torch.optim.SGD, momentum=0.9),
}


def _encoder(depth: int, features: int, heads: int, activation: Any, eps: float) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        features, heads, 4 * features, dropout=0.0, activation=activation, batch_first=True, norm_first=True,
        layer_norm_eps=eps,
    )  # fmt: skip
    return nn.TransformerEncoder(layer, depth, nn.LayerNorm(features, eps=eps), enable_nested_tensor=False)


class GPT(nn.Module):
    """Transformer layers that look back, between a table of words and the same table."""

    def __init__(self, words: int, length: int, depth: int, features: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, features), nn.Embedding(length, features)
        self.encoder = _encoder(depth, features, heads, partial(functional.gelu, approximate="tanh"), 1e-5)

    def forward(self, ids: Any) -> Any:
        """(N, T) integers -> (N, T, words)."""
        x = self.words(ids) + self.places.weight
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.encoder(x, mask=mask, is_causal=True) @ self.words.weight.T


class Language(nn.Module):
    """A table of words, an LSTM, scores of the next word."""

    def __init__(self, words: int, features: int, hidden: int) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, features), nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, words)

    def forward(self, ids: Any) -> Any:
        """(N, T) integers -> (N, T, words)."""
        return self.head(self.lstm(self.words(ids))[0])


class Block(nn.Module):
    """Two convolutions, each behind a norm, that are told the time."""

    def __init__(self, m: int, n: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, m), nn.GroupNorm(4, n)
        self.conv1, self.conv2 = nn.Conv2d(m, n, 3, padding=1), nn.Conv2d(n, n, 3, padding=1)
        self.skip, self.time = nn.Conv2d(m, n, 1), nn.Linear(hidden, n)

    def forward(self, x: Any, time: Any) -> Any:
        """(N, m, H, W), (N, hidden) -> (N, n, H, W)."""
        out = self.conv1(silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(silu(self.norm2(out)))


class Denoiser(nn.Module):
    """Blocks at full and at half the size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = 4 * width
        self.time1, self.time2 = nn.Linear(TIMES, hidden), nn.Linear(hidden, hidden)
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down, self.middle = Block(width, width, hidden), Block(width, 2 * width, hidden)
        self.smaller, self.up = nn.Conv2d(width, width, 3, stride=2, padding=1), Block(3 * width, width, hidden)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x: Any, time: Any) -> Any:
        """(N, 3, H, W), (N, TIMES) -> (N, 3, H, W)."""
        time = silu(self.time2(silu(self.time1(time))))
        wide = self.down(self.first(x), time)
        low = functional.interpolate(self.middle(self.smaller(wide), time), scale_factor=2)
        return self.last(silu(self.norm(self.up(torch.cat([low, wide], 1), time))))


class ViT(nn.Module):
    """A vision transformer."""

    def __init__(self, size: int, patch: int, depth: int, features: int, heads: int) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, features, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, features))
        self.pos_embedding = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, features))
        self.encoder, self.head = _encoder(depth, features, heads, "gelu", 1e-6), nn.Linear(features, 10)

    def forward(self, x: Any) -> Any:
        """(N, 3, size, size) -> (N, 10)."""
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], 1) + self.pos_embedding
        return self.head(self.encoder(tokens)[:, 0])


MODELS: dict[str, Callable[..., nn.Module]] = {
    "gpt": GPT,
    "lstm": Language,
    "unet": Denoiser,
    "vit": ViT,
    "resnet": lambda depths: ResNet(depths, 1, 10, True),
}


def _loss(module: nn.Module, batch: Batch) -> Any:
    """The mean cross-entropy, or the mean square of the noise that is not found."""
    given = {name: torch.from_numpy(array) for name, array in batch.items()}
    if "noise" in given:
        return functional.mse_loss(module(given["x"], given["time"]), given["noise"])
    scores = module(given["x"])
    return functional.cross_entropy(scores.flatten(0, -2), given["labels"].long().flatten())


def train(run: Run, steps: int) -> Curve:
    """The curve of a run's first steps."""
    module = load(MODELS[run.model](**run.settings), run.layers().draw())
    optimizer = OPTIMIZERS[run.optimizer](module.parameters(), run.rate)
    losses, norms = [], []
    for batch in islice(run.batches(), steps):
        loss = _loss(module, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            norms.append(float(sum(x.double().square().sum() for x in module.parameters()) ** 0.5))
    return Curve(tuple(losses), tuple(norms))
