"""All rows, by family."""

from benchmarks.peers.row import Row
from benchmarks.peers.rows import calls, complexes, matrices, networks, programs, sweeps

ROWS: tuple[Row, ...] = (*networks.ROWS, *programs.ROWS, *complexes.ROWS, *matrices.ROWS, *calls.ROWS, *sweeps.ROWS)
