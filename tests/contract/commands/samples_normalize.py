"""Sample inputs of softmax and its relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(29)


def _normal(*shape: int) -> Any:
    return _RNG.normal(size=shape)


_INDEX = np.asarray([[0, 2, 2], [1, 3, 0]])

SAMPLES: list[Sample] = [
    *(
        Sample(name, (x,), {"axes": axes})
        for name in ("softmax", "log_softmax", "logsumexp")
        for x, axes in (
            (_normal(3, 4), (1,)), (_normal(3, 4), (0,)), (_normal(3, 4), (-1,)), (_normal(2, 3, 2), (0, 2)), (_normal(5), (0,)),
            (_normal(2, 3), ()), (np.float64(0.3), ()),
        )
    ),
    *(Sample(name, (_normal(2, 0),), {"axes": (1,)}, differentiable=()) for name in ("softmax", "log_softmax", "logsumexp")),
    Sample("softmax", (np.asarray([[-np.inf, 0.0, 1.0], [-np.inf] * 3]),), {"axes": (1,)}, differentiable=()),
    Sample("log_softmax", (np.asarray([[-np.inf, 0.0, 800.0], [-np.inf] * 3]),), {"axes": (1,)}, differentiable=()),
    Sample("logsumexp", (np.asarray([[-np.inf, 0.0, 800.0], [-np.inf] * 3]),), {"axes": (1,)}, differentiable=()),
    *(Sample("pick_log_softmax", (_normal(2, 4), _INDEX), {"mode": mode}) for mode in ("error", "clip", "wrap")),
    Sample("pick_log_softmax", (_normal(4), np.asarray([2])), {"mode": "error"}),
]  # fmt: skip
