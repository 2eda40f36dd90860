"""Schur decompositions x = Z T Zᴴ, Sylvester's equations, and square roots of triangular matrices.

All axes before the last two are batches. Real matrices have real factors, with 2 × 2 blocks on the diagonal of T where eigenvalues
are a complex pair. Decompositions and roots of triangles have no derivatives of their own; functions made of them have, by
Sylvester's equation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnc.commands.contract import matrix_product
from nnc.commands.elementwise import INEXACT
from nnc.commands.linalg import NDArray, check_matrix, cubic, infer_square, lapack, matrix_transpose
from nnc.commands.rules import add_tangents, batch_leading, check_dtype, not_linear
from nnc.errors import ShapeError, user_error
from nnc.graph import Command, TensorSpec, check_same_dtype, register
from nnc.graph.rules import Cotangents, Derivative, Linear, Rules, Tangents, Value

_SWEEPS = 40  # for each eigenvalue; LAPACK allows 30, and two or three are usual

_PATIENCE = 10  # sweeps with the strict bound


def _for_each(function: Callable[..., tuple[NDArray, ...]], results: int = 1) -> Callable[..., tuple[NDArray, ...]]:
    """Returns a function of batches that calls `function` for one matrix after the other; results are like the last operand."""

    def run(*xs: NDArray) -> tuple[NDArray, ...]:
        outputs = tuple(np.zeros_like(xs[-1]) for _ in range(results))
        for at in np.ndindex(*xs[0].shape[:-2]):
            for output, value in zip(outputs, function(*(x[at] for x in xs)), strict=True):
                output[at] = value
        return outputs

    return run


# -- the decomposition -------------------------------------------------------------------------------------------------


def _schur(x: NDArray) -> tuple[NDArray, NDArray]:
    """Francis' algorithm: sweeps chase a bulge down a Hessenberg matrix, by two shifts of a real matrix, one of a complex one."""
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError
    n, scale = x.shape[-1], np.exp2(np.frexp(np.abs(x).max(initial=0))[1]).astype(x.real.dtype)
    t = x / scale  # so that the largest elements are near 1, and products do not overflow
    z, degree = np.eye(n, dtype=x.dtype), 1 if np.iscomplexobj(x) else 2
    for j in range(n - 2):
        _reflect(t, z, t[j + 1 :, j], j + 1, j)
    t = np.triu(t, -1)
    end, sweeps = n, 0
    while end > 0:
        start = _deflated_from(t, end, anywhere=sweeps > _PATIENCE)
        if end - start <= degree:
            if end - start == 2:
                _standardise(t, z, start)
            end, sweeps = start, 0
            continue
        sweeps += 1
        if sweeps > _SWEEPS:
            raise np.linalg.LinAlgError
        _sweep(t, z, start, end, degree, exceptional=sweeps % 10 == 0)
    return t * scale, z


def _reflect(t: NDArray, z: NDArray, column: NDArray, at: int, first: int) -> None:
    """Turns rows and columns from `at` on so that `column`, which lies in them, becomes a multiple of the first unit vector.

    Rows are zero before column `first`.
    """
    largest = np.abs(column).max()
    if largest <= np.finfo(t.dtype).tiny / np.finfo(t.dtype).eps or not column[1:].any():
        return  # nothing beside elements of 1
    v = column / largest  # squares of small numbers would be 0
    size = np.linalg.norm(v)
    v[0] += size * (v[0] / abs(v[0]) if v[0] != 0 else 1)
    v /= np.linalg.norm(v)
    rows = slice(at, at + len(v))
    t[rows, first:] -= 2 * np.outer(v, v.conj() @ t[rows, first:])
    t[:, rows] -= 2 * np.outer(t[:, rows] @ v, v.conj())
    z[:, rows] -= 2 * np.outer(z[:, rows] @ v, v.conj())


def _deflated_from(t: NDArray, end: int, *, anywhere: bool) -> int:
    """Returns the first row of the last block whose elements below the diagonal are not negligible; a negligible one is set to
    0.

    It is negligible beside its neighbours, or beside the largest element: the noise of large ones may hide small eigenvalues.
    """
    info, whole = np.finfo(t.dtype), np.abs(t[:end, :end]).max()
    for i in range(end - 1, 0, -1):
        near = abs(t[i, i]) + abs(t[i - 1, i - 1])
        least = info.eps * (whole if anywhere or near == 0 else near)
        if abs(t[i, i - 1]) <= max(least, info.tiny / info.eps):
            t[i, i - 1] = 0
            return i
    return 0


