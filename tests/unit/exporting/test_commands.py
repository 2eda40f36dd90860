"""Every command that has a printed kernel is exported, and gives the bits of the same program in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnc
from nnc.errors import UnsupportedError
from nnc.graph import command
from tests.contract.commands.sample import Sample, all_samples
from tests.unit.exporting.harness import in_python

# Commands that may be refused: factorizations, which need LAPACK, and those that run in Python in every program.
REFUSED = {
    "cholesky", "cofactor", "det", "eig", "eigh", "lu", "pinv", "qr", "schur", "slogdet", "solve", "svd", "sylvester",
    "triangular_root", "triangular_solve", "ie_moment", "ine", "pick_pool",
}  # fmt: skip


def may_be_refused(row: Sample) -> bool:
    """The reference also runs some commands of complex numbers, such as sorts and powers."""
    return row.command in REFUSED or any(np.asarray(x).dtype.kind == "c" for x in row.operands)


@pytest.mark.parametrize("row", all_samples(), ids=str)
def test_an_exported_command_gives_the_bits_of_python(row: Sample, tmp_path: Path) -> None:
    arrays = tuple(np.asarray(x) for x in row.operands)
    wanted = command(row.command)
    run = lambda *operands: wanted(*operands, **row.params)
    try:
        nnc.export(run, *arrays, path=tmp_path / "out", name="f")
    except UnsupportedError:
        assert may_be_refused(row)
        return
    found = nnc.load_exported(tmp_path / "out")(*arrays)
    expected = in_python(run, arrays)
    for x, y in zip(expected, found if isinstance(found, tuple) else (found,), strict=True):
        assert x.tobytes() == y.tobytes()
