"""`summary`: its rows against known facts of layers, without running anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ArgumentTypeError

KEY = nnc.random.key(0)
S = nnc.ShapeDtypeStruct


class Twice(nn.Module):
    """Calls one layer two times."""

    layer: nn.Linear

    def __call__(self, x: Any) -> Any:
        return self.layer(self.layer(x))


def test_rows_have_paths_shapes_parameters_and_work() -> None:
    model = nn.Sequential(
        nn.Linear(4, 8, key=KEY, use_bias=False), nn.BatchNorm(8), nn.Dropout(0.5), nn.Linear(8, 2, key=KEY)
    )
    found = nn.summary(model, S((3, 4), "float32"))
    assert [(row.path, row.kind, row.depth) for row in found.rows] == [
        ("", "Sequential", 0), ("layers.0", "Linear", 1), ("layers.1", "BatchNorm", 1), ("layers.2", "Dropout", 1),
        ("layers.3", "Linear", 1),
    ]  # fmt: skip
    assert [row.parameters for row in found.rows] == [66, 32, 16, 0, 18]
    assert [row.outputs[0].shape for row in found.rows] == [(3, 2), (3, 8), (3, 8), (3, 8), (3, 2)]
    assert found.rows[1].flops == 2 * 3 * 4 * 8
    assert found.flops == found.rows[0].flops >= sum(row.flops or 0 for row in found.rows[1:])
    assert found.parameters == 66
    assert "total: 66 parameters (264 B)" in str(found)


def test_flags_among_the_arguments_are_settings_and_shapes_are_no_inputs() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=KEY)
    assert nn.summary(layer, S((2, 5, 8), "float32"), is_causal=True).rows[0].outputs[0].shape == (2, 5, 8)
    with pytest.raises(ArgumentTypeError, match=r"input 0 is \(2, 8\), a shape(.|\n)*ShapeDtypeStruct\(\(2, 8\)"):
        nn.summary(nn.Linear(8, 2, key=KEY), (2, 8))


def test_a_layer_that_is_called_twice_has_two_rows_and_counts_once() -> None:
    found = nn.summary(Twice(nn.Linear(4, 4, key=KEY)), np.ones((2, 4), np.float32))
    assert [row.path for row in found.rows] == ["", "layer", "layer"]
    assert found.parameters == 20
    assert found.flops == 2 * (found.rows[1].flops or 0)


def test_abstract_models_and_limited_depth() -> None:
    model = nnc.eval_shape(lambda key: nn.models.resnet50(key=key), KEY)
    found = nn.summary(model, S((1, 3, 224, 224), "float32"), depth=1)
    assert [row.path for row in found.rows] == [
        "", "conv1", "bn1", "maxpool", "layer1", "layer2", "layer3", "layer4", "fc",
    ]  # fmt: skip
    assert found.parameters == 25_557_032
    assert 8.1e9 < found.flops < 8.45e9  # twice the 4.1e9 multiplications that are published, and moments of rows
    assert found.rows[1].outputs[0].shape == (1, 64, 112, 112)


def test_rounds_of_a_loop_count() -> None:
    short, long = (nn.summary(nn.LSTM(3, 4, key=KEY), S((2, t, 3), "float32")).flops for t in (10, 20))
    assert 1.9 < long / short < 2.1


def test_a_layer_within_a_loop_is_told_apart() -> None:
    class Looping(nn.Module):
        layer: nn.Linear

        def __call__(self, x: Any) -> Any:
            return nnc.fori_loop(0, 5, lambda i, x: self.layer(x), x)

    found = nn.summary(Looping(nn.Linear(4, 4, key=KEY)), S((2, 4), "float32"))
    assert found.rows[1].flops is None
    assert "in a loop" in str(found)


def test_a_function_has_no_layers() -> None:
    with pytest.raises(ArgumentTypeError, match=r"the model is a function(.|\n)*lower"):
        nn.summary(lambda x: x, np.ones(3))  # type: ignore[arg-type]
