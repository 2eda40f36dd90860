"""Sample inputs of random bits and of the special functions that draws need."""

from __future__ import annotations

import numpy as np

from tests.contract.commands.sample import Sample

_KEY = np.asarray([1, 42], np.uint32)
_KEYS = np.asarray([[1, 42], [7, 0], [0, 9]], np.uint32)

SAMPLES: list[Sample] = [
    *(
        Sample("random_bits", (_KEY, np.asarray(0, np.uint64)), {"shape": (3, 5), "width": width})
        for width in (8, 16, 32, 64)
    ),
    Sample("random_bits", (_KEY, np.asarray(2**32 - 1, np.uint64)), {"shape": (3,), "width": 32}),
    Sample("random_bits", (_KEYS, np.asarray([0, 5, 2**40], np.uint64)), {"shape": (2, 2), "width": 64}),
    Sample("random_bits", (_KEY, np.asarray(0, np.uint64)), {"shape": (), "width": 32}),
    Sample("random_bits", (_KEY, np.asarray(0, np.uint64)), {"shape": (0, 3), "width": 32}),
    # their derivatives differ from the identity's, though they are one: tests/unit/random checks them against quantiles
    *(
        Sample(name, (np.asarray([-0.4, 0.9, 2.5]), np.asarray([0.3, 1.0, 7.0])), differentiable=())
        for name in ("gamma_draw", "log_gamma_draw")
    ),
    Sample("product", (np.asarray([-0.5, 2.0, 3.0]), np.asarray([0.5, -1.5, 0.25]))),
    Sample("portable_log", (np.asarray([0.25, 1.5, 9.0]),)),
    Sample("portable_log1p", (np.asarray([-0.5, 0.125, 9.0]),)),
    Sample("portable_exp", (np.asarray([-1.5, 0.0, 2.5]),)),
    Sample("normal_quantile", (np.asarray([-0.75, -0.25, 0.0, 0.5]),), tolerance=4.0),
    Sample("tan_of_turns", (np.asarray([-0.25, 0.0, 0.125]),)),
    Sample(
        "truncated_normal_quantile",
        (np.asarray([0.25, 0.5, 0.75]), np.asarray([-1.0, 0.5, -2.0]), np.asarray([0.5, 2.0, 1.0])),
        tolerance=4.0,
    ),
    Sample("unit_of_words", (np.asarray([0, 7, 2**63 + 12345, 2**64 - 1], np.uint64),)),
    Sample("geometric_quantile", (np.asarray([0.25, 0.5, 0.999]), np.asarray([0.75, 1e-3, 0.5])), differentiable=()),
    Sample("poisson_log_mass", (np.asarray([0.0, 3.0, 9.0]), np.asarray([2.5, 2.5, 11.0])), differentiable=()),
    Sample(
        "binomial_log_mass",
        (np.asarray([0.0, 3.0, 9.0]), np.asarray([4.0, 5.0, 9.0]), np.asarray([0.25, 0.5, 0.75])),
        differentiable=(),
    ),
    Sample("erfinv", (np.asarray([-0.96875, -0.5, 0.0, 0.125, 0.75, 0.984375]),)),
    Sample("lgamma", (np.asarray([-1.5, 0.25, 1.0, 2.5, 9.0]),)),
    Sample("polygamma", (np.asarray([-1.5, 0.25, 1.0, 2.5, 9.0]),), {"n": 0}),
    Sample("polygamma", (np.asarray([0.5, 1.0, 2.5, 9.0]),), {"n": 1}, tolerance=4.0),
]
