"""Layers against PyTorch's with the same weights: values, gradients of input and weights, new running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree

torch: Any = pytest.importorskip("torch")

KEY = nnc.random.key(0)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def state_of(module: Any, gradient: bool = False) -> dict[str, Any]:
    """The state of a PyTorch module; with `gradient`, gradients in place of the parameters."""
    state = {name: x.detach().numpy().copy() for name, x in module.state_dict().items()}
    if gradient:
        state.update({name: x.grad.numpy() for name, x in module.named_parameters() if x.grad is not None})
    return state


def shake(module: Any) -> None:
    """Random values for all parameters and statistics, so that none is 0 or 1."""
    generator = torch.Generator().manual_seed(1)
    for name, x in module.state_dict().items():
        if x.is_floating_point():
            noise = 0.3 * torch.randn(x.shape, generator=generator)
            x.copy_(noise.abs() + 0.5 if name.endswith("var") else noise)


def check_close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    want = np.asarray(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=tolerance * max(1.0, float(np.abs(want).max())))


def check_parity(
    mine: Any,
    theirs: Any,
    *inputs: Any,
    call: Callable[..., Any] = lambda module, *inputs: module(*inputs),
    torch_call: Callable[..., Any] = lambda module, *inputs: module(*inputs),
) -> None:
    """Outputs, gradients of the sum of (weights · output), and statistics agree; `call` returns the output alone or a list."""
    shake(theirs)
    mine = nn.load_torch(mine, state_of(theirs))
    params, rest = nn.partition(mine)

    def total(given: Any) -> Any:
        model = nn.combine(given["params"], rest)
        out = call(model, *given["inputs"])
        out, model = out if nn.is_stateful(mine) else (out, model)
        outs = tree.leaves(out)
        return sum((x * normal(*x.shape, seed=5 + i)).sum() for i, x in enumerate(outs)), (outs, model)

    given = {"params": params, "inputs": inputs}
    (_, (outs, updated)), grads = nnc.value_and_grad(total, has_aux=True)(given)
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    wanted = torch.utils._pytree.tree_leaves(torch_call(theirs, *leaves))
    sum((x * torch.tensor(normal(*x.shape, seed=5 + i))).sum() for i, x in enumerate(wanted)).backward()
    assert len(outs) == len(wanted)
    for got, want in zip(outs, wanted, strict=True):
        check_close(got, want.detach().numpy())
    for got, leaf in zip(grads["inputs"], leaves, strict=True):
        check_close(got, leaf.grad.numpy())
    want_grads = nn.parameters(nn.load_torch(mine, state_of(theirs, gradient=True)))
    got_grads = nn.parameters(grads["params"])
    assert list(got_grads) == list(want_grads)
    for name, want in want_grads.items():
        check_close(got_grads[name], want)
    for got, want in zip(tree.leaves(updated), tree.leaves(nn.load_torch(mine, state_of(theirs))), strict=True):
        check_close(got, want)


T = torch.nn
PLAIN = {
    "linear": (lambda: nn.Linear(5, 3, key=KEY), lambda: T.Linear(5, 3), (4, 5)),
    "linear without bias": (
        lambda: nn.Linear(5, 3, key=KEY, use_bias=False), lambda: T.Linear(5, 3, bias=False), (2, 3, 5),
    ),
    "conv1d": (lambda: nn.Conv(3, 4, 3, key=KEY, layout="NCW"), lambda: T.Conv1d(3, 4, 3), (2, 3, 9)),
    "conv2d": (
        lambda: nn.Conv(4, 6, (3, 2), key=KEY, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        lambda: T.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), (2, 4, 7, 8),
    ),
    "conv3d": (
        lambda: nn.Conv(2, 3, 2, key=KEY, layout="NCDHW", use_bias=False), lambda: T.Conv3d(2, 3, 2, bias=False), (1, 2, 4, 5, 3),
    ),
    "conv_transpose1d": (
        lambda: nn.ConvTranspose(3, 4, 3, key=KEY, layout="NCW", stride=2, padding=1, output_padding=1),
        lambda: T.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), (2, 3, 5),
    ),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose(4, 6, 3, key=KEY, stride=2, groups=2, dilation=2),
        lambda: T.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2), (2, 4, 4, 5),
    ),
    "conv_transpose3d": (
        lambda: nn.ConvTranspose(2, 3, 2, key=KEY, layout="NCDHW"), lambda: T.ConvTranspose3d(2, 3, 2), (1, 2, 3, 2, 3),
    ),
    "batch_norm1d": (lambda: nn.BatchNorm(3), lambda: T.BatchNorm1d(3), (6, 3)),
    "batch_norm2d": (
        lambda: nn.BatchNorm(3, momentum=0.7, eps=1e-3), lambda: T.BatchNorm2d(3, momentum=0.3, eps=1e-3), (4, 3, 5, 2),
    ),
    "batch_norm in inference": (lambda: nn.BatchNorm(3, inference=True), lambda: T.BatchNorm2d(3).eval(), (4, 3, 5, 2)),
    "batch_norm without scale": (
        lambda: nn.BatchNorm(3, use_scale=False, use_bias=False), lambda: T.BatchNorm2d(3, affine=False), (4, 3, 5, 2),
    ),
    "layer_norm": (lambda: nn.LayerNorm((4, 5)), lambda: T.LayerNorm((4, 5)), (3, 4, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), lambda: T.GroupNorm(2, 6), (3, 6, 4, 2)),
    "instance_norm": (
        lambda: nn.InstanceNorm(3, use_scale=True, use_bias=True), lambda: T.InstanceNorm2d(3, affine=True), (2, 3, 4, 5),
    ),
    "instance_norm plain": (lambda: nn.InstanceNorm(3), lambda: T.InstanceNorm1d(3), (2, 3, 6)),
    "rms_norm": (lambda: nn.RMSNorm(5), lambda: T.RMSNorm(5, eps=1e-6), (3, 5)),
    "rnn cell": (lambda: nn.RNNCell(3, 4, key=KEY), lambda: T.RNNCell(3, 4), (2, 3)),
    "lstm cell": (lambda: nn.LSTMCell(3, 4, key=KEY), lambda: T.LSTMCell(3, 4), (2, 3)),
    "gru cell": (lambda: nn.GRUCell(3, 4, key=KEY), lambda: T.GRUCell(3, 4), (2, 3)),
    "max_pool": (
        lambda: nn.MaxPool(3, stride=2, padding=1, ceil_mode=True), lambda: T.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 3, 8, 8),
    ),
    "avg_pool": (
        lambda: nn.AvgPool(3, stride=2, padding=1, count_include_pad=False),
        lambda: T.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 8, 8),
    ),
    "adaptive_avg_pool": (lambda: nn.AdaptiveAvgPool((3, 5)), lambda: T.AdaptiveAvgPool2d((3, 5)), (2, 3, 8, 9)),
    "mlp": (
        lambda: nn.MLP(3, 2, width=8, depth=2, key=KEY),
        lambda: T.ModuleDict({"layers": T.ModuleList([T.Linear(3, 8), T.Linear(8, 8), T.Linear(8, 2)])}), (4, 3),
    ),
    "sequential": (
        lambda: nn.Sequential(
            nn.Conv(3, 4, 3, key=KEY), nn.BatchNorm(4), nn.relu, nn.Flatten(), nn.Linear(64, 2, key=KEY), nn.Dropout(0.0)
        ),
        lambda: T.Sequential(T.Conv2d(3, 4, 3), T.BatchNorm2d(4), T.ReLU(), T.Flatten(), T.Linear(64, 2)), (5, 3, 6, 6),
    ),
}  # fmt: skip


def run_mlp(module: Any, x: Any) -> Any:
    if not isinstance(module, T.ModuleDict):
        return module(x)
    first, second, third = module["layers"]
    return third(torch.relu(second(torch.relu(first(x)))))


@pytest.mark.parametrize("name", PLAIN)
def test_layers_agree_with_pytorch(name: str) -> None:
    mine, theirs, shape = PLAIN[name]
    check_parity(mine(), theirs(), normal(*shape), torch_call=run_mlp)


def test_embedding_agrees_with_pytorch() -> None:
    ids = np.array([[1, 4, 1], [0, 2, 2]])
    theirs = T.Embedding(6, 3)
    check_parity(
        nn.Embedding(6, 3, key=KEY), theirs,
        call=lambda module: module(ids), torch_call=lambda module: module(torch.tensor(ids)),
    )  # fmt: skip


def packed(module: Any, x: Any, lengths: Any = None) -> Any:
    """PyTorch's outputs and last states, of padded sequences where lengths are given."""
    if lengths is None:
        return module(x)
    rows = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    out, state = module(rows)
    return torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0], state


