"""The commands that come with nnc, one module a family. Importing the package registers them all."""

from nnc.commands import (
    contract,
    control,
    conv,
    elementwise,
    factor,
    fft,
    index,
    linalg,
    loop,
    pool,
    random,
    reduce,
    replay,
    shape,
    sort,
    special,
)

__all__ = [
    "contract",
    "control",
    "conv",
    "elementwise",
    "factor",
    "fft",
    "index",
    "linalg",
    "loop",
    "pool",
    "random",
    "reduce",
    "replay",
    "shape",
    "sort",
    "special",
]
