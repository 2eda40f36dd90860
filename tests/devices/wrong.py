"""A device for each test, and the check of an error's parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.device import find_device
from nnc.errors import NncError
from nnc.testing.devices.sim import SimDevice

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Use = Callable[..., Any]

_NUMBERS = itertools.count(100)  # of devices that a test changes: nobody else uses them


def there(x: Any = X, device: str = "sim:0") -> Any:
    return nnc.device_put(x, device)


def new_device(capacity: int | None = None) -> tuple[SimDevice, str]:
    """A device that no other test uses, and its name."""
    name = f"sim:{next(_NUMBERS)}"
    device = find_device(name, "test")
    assert isinstance(device, SimDevice)
    device.pool.capacity = capacity or device.pool.capacity
    return device, name


def check_told(use: Any, kind: type[Exception] | tuple[type[Exception], ...], *parts: str) -> str:
    """A use is an error whose message has these parts, a line of the file that uses it, and a fix."""
    with pytest.raises(kind) as caught:
        use()
    text, here = str(caught.value), Path(use.__code__.co_filename).stem
    assert isinstance(caught.value, NncError) and "\nFix: " in text and here in text
    assert all(part in text for part in parts), text
    return text


def rows(uses: dict[str, Use]) -> Any:
    return pytest.mark.parametrize("use", uses.values(), ids=uses)
