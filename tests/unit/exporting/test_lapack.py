"""Factorizations: small printed ones need no library, the others call LAPACK by name where that is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from tests.unit.exporting.harness import build, lapack, run, unresolved
from tests.unit.exporting.programs import draw, gaussian_process

A = draw(40, 40, dtype=np.float64)  # of sizes for which LAPACK is faster
SYMMETRIC = A @ A.T + np.eye(40)

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...], set[str]]] = {
    "solve": (nnp.linalg.solve, (A, draw(40, 3, dtype=np.float64)), {"dgesv_"}),
    "solve in float32": (nnp.linalg.solve, (A.astype(np.float32), draw(40)), {"sgesv_"}),
    "det": (lambda x: (nnp.linalg.det(x), nnp.linalg.slogdet(x)), (A,), {"dgetrf_"}),
    "inverse": (nnp.linalg.inv, (np.stack([A, A + 1]),), {"dgesv_"}),
    "lu": (nnc.scipy.linalg.lu, (A,), {"dgetrf_"}),
    "qr": (nnp.linalg.qr, (draw(50, 40, dtype=np.float64),), {"dgeqrf_", "dorgqr_"}),
    "eigh": (nnp.linalg.eigh, (SYMMETRIC,), {"dsyevd_"}),
    "svd": (lambda x: nnp.linalg.svd(x, full_matrices=False), (draw(5, 3, dtype=np.float64),), {"dgesdd_"}),
    "gaussian process": (*gaussian_process(), {"dpotrf_"}),
    "cholesky": (nnp.linalg.cholesky, (np.eye(200) * 9 + 0.01,), {"dpotrf_"}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_factorization_calls_lapack_by_name(name: str, tmp_path: Path) -> None:
    fun, args, routines = FUNCTIONS[name]
    folder = tmp_path / "out"
    exported = nnc.export(fun, *args, path=folder, name="program", lapack="link")
    needed = {each for each in unresolved(folder) if each.endswith("_") and not each.startswith("_")}
    assert needed == routines and exported.calls_lapack
    assert "calls LAPACK" in (folder / "program.h").read_text()
    library = lapack()
    if library is None:
        pytest.skip("no LAPACK with integers of 32 bits is here")
    renamed = [f"--redefine-sym={routine}=scipy_{routine}" for routine in routines]
    subprocess.run(["objcopy", *renamed, "program.o"], cwd=folder, check=True)
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
    found = run(build(folder, "program", *link), exported, args)
    assert not isinstance(found, str), found
    expected = [np.asarray(x) for x in nnc.tree.leaves(nnc.compile(fun)(*args))]
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            x, y, rtol=1e-3 if x.dtype == np.float32 else 1e-9, atol=1e-4 if x.dtype == np.float32 else 1e-9
        )


@pytest.mark.parametrize("rows", [6, 40])
@pytest.mark.parametrize("name", ["solve", "det", "inverse", "lu", "qr", "eigh", "cholesky"])
def test_printed_factorizations_need_no_library(name: str, rows: int, tmp_path: Path) -> None:
    fun, args, _ = FUNCTIONS[name]
    args = tuple(arg[..., :rows, :rows] if arg.ndim > 1 else arg[:rows] for arg in args)
    folder = tmp_path / "out"
    exported = nnc.export(fun, *args, path=folder, name="program")
    assert not [each for each in unresolved(folder) if each.endswith("_") and not each.startswith("_")]
    assert not exported.calls_lapack
    found = run(build(folder, "program"), exported, args)
    assert not isinstance(found, str), found
    size = np.abs if name == "eigh" else np.asarray  # eigenvectors have any sign
    for x, y in zip(found, nnc.tree.leaves(nnc.compile(fun)(*args)), strict=True):
        np.testing.assert_allclose(size(x), size(np.asarray(y)), rtol=1e-9, atol=1e-9)


def test_a_singular_matrix_is_an_error(tmp_path: Path) -> None:
    folder, library = tmp_path / "out", lapack()
    args = np.ones((3, 3)), np.ones(3)
    exported = nnc.export(nnp.linalg.solve, *args, path=folder, name="program", lapack="link")
    if library is None:
        pytest.skip("no LAPACK with integers of 32 bits is here")
    subprocess.run(["objcopy", "--redefine-sym=dgesv_=scipy_dgesv_", "program.o"], cwd=folder, check=True)
    program = build(folder, "program", str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined")
    assert "solve: the matrix is singular" in str(run(program, exported, args))
