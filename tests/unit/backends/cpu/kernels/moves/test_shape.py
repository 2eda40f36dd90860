from __future__ import annotations

import numpy as np
import pytest

from tests.unit.backends.cpu.against_reference import LAYOUTS, check, odd, spaced, values

KINDS = ("bool", "bfloat16", "float32", "int64", "complex128")


@pytest.mark.parametrize("kind", KINDS)
def test_copies_move_every_word_between_any_two_layouts(kind: str) -> None:
    for shape in ((), (3,), (33, 19), (0, 3)):
        x = values(kind, shape)
        for source in LAYOUTS:
            for target in LAYOUTS:
                check("copy", [source(x)], {}, target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("permutation", [(2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_transposes_are_turned_tile_by_tile(kind: str, permutation: tuple[int, ...]) -> None:
    for name in ("transpose", "reorder"):
        check(name, [values(kind, (4, 35, 21))], {"permutation": permutation})


def test_large_transposes_and_copies_are_shared_by_threads() -> None:
    for kind, shape in (("float32", (601, 707)), ("float64", (3, 300, 401)), ("uint8", (1000, 1001))):
        x = values(kind, shape)
        check("transpose", [x], {"permutation": tuple(reversed(range(x.ndim)))})
        check("copy", [x], {}, spaced)


@pytest.mark.parametrize("kind", KINDS)
def test_views_that_must_run_are_copied(kind: str) -> None:
    x = values(kind, (6, 15, 21))
    check("reshape", [x.transpose(2, 0, 1)], {"shape": (15 * 6 * 21,)})
    check("reshape", [x], {"shape": (6, 5, 3, 21)}, spaced)
    check("flip", [x], {"axes": (0, 2)})
    check("slice", [x], {"start": (1, 2, 3), "limit": (5, 14, 20), "stride": (2, 1, 3)})
    check("broadcast_to", [x], {"shape": (2, 6, 15, 21)})
    check("broadcast_to", [x[:, 0, 0]], {"shape": (6, 35), "axes": (0,)})


@pytest.mark.parametrize("kind", KINDS)
def test_joins_and_padding_give_the_reference_bits(kind: str) -> None:
    x, value = values(kind, (6, 5, 7)), values(kind, (), 1)
    for axis in (0, 1, -1):
        check("concatenate", [x, x[::-1], odd(x), x[:0] if axis == 0 else x], {"axis": axis}, spaced)
    for interior in ((0, 0, 0), (1, 0, 2)):
        for operand in (x, x[:0], x.T):
            check("pad", [operand, value], {"low": (1, 0, 3), "high": (0, 2, 5), "interior": interior})
    check("pad", [value, value], {"low": (), "high": (), "interior": ()})


def test_one_number_is_spread_over_much_memory() -> None:
    check("broadcast_to", [np.float32(3) * np.ones((), np.float32)], {"shape": (1000, 777)})