def _sweep(t: NDArray, z: NDArray, start: int, end: int, degree: int, *, exceptional: bool) -> None:
    """One step of the implicit QR algorithm on the block of rows `start` to `end`."""
    h, corner = t[start:end, start:end], t[end - 2 : end, end - 2 : end]
    if degree == 1:
        shifts = np.linalg.eigvals(corner)
        shift = shifts[np.argmin(np.abs(shifts - corner[1, 1]))]
        shift = abs(corner[1, 0]) + corner[1, 1] if exceptional else shift
        bulge = np.array([h[0, 0] - shift, h[1, 0]])
    else:
        trace, det = corner[0, 0] + corner[1, 1], corner[0, 0] * corner[1, 1] - corner[0, 1] * corner[1, 0]
        if exceptional:  # EISPACK's, for matrices such as cyclic permutations, which the usual shifts leave as they are
            size = abs(t[end - 1, end - 2]) + abs(t[end - 2, end - 3])
            trace, det = 1.5 * size, size * size
        first = h[0, 0] * (h[0, 0] - trace) + det + h[0, 1] * h[1, 0]
        bulge = np.array([first, h[1, 0] * (h[0, 0] + h[1, 1] - trace), h[1, 0] * h[2, 1]])
    for k in range(start, end - 1):
        column = bulge if k == start else t[k : min(k + degree + 1, end), k - 1]
        _reflect(t, z, column, k, max(k - 1, 0))
        if k > start:
            t[k + 1 : k + degree + 1, k - 1] = 0


def _standardise(t: NDArray, z: NDArray, at: int) -> None:
    """Turns a real 2 × 2 block: to a triangle where its eigenvalues are real, else to equal elements on the diagonal."""
    (a, b), (c, d) = t[at : at + 2, at : at + 2]
    half = (a - d) / 2
    inside = half * half + b * c
    if c == 0:
        return
    if inside >= 0:
        root = half + np.copysign(np.sqrt(inside), half)  # the eigenvalue that is farther from d, less d
        vector = np.array([root, c])
    else:
        sum_ = b + c  # the smaller of two angles, as LAPACK's, so that a block in this form stays
        angle = np.arctan2(np.copysign(1, sum_) * (d - a), abs(sum_)) / 2
        vector = np.array([np.cos(angle), np.sin(angle)])
    cosine, sine = vector / np.hypot(*vector)
    turn = np.array([[cosine, -sine], [sine, cosine]], t.dtype)
    rows = slice(at, at + 2)
    t[rows] = turn.T @ t[rows]
    t[:, rows] = t[:, rows] @ turn
    z[:, rows] = z[:, rows] @ turn
    if inside >= 0:
        t[at + 1, at] = 0
    else:
        t[at, at] = t[at + 1, at + 1] = (a + d) / 2


def _complex_triangle(t: NDArray) -> tuple[NDArray, NDArray]:
    """Returns a triangle R and a unitary Q with Q R Qᴴ = t, for `t` with blocks of two rows on its diagonal."""
    r = t.astype(np.result_type(t, np.complex64))
    q = np.eye(len(t), dtype=r.dtype)
    for i in np.flatnonzero(np.diagonal(t, -1)):
        block = r[i : i + 2, i : i + 2]
        vector = np.array([np.linalg.eigvals(block)[0] - block[1, 1], block[1, 0]])
        x, y = vector / np.linalg.norm(vector)
        turn, rows = np.array([[x, -np.conj(y)], [y, np.conj(x)]]), slice(i, i + 2)
        r[rows] = turn.conj().T @ r[rows]
        r[:, rows] = r[:, rows] @ turn
        q[:, rows] = q[:, rows] @ turn
        r[i + 1, i] = 0
    return r, q


def _schur_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    x = infer_square("schur", INEXACT)(x)
    return x, x


schur: Command = register(
    "schur",
    Rules(
        infer=_schur_infer,
        reference=lapack("schur", _for_each(_schur, 2)),
        batch=batch_leading("schur"),
        refuses=True,
        cost=lambda x: 25 * cubic(x),
    ),
    outputs=2,
)
"""T, a triangle but for the blocks of complex pairs of a real matrix, and Z with orthonormal columns."""

# -- Sylvester's equation ----------------------------------------------------------------------------------------------


