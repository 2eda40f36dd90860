"""Examples of products, linear algebra and attention: well-conditioned matrices, values and gaps that are apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.graph import TensorSpec, command, reference
from nnc.testing.fuzz.examples.draw import Draw, Example, Freedom, NDArray, Rng, Shape, flag, float_dtype, one_of, size

_DTYPES = (dtypes.float64, dtypes.float64, dtypes.float32, dtypes.complex64, dtypes.complex128)


def _lead(rng: Rng) -> Shape:
    return tuple(int(one_of(rng, 0, 1, 2, 3)) for _ in range(int(one_of(rng, 0, 0, 1, 2))))


def _uniform(rng: Rng, shape: Shape, dtype: dtypes.DType) -> NDArray:
    x = rng.uniform(-1, 1, shape)
    return (x + 1j * rng.uniform(-1, 1, shape) if dtypes.is_complex(dtype) else x).astype(dtype)


def _spread(rng: Rng, rows: int, columns: int, dtype: dtypes.DType) -> NDArray:
    """Matrices whose singular values are 1, 2, 3 and so on."""
    lead, k = _lead(rng), min(rows, columns)
    u, _ = np.linalg.qr(
        _uniform(rng, (*lead, rows, max(k, 1)), dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64)
    )
    v, _ = np.linalg.qr(_uniform(rng, (*lead, columns, max(k, 1)), dtypes.float64))
    values = np.arange(1.0, k + 1)
    return np.asarray((u[..., :k] * values) @ np.swapaxes(v[..., :k], -1, -2)).astype(dtype)


def _square(rng: Rng) -> Example:
    n = size(rng, 9)
    return (_spread(rng, n, n, _DTYPES[rng.integers(len(_DTYPES))]),), {}


def _definite(rng: Rng) -> Example:
    (x,), _ = _square(rng)
    wide = x.astype(dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64)
    return ((wide @ np.conj(np.swapaxes(wide, -1, -2)) / 4).astype(x.dtype),), {}


def _with_distinct_values(rng: Rng) -> Example:
    """Eigenvalues near 1, 3, 5, …, far from one another."""
    n, dtype = size(rng, 6), _DTYPES[rng.integers(len(_DTYPES))]
    x = _uniform(rng, (*_lead(rng), n, n), dtype)
    return ((0.3 * (x + np.conj(np.swapaxes(x, -1, -2))) + np.diag(np.arange(1.0, 2 * n, 2))).astype(dtype),), {}


def _tall_or_wide(**params: Any) -> Any:
    def draw(rng: Rng) -> Example:
        x = _spread(rng, size(rng, 7), size(rng, 7), _DTYPES[rng.integers(len(_DTYPES))])
        found = {name: value(rng) if callable(value) else value for name, value in params.items()}
        return (x,), found

    return draw


def _system(rng: Rng) -> Example:
    (a,), _ = _square(rng)
    return (a, _uniform(rng, (*a.shape[:-1], size(rng, 5)), a.dtype)), {}


def _triangular(rng: Rng) -> Example:
    (a, b), _ = _system(rng)
    a = (a + 4 * np.eye(a.shape[-1])).astype(a.dtype)
    return (a, b), {"lower": flag(rng), "transpose_a": flag(rng), "unit_diagonal": flag(rng, 0.2)}


def _triangle(rng: Rng) -> Example:
    """Triangles with eigenvalues near 1, 3, 5 and so on."""
    (x,), _ = _with_distinct_values(rng)
    return (np.triu(x),), {}


def _sylvester(rng: Rng) -> Example:
    (a,), _ = _with_distinct_values(rng)
    n = size(rng, 5)
    b = (_uniform(rng, (*a.shape[:-2], n, n), a.dtype) + 4 * np.eye(n)).astype(a.dtype)
    return (a, b, _uniform(rng, (*a.shape[:-1], n), a.dtype)), {}


def _product(rng: Rng) -> Example:
    """Makes axes of both operands in any order: axes of the batch, summed axes, axes of one operand alone."""
    counts = [
        int(one_of(rng, 0, 0, 1, 2)),
        int(one_of(rng, 0, 1, 1, 2)),
        int(one_of(rng, 0, 1, 1)),
        int(one_of(rng, 0, 1, 1)),
    ]
    batch, summed, left, right = ([size(rng, 9) for _ in range(n)] for n in counts)
    sides = []
    for own in (left, right):
        sizes = [*batch, *summed, *own]
        order = [int(i) for i in rng.permutation(len(sizes))]
        places = [order.index(i) for i in range(len(sizes))]
        shape = tuple(sizes[i] for i in order)
        sides.append((shape, tuple(places[: len(batch)]), tuple(places[len(batch) : len(batch) + len(summed)])))
    dtype = float_dtype(rng) if flag(rng, 0.8) else one_of(rng, dtypes.int32, dtypes.complex64, dtypes.int8)
    (x, x_batch, x_summed), (y, y_batch, y_summed) = sides
    return (TensorSpec(x, dtype), TensorSpec(y, dtype)), {"contract": (x_summed, y_summed), "batch": (x_batch, y_batch)}


def _ranges(rng: Rng, shape: Shape, keys: int) -> NDArray:
    """Keys that queries may attend to, from the first to behind the last."""
    begin = rng.integers(0, keys + 1, shape)
    return np.stack([begin, begin + rng.integers(0, keys + 2, shape)], axis=-1).astype(np.int32)


def _attention(rng: Rng) -> Example:
    dtype, lead = float_dtype(rng), tuple(int(one_of(rng, 1, 2)) for _ in range(int(one_of(rng, 0, 0, 1))))
    queries, keys, heads, shared = size(rng, 9), size(rng, 9), int(one_of(rng, 1, 2)), int(one_of(rng, 1, 2))
    width, values = max(1, size(rng, 8)), max(1, size(rng, 8))
    q = TensorSpec((*lead, queries, heads * shared, width), dtype)
    k, v = (TensorSpec((*lead, keys, heads, n), dtype) for n in (width, values))
    biased = flag(rng)
    bias = [TensorSpec((*lead, heads * shared, one_of(rng, 1, queries), keys), dtype)] if biased else []
    mask = [rng.random((*lead, 1, queries, keys)) < 0.8] if flag(rng, 0.3) else []
    mask += [_ranges(rng, (*lead, 1, queries), keys)] if flag(rng, 0.3) else []
    reach = (one_of(rng, None, None, 1, 2), one_of(rng, None, None, 0, 1))
    return (q, k, v, *bias, *mask), {"scale": one_of(rng, 1.0, 0.5), "reach": reach, "biased": biased}


# -- undetermined results ----------------------------------------------------------------------------------------------


def _signs(rng: Rng, x: NDArray) -> NDArray:
    """A sign, of complex numbers a phase, for each of the last axis."""
    shape = (*x.shape[:-2], 1, x.shape[-1])
    if np.iscomplexobj(x):
        return np.asarray(np.exp(1j * rng.uniform(-np.pi, np.pi, shape)), x.dtype)
    return np.asarray(rng.choice([-1.0, 1.0], shape), x.dtype)


def _of_vectors(rng: Rng, results: list[NDArray], **params: Any) -> list[NDArray]:
    values, vectors = results
    return [values, vectors * _signs(rng, vectors)]


def _of_bases(rng: Rng, results: list[NDArray], **params: Any) -> list[NDArray]:
    u, s, v = results
    signs, k = _signs(rng, u), s.shape[-1]
    v = v.copy()
    v[..., :k, :] = v[..., :k, :] * np.conj(np.swapaxes(signs[..., :k], -1, -2))
    return [u * signs, s, v]


def _of_triangles(rng: Rng, results: list[NDArray], **params: Any) -> list[NDArray]:
    q, r = results
    signs = _signs(rng, q)
    return [q * signs, np.conj(np.swapaxes(signs, -1, -2)) * r]


def _of_order(rng: Rng, results: list[NDArray], **params: Any) -> list[NDArray]:
    """Another Schur decomposition, whose eigenvalues may have another order: of the matrix in another orthonormal basis."""
    t, z = results
    basis, _ = np.linalg.qr(_uniform(rng, t.shape[-2:], t.dtype))
    turned = np.conj(basis.T) @ z
    t, z = reference[command("schur")](turned @ t @ np.conj(np.swapaxes(turned, -1, -2)))
    return [t, (basis @ z).astype(t.dtype)]


FREEDOM: dict[str, Freedom] = {
    "eigh": _of_vectors,
    "eig": _of_vectors,
    "schur": _of_order,
    "svd": _of_bases,
    "qr": _of_triangles,
}
EXAMPLES: dict[str, Draw] = {
    **dict.fromkeys(("det", "slogdet", "cofactor"), _square),
    **dict.fromkeys(("eigh", "eig", "schur"), _with_distinct_values),
    "cholesky": _definite,
    "solve": _system,
    "triangular_solve": _triangular,
    "triangular_root": _triangle,
    "sylvester": _sylvester,
    "lu": _tall_or_wide(),
    "svd": _tall_or_wide(full_matrices=flag),
    "qr": _tall_or_wide(full_matrices=flag),
    "pinv": _tall_or_wide(rtol=1e-6),
    "dot": _product,
    "attention": _attention,
}
