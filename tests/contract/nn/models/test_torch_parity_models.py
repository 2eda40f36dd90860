"""Training against PyTorch: networks with the same weights on the same data have the same losses, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim

torch: Any = pytest.importorskip("torch")
T = torch.nn
F = torch.nn.functional
KEY = nnc.random.key(0)
STEPS = 3


def losses_of_nnc(model: Any, x: Any, labels: Any, learning_rate: float) -> list[float]:
    """The losses of training by SGD with momentum, in a compiled step."""
    optimizer = optim.sgd(learning_rate, momentum=0.9)

    def loss(params: Any, rest: Any) -> Any:
        out = nn.combine(params, rest)(x)
        out, model = out if isinstance(out, tuple) else (out, nn.combine(params, rest))
        return nn.softmax_cross_entropy(out, labels).mean(), nn.partition(model)[1]

    @nnc.compile
    def step(params: Any, rest: Any, state: Any) -> Any:
        (value, rest), grads = nnc.value_and_grad(loss, has_aux=True)(params, rest)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), rest, state, value

    params, rest = nn.partition(model)
    state, values = optimizer.init(params), []
    for _ in range(STEPS):
        params, rest, state, value = step(params, rest, state)
        values.append(float(value))
    return values


def losses_of_torch(model: Any, x: Any, labels: Any, learning_rate: float) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    values = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.tensor(x)).flatten(0, -2), torch.tensor(labels).flatten())
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    return values


def check_curves(mine: Any, theirs: Any, x: Any, labels: Any, learning_rate: float) -> None:
    state = {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    got = losses_of_nnc(nn.load_torch(mine, state), x, labels, learning_rate)
    want = losses_of_torch(theirs, x, labels, learning_rate)
    assert abs(want[-1] - want[0]) > 1e-2  # the steps matter
    np.testing.assert_allclose(got, want, rtol=1e-4)


class TorchBlock(T.Module):
    """BasicBlock and Bottleneck: convolutions of the given widths, the strided one at `strided`."""

    def __init__(self, m: int, widths: list[tuple[int, int]], stride: int, strided: int) -> None:
        super().__init__()
        self.count, sizes = len(widths), [m, *(n for n, _ in widths)]
        for i, (n, kernel) in enumerate(widths):
            conv = T.Conv2d(sizes[i], n, kernel, stride if i == strided else 1, kernel // 2, bias=False)
            setattr(self, f"conv{i + 1}", conv)
            setattr(self, f"bn{i + 1}", T.BatchNorm2d(n))
        n, self.downsample = sizes[-1], None
        if stride != 1 or m != n:
            self.downsample = T.Sequential(T.Conv2d(m, n, 1, stride, bias=False), T.BatchNorm2d(n))

    def forward(self, x: Any) -> Any:
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            out = F.relu(out) if i < self.count else out
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class TorchResNet(T.Module):
    """ResNet with torchvision's names."""

    def __init__(self, bottleneck: bool, depths: tuple[int, ...], small_images: bool, num_classes: int) -> None:
        super().__init__()
        self.conv1 = T.Conv2d(3, 64, *((3, 1, 1) if small_images else (7, 2, 3)), bias=False)
        self.bn1, self.small_images, m = T.BatchNorm2d(64), small_images, 64
        for i, depth in enumerate(depths):
            n, blocks = 64 * 2**i, []
            widths = [(n, 1), (n, 3), (4 * n, 1)] if bottleneck else [(n, 3), (n, 3)]
            for j in range(depth):
                blocks.append(TorchBlock(m, widths, 2 if i and not j else 1, 1 if bottleneck else 0))
                m = widths[-1][0]
            setattr(self, f"layer{i + 1}", T.Sequential(*blocks))
        self.fc = T.Linear(m, num_classes)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small_images else F.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def images(count: int, size: int, classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 3, size, size)).astype(np.float32), rng.integers(0, classes, count)


def test_resnet18_trains_like_pytorchs() -> None:
    torch.manual_seed(0)
    theirs = TorchResNet(False, (2, 2, 2, 2), True, 10)
    mine = nnc.eval_shape(lambda key: nn.models.resnet18(key=key, num_classes=10, small_images=True), KEY)
    check_curves(mine, theirs, *images(4, 32, 10), learning_rate=0.001)


