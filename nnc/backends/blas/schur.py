"""LU and Schur decompositions and Sylvester's equation in compiled programs, by LAPACK."""

from __future__ import annotations

import math

from nnc.backends.blas.lapack import MatrixPrinter, Params, Pieces, add_routines, found_lapack, square_sizes
from nnc.backends.factorizations import Specs
from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.lower.plan.stages import Step

# -- LU ----------------------------------------------------------------------------------------------------------------


def _lu_pieces(specs: Specs, params: Params) -> Pieces:
    m, n = specs[0].shape[-2:]
    return {"a": m * n * specs[0].dtype.itemsize, "pivots": 8 * min(m, n), "rows": 4 * m}


def _lu(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    """Factorises; then makes the exchanges of rows that LAPACK tells on a list of their numbers."""
    (x, out, pivots, rows), code = p.views, p.code
    m, n = x.spec.shape[-2:]
    with p.matrices() as (source, target, pivots_at, rows_at):
        p.gather(x, source, p.at["a"])
        p.call("getrf", m, n, p.at["a"], m, p.at["pivots"])  # a status above 0 tells of a singular matrix
        p.scatter(out, p.at["a"], target)
        with code.loop(0, m) as i:
            place = code.offset(p.at["rows"], code.mul(i, code.integer(4)))
            code.store(place, code.convert(i, dtypes.int32))
        with code.loop(0, min(m, n)) as i:
            pivot = code.load(code.offset(p.at["pivots"], code.mul(i, code.integer(8))), dtypes.int64)
            pivot = code.sub(pivot, code.integer(1))  # LAPACK counts from 1
            at = code.offset(pivots_at, code.mul(i, code.integer(pivots.strides[-1])))
            code.store(at, code.convert(pivot, dtypes.int32))
            one, other = (code.offset(p.at["rows"], code.mul(k, code.integer(4))) for k in (i, pivot))
            first, second = code.load(one, dtypes.int32), code.load(other, dtypes.int32)
            code.store(one, second)
            code.store(other, first)
        with code.loop(0, m) as i:
            row = code.load(code.offset(p.at["rows"], code.mul(i, code.integer(4))), dtypes.int32)
            code.store(code.offset(rows_at, code.mul(i, code.integer(rows.strides[-1]))), row)


# -- Schur -------------------------------------------------------------------------------------------------------------


def _schur_parts(spec: TensorSpec, suffix: str = "") -> dict[str, int]:
    """Returns the matrix, which becomes T, and Z, eigenvalues, workspace."""
    n, size = square_sizes((spec,))
    arguments = (b"V", b"N", None, n, None, n, None, None, None, None, n)
    elements, _ = found_lapack().room("gees", spec.dtype, arguments)
    parts = {"t": n * n * size, "z": n * n * size, "values": 2 * n * size, "work": elements * size}
    return {name + suffix: nbytes for name, nbytes in parts.items()}


def _decompose(p: MatrixPrinter, n: int, pieces: Pieces, suffix: str = "") -> None:
    """Refuses numbers that are not finite, as the reference does: LAPACK's iteration would not end."""
    code, size = p.code, p.dtype.itemsize
    t, z, values = (p.at[name + suffix] for name in ("t", "z", "values"))
    total = code.slot(code.constant(0, p.dtype))
    with code.loop(0, n * n) as i:
        element = code.load(code.offset(t, code.mul(i, code.integer(size))), p.dtype)
        code.write(total, code.add(code.read(total), code.mul(element, code.like(element, 0))))
    p.refuse_if(code.compare("uno", code.read(total), code.read(total)))
    count = code.room(8)  # of eigenvalues that are chosen: none is
    info = p.call(
        "gees", p.letter("V"), p.letter("N"), "null", n, t, n, count, values, code.offset(values, n * size), z, n,
        p.at["work" + suffix], pieces["work" + suffix] // size, "null", letters=2,
    )  # fmt: skip
    p.refuse_unless_done(info)


def _schur_pieces(specs: Specs, params: Params) -> Pieces:
    return _schur_parts(specs[0])


def _schur(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    x, t, z = p.views
    with p.matrices() as (source, t_at, z_at):
        p.gather(x, source, p.at["t"])
        _decompose(p, x.spec.shape[-1], pieces)
        p.scatter(t, p.at["t"], t_at)
        p.scatter(z, p.at["z"], z_at)


def _sylvester_pieces(specs: Specs, params: Params) -> Pieces:
    a, b, c = specs
    nbytes = math.prod(c.shape[-2:]) * c.dtype.itemsize
    return {**_schur_parts(a, "_a"), **_schur_parts(b, "_b"), "c": nbytes, "product": nbytes}


def _sylvester(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    """With A = U R Uᵀ and B = V S Vᵀ: R Y + Y S = Uᵀ C V, and X = U Y Vᵀ."""
    (a, b, c, out), code = p.views, p.code
    m, n = c.spec.shape[-2:]
    plain, turned = p.letter("N"), p.letter("T")
    one, zero, scale, inverse = (code.room(8) for _ in range(4))
    code.store(one, code.constant(1, p.dtype))
    code.store(zero, code.constant(0, p.dtype))
    y, product = p.at["c"], p.at["product"]
    with p.matrices() as (a_at, b_at, c_at, target):
        for view, source, suffix in ((a, a_at, "_a"), (b, b_at, "_b")):
            p.gather(view, source, p.at["t" + suffix])
            _decompose(p, view.spec.shape[-1], pieces, suffix)
        p.gather(c, c_at, y)
        u, v = p.at["z_a"], p.at["z_b"]
        p.call_plain("gemm", turned, plain, m, n, m, one, u, m, y, m, zero, product, m, letters=2)
        p.call_plain("gemm", plain, plain, m, n, n, one, product, m, v, n, zero, y, m, letters=2)
        sides = (p.at["t_a"], m, p.at["t_b"], n, y, m, scale)
        info = p.call("trsyl", plain, plain, 1, m, n, *sides, letters=2)
        # Status 1: eigenvalues of A and -B are common but for rounding. Then all is NaN.
        reciprocal = code.div(code.constant(1, p.dtype), code.load(scale, p.dtype))
        nan = code.like(reciprocal, math.nan)
        code.store(inverse, code.select(code.compare("eq", info, code.integer(1)), nan, reciprocal))
        p.call_plain("gemm", plain, plain, m, n, m, one, u, m, y, m, zero, product, m, letters=2)
        p.call_plain("gemm", plain, turned, m, n, n, inverse, product, m, v, n, zero, y, m, letters=2)
        p.scatter(out, y, target)


add_routines("lu", _lu_pieces, _lu)
add_routines("schur", _schur_pieces, _schur)
add_routines("sylvester", _sylvester_pieces, _sylvester)