def _sylvester_infer(a: TensorSpec, b: TensorSpec, c: TensorSpec) -> TensorSpec:
    check_same_dtype("sylvester", (a, b, c))
    check_dtype("sylvester", a, *INEXACT, name="a")
    check_matrix("sylvester", a, name="a")
    check_matrix("sylvester", b, name="b")
    check_matrix("sylvester", c, square=False, name="c")
    if c.shape != (*a.shape[:-1], b.shape[-1]) or a.shape[:-2] != b.shape[:-2]:
        problem = f"c of shape {c.shape} fits no a of shape {a.shape} and b of shape {b.shape}."
        fix = "give c the rows of a, the columns of b, and equal leading axes to all."
        raise user_error(ShapeError, "sylvester", problem, operands={"a": a, "b": b, "c": c}, fix=fix)
    return c


def _sylvester(a: NDArray, b: NDArray, c: NDArray) -> tuple[NDArray]:
    """Bartels and Stewart's algorithm, on complex triangles: column after column of a triangular system.

    All is NaN where a sum of eigenvalues is 0 but for rounding, which LAPACK's bound decides.
    """
    (r, u), (s, v) = (_complex_schur(x) for x in (a, b))
    y = u.conj().T @ c @ v
    sizes = [np.abs(x).max(initial=0) for x in (r, s)]
    least = max(np.finfo(c.dtype).eps * max(sizes), np.finfo(c.dtype).tiny)
    for j in range(len(s)):
        y[:, j] -= y[:, :j] @ s[:j, j]
        for i in range(len(r) - 1, -1, -1):
            sum_ = r[i, i] + s[j, j]
            if abs(sum_) <= least:
                return (np.full_like(c, np.nan),)
            y[i, j] = (y[i, j] - r[i, i + 1 :] @ y[i + 1 :, j]) / sum_
    x = u @ y @ v.conj().T
    return (x if np.iscomplexobj(c) else x.real,)


def _complex_schur(x: NDArray) -> tuple[NDArray, NDArray]:
    t, z = _schur(x)
    if np.iscomplexobj(x):
        return t, z
    r, q = _complex_triangle(t)
    return r, z @ q


def _sylvester_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """Returns a dX + dX B = dC − dA X − X dB."""
    (a, b, _), (ta, tb, right), x = primals, tangents, outputs[0]
    if ta is not None:
        right = add_tangents(right, -matrix_product(ta, x))
    if tb is not None:
        right = add_tangents(right, -matrix_product(x, tb))
    return (sylvester(a, b, right),)


def _sylvester_transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...]) -> Tangents:
    a, b, _ = operands
    if isinstance(a, Linear) or isinstance(b, Linear):
        raise not_linear("sylvester", "in the matrices a and b", {"a": a.spec, "b": b.spec})
    return None, None, sylvester(matrix_transpose(a), matrix_transpose(b), cotangents[0])


sylvester: Command = register(
    "sylvester",
    Rules(
        infer=_sylvester_infer,
        reference=lapack("sylvester", lambda *xs: _for_each(_sylvester)(*xs)[0]),
        derivative=Derivative(_sylvester_jvp, _sylvester_transpose),
        batch=batch_leading("sylvester"),
        refuses=True,
        cost=lambda a, b, c: 25 * (cubic(a) + cubic(b)),
    ),
    arity=3,
)
"""The solution X of A X + X B = C."""

# -- square roots ------------------------------------------------------------------------------------------------------


def _triangular_root(t: NDArray) -> tuple[NDArray]:
    """Björck and Hammarling's recurrence on a complex triangle; NaN where a real matrix has no real principal root."""
    r, q = (t, np.eye(len(t), dtype=t.dtype)) if np.iscomplexobj(t) else _complex_triangle(t)
    root = np.diag(np.sqrt(np.diagonal(r)))
    for j in range(len(r)):
        for i in range(j - 1, -1, -1):
            rest = r[i, j] - root[i, i + 1 : j] @ root[i + 1 : j, j]
            both = root[i, i] + root[j, j]
            root[i, j] = rest / both if both != 0 else (0 if rest == 0 else np.nan)
    if np.iscomplexobj(t):
        return (root,)
    values = np.diagonal(r)
    has_none = bool(np.any((values.real < 0) & (values.imag == 0)))
    whole = (q @ root @ q.conj().T).real
    return (np.full_like(t, np.nan) if has_none else whole.astype(t.dtype),)


triangular_root: Command = register(
    "triangular_root",
    Rules(
        infer=infer_square("triangular_root", INEXACT),
        reference=lapack("triangular_root", lambda t: _for_each(_triangular_root)(t)[0]),
        batch=batch_leading("triangular_root"),
        cost=lambda t: 4 * cubic(t),
    ),
)
"""The principal square root of a triangle, of a real one with blocks of two rows on its diagonal."""
