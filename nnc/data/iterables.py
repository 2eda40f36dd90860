"""Any iterable of batches as a source: a PyTorch DataLoader, a generator that reads files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nnc import tree
from nnc.calls.spelling import spelled
from nnc.data.ahead import Prefetch
from nnc.data.leaves import as_numpy, check_count, owned, send
from nnc.errors import ArgumentTypeError, user_error
from nnc.typing import A

WHERE = "nnc.data.prefetch"


@spelled
def prefetch(source: Iterable[A], size: int = 2, *, device: str | None = None) -> Prefetch[A]:
    """Iterates over batches that another object makes, while a thread makes the next ones: for example, once over a DataLoader
    of PyTorch.

    Args:
        source: an iterable of pytrees. NumPy arrays in them are copied by the thread, so that `source` may fill the same buffer
            again; arrays of other libraries, such as tensors, become such copies; all else stays.
        size: how many batches the thread makes in advance.
        device: the arrays of a batch are sent to this device by the thread. None: they stay where they are.

    Returns:
        An iterator with `close()`; as a context manager it closes itself. It goes over `source` once: make another for
        the next epoch.

    Raises:
        ArgumentError, ArgumentTypeError: `source` is not iterable, or `size` is no positive int.
        UnsupportedError: there is no such device; raised where the first batch is due.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> made = ({"x": np.full(2, i), "number": i} for i in range(3))
        >>> with nnc.data.prefetch(made, device="sim:0") as batches:
        ...     for batch in batches:
        ...         print(batch["x"], batch["x"].device, batch["number"])
        [0 0] sim:0 0
        [1 1] sim:0 1
        [2 2] sim:0 2
    """
    check_count(WHERE, "size", size, 1)
    if not isinstance(source, Iterable):
        problem = f"source is a {type(source).__name__}, which is not iterable."
        fix = "pass an iterable of batches; batches of arrays are made by nnc.data.batches."
        raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)

    def convert(leaf: Any) -> Any:
        leaf = owned(as_numpy(leaf, WHERE))
        return leaf if device is None else send(leaf, device)

    def make() -> Iterator[A]:
        return (tree.map(convert, batch) for batch in source)

    return Prefetch(make, size, WHERE)
