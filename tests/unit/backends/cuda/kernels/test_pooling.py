"""Pooling on a GPU: maxima, their places, sums and picked elements, with their transposes, in both orders of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.commands.pool import place_dtype
from nnc.commands.windows import window_shape
from nnc.graph import command, reference
from tests.unit.backends.cpu.against_reference import values
from tests.unit.backends.cuda.against_reference import Case, check, check_on_device, placed

FEW = settings(max_examples=settings.default.max_examples // 4)
KINDS = ["int8", "uint64", "float16", "bfloat16", "float32", "float64"]


def cases(
    kind: str, lead: tuple[int, ...], spatial: tuple[int, ...], params: dict[str, Any], last: bool, turn: int
) -> list[Case]:
    """All pools over windows of an array whose last leading axis are the channels."""
    out = window_shape("pool", spatial, **params)
    x, ct = values(kind, (*lead, *spatial), turn), values(kind, (*lead, *out), turn + 1)
    places = reference[command("max_pool_places")](x, **params)
    if last:
        x, ct, places = (np.moveaxis(a, len(lead) - 1, -1) for a in (x, ct, places))
        params = {**params, "channels_last": True}
    x, ct, places = placed(x, turn), placed(ct, turn + 1), placed(places, turn // 2)
    found: list[Case] = [(name, [x], params) for name in ("max_pool", "max_pool_places", "max_pool_both", "sum_pool")]
    back = {**params, "spatial": spatial}
    return [
        *found,
        ("pick_pool", [x, places], params),
        ("sum_pool_input_grad", [ct], back),
        ("pick_pool_input_grad", [ct, places], back),
    ]


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3), (9, 11), {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}),
    ((2, 3), (7, 8), {"window": (3, 2), "stride": (1, 3), "padding": ((1, 1), (0, 1)), "dilation": (2, 3)}),
    ((3,), (40,), {"window": (7,), "stride": (4,), "padding": ((3, 2),), "dilation": (6,)}),
    ((1, 2), (4, 3, 5), {"window": (2, 1, 3), "stride": (1, 2, 2), "padding": ((1, 0), (0, 0), (1, 1)), "dilation": (1,) * 3}),
    ((2,), (400,), {"window": (300,), "stride": (50,), "padding": ((20, 30),), "dilation": (1,)}),
    ((0,), (4,), {"window": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_every_dtype(kind: str) -> None:
    found = [
        case
        for turn, (lead, spatial, params) in enumerate(GEOMETRIES)
        for last in (False, True)
        for case in cases(kind, lead, spatial, params, last, turn)
    ]
    check(*found)


@FEW
@given(st.data(), st.integers(1, 2), st.booleans(), st.sampled_from(["float32", "bfloat16", "int16"]))
def test_any_windows(data: Any, rank: int, last: bool, kind: str) -> None:
    sizes = st.lists(st.integers(1, 4), min_size=rank, max_size=rank)
    window, stride, dilation = (tuple(data.draw(sizes)) for _ in range(3))
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    spatial = tuple(n + data.draw(st.integers(0, 9)) for n in reach)
    padding = tuple(
        (min(data.draw(st.integers(0, 2)), k // 2), 0) if d == 1 else (0, 0)
        for k, d in zip(window, dilation, strict=True)
    )
    params = {"window": window, "stride": stride, "padding": padding, "dilation": dilation}
    check(*cases(kind, (2,), spatial, params, last, data.draw(st.integers(0, 20))))


def test_places_beyond_a_window_pick_nothing() -> None:
    x, places = values("float32", (2, 5)), np.array([[0, 1, 7], [255, 2, 1]], place_dtype((3,)))
    params = {"window": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (1,)}
    check(("pick_pool", [x, places], params), ("pick_pool_input_grad", [x[:, :3], places], {**params, "spatial": (5,)}))
    empty = np.zeros((2, 0), np.float32)
    only_padding = {"window": (1,), "stride": (1,), "padding": ((1, 1),), "dilation": (1,)}
    check(("pick_pool", [empty, np.zeros((2, 2), np.uint8)], only_padding))


def test_neighbouring_threads_read_neighbouring_elements() -> None:
    x = values("float32", (2, 16, 32, 32))
    for last in (False, True):
        params = {
            "window": (2, 2),
            "stride": (2, 2),
            "padding": ((0, 0), (0, 0)),
            "dilation": (1, 1),
            "channels_last": last,
        }
        given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
        (ran,) = check(("max_pool", [given], params))
        assert ran.sector_bytes <= 2.3 * x.nbytes  # without channels innermost, a warp reads each row of windows twice


def test_programs_pool_and_differentiate_on_the_device() -> None:
    x = values("float32", (2, 3, 8, 9))
    x = np.where(np.isfinite(x), x, 1)

    def loss(x: Any) -> Any:
        return nnp.sum(nnc.nn.max_pool(x, 2) ** 2) + nnp.sum(nnc.nn.avg_pool(x, 3, stride=2) ** 2)

    check_on_device(lambda x: (nnc.nn.max_pool(x, 3, stride=2), nnc.nn.avg_pool(x, 2), nnc.grad(loss)(x)), x)
