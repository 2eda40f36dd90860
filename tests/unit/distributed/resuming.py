"""A program that resumes from its last checkpoint; given "crash" it loses rank 1 after four steps, once."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import numpy as np

import nnc
from nnc.distributed import data_parallel, rank
from tests.unit.distributed.test_parallel import X, Y, network, training_step


def main(path: Path, crash: bool) -> None:
    optimizer = nnc.optim.sharded(nnc.optim.adam(1e-2), "data")
    step = nnc.compile(data_parallel(training_step(optimizer), batch_argnums=(2, 3)))
    model = network()
    now, again = (model, optimizer.init(model), 0), path.exists()
    model, state, count = nnc.io.load(path, like=now) if again else now
    while count < 6:
        if crash and not again and count == 4 and rank() == 1:
            os._exit(9)
        model, state = step(model, state, X, Y)[:2]
        count += 1
        if count % 3 == 0:
            nnc.io.save(path, (model, state, count), sharded=True)
    arrays = [np.asarray(x).tobytes() for x in nnc.tree.leaves((model, state)) if nnc.tree.is_array(x)]
    if rank() == 0:
        print(again, hashlib.sha256(b"".join(arrays)).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]), "crash" in sys.argv)
