"""The errors of nnc: one class for each kind of mistake, and the function that words them."""

from nnc.base.later import later
from nnc.errors.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    BackendError,
    DeviceError,
    DTypeError,
    FileAccessError,
    FileFormatError,
    GraphError,
    IndexingError,
    InternalError,
    LinAlgError,
    MemoryBudgetError,
    MissingFileError,
    MissingNameError,
    NncError,
    NotFiniteError,
    NumberRangeError,
    OutOfBoundsError,
    OutOfMemoryError,
    RegistryError,
    RetraceWarning,
    ShapeError,
    TraceError,
    TreeError,
    UnboundAxisError,
    UnsupportedError,
    user_error,
)

access = later(f"{__name__}.paths", "access")
hash_remedy = later(f"{__name__}.remedies", "hash_remedy")
numpy_remedy = later(f"{__name__}.remedies", "numpy_remedy")
path_to_read = later(f"{__name__}.paths", "path_to_read")
path_to_write = later(f"{__name__}.paths", "path_to_write")
remedy = later(f"{__name__}.remedies", "remedy")

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BackendError",
    "DTypeError",
    "DeviceError",
    "FileAccessError",
    "FileFormatError",
    "GraphError",
    "IndexingError",
    "InternalError",
    "LinAlgError",
    "MemoryBudgetError",
    "MissingFileError",
    "MissingNameError",
    "NncError",
    "NotFiniteError",
    "NumberRangeError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "RegistryError",
    "RetraceWarning",
    "ShapeError",
    "TraceError",
    "TreeError",
    "UnboundAxisError",
    "UnsupportedError",
    "user_error",
]


def __dir__() -> list[str]:
    return sorted(__all__)
