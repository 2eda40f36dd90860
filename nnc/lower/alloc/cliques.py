"""The maximal sets of tensors that live in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnc.lower.alloc.problem import Ints


@dataclass(frozen=True, slots=True)
class Cliques:
    """The maximal sets of tensors that live in one step, in time; clique c is members[begin[c]:begin[c + 1]]."""

    members: Ints
    begin: Ints
    span: tuple[Ints, Ints]  # of each tensor: its first clique and the one after its last

    @classmethod
    def of(cls, lo: Ints, hi: Ints) -> Cliques:
        """The cliques of live ranges."""
        times = np.unique(lo)
        ends = np.unique(hi)
        until = ends[np.searchsorted(ends, times, side="right")]  # the first death after each birth
        last_births = np.flatnonzero(np.append(until[1:] != until[:-1], True))
        steps = times[last_births]
        sets = [np.flatnonzero((lo <= step) & (hi > step)) for step in steps]
        begin = np.concatenate([[0], np.cumsum([len(found) for found in sets])])
        span = np.searchsorted(steps, lo), np.searchsorted(steps, hi)
        return cls(np.concatenate(sets), begin, span)
