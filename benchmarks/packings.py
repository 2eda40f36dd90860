"""Problems of placement of which a good plan is known: a rectangle cut into pieces."""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc import ALIGNMENT


def packing(
    seed: int, count: int, width: int, height: int, missing: float = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A rectangle of steps and bytes cut into `count` others: first steps, ends, sizes.

    The best plan has no gap, or those alone where pieces are `missing`, a share of all: where most of time is a little less than
    full, planners waste room at other places than where it is.
    """
    rng = np.random.default_rng(seed)
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        areas = np.array([(b - a) * (d - c) for a, b, c, d in pieces], float)
        a, b, c, d = pieces.pop(int(rng.choice(len(pieces), p=areas / areas.sum())))
        if b - a > 2 and d - c > 2 and rng.random() < 0.3:  # four around one: no cut goes through
            x, z = sorted(rng.choice(np.arange(a + 1, b), 2, replace=False).tolist())
            y, w = sorted(rng.choice(np.arange(c + 1, d), 2, replace=False).tolist())
            pieces += [(a, z, c, y), (z, b, c, w), (x, b, w, d), (a, x, y, d), (x, z, y, w)]
        elif b - a > 1 and (d - c == 1 or rng.random() < 0.5):
            x = int(rng.integers(a + 1, b))
            pieces += [(a, x, c, d), (x, b, c, d)]
        elif d - c > 1:
            y = int(rng.integers(c + 1, d))
            pieces += [(a, b, c, y), (a, b, y, d)]
        else:
            pieces.append((a, b, c, d))
    cut = np.array(pieces)[rng.permutation(len(pieces))]
    if missing:
        cut = cut[rng.random(len(cut)) >= missing]
    return cut[:, 0], cut[:, 1], (cut[:, 3] - cut[:, 2]) * ALIGNMENT
