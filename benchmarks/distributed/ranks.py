"""The part that runs on all ranks: `mpiexec -n 2 python -m benchmarks.distributed.ranks`; rank 0 prints the times as JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from benchmarks.networks import CLASSES, Encoder, Network, Perceptron, image_network, struct
from nnc import optim
from nnc.distributed import PartitionSpec, data_parallel, make_mesh, rank, shard_map, size
from nnc.nn import models

BATCH = 64  # examples of one rank where the work grows with the ranks, and of all ranks where it does not
INNER = 20  # collectives in one loop of a compiled program
COLLECTIVES = ("psum", "pmax", "all_gather", "psum_scatter", "all_to_all", "ppermute")


def networks(batch: int) -> list[Network]:
    """The networks that are trained."""
    labels = struct(batch, dtype=np.int32)
    make = lambda key: Perceptron(784, 512, 512, CLASSES, key=key)
    return [
        Network("MLP 784-512-512-10", make, struct(batch, 784), labels, optim.sgd(0.01)),
        image_network("LeNet, 28²", lambda key: models.LeNet(key=key), batch, 28, 1),
        Network(
            "transformer, 4 layers of 128", lambda key: Encoder(4, 128, 4, key=key), struct(batch, 32, 128), labels,
            optim.adam(1e-3),
        ),
    ]  # fmt: skip


def time_step(network: Network, steps: int, streams: int = 1) -> dict[str, Any]:
    """Seconds of a data parallel step, the share that collectives take of it, and the bytes of the gradients."""
    step = nnc.compile(data_parallel(network.step, batch_argnums=(2, 3)), streams=streams)
    model = network.make(nnc.random.key(0))
    state = network.optimizer.init(model)
    rng = np.random.default_rng(0)
    x = nnp.asarray(rng.normal(size=network.x.shape).astype(np.float32))
    labels = nnp.asarray(rng.integers(0, CLASSES, network.labels.shape).astype(np.int32))
    seconds: list[float] = []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        model, state, loss = step(model, state, x, labels)
        nnc.block_until_ready(loss)
        seconds.append(time.perf_counter() - begin)
    shares = []
    for _ in range(5):
        run = nnc.debug.profile(step, model, state, x, labels)
        shares.append(sum(row.duration for row in run.rows if row.command in COLLECTIVES) / run.duration)
    nbytes = sum(leaf.nbytes for leaf in nnc.tree.leaves(model) if nnc.tree.is_array(leaf))
    return {"seconds": median(seconds[3:]), "share": median(shares), "nbytes": nbytes}


# -- collectives -------------------------------------------------------------------------------------------------------


def carried(name: str) -> Callable[[Any], Any]:
    """A collective after which the value has its first shape and size again, so that a loop can repeat it."""
    n = size()
    along = [(k, (k + 1) % n) for k in range(n)]
    return {
        "psum": lambda x: nnc.psum(x, "i") * np.float32(1 / n),
        "pmax": lambda x: nnc.pmax(x, "i"),
        "all_gather": lambda x: nnc.all_gather(x, "i")[0],
        "psum_scatter": lambda x: nnp.tile(nnc.psum_scatter(x, "i", tiled=True) * np.float32(1 / n), n),
        "all_to_all": lambda x: nnc.all_to_all(x, "i", 0, 0, tiled=True),
        "ppermute": lambda x: nnc.ppermute(x, "i", along),
    }[name]


def bare(name: str, count: int) -> Callable[[], Any]:
    """The same by mpi4py alone, from one buffer into another."""
    from mpi4py import MPI  # noqa: PLC0415

    world, n = MPI.COMM_WORLD, size()
    x, out = np.ones(count, np.float32), np.empty(count, np.float32)
    if name == "all_gather":
        every = np.empty((n, count), np.float32)
        return lambda: world.Allgather(x, every)
    if name == "psum_scatter":
        part = np.empty(count // n, np.float32)
        return lambda: world.Reduce_scatter_block(x, part, MPI.SUM)
    if name == "ppermute":
        after, before = (world.rank + 1) % n, (world.rank - 1) % n
        return lambda: world.Sendrecv(x, after, 0, out, before, 0)
    return {
        "psum": lambda: world.Allreduce(x, out, MPI.SUM),
        "pmax": lambda: world.Allreduce(x, out, MPI.MAX),
        "all_to_all": lambda: world.Alltoall(x, out),
    }[name]


def time_collective(name: str, nbytes: int, rounds: int) -> tuple[float, float]:
    """Least seconds of one collective of a value of so many bytes on each rank: nnc's, within a compiled loop, and mpi4py's."""
    one = carried(name)

    def place(x: Any) -> Any:
        return nnc.fori_loop(0, INNER, lambda i, x: nnc.pvary(one(x), "i"), x)

    mesh, split = make_mesh((size(),), ("i",)), PartitionSpec("i")
    f = nnc.compile(shard_map(lambda x: place(x)[:1], mesh=mesh, in_specs=split, out_specs=split))
    x, alone = nnp.ones(size() * nbytes // 4), bare(name, nbytes // 4)
    ours, theirs = [], []
    for i in range(rounds + 2):
        begin = time.perf_counter()
        nnc.block_until_ready(f(x))
        middle = time.perf_counter()
        for _ in range(INNER):
            alone()
        end = time.perf_counter()
        if i > 1:
            ours.append((middle - begin) / INNER)
            theirs.append((end - middle) / INNER)
    return min(ours), min(theirs)


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    steps, rounds = (10, 5) if options.quick else (60, 30)
    n, found = size(), dict[str, Any](steps=[], collectives=[])
    for mode, batch, streams in (("strong", BATCH, 1), ("weak", BATCH * n, 1), ("weak, two streams", BATCH * n, 2)):
        for network in networks(batch):
            times = time_step(network, steps, streams)
            found["steps"].append({"model": network.name, "mode": mode, "examples": batch, **times})
    for name in COLLECTIVES if n > 1 else ():
        for nbytes in (64, 65536, 2**20) if options.quick else (64, 4096, 65536, 2**20, 2**22):
            ours, theirs = time_collective(name, nbytes, rounds if nbytes < 2**20 else 5)
            found["collectives"].append({"name": name, "nbytes": nbytes, "nnc": ours, "mpi4py": theirs})
    if rank() == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
