"""PyTorch's names for the arrays of models: the names asked for, how arrays are cut, and the error if they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ShapeError, TreeError

KEY = nnc.random.key(0)


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_names_of_norms_and_recurrent_layers_and_places_in_sequences() -> None:
    model = {"net": nn.Sequential(nn.BatchNorm(2), nn.relu), "rnn": nn.GRU(2, 1, key=KEY, bidirectional=True)}
    state = {
        "net.0.weight": numbers(2), "net.0.bias": numbers(2), "net.0.running_mean": numbers(2) + 5,
        "net.0.running_var": numbers(2) + 7, "net.0.num_batches_tracked": np.asarray(3),
    }  # fmt: skip
    for i, end in enumerate(("", "_reverse")):
        state |= {f"rnn.weight_ih_l0{end}": numbers(3, 2) + i, f"rnn.weight_hh_l0{end}": numbers(3, 1)}
        state |= {f"rnn.bias_ih_l0{end}": numbers(3), f"rnn.bias_hh_l0{end}": numbers(3)}
    loaded = nn.load_torch(model, state)
    np.testing.assert_array_equal(np.asarray(loaded["net"][0].mean), [5, 6])
    np.testing.assert_array_equal(np.asarray(loaded["net"][0].variance), [7, 8])
    np.testing.assert_array_equal(np.asarray(loaded["rnn"].layers[0][1].weight_ih), numbers(3, 2) + 1)


def test_projections_of_attention_are_thirds_of_one_array() -> None:
    state = {
        "in_proj_weight": numbers(12, 4), "in_proj_bias": numbers(12),
        "out_proj.weight": numbers(4, 4), "out_proj.bias": numbers(4),
    }  # fmt: skip
    loaded = nn.load_torch(nn.MultiHeadAttention(4, 2, key=KEY), state)
    np.testing.assert_array_equal(np.asarray(loaded.v_proj.weight), state["in_proj_weight"][8:])
    np.testing.assert_array_equal(np.asarray(loaded.k_proj.bias), [4, 5, 6, 7])


def test_a_source_that_goes_on_changing_does_not_change_the_model() -> None:
    state = {"weight": numbers(1, 2), "bias": nnc.asarray(numbers(1))}
    loaded = nn.load_torch(nn.Linear(2, 1, key=KEY), state)
    state["weight"] += 5
    np.testing.assert_array_equal(np.asarray(loaded.weight), [[0, 1]])
    assert np.shares_memory(np.asarray(loaded.bias), np.asarray(state["bias"]))


def test_names_may_be_rewritten() -> None:
    state = {"fc.kernel": numbers(1, 2), "fc.bias": numbers(1)}
    model = {"head": nn.Linear(2, 1, key=KEY)}
    loaded = nn.load_torch(model, state, rename=lambda name: {"head.weight": "fc.kernel"}.get(name, "fc.bias"))
    np.testing.assert_array_equal(np.asarray(loaded["head"].weight), [[0, 1]])


def test_names_that_do_not_fit_are_listed() -> None:
    model = nn.Sequential(nn.Linear(2, 1, key=KEY))
    with pytest.raises(TreeError, match=r"0\.bias: missing, for layers\.0\.bias(.|\n)*1\.bias: left over"):
        nn.load_torch(model, {"0.weight": numbers(1, 2), "1.bias": numbers(1)})
    with pytest.raises(ShapeError, match=r"layers\.0\.weight is float32\[1,2\], the new value is float32\[2,2\]"):
        nn.load_torch(model, {"0.weight": numbers(2, 2), "0.bias": numbers(1)})
