from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from nnc.testing import check_grads

ft = nnp.fft
RNG = np.random.default_rng(31)
X = RNG.normal(size=(3, 4, 5))
Z = X + 1j * RNG.normal(size=X.shape)
NORMS = [None, "backward", "ortho", "forward"]

ALONG_ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
ALONG_TWO = ["fft2", "ifft2", "rfft2", "irfft2"]
ALONG_SEVERAL = ["fftn", "ifftn", "rfftn", "irfftn"]
of_every = pytest.mark.parametrize("name", ALONG_ONE + ALONG_TWO + ALONG_SEVERAL)


def operand(name: str) -> np.ndarray:
    """Real for the functions that take only that."""
    return X if name in ("rfft", "ihfft", "rfft2", "rfftn") else Z


def both(name: str):
    return getattr(ft, name), getattr(np.fft, name)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ALONG_ONE)
def test_transforms_along_one_axis_agree_with_numpy_in_every_size(name, norm, same):
    (ours, theirs), x = both(name), operand(name)
    same(ours(x, norm=norm), theirs(x, norm=norm))
    for axis in (0, 1, -1):
        for n in (1, 2, 3, 4, 7, 12):
            same(ours(x, n, axis, norm), theirs(x, n, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ALONG_TWO + ALONG_SEVERAL)
def test_transforms_along_several_axes_agree_with_numpy(name, norm, same):
    (ours, theirs), x = both(name), operand(name)
    same(ours(x, norm=norm), theirs(x, norm=norm))
    for axes in ((0, 1), (2, 0), (-1,)):
        same(ours(x, axes=axes, norm=norm), theirs(x, axes=axes, norm=norm))
    for s in ((2, 7), (5, 3)):
        same(ours(x, s, (1, 0), norm), theirs(x, s, (1, 0), norm))
    same(ours(x, (-1, 6), (0, 2), norm), theirs(x, (x.shape[0], 6), (0, 2), norm))
    same(ours(x, axes=(2, 0, 1), norm=norm), theirs(x, axes=(2, 0, 1), norm=norm))


def test_sizes_without_axes_are_those_of_the_last_axes(same):
    same(ft.fftn(Z, s=(2, 3)), np.fft.fftn(Z, (2, 3), (-2, -1)))
    same(ft.irfftn(Z, s=(2, 3)), np.fft.irfftn(Z, (2, 3), (-2, -1)))


@of_every
def test_compiled_and_mapped_transforms_agree_with_those_at_once(name, same):
    ours, theirs = both(name)
    x = operand(name)
    same(nnc.compile(ours)(x), theirs(x))
    want = np.stack([theirs(row) for row in x])
    same(nnc.vmap(ours)(x), want)
    same(nnc.compile(nnc.vmap(ours))(x), want)
    same(nnc.vmap(ours, in_axes=1, out_axes=1)(x), np.stack([theirs(x[:, i]) for i in range(4)], 1))


@of_every
def test_derivatives_agree_with_differences_to_second_order(name):
    ours, _ = both(name)
    check_grads(lambda x: ours(x) ** 2, (operand(name)[0, :3] / 4,), order=2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9, 10])
@pytest.mark.parametrize("name", ALONG_ONE)
def test_compiled_gradients_hold_for_odd_and_even_sizes(name, n, same):
    ours, theirs = both(name)
    x = operand(name)[0]
    weights = RNG.normal(size=np.shape(theirs(x, n)))

    def loss(x):
        return (nnp.abs(ours(x, n)) ** 2 * weights).sum()

    check_grads(loss, (x,), order=1, rtol=1e-5, atol=1e-5)
    same(nnc.compile(nnc.grad(loss))(x), np.asarray(nnc.grad(loss)(x)))


def test_the_gradient_of_the_spectral_energy_is_that_of_parseval(same):
    energy = nnc.grad(lambda x: (nnp.abs(ft.fft(x, norm="ortho")) ** 2).sum())
    same(energy(X), 2 * X, 1e-10)


def test_the_transpose_of_a_transform_is_the_transform_without_conjugation(same):
    ct = Z[0, 0]
    same(nnc.vjp(ft.fft, Z[1, 0])[1](nnp.asarray(ct))[0], np.fft.fft(ct))
    real = RNG.normal(size=8)
    matrix = np.fft.rfft(np.eye(8)).T  # rows are bins
    bins = Z[0, 1]
    same(nnc.vjp(ft.rfft, real)[1](nnp.asarray(bins))[0], (bins @ matrix).real)


def test_a_convolution_by_transforms_is_the_direct_one_with_its_gradient(same):
    a, b = RNG.normal(size=6), RNG.normal(size=4)

    def convolve(a, b):
        return ft.irfft(ft.rfft(a, 9) * ft.rfft(b, 9), 9)

    same(convolve(a, b), np.convolve(a, b))
    want = np.correlate(np.ones(9), b, "valid")
    same(nnc.grad(lambda a: convolve(a, b).sum())(a), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "bool", "complex64"])
def test_narrow_operands_are_computed_in_single_precision(dtype):
    x = np.asarray(nnp.asarray(X[0] > 0 if dtype == "bool" else 4 * X[0]).astype(dtype))
    exact = np.fft.fft(x.astype(np.complex128))
    got = ft.fft(x)
    assert got.dtype == np.complex64
    np.testing.assert_allclose(np.asarray(got), exact, rtol=1e-5, atol=1e-5)
    if dtype != "complex64":
        half = ft.rfft(x)
        assert half.dtype == np.complex64 and ft.irfft(half, 5).dtype == np.float32
        np.testing.assert_allclose(np.asarray(half), exact[:, :3], rtol=1e-5, atol=1e-5)


