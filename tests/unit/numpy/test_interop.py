"""Libraries that take arrays of any kind work on nnc's: einops, code for the Array API standard, DLPack, NumPy, JAX and PyTorch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError

X = np.random.default_rng(1).normal(size=(2, 3, 4))


def test_einops_works_on_arrays_and_tracers():
    einops = pytest.importorskip("einops")
    x = nnp.asarray(X)
    for function in (
        lambda e, x: e.rearrange(x, "a b c -> c (a b)"),
        lambda e, x: e.rearrange(list(x), "a b c -> b c a"),
        lambda e, x: e.reduce(x, "a b c -> b", "mean"),
        lambda e, x: e.reduce(x, "a (b b2) c -> a b c", "max", b2=3),
        lambda e, x: e.repeat(x, "a b c -> a (b 2) c d", d=2),
        lambda e, x: e.einsum(x, x, "a b c, a b d -> c d"),
        lambda e, x: e.pack([x, x[0]], "* c")[0],
    ):
        want = function(einops, X)
        got = function(einops, x)
        assert isinstance(got, nnc.Array)
        np.testing.assert_allclose(got, want)
        np.testing.assert_allclose(nnc.compile(lambda x, f=function: f(einops, x))(X), want)
        np.testing.assert_allclose(nnc.vmap(lambda x, f=function: f(einops, x))(X[None])[0], want)
    gradient = nnc.grad(lambda x: einops.reduce(x * x, "a b c -> ", "sum"))(X)
    np.testing.assert_allclose(gradient, 2 * X)
    assert isinstance(einops.asnumpy(x), np.ndarray)


def test_the_array_api_of_einops_works_on_arrays_and_tracers():
    einops = pytest.importorskip("einops.array_api")
    want = X.transpose(2, 0, 1).reshape(4, 6)
    np.testing.assert_array_equal(einops.rearrange(nnp.asarray(X), "a b c -> c (a b)"), want)
    compiled = nnc.compile(lambda x: einops.reduce(x, "a b c -> b", "mean"))
    np.testing.assert_allclose(compiled(X), X.mean((0, 2)))


@pytest.mark.parametrize("first", ["nnc", "einops"])
def test_einops_is_found_in_either_order_of_imports_and_not_imported_by_nnc(first):
    pytest.importorskip("einops")
    second = "einops" if first == "nnc" else "nnc"
    program = f"""
import sys
import {first}
assert ("einops" in sys.modules) == ({first!r} == "einops")
import {second}, nnc.numpy as nnp, importlib.util
print(einops.rearrange(nnp.ones((2, 3)), "a b -> b a").shape, importlib.util.find_spec("einops").loader is einops.__loader__)
assert not any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("(3, 2) True\n", "")


# -- code for the Array API standard -----------------------------------------------------------------------------------


def namespace(x):
    """The namespace of an array, as libraries ask for it."""
    return x.__array_namespace__(api_version="2024.12")


def standardized(x):
    xp = namespace(x)
    x = xp.astype(x, xp.float64) if not xp.isdtype(x.dtype, "real floating") else x
    spread = xp.std(x, axis=0, keepdims=True, correction=1)
    return (x - xp.mean(x, axis=0, keepdims=True)) / xp.where(spread == 0, xp.asarray(1.0, dtype=x.dtype), spread)


def softmax(x, axis=-1):
    xp = namespace(x)
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def distances(x, y):
    xp = namespace(x)
    cross = xp.matmul(x, xp.matrix_transpose(y))
    squares = xp.vecdot(x, x)[:, None] + xp.vecdot(y, y)[None, :] - 2 * cross
    return xp.sqrt(xp.clip(squares, min=0.0))


def winsorized(x, low, high):
    xp = namespace(x)
    order = xp.sort(xp.reshape(x, (-1,)))
    n = order.shape[0]
    return xp.clip(x, order[int(low * (n - 1))], order[int(high * (n - 1))])


