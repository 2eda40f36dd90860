"""Attention: its command, and in chunks: the same values as at once, memory linear in the number of keys, dropout; mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base import dtypes
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, OutOfBoundsError, ShapeError
from nnc.nn import attention

RNG = np.random.default_rng(0)
Q, K, V = RNG.normal(size=(2, 7, 4, 5)), RNG.normal(size=(2, 11, 2, 5)), RNG.normal(size=(2, 11, 2, 5))
BIAS, MASK = RNG.normal(size=(4, 7, 11)), RNG.random((2, 1, 7, 11)) > 0.4


@pytest.mark.parametrize("chunk_size", [1, 4, 5, 11])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"mask": MASK},
        {"mask": MASK[:, :, :1], "bias": BIAS, "is_causal": True},
        {"bias": BIAS[:1, :, :1]},
        {"mask": MASK[..., :1], "scale": 0.1},
        {"local_window_size": (2, 1), "key_value_seq_lengths": np.array([5, 11])},
        {"is_causal": True, "local_window_size": 3, "query_seq_lengths": np.array([7, 4])},
    ],
)
def test_chunks_change_neither_values_nor_gradients(chunk_size: int, options: dict[str, Any]) -> None:
    def run(size: int | None) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            out = nn.dot_product_attention(q, k, v, **options, chunk_size=size)
            return nnp.sum(out**2), out

        return nnc.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(Q, K, V)

    for got, want in zip(nnc.tree.leaves(run(chunk_size)), nnc.tree.leaves(run(None)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9, atol=1e-11)


def test_lengths_and_windows_are_masks() -> None:
    query, key = np.arange(7)[:, None], np.arange(11)
    lengths = np.array([5, 11])
    options: dict[str, Any] = {"key_value_seq_lengths": lengths, "query_seq_lengths": np.array([7, 3])}
    mask = (key < lengths[:, None, None, None]) & (query < np.array([7, 3])[:, None, None, None])
    mask = mask & (query - key <= 4) & (key - query <= 2)
    out = nn.dot_product_attention(Q, K, V, local_window_size=(4, 2), **options)
    np.testing.assert_allclose(np.asarray(out), np.asarray(nn.dot_product_attention(Q, K, V, mask=mask)), atol=1e-12)
    assert not np.asarray(out)[1, 3:].any()


def test_a_bias_gets_its_gradient_through_chunks() -> None:
    loss = lambda size: lambda b: nnp.sum(nn.dot_product_attention(Q, K, V, b, chunk_size=size) ** 2)
    for bias in (BIAS, BIAS[:, :, :1], BIAS[:1, :1]):
        np.testing.assert_allclose(
            np.asarray(nnc.grad(loss(4))(bias)), np.asarray(nnc.grad(loss(None))(bias)), atol=1e-11
        )


def _arena(keys: int, dropout_rate: float) -> int:
    """Bytes that the compiled gradient of attention among `keys` tokens plans for."""
    x, draw = np.zeros((keys, 2, 8), np.float32), nnc.random.key(0)
    options: dict[str, Any] = {"dropout_rate": dropout_rate, "dropout_key": draw, "chunk_size": 64}
    loss = lambda q, k, v: nnp.sum(nn.dot_product_attention(q, k, v, is_causal=True, **options))
    return int(nnc.compile(nnc.grad(loss, argnums=(0, 1, 2))).lower(x, x, x).compile().memory_plan.peak)


@pytest.mark.parametrize("dropout_rate", [0.0, 0.1])
def test_the_memory_of_its_gradient_is_linear_in_the_number_of_tokens(dropout_rate: float) -> None:
    small, double, large = (_arena(keys, dropout_rate) for keys in (512, 1024, 4096))
    assert double <= 2.02 * small and large <= 8.2 * small
    assert large < 4096 * 4096 * 4  # one array of scores for one head


def test_the_reverse_pass_keeps_nothing_of_a_chunk() -> None:
    x = RNG.normal(size=(256, 1, 4)).astype(np.float32)
    with nnc.debug.tape_memory() as memory:
        nnc.grad(lambda x: nnp.sum(nn.dot_product_attention(x, x, x, chunk_size=32)))(x)
    assert memory.peak == 0


def test_scores_may_be_large_and_masked_rows_empty_in_chunks() -> None:
    q = np.full((8, 1, 4), 300.0, np.float32)
    mask = np.tri(8, 8, -1, dtype=bool)  # the first query may attend to nothing
    loss = lambda q: nnp.sum(nn.dot_product_attention(q, q, q, mask=mask, chunk_size=3) ** 2)
    value, gradient = nnc.value_and_grad(loss)(q)
    np.testing.assert_allclose(float(value), 7 * 4 * 300.0**2, rtol=1e-6)
    assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_dropout_drops_weights_and_keeps_their_mean(chunk_size: int | None) -> None:
    q, k, v = np.zeros((2000, 1, 2)), np.zeros((10, 1, 2)), np.ones((10, 1, 1)) * np.arange(10.0)[:, None, None]
    draw = lambda seed: nn.dot_product_attention(
        q, k, np.repeat(v, 2, -1), dropout_rate=0.5, dropout_key=nnc.random.key(seed), chunk_size=chunk_size
    )
    out = np.asarray(draw(0))
    np.testing.assert_allclose(out.mean(), 4.5, rtol=0.02)
    assert out.std() > 1
    np.testing.assert_array_equal(out, np.asarray(draw(0)))
    assert not np.array_equal(out, np.asarray(draw(1)))


def test_dropout_in_chunks_is_drawn_once_for_value_and_gradient() -> None:
    options = {"dropout_rate": 0.3, "dropout_key": nnc.random.key(3), "chunk_size": 4}
    nnc.testing.check_grads(lambda q, k, v: nn.dot_product_attention(q, k, v, **options), (Q, K, V), order=1)


# -- the command -------------------------------------------------------------------------------------------------------

MANY = RNG.normal(size=(2, 18, 4, 5)), RNG.normal(size=(2, 21, 2, 5)), RNG.normal(size=(2, 21, 2, 3))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"mask": RNG.random((2, 1, 18, 21)) > 0.4, "scale": 0.7},
    {"mask": RNG.random((18, 21)) > 0.9, "is_causal": True},
    {"bias": RNG.normal(size=(4, 18, 1)), "local_window_size": (2, 5)},
    {"key_value_seq_lengths": np.array([5, 21]), "query_seq_lengths": np.array([18, 3]), "local_window_size": 4},
]


def _plain(q: Any, k: Any, v: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Attention of ordinary commands."""
    with monkeypatch.context() as patch:
        patch.setattr(attention, "FEW", 10**9)
        return nn.dot_product_attention(q, k, v, **options)


