"""Arrays on devices other than the CPU."""

from __future__ import annotations

import warnings
from typing import Any

from nnc.array.array import Array, NDArray, donated_error, new_array
from nnc.base.context import get_context
from nnc.base.dtypes import Weakness, bfloat16
from nnc.device import CPU, Accelerator, SharingDevice, dlpack, find_device, interpreter_of
from nnc.device.memory import DeviceMemory
from nnc.errors import DeviceError, user_error
from nnc.errors.errors import ExportError
from nnc.errors.tracebacks import api_boundary, cut_traceback
from nnc.graph import TensorSpec

_set = object.__setattr__
WARN, ERROR = "transfers: warn", "transfers: error"  # modes, of nnc.debug.transfers


class TransferWarning(UserWarning):
    """An array is copied between the host and a device, which nothing in the program asks for.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found, nnc.debug.transfers("warn"):
        ...     warnings.simplefilter("always")
        ...     x = nnc.device_put(np.ones(3), "sim:0") + np.ones(3)
        >>> found[0].category.__name__
        'TransferWarning'
    """


def note_transfer(spec: TensorSpec, source: str, target: str) -> None:
    """Warns of an implicit copy of an array, or raises, where the ambient modes ask for it.

    Raises:
        DeviceError: implicit copies are errors here.
    """
    modes = get_context().modes
    if WARN not in modes and ERROR not in modes:
        return
    problem = f"{spec.nbytes:,} bytes ({spec}) are copied from {source} to {target}."
    fix = "copy the array once, with nnc.device_put or x.to_device, where it is made or used last."
    error = user_error(DeviceError, "transfer", problem, fix=fix)
    if ERROR in modes:
        raise error
    warnings.warn(TransferWarning(str(error)), stacklevel=2)


class DeviceArray(Array):
    """An immutable array on a device, whose elements may still be computed there.

    The host waits for them, and copies them, where it needs them: for `print`, `bool`, `float`, `np.asarray`, `pickle`.
    """

    __slots__ = ()
    memory: DeviceMemory  # type: ignore[assignment]  # an array of the CPU holds the elements themselves

    @property
    def data(self) -> NDArray:
        """The elements as a read-only NumPy array, once they are computed.

        Raises:
            ArgumentTypeError: the array was donated to a compiled function.
        """
        note_transfer(self.spec, self.device, "the host")
        return self._fetch()

    def _fetch(self) -> NDArray:
        return self.alive().fetch(self.spec.shape, self.spec.dtype)

    def alive(self) -> DeviceMemory:
        """Returns the memory.

        Raises:
            ArgumentTypeError: the array was donated to a compiled function.
        """
        try:
            return self.memory
        except AttributeError:
            raise donated_error(self.spec) from None

    @property
    def owner(self) -> Any:
        """Runs commands on the array; None once it was donated."""
        memory = getattr(self, "memory", None)  # which another thread may give up
        return None if memory is None else interpreter_of(memory.device)

    @property
    def device(self) -> str:
        """The name of the device that holds the elements."""
        return self.alive().device.name

    def to_device(self, device: Any, /, stream: Any = None) -> Array:
        """Returns the array on another device.

        Args:
            device: as `nnc.devices` lists it.
            stream: accepted, as in the Array API standard.

        Raises:
            UnsupportedError: there is no such device.
        """
        try:
            interpreter = interpreter_of(find_device(device, "to_device"))
            return new_array(self._fetch(), self.spec, self.weak) if interpreter is None else interpreter.put(self)
        except BaseException as error:
            cut_traceback(error)
            raise

    def release(self) -> Any:
        """Gives the memory up; any later use of the array raises."""
        try:
            memory = self.memory
            object.__delattr__(self, "memory")  # which only one of several threads can do
        except AttributeError:
            raise donated_error(self.spec) from None
        return memory

    def as_weak(self, weak: Weakness = True) -> Array:
        """Returns the same value, taking the dtype of the array it meets, as a Python scalar does.

        Args:
            weak: its weakness; False makes it strong.
        """
        return new_device_array(self.alive(), self.spec, weak)

    def block_until_ready(self) -> Array:
        """Waits until the elements are computed.

        Raises:
            NncError: they cannot be computed, for example since an index was out of range.
        """
        try:
            memory = self.alive()
            memory.device.wait(memory.block)
            return self
        except BaseException as error:
            cut_traceback(error)
            raise

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(<donated>, {self.spec})"
        host = repr(new_array(self.data, self.spec, self.weak))
        return f"{host[:-1]}, device={self.device})"

    @api_boundary
    def __copy__(self) -> Array:
        return new_device_array(self.alive(), self.spec, self.weak)

    @api_boundary
    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    @api_boundary
    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        wanted, device = self.__dlpack_device__() if dl_device is None else tuple(dl_device), self.alive().device
        if isinstance(device, SharingDevice) and wanted == device.dlpack_device:
            memory = interpreter_of(device).copy(self.memory) if copy else self.memory
            given = {} if max_version is None else {"max_version": max_version}
            return device.to_capsule(memory, self.spec.shape, self.spec.dtype, stream, **given)
        asks_for_host = wanted == (dlpack.HOST, 0)
        if not asks_for_host or copy is False:
            problem = "the host needs a copy" if asks_for_host else "other libraries cannot read it there"
            reason = f"the array is on {self.device}, and {problem}."
            fix = 'copy it: np.asarray(x), np.from_dlpack(x, device="cpu"), or nnc.device_put(x, "cpu").'
            raise user_error(ExportError, "__dlpack__", reason, operands={"x": self.spec}, fix=fix)
        host = self.to_device(CPU)
        return host.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    @api_boundary
    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.alive().device
        if isinstance(device, SharingDevice):
            return device.dlpack_device
        return dlpack.OTHER, int(device.name.partition(":")[2])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        device, dtype = self.alive().device, self.spec.dtype
        if not isinstance(device, SharingDevice) or dtype == bfloat16:
            raise AttributeError(f"{self.spec} on {device.name} has no __cuda_array_interface__")
        return device.describe(self.memory, self.spec.shape, dtype)


def new_device_array(memory: DeviceMemory, spec: TensorSpec, weak: Weakness = False) -> DeviceArray:
    """Returns the array of memory of this spec, which nobody else writes to."""
    array = object.__new__(DeviceArray)
    _set(array, "memory", memory)
    _set(array, "spec", spec)
    _set(array, "weak", weak)
    return array


def fresh_memory(device: Accelerator, spec: TensorSpec) -> DeviceMemory:
    """Memory for an array of a spec, to which nothing was written yet."""
    return DeviceMemory(device, device.pool.allocate(spec.nbytes, device.stream, spec))
