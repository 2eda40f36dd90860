"""Attention gives the results of the standard's own definition, which runs by other operators, and takes linear memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper

import nnc
from nnc.onnx.operators.table import OPERATORS
from tests.sampling import sampled
from tests.unit.onnx.models import FLOAT, model

NAMES = ("q", "k", "v", "mask", "past_k", "past_v", "lengths")
T, S, PAST = 5, 6, 3


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(feeds: dict[str, Any], outputs: int, version: int, **attributes: Any) -> bytes:
    inputs = [name if name in feeds else "" for name in NAMES]
    while not inputs[-1]:
        inputs.pop()
    names = ["y", "new_k", "new_v", "scores"]
    made = names[:outputs] if outputs < 4 or "past_k" in feeds else ["y", "", "", "scores"]
    node = helper.make_node("Attention", inputs, made, **attributes)
    declared = {
        name: (helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)) for name, value in feeds.items()
    }
    return model([node], declared, {name: (FLOAT, None) for name in made if name}, opset=version)


def check(feeds: dict[str, Any], outputs: int = 1, version: int = 25, **attributes: Any) -> None:
    data = model_of(feeds, outputs, version, **attributes)
    found = nnc.onnx.load(data)(feeds)
    rows = OPERATORS.pop(("", "Attention"))
    try:
        wanted = nnc.onnx.load(data)(feeds)
    finally:
        OPERATORS["", "Attention"] = rows
    for value, other in zip(found, wanted, strict=True):
        assert value.dtype == other.dtype
        np.testing.assert_allclose(value, other, rtol=2e-5, atol=2e-6)


MASKS = {
    "none": None, "bools": np.random.default_rng(3).random((1, 1, T, S + PAST)) > 0.3, "numbers": draw(T, S + PAST, seed=4),
    "infinities": np.where(np.random.default_rng(5).random((2, 1, T, S + PAST)) > 0.4, np.float32(0.5), np.float32(-np.inf)),
    "no key at all": np.zeros((T, S + PAST), bool), "fewer keys": np.ones((T, S - 1), bool),
}  # fmt: skip


WINDOWS = [(0, -1, -1), (1, -1, -1), (0, 2, 1), (1, 1, -1), (0, 4, -1)]
CASES = [(mask, *window, cache) for mask in MASKS for window in WINDOWS for cache in ("none", "past", "lengths")]


@pytest.mark.parametrize(("mask", "is_causal", "left", "right", "cache"), sampled(CASES, 15))
def test_masks_windows_and_caches(mask: str, is_causal: int, left: int, right: int, cache: str) -> None:
    feeds = {"q": draw(2, 4, T, 8), "k": draw(2, 2, S, 8, seed=1), "v": draw(2, 2, S, 8, seed=2)}
    keys = S
    if cache == "past":
        feeds |= {"past_k": draw(2, 2, PAST, 8, seed=6), "past_v": draw(2, 2, PAST, 8, seed=7)}
        keys += PAST
    elif cache == "lengths":
        feeds["lengths"] = np.array([4, 6])
    if MASKS[mask] is not None:
        feeds["mask"] = np.ascontiguousarray(MASKS[mask][..., :keys])
    check(feeds, 3 if cache == "past" else 1, is_causal=is_causal, left_window_size=left, right_window_size=right)


@pytest.mark.parametrize(("mode", "softcap"), list(itertools.product(range(4), [0.0, 1.5])))
def test_scores_of_each_stage(mode: int, softcap: float) -> None:
    feeds = {
        "q": draw(2, T, 4 * 8),
        "k": draw(2, S, 2 * 8, seed=1),
        "v": draw(2, S, 2 * 6, seed=2),
        "mask": MASKS["numbers"][:, :S],
    }
    more = {"softcap": softcap, "q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3, "is_causal": 1}
    check(feeds, 4, 24, qk_matmul_output_mode=mode, **more)


@pytest.mark.parametrize("is_causal", [0, 1])
def test_no_array_of_all_scores_is_made(is_causal: int) -> None:
    count = 1024
    feeds = {name: draw(1, 2, count, 16, seed=seed) for seed, name in enumerate("qkv")}
    f = nnc.onnx.load(model_of(feeds, 1, 24, is_causal=is_causal))
    graph = nnc.make_graph(lambda *operands: f(dict(zip("qkv", operands, strict=True))))(*feeds.values())
    sizes = [symbol.spec.nbytes for node in graph.nodes for symbol in node.outputs]
    assert max(sizes) < 4 * count * count
