"""Attention within segments of packed sequences: the same as each sequence by itself, forwards and backwards; memory; mistakes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.dtypes import BY_NAME
from nnc.errors import ArgumentError, DTypeError, ShapeError
from nnc.nn import attention

RNG = np.random.default_rng(0)
NEAR = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
QUERIES, KEYS = (9, 1, 0, 40, 13), (4, 2, 3, 70, 0)  # lengths of segments
OPTIONS: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"local_window_size": (3, 2)},
    {"is_causal": True, "local_window_size": 5},
]
# the kernel; ordinary commands, as where few queries share keys; in chunks
PATHS = [{}, {"few": True}, {"few": True, "chunk_size": 16}]


def ids(lengths: Any, padding: int = 0) -> Any:
    return np.concatenate([np.repeat(np.arange(len(lengths)) * 2, lengths), np.full(padding, -1)])


def cumulative(lengths: Any) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)])


def operands(queries: int, keys: int, name: str = "float64", lead: tuple[int, ...] = ()) -> list[Any]:
    shapes = ((*lead, queries, 4, 6), (*lead, keys, 2, 6), (*lead, keys, 2, 5))
    return [nnp.asarray(RNG.normal(size=shape), name) for shape in shapes]


def attend(path: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    if path.get("few"):
        monkeypatch.setattr(attention, "FEW", 10**9)
    options = {**options, **{name: x for name, x in path.items() if name != "few"}}
    return lambda q, k, v, **more: nn.dot_product_attention(q, k, v, **options, **more)


def expected(q: Any, k: Any, v: Any, queries: Any, keys: Any, **options: Any) -> Any:
    """Each segment by itself, in NumPy; 0 for padding."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    spans = [itertools.pairwise(cumulative(lengths)) for lengths in (queries, keys)]
    for (first, end), (begin, behind) in zip(*spans, strict=True):
        t, s = np.arange(end - first)[:, None], np.arange(behind - begin)
        allowed = np.ones((end - first, behind - begin), bool)
        if options.get("is_causal"):
            allowed &= s <= t
        if (window := options.get("local_window_size")) is not None:
            before, after = window if isinstance(window, tuple) else (window, window)
            allowed &= (t - s <= before) & (s - t <= after)
        scores = np.einsum("thd,shd->hts", q[first:end], k[begin:behind]) / np.sqrt(q.shape[-1])
        weights = np.where(allowed, np.exp(scores), 0)
        total = weights.sum(-1, keepdims=True)
        out[first:end] = np.einsum("hts,shd->thd", weights / np.where(total == 0, 1, total), v[begin:behind])
    return out


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NEAR)
def test_each_segment_is_attended_to_by_itself(
    name: str, options: dict[str, Any], path: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, near = attend(path, monkeypatch, **options), dict.fromkeys(("rtol", "atol"), NEAR[name])
    for queries, keys in ((QUERIES, QUERIES), (QUERIES, KEYS)):
        x = operands(sum(queries) + 3, sum(keys) + 2, name)
        want = expected(*x, queries, keys, **options)
        of_keys = ids(keys, 2), cumulative(keys)
        for i, which in enumerate(({"segment_ids": ids(queries, 3)}, {"cumulative_lengths": cumulative(queries)})):
            ((word, of_queries),) = which.items()
            for function in (run, nnc.compile(run)):
                got = function(*x, **{word: (of_queries, of_keys[i])})
                np.testing.assert_allclose(np.asarray(got, "f8"), want, **near)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_those_of_each_segment(
    options: dict[str, Any], path: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lengths = attend(path, monkeypatch, **options), (9, 1, 40, 13)
    x = operands(sum(lengths), sum(lengths))
    factors = RNG.normal(size=(sum(lengths), 4, 5))
    packed = nnc.grad(lambda *x: nnp.sum(run(*x, segment_ids=ids(lengths)) * factors), argnums=(0, 1, 2))
    found = [np.asarray(ct) for ct in packed(*x)]
    for begin, end in itertools.pairwise(cumulative(lengths)):
        alone = nnc.grad(lambda *x, at=slice(begin, end): nnp.sum(run(*x) * factors[at]), argnums=(0, 1, 2))
        for got, want in zip(found, alone(*(y[begin:end] for y in x)), strict=True):
            np.testing.assert_allclose(got[begin:end], np.asarray(want), atol=1e-11)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_gradients_in_shorter_dtypes(name: str) -> None:
    lengths = (9, 1, 40, 13)
    x = operands(63, 63, name)
    loss = lambda *x: nnp.sum(nn.dot_product_attention(*x, segment_ids=ids(lengths)).astype("float32") ** 2)
    found = nnc.compile(nnc.grad(loss, argnums=(0, 1, 2)))(*x)
    wide = nnc.grad(loss, argnums=(0, 1, 2))(*(nnp.asarray(y, "float32") for y in x))
    for got, want in zip(found, wide, strict=True):
        assert got.dtype == BY_NAME[name]
        np.testing.assert_allclose(np.asarray(got, "f8"), np.asarray(want, "f8"), rtol=0.05, atol=5 * NEAR[name])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("few", [False, True])
def test_derivatives_of_both_orders(few: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = attend({"few": few}, monkeypatch, **options)
    x = [np.asarray(y) for y in operands(20, 17)]
    segments = ids((5, 12, 1), 2), ids((4, 10, 0), 3)
    nnc.testing.check_grads(lambda *x: run(*x, segment_ids=segments), tuple(x), order=2)


def test_batches_have_segments_of_their_own_and_vmap_is_a_loop() -> None:
    q, k, v = operands(30, 30, lead=(3,))
    rows = np.stack([ids((10, 20)), ids((30,)), ids((7, 3, 15), 5)])
    run = lambda q, k, v, rows: nn.dot_product_attention(q, k, v, segment_ids=rows, is_causal=True)
    want = [np.asarray(run(*x)) for x in zip(q, k, v, rows, strict=True)]
    np.testing.assert_allclose(np.asarray(run(q, k, v, rows)), want, atol=1e-12)
    np.testing.assert_allclose(np.asarray(nnc.vmap(run)(q, k, v, rows)), want, atol=1e-12)
    shared = [np.asarray(run(*x, rows[0])) for x in zip(q, k, v, strict=True)]
    np.testing.assert_allclose(np.asarray(run(q, k, v, rows[0])), shared, atol=1e-12)
    np.testing.assert_allclose(np.asarray(nnc.vmap(run, in_axes=(0, 0, 0, None))(q, k, v, rows[0])), shared, atol=1e-12)
    lengths = np.stack([cumulative((10, 20)), cumulative((30, 0)), cumulative((7, 3))])
    run = lambda q, k, v, ends: nn.dot_product_attention(q, k, v, cumulative_lengths=ends)
    want = [np.asarray(run(*x)) for x in zip(q, k, v, lengths, strict=True)]
    np.testing.assert_allclose(np.asarray(run(q, k, v, lengths)), want, atol=1e-12)


def test_segments_go_with_biases_masks_lengths_and_dropout() -> None:
    x, segments = operands(30, 30), ids((10, 20))
    same = segments[:, None] == segments
    bias, mask = RNG.normal(size=(4, 30, 30)), RNG.random((30, 30)) > 0.3
    for options in (
        {"bias": bias},
        {"mask": mask},
        {"key_value_seq_lengths": np.asarray(25)},
        {"dropout_rate": 0.4, "dropout_key": nnc.random.key(1)},
        {"dropout_rate": 0.4, "dropout_key": nnc.random.key(1), "chunk_size": 7},
    ):
        got = nn.dot_product_attention(*x, segment_ids=segments, **options)
        want = nn.dot_product_attention(*x, **{**options, "mask": same & options.get("mask", True)})
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=1e-12)


def plan(tokens: int, function: Any) -> Any:
    x, segments = np.zeros((tokens, 2, 8), np.float32), np.zeros(tokens, np.int32)
    return nnc.compile(function).lower(x, x, x, segments).compile().memory_plan


@pytest.mark.parametrize("backwards", [False, True])
def test_memory_is_linear_in_the_number_of_tokens(backwards: bool) -> None:
    def function(q: Any, k: Any, v: Any, segments: Any) -> Any:
        run = lambda *x: nnp.sum(nn.dot_product_attention(*x, segment_ids=segments, is_causal=True))
        return nnc.grad(run, argnums=(0, 1, 2))(q, k, v) if backwards else run(q, k, v)

    small, double, large = (plan(tokens, function).peak for tokens in (512, 1024, 4096))
    assert double <= 2.02 * small and large <= 8.2 * small
    assert large < 4096 * 4096  # no array of scores of tokens by tokens, not even of bools


@pytest.mark.parametrize("path", PATHS)
def test_nan_and_infinities_reach_their_own_segment_alone(
    path: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, x = attend(path, monkeypatch), operands(40, 40, "float32")
    segments, own = ids((11, 9, 15), 5), slice(11, 20)
    loss = lambda *x: nnp.sum(run(*x, segment_ids=segments) ** 2)
    clean = np.asarray(run(*x, segment_ids=segments)), *map(np.asarray, nnc.grad(loss, argnums=(0, 1, 2))(*x))
    keep = np.ones(40, bool)
    keep[own] = False
    for operand, bad in itertools.product(range(3), (np.nan, np.inf, -np.inf)):
        spoiled = list(x)
        spoiled[operand] = x[operand].at[own].set(bad)
        found = run(*spoiled, segment_ids=segments), *nnc.compile(nnc.grad(loss, argnums=(0, 1, 2)))(*spoiled)
        # in chunks, weights of 0 times a cotangent that is NaN reach the gradients of the values
        for got, want in list(zip(found, clean, strict=True))[: 3 if path else 4]:
            np.testing.assert_allclose(np.asarray(got)[keep], want[keep], rtol=1e-5, atol=1e-6)


def test_padding_of_nan_is_as_good_as_any() -> None:
    x, segments = operands(40, 40, "float32"), ids((20, 15), 5)
    loss = lambda *x: nnp.sum(nn.dot_product_attention(*x, segment_ids=segments)[:35] ** 2)
    spoiled = [y.at[35:].set(np.nan) for y in x]
    for got, want in zip(*(nnc.grad(loss, argnums=(0, 1, 2))(*y) for y in (spoiled, x)), strict=True):
        np.testing.assert_allclose(np.asarray(got)[:35], np.asarray(want)[:35], rtol=1e-6)
    assert not np.asarray(nn.dot_product_attention(*spoiled, segment_ids=segments))[35:].any()


def test_numbers_out_of_order_that_are_not_known_make_everything_nan() -> None:
    x = operands(20, 20)
    run = nnc.compile(lambda x, segments: nn.dot_product_attention(*x, segment_ids=segments))
    assert np.isfinite(np.asarray(run(x, ids((5, 15))))).all()
    for wrong in (ids((5, 15))[::-1], np.where(np.arange(20) == 7, -1, 3)):
        assert np.isnan(np.asarray(run(x, wrong.copy()))).all()
    run = nnc.compile(lambda x, ends: nn.dot_product_attention(*x, cumulative_lengths=ends))
    assert np.isfinite(np.asarray(run(x, [0, 5, 20]))).all()
    for ends in ([0, 5, 21], [0, 5, 4], [1, 5, 20]):
        assert np.isnan(np.asarray(run(x, ends))).all()


def test_empty_sequences() -> None:
    for queries, keys in ((0, 4), (4, 0), (0, 0)):
        got = nn.dot_product_attention(
            *operands(queries, keys), segment_ids=(np.zeros(queries, int), np.zeros(keys, int))
        )
        assert got.shape == (queries, 4, 5) and not np.asarray(got).any()
        got = nn.dot_product_attention(*operands(queries, keys), cumulative_lengths=([0, queries], [0, keys]))
        assert got.shape == (queries, 4, 5) and not np.asarray(got).any()


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"segment_ids": [0] * 9 + [2, 1]}, ArgumentError, "segment_ids fall, or padding does not stand at the end"),
        ({"segment_ids": [0] * 9 + [-1, 0]}, ArgumentError, "segment_ids fall, or padding does not stand at the end"),
        ({"segment_ids": [0] * 10}, ShapeError, r"segment_ids have shape \(10,\), which does not broadcast to \(11,\)"),
        ({"segment_ids": [0.5] * 11}, DTypeError, "segment_ids hold float32, not integers"),
        ({"segment_ids": ([0] * 11, [0] * 12)}, ShapeError, "segment_ids have shape"),
        ({"segment_ids": 0}, ShapeError, "segment_ids have shape"),
        ({"cumulative_lengths": [0, 5, 12]}, ArgumentError, "must begin with 0, not fall, and end with 11 or less"),
        ({"cumulative_lengths": [1, 11]}, ArgumentError, "must begin with 0"),
        ({"cumulative_lengths": [0, 6, 5]}, ArgumentError, "must begin with 0"),
        ({"cumulative_lengths": np.zeros(0, int)}, ShapeError, "cumulative_lengths have shape"),
        ({"cumulative_lengths": 3}, ShapeError, "cumulative_lengths have shape"),
        ({"cumulative_lengths": [0, 11], "segment_ids": [0] * 11}, ArgumentError, "are both given"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        nn.dot_product_attention(*operands(11, 11), **options)


def test_layers_compute_packed_sequences_as_each_by_itself() -> None:
    keys, lengths, others = nnc.random.split(nnc.random.key(0), 2), (5, 11, 8), (3, 9, 7)
    x, memory = (RNG.normal(size=(sum(n), 8)).astype(np.float32) for n in (lengths, others))
    spans = [list(itertools.starmap(slice, itertools.pairwise(cumulative(n)))) for n in (lengths, others)]
    encoder = nn.TransformerEncoder([nn.TransformerEncoderLayer(8, 2, key=key) for key in keys])
    decoder = nn.TransformerDecoder([nn.TransformerDecoderLayer(8, 2, key=key) for key in keys])
    got = encoder(x, segment_ids=ids(lengths), is_causal=True)
    want = np.concatenate([np.asarray(encoder(x[at], is_causal=True)) for at in spans[0]])
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-5)
    got = decoder(x, memory, segment_ids=ids(lengths), memory_segment_ids=ids(others))
    want = np.concatenate([np.asarray(decoder(x[i], memory[j])) for i, j in zip(*spans, strict=True)])
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-5)
    with pytest.raises(ArgumentError, match="segments are given of x or of the memory alone"):
        decoder(x, memory, segment_ids=ids(lengths))
    layer = nn.MultiHeadAttention(8, 2, key=keys[0])
    with pytest.raises(ArgumentError, match="segment_ids and cache are both given"):
        layer(x, segment_ids=ids(lengths), cache=layer.make_cache((), 24))


def test_new_numbers_of_tokens_are_made_without_printing() -> None:
    def loss(q: Any, k: Any, v: Any, segments: Any) -> Any:
        return nnp.sum(nn.dot_product_attention(q, k, v, segment_ids=segments, is_causal=True) ** 2)

    slopes = nnc.compile(nnc.value_and_grad(loss, argnums=(0, 1, 2)), max_traces=20)
    for tokens in (100, 120, 140, 130, 150, 110, 131, 101):
        x, segments = operands(tokens, tokens), np.sort(RNG.integers(0, 5, tokens))
        found, wanted = (f(*x, segments) for f in (slopes, nnc.value_and_grad(loss, argnums=(0, 1, 2))))
        for got, want in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=1e-11)
    assert slopes.cache_info().families <= 2  # positions of the first size are constants
    assert "each new size" not in slopes.explain()
