"""Arrays, layers and functions of science that were wrong, or refused arguments that NumPy, SciPy and PyTorch take."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import DTypeError, UnsupportedError
from nnc.scipy import signal

LARGE = [1, 2**63 + 1]
UNSIGNED = np.array([2**63, 5], np.uint64)


def test_listed_integers_beyond_int64_are_exact() -> None:
    assert nnp.asarray(LARGE, "uint64").tolist() == LARGE
    assert nnp.asarray([[0, 2**64 - 1], [True, np.uint64(2**53 + 1)]], "uint64").tolist() == [
        [0, 2**64 - 1],
        [1, 2**53 + 1],
    ]
    assert nnp.full(2, LARGE, dtype="uint64").tolist() == LARGE
    for outside in ([-1, 2**63], [0, 2**64]):
        with pytest.raises(DTypeError, match="does not fit into uint64"):
            nnp.asarray(outside, "uint64")


@pytest.mark.parametrize("compiled", [False, True])
def test_listed_integers_beyond_int64_stay_exact_beside_uint64(compiled: bool) -> None:
    def functions(x: Any) -> list[Any]:
        return [
            nnp.isin(x, LARGE), nnp.isin(x, [1, 5]), nnp.searchsorted(x[::-1], LARGE), x == LARGE, nnp.maximum(x, LARGE),
            nnp.where(np.array([True, False]), x, LARGE), nnp.concatenate([x, LARGE]), x.at[:].set(LARGE), nnp.digitize(x, LARGE),
        ]  # fmt: skip

    found = (nnc.compile(functions) if compiled else functions)(nnp.asarray(UNSIGNED))
    assert [value.tolist() for value in found] == [
        [False, False], [False, True], [0, 2], [False, False], [2**63, 2**63 + 1], [2**63, 2**63 + 1], [2**63, 5, *LARGE], LARGE,
        [1, 1],
    ]  # fmt: skip
    assert nnp.unique(nnp.asarray(LARGE * 2, "uint64")).tolist() == LARGE
    assert nnp.union1d(UNSIGNED, LARGE).tolist() == [1, 5, 2**63, 2**63 + 1]


METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
    "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_know_all_methods_of_numpy(method: str) -> None:
    rng, q = np.random.default_rng(0), np.append(np.linspace(0, 1, 21), [0.3, 1 / 3])
    for n in (1, 2, 5, 10):
        x = rng.normal(size=(n, 2))
        holed = np.where(np.arange(2 * n).reshape(n, 2) % 7 == 3, np.nan, x)
        for name, values, places in (
            ("quantile", x, q), ("percentile", x, 100 * q), ("nanquantile", holed, q), ("nanpercentile", holed, 100 * q),
        ):  # fmt: skip
            if not np.isnan(values).all(0).any():
                expected = getattr(np, name)(values, places, axis=0, method=method)
                np.testing.assert_allclose(
                    getattr(nnp, name)(values, places, axis=0, method=method),
                    expected,
                    1e-12,
                    1e-14,
                    err_msg=f"{name} {n}",
                )


def test_constant_boxes_are_known_while_a_function_is_traced() -> None:
    image, boxes = np.arange(18.0).reshape(1, 2, 3, 3), np.array([[0, 0.0, 0, 2, 2], [0, 0.5, 0.5, 3, 1]])
    for aligned in (False, True):
        pooled = lambda x, aligned=aligned: nn.roi_align(x, boxes, 1, aligned=aligned)
        np.testing.assert_allclose(nnc.compile(pooled)(image), pooled(image), 1e-12)
    corners, scores = boxes[:, 1:], np.array([0.5, 0.9])
    assert nnc.compile(lambda x: x[nn.nms(corners, scores, 0.2)])(np.arange(2)).tolist() == [1, 0]
    mask = np.array([1, 0, 3])
    assert nnc.compile(lambda x: x[nnp.flatnonzero(mask > 0)] + nnp.setdiff1d(mask, [0]))(np.arange(3)).tolist() == [
        1,
        5,
    ]


def test_output_padding_of_transposed_convolutions_may_reach_the_dilation() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    assert nn.conv_transpose(
        np.ones((1, 1, 3)), np.ones((1, 1, 2)), dilation=2, output_padding=1, layout="NCH"
    ).shape == (1, 1, 6)
    for stride, dilation, more, padding, kernel in product((1, 2), (1, 3), (0, 1, 2), (0, 2), (1, 3)):
        x, w = rng.normal(size=(1, 2, 4)), rng.normal(size=(2, 2, kernel))
        options: Any = {"stride": stride, "dilation": dilation, "output_padding": more, "padding": padding}
        if more >= max(stride, dilation) or 3 * stride + dilation * (kernel - 1) + 1 + more <= 2 * padding:
            continue
        twins = [torch.tensor(value, requires_grad=True) for value in (x, w)]
        expected = torch.nn.functional.conv_transpose1d(*twins, **options)
        found = nn.conv_transpose(x, w, layout="NCH", **options)
        np.testing.assert_allclose(found, expected.detach().numpy(), 1e-10, 1e-12, err_msg=str(options))
        expected.square().sum().backward()
        grads = nnc.grad(
            lambda x, w, o=options: nnp.sum(nn.conv_transpose(x, w, layout="NCH", **o) ** 2), argnums=(0, 1)
        )(x, w)
        for grad, twin in zip(grads, twins, strict=True):
            np.testing.assert_allclose(grad, twin.grad.numpy(), 1e-10, 1e-10, err_msg=str(options))


@pytest.mark.parametrize("n", [1, 3, 100])
@pytest.mark.parametrize(
    "options", [{"nperseg": 256}, {"nperseg": 64, "nfft": 300}, {"nperseg": 256, "window": "boxcar"}], ids=str
)
def test_segments_are_no_longer_than_the_signal(n: int, options: dict[str, Any]) -> None:
    scipy_signal = pytest.importorskip("scipy.signal")
    x, y = np.random.default_rng(0).normal(size=(2, n))
    for name, signals in (("welch", (x,)), ("csd", (x, y)), ("stft", (x,))):
        with pytest.warns(UserWarning, match="nperseg") if options["nperseg"] > n else np.errstate():
            expected = getattr(scipy_signal, name)(*signals, **options)
        for found, value in zip(getattr(signal, name)(*signals, **options), expected, strict=True):
            np.testing.assert_allclose(found, value, 1e-9, 1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">c16", ">u2", ">f2"])
def test_files_hold_arrays_of_other_byte_orders(dtype: str, tmp_path: Path) -> None:
    values = np.arange(3).astype(dtype)
    nnc.io.save(tmp_path / "f", {"a": values, "b": values[0]})
    for like in (None, {"a": values, "b": values[:1].reshape(())}):
        found = nnc.io.load(tmp_path / "f", like)
        assert (
            found["a"].tolist() == [0, 1, 2] and found["a"].dtype == values.dtype.newbyteorder("=") and found["b"] == 0
        )


def test_files_refuse_structured_arrays(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"a is a structured array, of dtype .*(?s:.)*Fix: save an array for each field"
    ):
        nnc.io.save(tmp_path / "f", {"a": np.zeros(2, [("x", "i4"), ("y", "f8")])})


def test_lazy_conjugates_and_negatives_of_pytorch_are_read_as_their_values() -> None:
    torch = pytest.importorskip("torch")
    conjugate = torch.tensor([1 + 2j]).conj()
    assert nnp.asarray(conjugate).tolist() == [1 - 2j] and nnp.asarray(conjugate.imag).tolist() == [-2]
    assert nnp.from_dlpack(conjugate.imag).tolist() == [-2]


@pytest.mark.parametrize("norm", [nn.layer_norm, lambda x, axis: nnp.var(x, axis, keepdims=True)])
def test_variances_over_no_elements_compile(norm: Any) -> None:
    x = nnp.zeros((2, 0, 3))
    eager, compiled = norm(x, axis=1), nnc.compile(lambda x: norm(x, axis=1))(x)
    assert compiled.shape == eager.shape
    np.testing.assert_array_equal(compiled, eager)
