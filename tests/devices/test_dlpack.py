"""DLPack with NumPy, PyTorch and JAX: every dtype, every layout, both ways."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device import dlpack
from nnc.errors import ArgumentTypeError

DTYPES = ("bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
LAYOUTS = {
    "rows": lambda x: x, "columns": lambda x: x.T, "backwards": lambda x: x[::-1, ::-2], "every second": lambda x: x[:, ::2],
    "0-d": lambda x: x[1, 2], "empty": lambda x: x[:0], "repeated": lambda x: nnp.broadcast_to(x[0], (4, 3)),
}  # fmt: skip


def sample(dtype):
    return nnp.asarray([[0, 1, 2], [3, 4, 5]]).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_reads_every_dtype_and_layout(dtype, layout):
    torch = pytest.importorskip("torch")
    x = LAYOUTS[layout](sample(dtype))
    out = torch.from_dlpack(x)
    assert (out.dtype, tuple(out.shape)) == (getattr(torch, dtype), x.shape)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize("layout", ["rows", "columns", "0-d", "empty", "every second"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_pytorch_are_read_in_place(dtype, layout):
    torch = pytest.importorskip("torch")
    t = LAYOUTS[layout](torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)))
    for read in (nnp.from_dlpack, nnp.asarray):
        x = read(t)
        assert (x.dtype, x.shape) == (nnp.dtype(getattr(nnp, dtype)), tuple(t.shape))
        assert x.tolist() == t.tolist()
        assert t.numel() == 0 or np.asarray(x).__array_interface__["data"][0] == t.data_ptr()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "bool", "complex64"])
def test_arrays_of_jax_are_read_and_read_ours(dtype):
    jnp = pytest.importorskip("jax.numpy")
    x = sample(dtype)
    for read in (jnp.from_dlpack, jnp.asarray):
        out = read(x)
        assert (out.dtype, out.tolist()) == (x.dtype, x.tolist())
    back = nnp.from_dlpack(jnp.asarray(x.tolist(), dtype))
    assert (back.dtype, back.tolist()) == (x.dtype, x.tolist())


def test_bfloat16_takes_part_in_arithmetic_with_other_libraries():
    torch = pytest.importorskip("torch")
    x = nnp.ones(2, "bfloat16")
    for total in (x + torch.ones(2, dtype=torch.bfloat16), nnp.add(torch.ones(2, dtype=torch.bfloat16), x)):
        assert (total.dtype, total.tolist()) == (nnp.bfloat16, [2, 2])


def test_memory_outlives_both_makers():
    torch = pytest.importorskip("torch")
    t = torch.arange(3.0).to(torch.bfloat16)
    x = nnp.from_dlpack(t)
    again = torch.from_dlpack(x)
    del t, x
    gc.collect()
    assert again.tolist() == [0, 1, 2]
    array = np.arange(3.0)
    alive = weakref.ref(array)
    held = nnp.from_dlpack(array)
    del array
    assert alive() is not None and held.tolist() == [0, 1, 2]
    del held
    gc.collect()
    assert alive() is None


def test_numpy_reads_all_but_bfloat16_and_shares_memory_that_runs_forwards():
    for dtype in set(DTYPES) - {"bfloat16"}:
        for layout in LAYOUTS.values():
            x = layout(sample(dtype))
            out = np.from_dlpack(x)
            assert (out.dtype, out.tolist(), out.flags.writeable) == (x.dtype, x.tolist(), False) or any(
                stride < 0 for stride in np.asarray(x).strides
            )
    x = sample("float32")
    assert np.shares_memory(np.from_dlpack(x.T), np.asarray(x))
    assert nnp.from_dlpack(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    with pytest.raises(BufferError, match="negative strides"):
        x[::-1].__dlpack__(max_version=(1, 0), copy=False)


def test_a_capsule_names_bfloat16_in_both_versions_of_the_protocol():
    x = nnp.ones(3, "bfloat16")
    for options in ({}, {"max_version": (1, 0)}):
        capsule = x.__dlpack__(**options)
        assert dlpack._code(capsule).value == dlpack.BFLOAT
    assert nnp.from_dlpack(x) is x
    assert isinstance(nnp.from_dlpack(np.ones(3, "float32")), nnc.Array)


def test_an_array_that_its_library_does_not_hand_out_names_the_remedy():
    torch = pytest.importorskip("torch")
    t = torch.ones(2, requires_grad=True)
    for read in (nnp.asarray, nnp.sin, lambda t: nnp.ones(2) + t):
        with pytest.raises(ArgumentTypeError, match=r"cannot be read(.|\n)*x\.detach\(\)\.cpu\(\)"):
            read(t)


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("max_version", [None, (0, 0), (0, 8), (1, 0), (2, 0)])
def test_a_consumer_that_cannot_be_told_of_read_only_memory_gets_memory_of_its_own(copy, max_version):
    class Passed:
        def __dlpack__(self, **options):
            return x.__dlpack__(max_version=max_version, dl_device=(1, 0), copy=copy)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    x = sample("float32")
    out = np.from_dlpack(Passed())
    assert out.tolist() == x.tolist()
    is_new = max_version is not None and max_version >= (1, 0)
    assert np.shares_memory(out, np.asarray(x)) == (is_new and copy is not True)
    assert not (out.flags.writeable and np.shares_memory(out, np.asarray(x)))
