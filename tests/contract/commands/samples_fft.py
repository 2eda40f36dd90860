"""Sample inputs of the Fourier transforms: odd, even and single sizes, one axis and several."""

from __future__ import annotations

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(29)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape)


def _complex(*shape: int) -> np.ndarray:
    return _normal(*shape) + 1j * _normal(*shape)


_WIDE = ("float32", "float64")

SAMPLES: list[Sample] = [
    Sample("fft", (_complex(5),), {"axes": (0,)}, tolerance=5),
    Sample("fft", (_complex(2, 4, 3),), {"axes": (1,), "inverse": True}, tolerance=5),
    Sample("fft", (_complex(2, 4, 3),), {"axes": (2, 0), "inverse": False}, tolerance=5),
    Sample("fft", (_complex(2, 4, 3),), {"axes": (-2, 0)}, tolerance=5),
    Sample("fft", (_complex(0, 3),), {"axes": (1,)}),
    *(Sample("rfft", (_normal(n),), {"axis": 0}, dtypes=_WIDE, tolerance=5) for n in (1, 2, 3, 6, 7)),
    Sample("rfft", (_normal(2, 4, 3),), {"axis": 1}, dtypes=_WIDE, tolerance=5),
    Sample("rfft", (_normal(2, 4, 3),), {"axis": -2}, dtypes=_WIDE, tolerance=5),
    Sample("rfft", (_normal(0, 3),), {"axis": 1}, dtypes=_WIDE),
    *(Sample("irfft", (_complex(n // 2 + 1),), {"axis": 0, "points": n}, tolerance=5) for n in (1, 2, 3, 6, 7)),
    Sample("irfft", (_complex(2, 3, 3),), {"axis": 1, "points": 5}, tolerance=5),
    Sample("irfft", (_complex(2, 3, 3),), {"axis": -2, "points": 4}, tolerance=5),
    Sample("irfft", (_complex(0, 3),), {"axis": 1, "points": 4}),
]  # fmt: skip
