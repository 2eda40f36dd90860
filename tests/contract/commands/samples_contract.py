"""Sample inputs of the contractions."""

from __future__ import annotations

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(7)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape)


SAMPLES: list[Sample] = [
    Sample("dot", (_normal(2, 3), _normal(3, 4)), {"contract": ((1,), (0,)), "batch": ((), ())}),
    Sample("dot", (_normal(3), _normal(3)), {"contract": ((0,), (0,)), "batch": ((), ())}),
    Sample("dot", (_normal(2), _normal(3)), {"contract": ((), ()), "batch": ((), ())}),
    Sample("dot", (_normal(2, 3, 4), _normal(4, 5, 2)), {"contract": ((2,), (0,)), "batch": ((0,), (2,))}),
    Sample("dot", (_normal(2, 4, 3), _normal(3, 5, 2, 4)), {"contract": ((2, 1), (0, 3)), "batch": ((0,), (2,))}),
    Sample("dot", (_normal(4, 2, 3), _normal(5, 2, 4)), {"contract": ((1, 0), (1, 2)), "batch": ((), ())}),
    Sample("dot", (_normal(3, 2), _normal(2, 3)), {"contract": ((1,), (0,)), "batch": ((0,), (1,))}),
    Sample("dot", (_normal(2, 0), _normal(0, 3)), {"contract": ((1,), (0,)), "batch": ((), ())}),
    Sample("dot", (_normal(0, 2), _normal(2, 3)), {"contract": ((1,), (0,)), "batch": ((), ())}),
    Sample(
        "dot", (np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)), {"contract": ((1,), (0,)), "batch": ((), ())},
        dtypes=(),
    ),
]  # fmt: skip