def as_torch_states(out: Any, states: Any) -> Any:
    """nnc's states in PyTorch's order: all layers and directions stacked, hidden before cell."""
    flat = [state for layer in states for state in layer]
    if isinstance(flat[0], nn.LSTMState):
        return out, nnp.stack([s.hidden for s in flat]), nnp.stack([s.cell for s in flat])
    return out, nnp.stack(flat)


@pytest.mark.parametrize("lengths", [None, [5, 2, 3]], ids=["full", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_agree_with_pytorch(name: str, bidirectional: bool, lengths: Any) -> None:
    mine = getattr(nn, name)(3, 4, key=KEY, num_layers=2, bidirectional=bidirectional)
    theirs = getattr(T, name)(3, 4, num_layers=2, bidirectional=bidirectional, batch_first=True)
    given = None if lengths is None else np.array(lengths)
    check_parity(
        mine, theirs, normal(3, 5, 3),
        call=lambda module, x: as_torch_states(*module(x, lengths=given)),
        torch_call=lambda module, x: packed(module, x, lengths),
    )  # fmt: skip


def test_an_lstm_takes_the_states_that_it_starts_from() -> None:
    mine, theirs = nn.LSTM(3, 4, key=KEY), T.LSTM(3, 4, batch_first=True)
    check_parity(
        mine, theirs, normal(2, 5, 3), normal(2, 4, seed=1), normal(2, 4, seed=2),
        call=lambda module, x, h, c: as_torch_states(*module(x, (((h, c),),))),
        torch_call=lambda module, x, h, c: module(x, (h[None], c[None])),
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [{}, {"key_features": 5, "value_features": 7}], ids=["one size", "own sizes"])
def test_attention_agrees_with_pytorch(sizes: dict[str, int]) -> None:
    theirs = T.MultiheadAttention(
        8, 2, batch_first=True, kdim=sizes.get("key_features"), vdim=sizes.get("value_features")
    )
    mask = np.ones((3, 1, 4, 6), bool)
    mask[1, :, :, 4:] = mask[:, :, 2, :2] = False
    check_parity(
        nn.MultiHeadAttention(8, 2, key=KEY, **sizes), theirs,
        normal(3, 4, 8), normal(3, 6, sizes.get("key_features", 8), seed=1), normal(3, 6, sizes.get("value_features", 8), seed=2),
        call=lambda module, q, k, v: module(q, k, v, mask=mask),
        torch_call=lambda module, q, k, v: module(
            q, k, v, attn_mask=torch.tensor(~np.repeat(mask, 2, 1).reshape(6, 4, 6)), need_weights=False
        )[0],
    )  # fmt: skip


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers_agree_with_pytorch(norm_first: bool) -> None:
    causal = T.Transformer.generate_square_subsequent_mask(4)
    options: Any = {"batch_first": True, "norm_first": norm_first, "dropout": 0.0}
    check_parity(
        nn.TransformerEncoderLayer(8, 2, 16, key=KEY, norm_first=norm_first, activation=nn.models.exact_gelu),
        T.TransformerEncoderLayer(8, 2, 16, activation="gelu", **options), normal(3, 4, 8),
        call=lambda module, x: module(x, is_causal=True),
        torch_call=lambda module, x: module(x, src_mask=causal, is_causal=True),
    )  # fmt: skip
    check_parity(
        nn.TransformerDecoder(
            [nn.TransformerDecoderLayer(8, 2, 16, key=KEY, norm_first=norm_first) for _ in range(2)], nn.LayerNorm(8)
        ),
        T.TransformerDecoder(T.TransformerDecoderLayer(8, 2, 16, **options), 2, T.LayerNorm(8)),
        normal(3, 4, 8), normal(3, 6, 8, seed=1),
        call=lambda module, x, memory: module(x, memory, is_causal=True),
        torch_call=lambda module, x, memory: module(x, memory, tgt_mask=causal, tgt_is_causal=True),
    )  # fmt: skip
