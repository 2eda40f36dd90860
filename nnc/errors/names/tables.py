"""All tables: for each module of another library its names with nnc's code, and for each module of nnc the tables that its users
come from.

The table of `torch.nn` is the file `libraries/torch.nn.json`. It is read when it is first asked for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

_FILES = Path(__file__).parent / "libraries"
_MODULES = (
    "jax", "jax.numpy", "jax.lax", "jax.random", "jax.tree_util", "jax.nn", "jax.scipy", "jax.scipy.special", "jax.scipy.linalg",
    "equinox", "equinox.nn", "flax", "optax", "torch", "torch.linalg", "torch.Tensor", "torch.nn", "torch.nn.functional",
    "torch.nn.init", "torch.optim", "jax.sharding", "jax.distributed", "jax.experimental", "torch.distributed",
    "torch.nn.Module", "torch.optim.Optimizer", "flax.Module",
)  # fmt: skip


Row = str | tuple[str, str]
"""Code of nnc, where x and y are arrays and f a function, or such code and a note.

Example:
    >>> row: Row = ("nnp.sum(x)", "as in NumPy")
    >>> note_of(row)
    'as in NumPy'
"""
Rows = Mapping[str, Row]
"""A table: rows by the names of another library.

Example:
    >>> rows: Rows = {"cat": "nnp.concatenate([x, y])"}
    >>> code_of(rows["cat"])
    'nnp.concatenate([x, y])'
"""


def code_of(row: Row) -> str:
    """Returns the code of nnc that stands for a name.

    Args:
        row: a row of a table.

    Example:
        >>> code_of(("nnp.sum(x)", "as in NumPy")), code_of("nnp.exp(x)")
        ('nnp.sum(x)', 'nnp.exp(x)')
    """
    return row if isinstance(row, str) else row[0]


def note_of(row: Row) -> str:
    """Returns the note beside the code; an empty string where there is none.

    Args:
        row: a row of a table.

    Example:
        >>> note_of(("nnp.sum(x)", "as in NumPy")), note_of("nnp.exp(x)")
        ('as in NumPy', '')
    """
    return "" if isinstance(row, str) else row[1]


@functools.cache
def _read(module: str) -> Rows:
    if module not in _MODULES:
        raise KeyError(module)
    rows = json.loads((_FILES / f"{module}.json").read_text(encoding="utf-8"))
    return {name: row if isinstance(row, str) else (row[0], row[1]) for name, row in rows.items()}


class _Tables(Mapping[str, Rows]):
    def __getitem__(self, module: str) -> Rows:
        return _read(module)

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


TABLES: Mapping[str, Rows] = _Tables()
"""The tables by the modules of other libraries.

Example:
    >>> TABLES["jax"]["jit"]
    'nnc.compile(f)'
"""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "nnc": (
        "jax", "jax.lax", "torch", "equinox", "jax.tree_util", "jax.sharding", "jax.experimental", "jax.distributed",
    ),
    "nnc.numpy": ("jax.numpy", "jax.lax", "torch", "torch.Tensor"),
    "nnc.numpy.linalg": ("torch.linalg", "torch"),
    "nnc.random": ("jax.random", "torch", "torch.Tensor"),
    "nnc.tree": ("jax.tree_util", "equinox", "jax"),
    "nnc.nn": ("torch.nn.functional", "torch.nn", "jax.nn", "flax", "equinox", "equinox.nn", "optax", "torch"),
    "nnc.nn.initializers": ("torch.nn.init", "jax.nn"),
    "nnc.optim": ("torch.optim", "optax"),
    "nnc.scipy": ("jax.scipy", "jax.scipy.special", "jax.scipy.linalg"),
    "nnc.distributed": ("jax.sharding", "jax.distributed", "jax.experimental", "torch.distributed"),
    "nnc.Array": ("torch.Tensor",),
    "nnc.nn.Module": ("torch.nn.Module", "flax.Module"),
    "nnc.optim.GradientTransformation": ("torch.optim.Optimizer",),
}  # fmt: skip
"""The modules whose tables are read first, in this order, for names that a module of nnc lacks.

Example:
    >>> SOURCES["nnc.random"]
    ('jax.random', 'torch', 'torch.Tensor')
"""
