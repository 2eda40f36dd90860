"""Mistakes with layers, losses, optimizers and model files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nnc
import nnc.io
import nnc.nn
import nnc.numpy as nnp
import nnc.random
from nnc.errors import ArgumentError, ArgumentTypeError, MissingNameError, OutOfBoundsError, ShapeError, TreeError
from tests.errors.reports import reports


def test_convolving_with_another_number_of_channels() -> None:
    x, w = nnp.ones((1, 3, 8, 8)), nnp.ones((16, 4, 3, 3))
    with reports(ShapeError, "conv", "float32[1,3,8,8]", "float32[16,4,3,3]", "3", "4"):
        nnc.nn.conv(x, w)


def test_convolving_with_a_kernel_larger_than_the_image() -> None:
    x, w = nnp.ones((1, 3, 4, 4)), nnp.ones((16, 3, 5, 5))
    with reports(ShapeError, "conv", "float32[1,3,4,4]", "float32[16,3,5,5]"):
        nnc.nn.conv(x, w)


def test_cutting_more_off_a_transposed_convolution_than_it_has() -> None:
    with reports(ShapeError, "conv_transpose", "padding (3, 3) cuts 6 elements off spatial axis 0", "which has 2"):
        nnc.nn.conv_transpose(nnp.ones((1, 1, 2)), nnp.ones((1, 1, 1)), padding=3)
    with reports(ArgumentError, "conv_transpose", "(-1, 0)", "spatial axis 1"):
        nnc.nn.conv_transpose(nnp.ones((1, 1, 2, 2)), nnp.ones((1, 1, 1, 1)), padding=((0, 0), (-1, 0)))
    with reports(ShapeError, "conv_transpose", "spatial axis 0 of the input is empty"):
        nnc.nn.conv_transpose(nnp.ones((1, 1, 0)), nnp.ones((1, 1, 1)))


def test_pooling_with_a_window_of_another_rank() -> None:
    x = nnp.ones((3, 4))
    with reports(ShapeError, "max_pool", "float32[3,4]"):
        nnc.nn.max_pool(x, (2, 2))


def test_windows_of_an_input_without_spatial_axes() -> None:
    for function in (nnc.nn.max_pool, nnc.nn.lp_pool, nnc.nn.upsample):
        for shape in ((3, 4), (4,), ()):
            with reports(
                ShapeError, function.__name__, f"the input has {len(shape)} axes, none of which is a spatial one"
            ):
                function(nnp.ones(shape), 2)


def test_softmax_over_the_axis_in_pytorch_spelling() -> None:
    with reports(ArgumentTypeError, "softmax", "dim", "axis"):
        nnc.nn.softmax(nnp.ones((2, 3)), dim=1)


def test_the_learning_rate_in_pytorch_spelling() -> None:
    with reports(ArgumentTypeError, "adam", "lr", "learning_rate"):
        nnc.optim.adam(lr=1e-3)


def test_the_decay_rates_in_pytorch_spelling() -> None:
    with reports(ArgumentTypeError, "adam", "betas", "b1"):
        nnc.optim.adam(1e-3, betas=(0.9, 0.999))


def test_updates_of_another_structure_than_the_parameters() -> None:
    params, updates = {"w": nnp.ones(2), "b": nnp.ones(1)}, {"w": nnp.ones(2)}
    with reports(TreeError, "apply_updates", '["b"]', "float32[1]"):
        nnc.optim.apply_updates(params, updates)


def test_gradients_of_another_structure_than_the_state() -> None:
    optimizer = nnc.optim.adam(1e-3)
    state = optimizer.init({"w": nnp.ones(2), "b": nnp.ones(1)})
    with reports(TreeError, "adam", '["b"]'):
        optimizer.update({"w": nnp.ones(2)}, state)


def test_a_layer_fed_with_another_number_of_features() -> None:
    layer = nnc.nn.Linear(4, 2, key=nnc.random.key(0))
    with reports(ShapeError, "float32[3,5]", "5", "4"):
        layer(nnp.ones((3, 5)))


def test_setting_a_field_of_a_module() -> None:
    layer = nnc.nn.Linear(4, 2, key=nnc.random.key(0))
    with reports(ArgumentTypeError, "Linear", "weight", "immutable", "replace"):
        layer.weight = nnp.ones((4, 2))


def test_loading_a_model_file_into_another_structure(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nnc.io.save(path, {"w": nnp.ones(2)})
    with reports(TreeError, "load", "b: missing in the file", "float32[1]"):
        nnc.io.load(path, like={"w": nnp.ones(2), "b": nnp.ones(1)})


def test_loading_a_model_file_into_another_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nnc.io.save(path, {"w": nnp.ones(2)})
    with reports(TreeError, "load", "w: float32[2] in the file", "float32[3]"):
        nnc.io.load(path, like={"w": nnp.ones(3)})


def test_a_name_of_another_library() -> None:
    with reports(MissingNameError, "nnc.nn", "scaled_dot_product_attention", "use nnc.nn.dot_product_attention"):
        nnc.nn.scaled_dot_product_attention  # noqa: B018


def test_images_enlarged_by_a_factor_in_pytorch_spelling() -> None:
    with reports(ArgumentTypeError, "upsample", "scale_factor", "scale="):
        nnc.nn.upsample(nnp.ones((1, 1, 4, 4)), scale_factor=2)


def test_labels_that_are_no_class() -> None:
    with reports(OutOfBoundsError, "5", "3"):
        nnc.nn.softmax_cross_entropy(nnp.ones((2, 3)), nnp.asarray([0, 5]))


def test_a_pool_whose_windows_do_not_move_or_do_not_fit() -> None:
    x = nnp.ones((2, 3, 8, 8), "float32")
    with reports(ArgumentError, "avg_pool: stride (0, 0)", "float32[2,3,8,8]"):
        nnc.nn.avg_pool(x, 2, stride=0)
    with reports(ShapeError, "lp_pool", "the window covers 9 elements", "has 8"):
        nnc.nn.lp_pool(x, 9)


def test_an_attention_window_of_fewer_than_no_keys() -> None:
    q = nnp.ones((2, 5, 2, 8), "float32")
    for size in (-1, (1, -2), (1, 2, 3), 2.5):
        with reports(ArgumentError, f"local_window_size={size!r}", "0 or more"):
            nnc.nn.dot_product_attention(q, q, q, local_window_size=size)  # type: ignore[arg-type]
    near = nnc.nn.dot_product_attention(q, q, q, local_window_size=np.int64(1))  # type: ignore[arg-type]
    assert near.shape == q.shape


def test_an_optimizer_without_parameters_is_told_of_init_and_update() -> None:
    with reports(ArgumentTypeError, "it reads the parameters", "optimizer.init(params)"):
        nnc.optim.adam(0.1).init(None)
