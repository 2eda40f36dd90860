"""Sample inputs of gather, scatter and the dynamic slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> Any:
    return _RNG.normal(size=shape)


def _indices(size: int, *shape: int) -> Any:
    return _RNG.integers(0, size, shape)


def _one(mode: str = "error", axes: tuple[int, ...] = (0,), batch: int = 0) -> dict[str, Any]:
    return {"axes": axes, "batch": batch, "mode": mode}


_REPEATED = np.asarray([1, 3, 1, 0, 1])
_OUTSIDE = np.asarray([1, -2, 7, 0])
_MATRIX = _normal(4, 3)
_UPDATES = _normal(5, 3)

SAMPLES: list[Sample] = [
    Sample("gather", (_normal(5), _indices(5, 3)), _one()),
    Sample("gather", (_normal(5, 3), _indices(5, 2, 2)), _one()),
    Sample("gather", (_normal(3, 5), np.asarray(2)), _one(axes=(1,))),
    Sample("gather", (_normal(4, 3, 5), _indices(5, 2), _indices(4, 2)), _one(axes=(2, 0))),
    Sample("gather", (_normal(2, 4, 3), _indices(3, 2, 5)), _one(axes=(2,), batch=1)),
    Sample("gather", (_normal(2, 3, 4), _indices(4, 2, 3, 2)), _one(axes=(2,), batch=2)),
    Sample("gather", (_normal(2, 3, 4), _indices(4, 2, 3), _indices(3, 2, 3)), _one(axes=(2, 1), batch=1)),
    *(Sample("gather", (_MATRIX, _OUTSIDE), _one(mode)) for mode in ("clip", "wrap", "drop")),
    Sample("gather", (_MATRIX, _OUTSIDE), _one("fill"), differentiable=()),  # NaN has no differences; see test_index
    Sample("gather", (_normal(4, 0), _indices(4, 2)), _one()),
    Sample("gather", (_normal(4, 2), _indices(4, 0)), _one()),
    Sample("gather", (np.arange(12).reshape(4, 3), _OUTSIDE.astype(np.int8)), _one("fill"), dtypes=()),
    *(
        Sample("scatter", (_MATRIX, _UPDATES, _REPEATED), {**_one(), "op": op})
        for op in ("set", "add", "mul", "min", "max")
    ),
    *(
        Sample("scatter", (_MATRIX, _normal(4, 3), _OUTSIDE), {**_one(mode), "op": op})
        for op in ("set", "add", "mul", "max")
        for mode in ("clip", "wrap", "drop")
    ),
    *(
        Sample("scatter", (_normal(3, 4), _normal(2, 3), _indices(4, 2)), {**_one(axes=(1,)), "op": op})
        for op in ("set", "mul")
    ),
    *(
        Sample(
            "scatter",
            (_normal(4, 3, 5), _normal(3, 3), _indices(5, 3), _indices(4, 3)),
            {**_one(axes=(2, 0)), "op": op},
        )
        for op in ("set", "add", "mul", "min")
    ),
    *(
        Sample(
            "scatter", (_normal(2, 4, 3), _normal(2, 5, 4), _indices(3, 2, 5)), {**_one(axes=(2,), batch=1), "op": op}
        )
        for op in ("set", "add", "mul", "max")
    ),
    *(
        Sample("scatter", (_normal(4, 3), _normal(3), np.asarray(2)), {**_one(), "op": op})
        for op in ("set", "add", "mul", "min")
    ),
    Sample("scatter", (_MATRIX, _normal(2, 3), np.asarray([3, 1])), {**_one(), "op": "set", "unique": True}),
    Sample("scatter", (_MATRIX, _normal(2, 3), np.asarray([3, 1])), {**_one(), "op": "mul", "unique": True}),
    Sample("scatter", (_normal(4, 0), _normal(2, 0), _indices(4, 2)), {**_one(), "op": "add"}),
    Sample("scatter", (_normal(4, 2), _normal(0, 2), _indices(4, 0)), {**_one(), "op": "mul"}),
    Sample("scatter", (np.arange(4), np.asarray([5, 6]), np.asarray([1, 1])), {**_one(), "op": "add"}, dtypes=()),
    *(
        Sample("dynamic_slice", (_normal(4, 5), np.asarray(a), np.asarray(b)), {"sizes": (2, 3), "mode": mode})
        for a, b, mode in ((1, 2, "error"), (0, 0, "error"), (-3, 9, "clip"))
    ),
    Sample("dynamic_slice", (_normal(3, 4), np.asarray(0), np.asarray(3)), {"sizes": (3, 1), "mode": "error"}),
    Sample("dynamic_slice", (_normal(3), np.asarray(1)), {"sizes": (0,), "mode": "error"}),
    Sample("dynamic_slice", (_normal(),), {"sizes": (), "mode": "error"}),
    *(
        Sample("dynamic_update_slice", (_normal(4, 5), _normal(2, 3), np.asarray(a), np.asarray(b)), {"mode": mode})
        for a, b, mode in ((1, 2, "error"), (0, 0, "error"), (-3, 9, "clip"))
    ),
    Sample("dynamic_update_slice", (_normal(3, 4), _normal(3, 1), np.asarray(0), np.asarray(3)), {"mode": "error"}),
    Sample("dynamic_update_slice", (_normal(3), _normal(3), np.asarray(0)), {"mode": "error"}),
]