def test_empty_batches_and_no_axes_leave_nothing_to_transform(same):
    same(ft.fft(Z[:0]), np.fft.fft(Z[:0]))
    same(ft.irfft(Z[:0]), np.fft.irfft(Z[:0]))
    same(ft.fftn(Z, axes=()), Z)
    same(ft.fftn(np.complex128(2 + 1j)), np.asarray(2 + 1j))


# -- frequencies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_agree_with_numpy(n, same):
    for d in (1.0, 0.25, 3):
        same(ft.fftfreq(n, d), np.fft.fftfreq(n, d))
        same(ft.rfftfreq(n, d, dtype="float64"), np.fft.rfftfreq(n, d))
    assert ft.fftfreq(n).dtype == np.float32


def test_shifts_agree_with_numpy_and_undo_each_other(same):
    for axes in (None, 0, -1, (1, 2)):
        same(ft.fftshift(X, axes), np.fft.fftshift(X, axes))
        same(ft.ifftshift(X, axes), np.fft.ifftshift(X, axes))
        same(ft.ifftshift(ft.fftshift(X, axes), axes), X)
    same(nnc.compile(nnc.vmap(ft.fftshift))(X), np.fft.fftshift(X, (1, 2)))


# -- mistakes ----------------------------------------------------------------------------------------------------------


@of_every
def test_mistakes_name_the_function_and_the_way_out(name):
    ours, _ = both(name)
    x = operand(name)
    with pytest.raises(ArgumentError, match=rf"(?s){name}: norm is 'orto'.*Fix: use \"backward\""):
        ours(x, norm="orto")
    where = {"axis": 3} if name in ALONG_ONE else {"axes": (0, 3)}
    with pytest.raises(ShapeError, match=rf"(?s){name}: axis 3 is out of range.*Fix: use an axis from -3 to 2"):
        ours(x, **where)
    size = {"n": 0} if name in ALONG_ONE else {"s": (2, 0)}
    with pytest.raises(ArgumentError, match=rf"(?s){name}: the transform would have 0 points.*Fix: give n"):
        ours(x, **size)
    size = {"n": 2.5} if name in ALONG_ONE else {"s": (2, 2.5)}
    with pytest.raises(ArgumentTypeError, match=rf"(?s){name}: . is 2.5 .*Fix: pass a Python integer"):
        ours(x, **size)


@pytest.mark.parametrize("name", ALONG_TWO + ALONG_SEVERAL)
def test_sizes_and_axes_that_do_not_fit_are_named(name):
    ours, _ = both(name)
    with pytest.raises(ArgumentError, match=rf"(?s){name}: s has 1 sizes for 2 axes.*Fix: give one size for each axis"):
        ours(operand(name), s=(2,), axes=(0, 1))
    with pytest.raises(ShapeError, match="name one axis twice"):
        ours(operand(name), axes=(0, 0))


def test_other_mistakes_name_the_fix():
    with pytest.raises(DTypeError, match=r"(?s)rfft: x must be real, it is complex128.*Fix: "):
        ft.rfft(Z)
    with pytest.raises(ArgumentError, match=r"(?s)irfft: the transform would have 0 points.*Fix: give n"):
        ft.irfft(Z[..., :1])
    with pytest.raises(ArgumentError, match=r"(?s)rfftn: there is no axis to transform.*Fix: name at least one"):
        ft.rfftn(X, axes=())
    with pytest.raises(ArgumentError, match=r"(?s)fftfreq: d is 0.*Fix: "):
        ft.fftfreq(4, 0)
    with pytest.raises(ArgumentTypeError, match=r"(?s)rfftfreq: d is \[\], not a number.*Fix: "):
        ft.rfftfreq(4, [])


def test_the_commands_refuse_unsupported_operands():
    commands = nnc.commands.fft
    with pytest.raises(DTypeError, match=r"(?s)fft: x must be complex, it is float64.*Fix: "):
        commands.fft(X, axes=(0,))
    with pytest.raises(ShapeError, match=r"(?s)fft: axes is empty.*Fix: name at least one"):
        commands.fft(Z, axes=())
    with pytest.raises(DTypeError, match=r"(?s)rfft: x must be float32 or float64, it is float16.*Fix: "):
        commands.rfft(X.astype(np.float16), axis=0)
    with pytest.raises(ShapeError, match=r"(?s)rfft: a transform along axis 0 would have 0 points.*Fix: "):
        commands.rfft(X[:0], axis=0)
    with pytest.raises(ShapeError, match=r"(?s)irfft: 7 points need 4 bins, axis 2 has 5.*Fix: use nnp.fft.irfft"):
        commands.irfft(Z, axis=2, points=7)


@pytest.mark.parametrize("name", ["irfftn", "irfft2"])
def test_one_element_along_the_last_of_several_axes_is_one_point(name: str) -> None:
    x = np.array([[1 + 2j], [3 - 1j], [2 + 5j]])
    np.testing.assert_allclose(np.asarray(getattr(nnp.fft, name)(x)), getattr(scipy.fft, name)(x), rtol=1e-12)
