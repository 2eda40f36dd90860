"""Arrays on a simulated device and other libraries: copies for those that ask for the host's memory, a worded error for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors.errors import ExportError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
HOST = (1, 0)


def there(x: Any = X, device: str = "sim:0") -> Any:
    return nnc.device_put(x, device)


def test_the_device_is_one_that_no_other_library_has() -> None:
    assert there().__dlpack_device__() == (12, 0) and there(device="sim:1").__dlpack_device__() == (12, 1)
    assert nnp.asarray(X).__dlpack_device__() == HOST
    assert not hasattr(there(), "__cuda_array_interface__")


READS: list[Callable[[Any], Any]] = [
    lambda x: x.__dlpack__(),
    lambda x: x.__dlpack__(stream=None, max_version=(1, 0)),
    lambda x: x.__dlpack__(dl_device=(12, 0)),
    lambda x: x.__dlpack__(dl_device=(2, 0), copy=True),
    lambda x: x.__dlpack__(dl_device=HOST, copy=False),
    np.from_dlpack,
    lambda x: np.from_dlpack(x, device="cpu", copy=False),
]


@pytest.mark.parametrize("read", READS)
def test_memory_of_the_device_is_not_handed_out(read: Callable[[Any], Any]) -> None:
    with pytest.raises(
        BufferError, match=r"__dlpack__: the array is on sim:0[\s\S]*float32\[2,3\][\s\S]*np.asarray\(x\)"
    ) as error:
        read(there())
    assert isinstance(error.value, ExportError) and 'device_put(x, "cpu")' in str(error.value)


def test_pytorch_gets_the_same_error() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(BufferError, match="is on sim:0"):
        torch.from_dlpack(there())
    assert torch.from_dlpack(nnc.device_put(there(), "cpu")).tolist() == X.tolist()
    assert torch.asarray(np.array(there())).tolist() == X.tolist()


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize("copy", [None, True])
def test_a_consumer_that_asks_for_the_host_gets_a_copy_there(dtype: str, copy: bool | None) -> None:
    x = there(X.astype(dtype)) * 1
    with nnc.debug.transfers("error"):
        out = np.from_dlpack(x, device="cpu", copy=copy)
    assert out.dtype == x.dtype and np.array_equal(out, X.astype(dtype))
    if copy:
        out[...] = 0
    assert out.flags.writeable == bool(copy) and np.array_equal(x, X.astype(dtype))


def test_bfloat16_and_old_consumers_get_copies_too() -> None:
    torch = pytest.importorskip("torch")

    class Asks:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __dlpack__(self, **options: Any) -> Any:
            return self.x.__dlpack__(dl_device=HOST)

        def __dlpack_device__(self) -> tuple[int, int]:
            return HOST

    x = there(nnp.ones(3, "bfloat16"))
    out = torch.from_dlpack(Asks(x))
    out[0] = 7
    assert out.dtype == torch.bfloat16 and out.tolist() == [7, 1, 1] and x.tolist() == [1, 1, 1]


def test_nnc_itself_leaves_an_array_where_it_is() -> None:
    x = there()
    assert nnp.from_dlpack(x) is x and nnp.from_dlpack(x, device="cpu").device == "cpu"
