"""Printed solvers and Cholesky factors put their operands together again, and refuse matrices without an answer."""

from __future__ import annotations

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.factorizations import pays
from nnc.errors import LinAlgError
from nnc.graph import TensorSpec, command, reference
from nnc.lower.plan.stages import Step
from tests.figures import HERE
from tests.unit.backends.blas.test_lapack import view
from tests.unit.backends.cpu.kernels.factorizations.test_factorizations import (
    BATCHES,
    DTYPES,
    SIZES,
    adjoint,
    close,
    ill,
    norm,
    printed,
    run,
)

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no compiler")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("batch", BATCHES)
def test_systems_are_solved_to_a_small_residual(batch: tuple[int, ...], n: int, dtype: str) -> None:
    for seed, kind in enumerate(("random", "tiny", "huge", "mixed scales")):
        a = ill(kind, (*batch, n, n), dtype, seed)
        for k in (1, 3, n):
            b = np.random.default_rng(k).normal(size=(*batch, n, k)).astype(dtype)
            (x,) = run("solve", a, b)
            size = norm(a) * norm(x) + norm(b)
            assert close(b, a.astype(np.longdouble) @ x, n * size, n), (kind, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [*SIZES, 150])
@pytest.mark.parametrize("batch", BATCHES)
def test_lower_triangles_make_up_the_matrix(batch: tuple[int, ...], n: int, dtype: str) -> None:
    for seed, kind in enumerate(("random", "near-equal", "graded")):
        x = ill(kind, (*batch, n, n), "float64", seed)
        x = (x @ adjoint(x) + 1e-3 * norm(x).astype(float) ** 2 * np.eye(n)).astype(dtype)
        (lower,) = run("cholesky", x)
        assert (lower == np.tril(lower)).all()
        wide = lower.astype(np.longdouble)
        assert close((x + adjoint(x)) / 2, wide @ adjoint(wide), norm(x), n), kind


@pytest.mark.parametrize("name", ["solve", "cholesky"])
@pytest.mark.parametrize("batch", [(), (6,)])
def test_one_matrix_without_an_answer_is_refused_and_nan_goes_through(name: str, batch: tuple[int, ...]) -> None:
    good = np.broadcast_to(np.diag([4.0, 9.0, 1.0]), (*batch, 3, 3)).copy()
    bad, unknown = good.copy(), good.copy()
    bad[..., 2, 2], unknown[..., 2, 2] = 0.0, np.nan
    inputs = (lambda x: (x, x)) if name == "solve" else lambda x: (x,)
    assert not np.isnan(run(name, *inputs(good))[0]).any()
    (out,) = run(name, *inputs(unknown))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(reference[command(name)](*inputs(unknown))))
    with pytest.raises(LinAlgError):
        run(name, *inputs(bad))


def test_printed_kernels_call_no_library() -> None:
    rng = np.random.default_rng(0)
    for name in ("lu", "det", "slogdet", "qr", "eigh", "cholesky", "solve"):
        for n in (4, 200):
            x = rng.normal(size=(n, n))
            inputs = [x, x] if name == "solve" else [x]
            specs = tuple(TensorSpec(y.shape, y.dtype) for y in inputs)
            results = reference[command(name)](*inputs) if name != "cholesky" else x
            outputs = list(results) if isinstance(results, tuple) else [np.asarray(results)]
            nbytes = printed(name).workspace(specs, {})
            outputs += [np.empty(nbytes, np.uint8)] * (nbytes > 0)
            native = printed(name).native
            assert native is not None
            made = native(Step(command(name), tuple(map(view, inputs)), tuple(map(view, outputs)), {}))
            assert made is not None
            declared = [line for line in made.text.splitlines() if line.startswith("declare")]
            assert not made.symbols and not made.calls and made.state is None
            own = ("@llvm.", "@nnc_parallel_for", "@nnc_float_mode", "@nnc_set_float_mode", "@nnc_keep_denormals")
            assert all(any(each in line for each in own) for line in declared), (name, n, HERE)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("solve", [(4096, 4, 4), (4096, 4, 4)], True),  # inverses: 8 times as fast as LAPACK's calls
        ("solve", [(100, 32, 32), (100, 32, 1)], True),
        ("solve", [(100, 16, 16), (100, 16, 320)], False),
        ("solve", [(16, 16), (16, 1)], True),
        ("solve", [(32, 32), (32, 1)], False),
        ("cholesky", [(100, 8, 8)], True),
        ("cholesky", [(100, 16, 16)], False),
    ],
)
def test_small_systems_are_left_to_printed_kernels(name: str, shapes: list[tuple[int, ...]], expected: bool) -> None:
    assert pays(name, tuple(TensorSpec(shape, np.dtype("float32")) for shape in shapes)) == expected
