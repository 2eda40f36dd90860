"""einops on nnc arrays and tracers.

einops asks the subclasses of its `AbstractBackend` which of them knows a type of array. The backend class exists once einops has
been imported, which nnc must not do for users without it. So a finder waits in `sys.meta_path` for the import of einops, adds
nnc's backend behind it and takes itself away. `einops.array_api` needs no backend.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

import numpy as np

from nnc.array.array import Array
from nnc.array.operators import ArrayMethods
from nnc.base.dtypes import is_float
from nnc.numpy.contractions import einsum
from nnc.numpy.creation import arange, asarray
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.manipulation import expand_dims
from nnc.numpy.repetition import tile

MODULE = "einops"


def add_backend(einops_backends: ModuleType) -> None:
    """Makes nnc's arrays and tracers known to einops, whose module of backends is given."""
    base: Any = einops_backends.AbstractBackend

    class NncBackend(base):  # type: ignore[misc]
        """einops' operations on nnc's arrays and tracers."""

        framework_name = "nnc"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, ArrayMethods)

        def from_numpy(self, x: Any) -> Array:
            return asarray(x)

        def to_numpy(self, x: Any) -> Any:
            return np.asarray(x)

        def arange(self, start: int, stop: int) -> Array:
            return arange(start, stop)

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Array:
            return stack(tensors)

        def add_axis(self, x: Any, new_position: int) -> Array:
            return expand_dims(x, new_position)

        def tile(self, x: Any, repeats: Sequence[int]) -> Array:
            return tile(x, repeats)

        def concat(self, tensors: list[Any], axis: int) -> Array:
            return concatenate(tensors, axis)

        def is_float_type(self, x: Any) -> bool:
            return is_float(x.dtype)

        def einsum(self, pattern: str, *x: Any) -> Array:
            return einsum(pattern, *x)

    vars(einops_backends)[NncBackend.__name__] = NncBackend  # beside the others; a class that nobody holds is forgotten


class AfterImport:
    """Calls `action` once, when the module `name` has been imported."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the module's own spec, whose loader calls the action when it is done; None for other modules."""
        if fullname != self.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = cast(Any, _Loader(spec.loader, self))
        return spec


class _Loader:
    """Loads with another loader, which it leaves in its place, then lets the finder act."""

    def __init__(self, loader: Any, finder: AfterImport) -> None:
        self.loader, self.finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        sys.meta_path.remove(self.finder)
        self.finder.action()


def _know_einops() -> None:
    add_backend(sys.modules[f"{MODULE}._backends"])


def await_einops() -> None:
    """Adds nnc's backend to einops: at once where that is there, else as soon as it is imported."""
    if f"{MODULE}._backends" in sys.modules:
        _know_einops()
    else:
        sys.meta_path.insert(0, AfterImport(MODULE, _know_einops))