def power_iteration(a, steps):
    xp = namespace(a)
    v = xp.ones(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(steps):
        v = a @ v
        v /= xp.linalg.vector_norm(v)
    return xp.vecdot(v, a @ v)


CALLS = {
    "standardized": lambda x: standardized(x),
    "softmax": lambda x: softmax(x, axis=0),
    "distances": lambda x: distances(x, x[::-1, ...] * 2),
    "winsorized": lambda x: winsorized(x, 0.1, 0.9),
    "power iteration": lambda x: power_iteration(x.T @ x, 5),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_written_for_the_standard_work_and_transform(name):
    function, x = CALLS[name], X.reshape(6, 4)
    want = function(x)
    got = function(nnp.asarray(x))
    assert isinstance(got, nnc.Array)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    np.testing.assert_allclose(nnc.compile(function)(x), want, rtol=1e-10)
    np.testing.assert_allclose(nnc.vmap(function)(x[None])[0], want, rtol=1e-10)
    nnc.testing.check_grads(function, (x,), order=1, rtol=1e-4)


def test_array_api_compat_knows_nnc():
    compat = pytest.importorskip("array_api_compat")
    x = nnp.ones(3)
    assert compat.array_namespace(x, x) is nnp
    assert compat.is_array_api_obj(x)
    assert compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu") is x
    assert compat.size(x) == 3
    assert nnc.compile(lambda x: compat.array_namespace(x).sin(x))(np.zeros(2)).tolist() == [0, 0]


def test_another_version_of_the_standard_is_refused():
    with pytest.raises(ArgumentError, match=r"no version '1999\.01'"):
        nnp.ones(2).__array_namespace__(api_version="1999.01")
    assert nnp.__array_api_version__ == "2024.12"


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_is_shared_with_numpy_and_stays_read_only():
    x = nnp.asarray(X)
    out = np.from_dlpack(x)
    assert np.shares_memory(out, np.asarray(x)) and not out.flags.writeable
    copied = np.from_dlpack(x, copy=True)
    assert not np.shares_memory(copied, np.asarray(x))
    assert np.shares_memory(np.asarray(nnp.from_dlpack(X)), X)
    assert not np.shares_memory(np.asarray(nnp.from_dlpack(X, copy=True)), X)
    assert nnp.from_dlpack(x, device="cpu") is x


def test_consumers_of_the_old_protocol_get_memory_of_their_own():
    class Old:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **kwargs):
            return self.x.__dlpack__()

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = nnp.arange(3.0)
    out = np.from_dlpack(Old(x))
    assert out.tolist() == [0, 1, 2]
    assert not np.shares_memory(out, np.asarray(x))
    capsule = x.__dlpack__(copy=False)  # which the standard's suite asks of every consumer
    assert "dltensor" in repr(capsule)


def test_memory_is_shared_with_pytorch_both_ways_and_outlives_its_maker():
    torch = pytest.importorskip("torch")
    t = torch.arange(4.0)
    x = nnp.from_dlpack(t)
    assert np.asarray(x).__array_interface__["data"][0] == t.data_ptr()
    del t
    assert x.tolist() == [0, 1, 2, 3]
    assert nnp.asarray(torch.ones(2, dtype=torch.int32)).dtype == nnp.int32
    out = torch.from_dlpack(nnp.arange(4))
    assert out.tolist() == [0, 1, 2, 3]
    assert torch.asarray(np.asarray(nnp.ones(2)).copy()).tolist() == [1, 1]


def test_arrays_of_jax_come_and_go():
    jax = pytest.importorskip("jax")
    assert nnp.asarray(jax.numpy.arange(3.0)).tolist() == [0, 1, 2]
    assert nnp.from_dlpack(jax.numpy.arange(3.0)).dtype == nnp.float32
    assert jax.numpy.asarray(nnp.arange(3, dtype="float32")).tolist() == [0, 1, 2]
    assert (nnp.ones(3) + np.asarray(jax.numpy.ones(3))).tolist() == [2, 2, 2]
