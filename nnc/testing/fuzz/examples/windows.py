"""Examples of convolutions and pools: all strides, paddings, dilations, groups, both orders of the axes."""

from __future__ import annotations

from typing import Any

from nnc.commands.windows import window_shape
from nnc.graph import TensorSpec
from nnc.testing.fuzz.examples.draw import Draw, Example, Rng, Shape, flag, float_dtype, one_of, size


def geometry(rng: Rng, rank: int) -> tuple[Shape, Shape, dict[str, Any]]:
    """Spatial sizes, sizes of the window, and the parameters; windows may lie in the padding alone."""
    window = tuple(int(rng.integers(1, 4)) for _ in range(rank))
    dilation = tuple(int(one_of(rng, 1, 1, 2, 3)) for _ in range(rank))
    stride = tuple(int(one_of(rng, 1, 1, 2, 3)) for _ in range(rank))
    padding = tuple(
        (int(one_of(rng, 0, 0, 1, 2, 3)), int(one_of(rng, 0, 0, 1, 2, 3))) if flag(rng) else (0, 0) for _ in range(rank)
    )
    spatial = tuple(
        max(1, size(rng, 16 if rank < 3 else 6), d * (k - 1) + 1 - low - high)
        for k, d, (low, high) in zip(window, dilation, padding, strict=True)
    )
    return spatial, window, {"stride": stride, "padding": padding, "dilation": dilation}


def _ordered(n: int, channels: int, spatial: Shape, last: bool) -> Shape:
    return (n, *spatial, channels) if last else (n, channels, *spatial)


def _convolution(rng: Rng) -> tuple[Shape, Shape, Shape, Shape, Shape, dict[str, Any]]:
    spatial, window, params = geometry(rng, int(rng.integers(1, 4)))
    groups, last = int(one_of(rng, 1, 1, 1, 2, 3)), flag(rng)
    inputs, outputs = (groups * int(one_of(rng, 1, 2, 3, 4, 8)) for _ in range(2))
    out = window_shape("conv", spatial, window, params["stride"], params["padding"], params["dilation"])
    n = int(one_of(rng, 0, 1, 1, 2, 3)) if flag(rng, 0.9) else 5
    params |= {"groups": groups} | ({"channels_last": True} if last else {})
    x, ct = _ordered(n, inputs, spatial, last), _ordered(n, outputs, out, last)
    return x, (outputs, inputs // groups, *window), ct, spatial, window, params


def _conv(rng: Rng) -> Example:
    x, w, _, _, _, params = _convolution(rng)
    dtype = float_dtype(rng)
    return (TensorSpec(x, dtype), TensorSpec(w, dtype)), params


def _input_grad(rng: Rng) -> Example:
    _, w, ct, spatial, _, params = _convolution(rng)
    dtype = float_dtype(rng)
    return (TensorSpec(ct, dtype), TensorSpec(w, dtype)), {"spatial": spatial, **params}


def _weight_grad(rng: Rng) -> Example:
    x, _, ct, _, window, params = _convolution(rng)
    dtype = float_dtype(rng)
    return (TensorSpec(x, dtype), TensorSpec(ct, dtype)), {"kernel": window, **params}


def _pool(rng: Rng) -> Example:
    spatial, window, params = geometry(rng, int(rng.integers(1, 4)))
    last = flag(rng)
    x = _ordered(int(one_of(rng, 0, 1, 2)), int(one_of(rng, 1, 2, 3, 8, 17)), spatial, last)
    params |= {"window": window} | ({"channels_last": True} if last else {})
    return (TensorSpec(x, float_dtype(rng)),), params


def _pool_grad(rng: Rng) -> Example:
    (x,), params = _pool(rng)
    last = params.get("channels_last", False)
    spatial = x.shape[1:-1] if last else x.shape[2:]
    out = window_shape("pool", spatial, params["window"], params["stride"], params["padding"], params["dilation"])
    channels = x.shape[-1] if last else x.shape[1]
    ct = x.update(shape=_ordered(x.shape[0], channels, out, last))
    return (ct,), {"spatial": spatial, **params}


EXAMPLES: dict[str, Draw] = {
    "conv": _conv,
    "conv_input_grad": _input_grad,
    "conv_weight_grad": _weight_grad,
    **dict.fromkeys(("max_pool", "max_pool_places", "max_pool_both", "sum_pool"), _pool),
    "sum_pool_input_grad": _pool_grad,
}