@pytest.mark.slow
def test_resnet50_trains_like_pytorchs() -> None:
    torch.manual_seed(0)
    theirs = TorchResNet(True, (3, 4, 6, 3), False, 1000)
    # as such networks are usually started; otherwise rounding decides the second step
    for name, module in theirs.named_modules():
        if isinstance(module, T.Conv2d):
            T.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if name.endswith("bn3"):
            T.init.zeros_(module.weight)
    mine = nnc.eval_shape(lambda key: nn.models.resnet50(key=key), KEY)
    check_curves(mine, theirs, *images(2, 64, 1000), learning_rate=0.01)


class Language(nn.Module):
    """A small language model whose output layer shares the table of its embedding."""

    embed: nn.Embedding
    places: nnc.Array
    encoder: nn.TransformerEncoder

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 3)
        self.embed = nn.Embedding(11, 16, key=keys[0])
        self.places = nnp.zeros((8, 16))
        layers = [nn.TransformerEncoderLayer(16, 4, 32, key=k, norm_first=True) for k in keys[1:]]
        self.encoder = nn.TransformerEncoder(layers, nn.LayerNorm(16))

    def __call__(self, ids: Any) -> Any:
        return self.embed.attend(self.encoder(self.embed(ids) + self.places, is_causal=True))


class TorchLanguage(T.Module):
    """The same."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = T.Embedding(11, 16)
        self.places = T.Parameter(0.1 * torch.randn(8, 16))
        layer = T.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = T.TransformerEncoder(layer, 2, T.LayerNorm(16), enable_nested_tensor=False)

    def forward(self, ids: Any) -> Any:
        causal = T.Transformer.generate_square_subsequent_mask(8)
        return self.encoder(self.embed(ids) + self.places, mask=causal, is_causal=True) @ self.embed.weight.T


def test_a_transformer_with_tied_embeddings_trains_like_pytorchs() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 11, (3, 8)), rng.integers(0, 11, (3, 8))
    check_curves(Language(KEY), TorchLanguage(), ids, labels, learning_rate=0.05)


def vit_names(name: str) -> str:
    """torchvision's names of a vision transformer's parameters."""
    pairs = [
        ("pos_embedding", "encoder.pos_embedding"), ("encoder.layers.", "encoder.layers.encoder_layer_"),
        ("self_attn", "self_attention"), ("norm1", "ln_1"), ("norm2", "ln_2"), ("linear1", "mlp.0"), ("linear2", "mlp.3"),
        ("encoder.norm", "encoder.ln"), ("head.", "heads.head."),
    ]  # fmt: skip
    for mine, theirs in pairs:
        name = name.replace(mine, theirs)
    return name


class TorchViTLayer(T.Module):
    """torchvision's encoder block."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = T.LayerNorm(16, eps=1e-6), T.LayerNorm(16, eps=1e-6)
        self.self_attention = T.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = T.Sequential(T.Linear(16, 32), T.GELU(), T.Dropout(0.0), T.Linear(32, 16), T.Dropout(0.0))

    def forward(self, x: Any) -> Any:
        normal = self.ln_1(x)
        x = x + self.self_attention(normal, normal, normal, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class TorchViT(T.Module):
    """torchvision's VisionTransformer for images of 8² in patches of 4²."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj, self.class_token = T.Conv2d(3, 16, 4, 4), T.Parameter(torch.zeros(1, 1, 16))
        self.encoder = T.Module()
        self.encoder.pos_embedding = T.Parameter(0.02 * torch.randn(1, 5, 16))
        self.encoder.layers = T.Sequential()
        for i in range(2):
            self.encoder.layers.add_module(f"encoder_layer_{i}", TorchViTLayer())
        self.encoder.ln = T.LayerNorm(16, eps=1e-6)
        self.heads = T.Sequential()
        self.heads.add_module("head", T.Linear(16, 10))

    def forward(self, x: Any) -> Any:
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        return self.heads(self.encoder.ln(self.encoder.layers(x))[:, 0])


def test_a_vision_transformer_takes_torchvisions_weights() -> None:
    torch.manual_seed(0)
    theirs: Any = TorchViT()
    sizes = {"image_size": 8, "patch_size": 4, "features": 16, "num_layers": 2, "num_heads": 4, "hidden_features": 32}
    mine = nn.models.ViT(key=KEY, num_classes=10, **sizes)
    mine = nn.load_torch(mine, {k: v.numpy() for k, v in theirs.state_dict().items()}, rename=vit_names)
    x, _ = images(3, 8, 10)
    np.testing.assert_allclose(np.asarray(mine(x)), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
