"""A program of several processes, of which rank 1 fails in the way that the first argument says."""

from __future__ import annotations

import os
import signal
import sys
import time

import nnc
import nnc.numpy as nnp
from nnc.distributed import PartitionSpec, make_mesh, rank, shard_map, size

P = PartitionSpec


def fail(kind: str) -> None:
    if kind == "raise":
        raise ValueError("a bad value")
    if kind == "exit":
        sys.exit(0)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "late":
        time.sleep(600)


def total(x: nnc.Array) -> nnc.Array:
    return nnc.psum(x.sum(), "i")


def main() -> None:
    """Sums in all processes, fails in one, and sums again."""
    places = shard_map(total, mesh=make_mesh((size(),), ("i",)), in_specs=P("i"), out_specs=P())
    sums = nnc.compile(places)
    x = nnp.ones(size())
    if sys.argv[2:] == ["compiled"]:
        float(sums(x))
    else:
        float(places(x))
    if rank() == 1:
        fail(sys.argv[1])
    assert float(sums(x) if sys.argv[2:] == ["compiled"] else places(x)) == size()
    print(f"rank {rank()} is done", flush=True)


main()