def _names(function: Any, *args: Any) -> list[str]:
    return [node.command.name for node in nnc.make_graph(function)(*args).nodes]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_command_agrees_with_ordinary_commands(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    call = lambda q, k, v: nn.dot_product_attention(q, k, v, **options)
    plain = lambda q, k, v: _plain(q, k, v, options, monkeypatch)
    results = []
    for f in (plain, call):
        loss = lambda q, k, v, f=f: nnp.sum(f(q, k, v) ** 2)
        tangent = lambda q, k, v, f=f: nnc.jvp(f, (q, k, v), (v[:, :18].sum() + q, 0.5 * k, 2 * v))
        for way in (lambda g: g, nnc.compile):
            functions = (f, nnc.grad(loss, argnums=(0, 1, 2)), tangent)
            results.append(nnc.tree.leaves([way(g)(*MANY) for g in functions]))
    for found in results[1:]:
        for got, want in zip(found, results[0], strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9, atol=1e-11)
    assert "attention" in _names(call, *MANY) and "attention" not in _names(plain, *MANY)


@pytest.mark.parametrize("shape", [(2, 1, 9), (1, 16, 9)])
def test_derivatives_of_both_orders_are_those_of_finite_differences(shape: tuple[int, ...]) -> None:
    q, k, v = RNG.normal(size=(16, 2, 3)), RNG.normal(size=(9, 1, 3)), RNG.normal(size=(9, 1, 2))
    bias, mask = RNG.normal(size=shape), RNG.random((16, 9)) > 0.3
    f = lambda q, k, v, bias: nn.dot_product_attention(q, k, v, bias, mask, local_window_size=(12, 6))
    nnc.testing.check_grads(f, (q, k, v, bias), order=2)


def test_rows_of_a_batch_are_calls() -> None:
    q, k, v = (RNG.normal(size=(3, 17, 2, 4)) for _ in range(3))
    mask, bias = RNG.random((3, 1, 17, 17)) > 0.3, RNG.normal(size=(2, 17, 17))

    def loss(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        return nnp.sum(nn.dot_product_attention(q, k, v, bias, mask, is_causal=True) ** 2)

    gradient = nnc.value_and_grad(loss, argnums=(0, 1, 2, 4))
    rows = [gradient(q[i], k[0], v[i], mask[i], bias) for i in range(3)]
    batched = nnc.vmap(gradient, in_axes=(0, None, 0, 0, None))(q, k[0], v, mask, bias)
    for i, row in enumerate(rows):
        for got, want in zip(nnc.tree.leaves(batched), nnc.tree.leaves(row), strict=True):
            np.testing.assert_allclose(np.asarray(got)[i], np.asarray(want), rtol=1e-10, atol=1e-12)


def test_a_dynamic_graph_differentiates_it() -> None:
    g = nnc.DynamicGraph()
    q, k, v = (g.variable(x) for x in MANY)
    g.backward(nnp.sum(nn.dot_product_attention(q, k, v, is_causal=True) ** 2))
    wanted = nnc.grad(
        lambda q, k, v: nnp.sum(nn.dot_product_attention(q, k, v, is_causal=True) ** 2), argnums=(0, 1, 2)
    )(*MANY)
    for variable, want in zip((q, k, v), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(variable.grad), np.asarray(want), rtol=1e-10)


def test_the_scale_may_be_learned() -> None:
    f = lambda scale: nnp.sum(nn.dot_product_attention(*MANY, scale=scale) ** 2)
    nnc.testing.check_grads(f, (np.float64(0.6),), order=1)
    np.testing.assert_allclose(float(f(np.float64(0.6))), float(f(0.6)), rtol=1e-12)


def test_the_gradient_of_a_compiled_model_is_one_command_and_keeps_no_scores() -> None:
    x = np.zeros((2, 128, 4, 16), np.float32)
    f = lambda x: nnp.sum(nn.dot_product_attention(x, x, x))
    assert _names(nnc.grad(f), x).count("attention_gradient") == 1
    assert nnc.compile(nnc.grad(f)).lower(x).compile().memory_plan.peak < 2 * 4 * 128 * 128 * 4


def test_a_transformer_has_the_values_and_gradients_of_ordinary_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, key=nnc.random.key(1), dropout_rate=0.0)
    x = RNG.normal(size=(2, 24, 16)).astype(np.float32)
    run = lambda: nnc.value_and_grad(lambda m, x: nnp.sum(m(x) ** 2), argnums=(0, 1))(layer, x)
    fused = run()
    monkeypatch.setattr(attention, "FEW", 10**9)
    for got, want in zip(nnc.tree.leaves(fused), nnc.tree.leaves(run()), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-4, atol=2e-4)


def test_no_keys_and_no_queries_are_ordinary() -> None:
    np.testing.assert_array_equal(np.asarray(nn.dot_product_attention(Q, K[:, :0], V[:, :0])), np.zeros(Q.shape))
    assert nn.dot_product_attention(Q[:, :0], K, V).shape == (2, 0, 4, 5)
    assert nn.dot_product_attention(Q[:0], K[:0], V[:0], chunk_size=4).shape == (0, 7, 4, 5)


@pytest.mark.parametrize("queries", [0, 2])
def test_the_gradient_of_a_bias_of_no_keys_is_empty(queries: int) -> None:
    q, k = np.ones((queries, 1, 1), np.float32), np.ones((0, 1, 1), np.float32)
    bias = np.ones((1, 1, 0), np.float32)

    def loss(q: Any, k: Any, bias: Any) -> Any:
        return nnp.sum(attention.attention(q, k, k, bias, scale=1.0, reach=(None, None), biased=True)[0])

    for found, x in zip(nnc.compile(nnc.grad(loss, (0, 1, 2)))(q, k, bias), (q, k, bias), strict=True):
        np.testing.assert_array_equal(found, np.zeros_like(x))


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="chunk_size=0 is not positive"):
        nn.dot_product_attention(Q, K, V, chunk_size=0)
    with pytest.raises(ShapeError, match=r"mask has shape \(7, 10\), which does not broadcast"):
        nn.dot_product_attention(Q, K, V, mask=np.ones((7, 10), bool))
    with pytest.raises(ShapeError, match=r"key_value_seq_lengths must be integers of shape \(2,\)"):
        nn.dot_product_attention(Q, K, V, key_value_seq_lengths=3)
    with pytest.raises(OutOfBoundsError, match="key_value_seq_lengths hold 99, sequences have 0 to "):
        nn.dot_product_attention(Q, K, V, key_value_seq_lengths=np.array([99, 1]))
    with pytest.raises(DTypeError, match="mask holds float64, not bools(.|\n)*are a bias"):
        nn.dot_product_attention(Q, K, V, mask=np.where(MASK, 0, -np.inf))
    with pytest.raises(ArgumentError, match="there is no key"):
        nn.dot_product_attention(Q, K, V, dropout_rate=0.1)
    with pytest.raises(ArgumentTypeError, match="Fix: write dropout_rate="):
        nn.dot_product_attention(Q, K, V, dropout_p=0.1)


