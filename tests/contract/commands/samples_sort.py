"""Sample inputs of sorting and searching; floats are distinct, so that derivatives exist."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(13)


def _distinct(*shape: int) -> Any:
    return (_RNG.permutation(int(np.prod(shape))) * 0.5 - 2.0).reshape(shape)


_TIES = np.asarray([[2, 1, 2, 0], [1, 1, 1, 3]])

SAMPLES: list[Sample] = [
    *(
        Sample("sort", (_distinct(3, 4),), {"axis": axis, "descending": down})
        for axis in (0, 1)
        for down in (False, True)
    ),
    Sample("sort", (_distinct(2, 0),), {"axis": 1, "descending": False}),
    Sample("sort", (_TIES,), {"axis": 1, "descending": True}, dtypes=()),
    Sample("sort", (np.asarray([1 + 2j, 3 - 1j, 0j]),), {"axis": 0, "descending": False}, dtypes=()),
    *(
        Sample("argsort", (x,), {"axis": axis, "descending": down, "stable": True})
        for x in (_distinct(3, 4), _TIES)
        for axis in (0, 1)
        for down in (False, True)
    ),
    Sample("top_k", (_distinct(3, 4),), {"k": 2}),
    Sample("top_k", (_distinct(5),), {"k": 5}),
    Sample("top_k", (_distinct(5),), {"k": 0}),
    Sample("top_k", (_TIES,), {"k": 3}, dtypes=()),
    Sample("searchsorted", (np.asarray([0.0, 1.0, 1.0, 3.0]), np.asarray([[1.0, -1.0], [3.0, 4.0]])), {"side": "left"}),
    Sample("searchsorted", (np.asarray([0.0, 1.0, 1.0, 3.0]), np.asarray([1.0, -1.0, 3.0])), {"side": "right"}),
    Sample("searchsorted", (np.sort(_distinct(3, 4), 1), _distinct(3, 2)), {"side": "left"}),
    Sample("searchsorted", (_distinct(0), _distinct(2)), {"side": "left"}),
]
