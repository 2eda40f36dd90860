"""Examples of commands whose operands differ in shape or dtype: joins, spectra, draws, bits."""

from __future__ import annotations

import numpy as np

from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.examples.draw import Draw, Example, Rng, flag, float_dtype, one_of, shape, size


def _concatenate(rng: Rng) -> Example:
    common, dtype = shape(rng, 1, 3), float_dtype(rng)
    axis = int(rng.integers(len(common)))
    parts = [(*common[:axis], size(rng, 5), *common[axis + 1 :]) for _ in range(int(rng.integers(1, 5)))]
    return [TensorSpec(part, dtype) for part in parts], {"axis": axis}


def _assemble(rng: Rng) -> Example:
    """Parts of a matrix: in each of its rows of tiles some of the tiles."""
    dtype = float_dtype(rng)
    rows, columns = ([int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4)))] for _ in range(2))
    parts, starts = [], []
    for i, height in enumerate(rows):
        for j, width in enumerate(columns):
            if flag(rng, 0.7):
                parts.append(TensorSpec((height, width), dtype))
                starts.append((sum(rows[:i]), sum(columns[:j])))
    return parts, {"shape": (sum(rows), sum(columns)), "dtype": dtype, "starts": tuple(starts)}


def _irfft(rng: Rng) -> Example:
    points, lead = int(rng.integers(1, 12)), shape(rng, 0, 2)
    dtype = one_of(rng, dtypes.complex64, dtypes.complex128)
    return (TensorSpec((*lead, points // 2 + 1), dtype),), {"axis": len(lead), "points": points}


def _random_bits(rng: Rng) -> Example:
    lead = shape(rng, 0, 1)
    key = rng.integers(0, 2**32, (*lead, 2), np.uint32)
    start = rng.integers(0, 2**40, lead, np.uint64)
    return (key, np.asarray(start)), {"shape": shape(rng, 0, 2), "width": one_of(rng, 8, 16, 32, 64)}


def _select(rng: Rng) -> Example:
    at, dtype = shape(rng, 0, 3), float_dtype(rng)
    return (TensorSpec(at, dtypes.bool_), TensorSpec(at, dtype), TensorSpec(at, dtype)), {}


def _polygamma(rng: Rng) -> Example:
    return (rng.uniform(0.5, 4.0, shape(rng, 0, 2)).astype(one_of(rng, dtypes.float32, dtypes.float64)),), {
        "n": int(rng.integers(0, 4))
    }


def _pvary(rng: Rng) -> Example:
    return (np.ones((2, 3), np.float32), np.int32(0)), {"size": 1, "axis_name": "i"}


EXAMPLES: dict[str, Draw] = {
    "concatenate": _concatenate,
    "assemble": _assemble,
    "irfft": _irfft,
    "random_bits": _random_bits,
    "select": _select,
    "polygamma": _polygamma,
    "pvary": _pvary,
}