# Settings that must not make memory grow with the product of the numbers of queries and keys, and depend on both.
LINEAR: dict[str, dict[str, Any]] = {
    "all": {},
    "causal, half as many keys, heads in groups": {"keys": 0.5, "own": 1, "options": {"is_causal": True}},
    "bias of keys, odd sizes": {"odd": 1, "bias": lambda t, s: (2, 1, s)},
    "bias of queries, mask of keys": {"bias": lambda t, s: (2, t, 1), "mask": lambda t, s: (1, 1, s)},
    "float64, a window": {"dtype": "float64", "options": {"local_window_size": 40}},
    "bfloat16, lengths": {"dtype": "bfloat16", "options": {"key_value_seq_lengths": np.array([100])}},
}


def _peak(setting: dict[str, Any], mode: str, count: int) -> int:
    """Bytes that a compiled pass plans for, among so many queries."""
    t, s = count + setting.get("odd", 0), int(count * setting.get("keys", 1)) + setting.get("odd", 0)
    dtype = dtypes.BY_NAME[setting.get("dtype", "float32")]
    q, k = np.zeros((1, t, 2, 16), dtype), np.zeros((1, s, setting.get("own", 2), 16), dtype)
    bias = [np.zeros(setting["bias"](t, s), dtype)] if "bias" in setting else []
    mask = np.ones(setting["mask"](t, s), bool) if "mask" in setting else None
    call = lambda q, k, v, *bias: nn.dot_product_attention(q, k, v, *bias, mask=mask, **setting.get("options", {}))
    x = (q, k, k, *bias)
    passes = {
        "forward": call,
        "backward": nnc.grad(lambda *x: nnp.sum(call(*x)), argnums=tuple(range(len(x)))),
        "tangent": lambda *x: nnc.jvp(call, x, x),
    }
    compiled = nnc.compile(passes[mode]).lower(*x).compile()
    steps = [line for line in compiled.as_text().splitlines() if " = attention" in line]
    assert steps and all("[cpu]" in line for line in steps)
    return int(compiled.memory_plan.peak)


@pytest.mark.parametrize(
    ("name", "mode"), [("all", "forward"), *((name, mode) for name in LINEAR for mode in ("backward", "tangent"))]
)
def test_memory_is_linear_in_the_number_of_tokens(name: str, mode: str) -> None:
    small, double, large = (_peak(LINEAR[name], mode, count) for count in (128, 256, 512))
    assert double <= 2.05 * small and large <= 4.1 * small
    assert large < 2 * 512 * 512 * 4  # bytes of both heads' scores
