"""Exported functions are accepted by the checker, give the same in onnxruntime, and are the same when they are loaded again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.errors import ArgumentError, UnsupportedError

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def run(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def in_pairs(array: Any) -> np.ndarray[Any, Any]:
    """An array as ONNX has it: a complex one with its parts along a last axis."""
    array = np.asarray(array)
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array


def check(fun: Callable[..., Any], *args: Any, tolerance: float = 2e-5, **settings: Any) -> bytes:
    data = nnc.onnx.export(fun, args, **settings)
    onnx.checker.check_model(data, full_check=True)
    model = nnc.onnx.load(data)
    compare(data, model, fun, args, tolerance)
    return data


def compare(data: bytes, model: Any, fun: Callable[..., Any], args: Any, tolerance: float) -> None:
    leaves = [in_pairs(leaf) for leaf in nnc.tree.leaves(args)]
    feeds = dict(zip((value.name for value in model.inputs), leaves, strict=True))
    wanted = [in_pairs(leaf) for leaf in nnc.tree.leaves(nnc.compile(fun)(*args))]
    for found in (run(data, feeds), model(feeds)):
        for value, other in zip(found, wanted, strict=True):
            assert np.asarray(value).dtype == other.dtype
            np.testing.assert_allclose(value, other, rtol=tolerance, atol=tolerance)


PARAMS = [(draw(8, 16), draw(16)), (draw(16, 4), draw(4))]
LABELS = np.eye(4, dtype=np.float32)[np.arange(5) % 4]
ADAM = optim.adam(1e-2)


def mlp(params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = nnp.tanh(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


def loss(params: Any, x: Any, y: Any) -> Any:
    return nn.softmax_cross_entropy(mlp(params, x), y).mean()


def step(params: Any, state: Any, x: Any, y: Any) -> Any:
    value, gradient = nnc.value_and_grad(loss)(params, x, y)
    updates, state = ADAM.update(gradient, state, params)
    return optim.apply_updates(params, updates), state, value


def conv_loss(x: Any, w: Any) -> Any:
    return nnp.sum(nn.relu(nn.conv(x, w, stride=2, padding=1)) ** 2)


def pools(x: Any) -> Any:
    return nnp.sum(nn.max_pool(x, 2) ** 2) + nnp.sum(nn.avg_pool(x, 3, stride=2, padding=1) ** 2)


def recurrence(w: Any, x: Any) -> Any:
    return nnc.scan(lambda c, t: (nnp.tanh(t @ w + c), c * 2), nnp.zeros((3, 8)), x)


def newton(a: Any) -> Any:
    return nnc.while_loop(lambda c: nnp.abs(c * c - a) > 1e-4, lambda c: (c + a / c) / 2, a)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (PARAMS, draw(5, 8))),
    "its gradient": (nnc.grad(loss), (PARAMS, draw(5, 8), LABELS)),
    "its training step": (step, (PARAMS, ADAM.init(PARAMS), draw(5, 8), LABELS)),
    "gradient of a convolution": (nnc.grad(conv_loss, argnums=(0, 1)), (draw(2, 3, 9, 9), draw(4, 3, 3, 3))),
    "pools": (pools, (draw(1, 2, 8, 8),)),
    "gradient of pools": (nnc.grad(pools), (draw(1, 2, 8, 8),)),
    "layer norm": (nn.layer_norm, (draw(4, 8),)),
    "gradient of a layer norm": (nnc.grad(lambda x: nnp.sum(nn.layer_norm(x) ** 3)), (draw(4, 8),)),
    "attention": (lambda x: nn.dot_product_attention(x, x, x, is_causal=True), (draw(2, 5, 2, 4),)),
    "gradient of attention": (
        nnc.grad(lambda x: nnp.sum(nn.dot_product_attention(x, x, x) ** 2)), (draw(2, 5, 2, 4),),
    ),
    "scan": (recurrence, (draw(4, 8), draw(6, 3, 4))),
    "scan backwards": (lambda x: nnc.scan(lambda c, t: (c + t, c * t), x[0], x, reverse=True), (draw(5, 3),)),
    "gradient of a scan": (
        nnc.grad(lambda w, x: nnp.sum(recurrence(w, x)[1] ** 2)), (draw(4, 8) * np.float32(0.3), draw(6, 3, 4)),
    ),
    "while": (newton, (np.float32(7.0),)),
    "fori": (lambda a: nnc.fori_loop(0, 5, lambda i, c: c * 1.5 + i, a), (np.float32(7.0),)),
    "cond": (lambda x: nnc.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, x), (draw(3),)),
    "switch": (
        lambda i, x: nnc.switch(i, [lambda x: x * 2, lambda x: -x, lambda x: x], x, mode="clip"), (np.int32(1), draw(3)),
    ),
    "indices": (lambda x, i: (x[i], x.at[i].add(1.0), nnp.take(x, i, axis=1)), (draw(4, 5), np.array([1, -1, 2]))),
    "sorts": (lambda x: (nnp.sort(x, axis=0), nnp.argsort(x), nnp.cumsum(x, axis=1)), (draw(4, 5),)),
    "top k": (lambda x: nnp.top_k(x, 2), (draw(4, 5),)),
    "slices": (
        lambda x, i: (nnc.dynamic_slice(x, (i, 1), (2, 2)), nnc.dynamic_update_slice(x, x[:2, :2] * 3, (i, i))),
        (draw(4, 5), np.int32(2)),
    ),
    "activations": (
        lambda x: (nn.gelu(x), nn.gelu(x, approximate=False), nn.silu(x), nnp.expm1(x), nnp.log1p(nnp.abs(x))), (draw(40) * 3,),
    ),
    "erfc": (lambda x: nnc.scipy.special.erfc(x), (np.linspace(-4, 8, 60),)),
    "integers": (
        lambda x, y: (x // y, x % y, x * y, x - y, nnp.maximum(x, y)),
        (np.array([7, -7, 5, -9], np.int32), np.array([2, 2, -3, 4], np.int32)),
    ),
    "angles": (
        lambda x, y: (nnp.arctan2(x, y), nnp.remainder(x, y), nnp.fmod(x, y), nnp.copysign(x, y), nnp.trunc(x), x // y),
        (draw(30) * 4, draw(30)),
    ),
    "hypotenuses": (
        nnp.hypot,
        (np.array([3.0, 0.0, 3e38, np.inf, -1e-30], np.float32), np.array([-4.0, 0.0, 1e38, 1.0, 1e-30], np.float32)),
    ),
    "special angles": (
        nnp.arctan2,
        (np.array([0.0, -0.0, 0.0, -0.0, 1.0], np.float32), np.array([0.0, 0.0, -0.0, -0.0, -0.0], np.float32)),
    ),
    "logic": (lambda x: (nnp.any(x > 0, axis=0), nnp.all(x > 0), nnp.where(x > 0, x, -x), nnp.isfinite(x)), (draw(4, 3),)),
    "extremes with NaN": (
        lambda x, y: (nnp.maximum(x, y), nnp.minimum(x, y), nnp.max(x), nnp.min(y)),
        (np.array([1.0, np.nan, -np.inf]), np.array([2.0, 0.0, 1.0])),
    ),
    "products": (
        lambda x, y: (nnp.einsum("ij,kl->ikjl", x, x), nnp.einsum("bij,bjk->bik", y, y)), (draw(2, 3), draw(2, 3, 3)),
    ),
    "padding": (lambda x: (nnp.pad(x, 1), nnp.flip(x, axis=1), nnp.roll(x, 1, axis=0)), (draw(3, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exported_function_is_the_same_in_onnxruntime_and_when_it_is_loaded_again(name: str) -> None:
    fun, args = PROGRAMS[name]
    check(fun, *args)


@pytest.mark.parametrize("opset", [13, 15, 17, 21])
def test_older_and_newer_versions_run_too(opset: int) -> None:
    check(lambda x: nn.softmax(x @ x.T) + nnp.max(x) * nnp.sum(x, axis=1), draw(4, 5), opset=opset)


SIZED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "batch": (mlp, (PARAMS, draw(5, 8)), {"x": {0: "n"}}, (PARAMS, draw(13, 8))),
    "scores": (lambda x: nn.softmax(x @ x.T) + nnp.arange(x.shape[0]), (draw(5, 8),), {"x": {0: "n"}}, (draw(9, 8),)),
    "mean": (lambda x: nnp.mean(x, axis=0), (draw(5, 8),), {"x": {0: "n"}}, (draw(300, 8),)),
    "gradient": (
        nnc.grad(loss), (PARAMS, draw(5, 8), LABELS), {"x": {0: "n"}, "y": {0: "n"}}, (PARAMS, draw(2, 8), LABELS[:2]),
    ),
    "two sizes": (
        lambda x, y: nnp.concatenate([x, y]).reshape(-1), (draw(2, 3), draw(4, 3)), {"x": {0: "a"}, "y": {0: "b"}},
        (draw(5, 3), draw(1, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_sizes_with_names_may_vary(name: str) -> None:
    fun, args, axes, others = SIZED[name]
    data = check(fun, *args, dynamic_axes=axes)
    compare(data, nnc.onnx.load(data), fun, others, 2e-5)


def test_a_function_that_branches_on_a_size_is_refused() -> None:
    def branches(x: Any) -> Any:
        return x * 2 if x.shape[0] > 100 else x + 1

    with pytest.raises(UnsupportedError, match="it traces to other commands for other sizes"):
        nnc.onnx.export(branches, [draw(5)], dynamic_axes={"x": {0: "n"}})


def test_a_number_that_is_no_sum_of_sizes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no sum of multiples of the sizes"):
        nnc.onnx.export(lambda x: x * float(x.shape[0] ** 2), [draw(5)], dynamic_axes={"x": {0: "n"}})


def test_all_commands_without_a_form_are_listed_with_their_lines() -> None:
    def refused(x: Any) -> Any:
        return nnp.linalg.cholesky(x) + nnp.linalg.inv(x)

    with pytest.raises(UnsupportedError, match=r"(?s)cholesky.*test_export.py.*(solve|inv|lu)"):
        nnc.onnx.export(refused, [draw(3, 3)])


def test_a_relu_is_one_operator() -> None:
    data = check(lambda x: nn.relu(x) + nnc.cond(x[0] > 0, nn.relu, lambda x: x, x), draw(5))
    nodes = onnx.load_from_string(data).graph.node
    assert [node.op_type for node in nodes].count("Relu") == 1
    assert not {"Where", "LessOrEqual"} & {node.op_type for node in nodes}


def test_names_are_those_of_parameters_and_leaves_or_given() -> None:
    def fun(params: Any, x: Any) -> Any:
        return {"y": params["w"] * x, "z": x}

    specs = [{"w": draw(3)}, draw(3)]
    model = nnc.onnx.load(nnc.onnx.export(fun, specs))
    assert [value.name for value in model.inputs] == ["params.w", "x"]
    assert [value.name for value in model.outputs] == ["output.y", "output.z"]
    named = nnc.onnx.load(nnc.onnx.export(fun, specs, input_names=["a", "b"], output_names=["c", "d"]))
    assert [value.name for value in (*named.inputs, *named.outputs)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"opset": 12}, "opset is 12"),
        ({"input_names": ["a", "b"]}, "it needs 1 different names"),
        ({"output_names": ["x"]}, "is an input, too"),
        ({"input_names": ["v1"]}, "names of nnc's"),
        ({"dynamic_axes": {"y": {0: "n"}}}, "there is no input 'y'"),
        ({"dynamic_axes": {"x": {2: "n"}}}, "has no axis 2"),
        ({"dynamic_axes": {"x": {0: "n", 1: "n"}}}, "'n' is 2 and, on axis 1 of 'x', 3"),
    ],
)
def test_wrong_arguments_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        nnc.onnx.export(lambda x: x + 1, [draw(2, 3)], **settings)


def test_the_file_holds_the_bytes_that_are_returned(tmp_path: Path) -> None:
    data = nnc.onnx.export(lambda x: x + 1, [draw(3)], tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == data
    assert nnc.onnx.export(lambda x: x + 1, [draw(3)]) == data


def test_weights_too_large_for_a_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.onnx.writers.export.LARGEST", 100)
    weights, x = draw(40, 40), draw(40)

    def fun(x: Any) -> Any:
        return x @ weights

    with pytest.raises(ArgumentError, match="the weights are larger than 100 bytes"):
        nnc.onnx.export(fun, [x])
    nnc.onnx.export(fun, [x], tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size == weights.nbytes
    onnx.checker.check_model(tmp_path / "model.onnx")
    (found,) = nnc.onnx.load(tmp_path / "model.onnx")({"x": x})
    np.testing.assert_allclose(found, x @ weights, rtol=1e-5)
