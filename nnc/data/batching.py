"""Batches of arrays: which rows are due is a function of the key and the number of the step alone, so training resumes exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, overload

import numpy as np

from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.indexing import take
from nnc.calls.spelling import spelled
from nnc.data.ahead import Prefetch
from nnc.data.leaves import as_numpy, check_count, send
from nnc.device import CPU
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.random import fold_in, permutation
from nnc.random.keys import read_key
from nnc.trace.core.flat import call_function
from nnc.trace.core.on_device import device_put
from nnc.typing import A, ArrayLike, B

WHERE = "nnc.data.batches"
Transform = Callable[[Any, Any], Any]  # (key of the step, batch) -> batch


@overload
def batches(
    arrays: A, batch: int, key: ArrayLike | None = None, prefetch: int = 0, *, epochs: int | None = 1, drop_last: bool = False,
    step: int = 0, transform: None = None, device: str | None = None, share: tuple[int, int] | None = None,
) -> Batches[A]: ...  # fmt: skip
@overload
def batches(
    arrays: A, batch: int, key: ArrayLike | None = None, prefetch: int = 0, *, epochs: int | None = 1, drop_last: bool = False,
    step: int = 0, transform: Callable[[Any, A], B], device: str | None = None, share: tuple[int, int] | None = None,
) -> Batches[B]: ...  # fmt: skip
@spelled
def batches(
    arrays: Any, batch: int, key: Any = None, prefetch: int = 0, *, epochs: int | None = 1, drop_last: bool = False,
    step: int = 0, transform: Transform | None = None, device: str | None = None, share: tuple[int, int] | None = None,
) -> Batches[Any]:  # fmt: skip
    """Iterates over arrays in batches: rows along the first axis of every leaf, in a new random order for each epoch.

    Batches of NumPy arrays own their memory: writing to one changes nothing else, and later writes to `arrays` do not reach it.
    The result is an iterator that ends after `epochs` passes, not a list to loop over again. For several epochs pass `epochs`, and
    write one loop; or call `batches` for each epoch, with a key of its own for another order: `nnc.random.fold_in(key, epoch)`.

    Args:
        arrays: a pytree of arrays of one length. NumPy arrays and arrays of other libraries give NumPy arrays (memory-mapped ones
            are read batch by batch), nnc arrays nnc arrays of the same device.
        batch: rows in a batch; with `share`, of all processes together.
        key: the key of the orders; None: in order.
        prefetch: how many batches a thread makes in advance; 0: no thread.
        epochs: passes over the rows, all by the one iterator; None: without end.
        drop_last: leave out the rest of each epoch that does not fill a batch.
        step: how many batches were made before, to resume.
        transform: (key, batch) -> batch, run on each batch with a key of its own (None without a key), in the thread where there
            is one.
        device: the arrays of a batch are sent to this device when the batch is made: by the thread, if there is one.
            None: they stay where they are.
        share: `(nnc.distributed.rank(), nnc.distributed.size())` gives each process its own rows of every batch, in the order of
            the ranks; only these are read. The key must be the same in all processes; keys of `transform` differ. None: all rows.

    Returns:
        An iterator with `step`, the number to resume from, and `close()`; as a context manager it closes itself. It serves one
        loop: pass `epochs`, or call this function again for each.

    Raises:
        ShapeError: lengths differ, or `share` does not split every batch into equal parts.
        ArgumentError, ArgumentTypeError: no rows or batches, or not of these types. A second loop over batches that were all taken
            raises ArgumentError, too.
        UnsupportedError: there is no such device.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> data = {"x": np.arange(5), "y": np.arange(5) ** 2}
        >>> for part in nnc.data.batches(data, 2):
        ...     print(part["x"], part["y"])
        [0 1] [0 1]
        [2 3] [4 9]
        [4] [16]
        >>> next(nnc.data.batches(np.arange(6), 3, prefetch=2, device="sim:0"))
        Array([0, 1, 2], dtype=int64, device=sim:0)
        >>> [list(nnc.data.batches(np.arange(8), 4, share=(rank, 2))) for rank in range(2)]
        [[array([0, 1]), array([4, 5])], [array([2, 3]), array([6, 7])]]
    """
    arrays = tree.map(lambda leaf: as_numpy(leaf, WHERE), arrays)
    leaves = [leaf for leaf in tree.leaves(arrays) if tree.is_array(leaf)]
    length = _check_arrays(arrays, leaves)
    counts = {
        "batch": (batch, 1),
        "prefetch": (prefetch, 0),
        "step": (step, 0),
        "epochs": (1 if epochs is None else epochs, 0),
    }
    for name, (value, low) in counts.items():
        check_count(WHERE, name, value, low)
    if key is not None:
        key = read_key(key, WHERE)
    if transform is not None and not callable(transform):
        problem = f"transform is {transform!r}, not a function."
        raise user_error(ArgumentTypeError, WHERE, problem, fix="pass a function (key, batch) -> batch.")
    per_epoch = length // batch if drop_last else -(-length // batch)
    if not per_epoch:
        problem = f"{length} rows do not fill a batch of {batch}, and drop_last leaves the rest out."
        raise user_error(ArgumentError, WHERE, problem, fix="choose a smaller batch, or drop_last=False.")
    own = (0, 1) if share is None else _check_share(share, batch, length, drop_last)
    return Batches(arrays, batch, key, prefetch, length, per_epoch, epochs, step, transform, device, own)


class Batches(Generic[B]):
    """The result of `nnc.data.batches`: an iterator over batches. `step` counts the batches that were taken.

    Args:
        arrays: a pytree of arrays of one length.
        batch: rows in a batch.
        key: the key of the orders; None: in order.
        prefetch: how many batches a thread makes in advance; 0: no thread.
        length: number of rows.
        per_epoch: number of batches in an epoch.
        epochs: passes over the rows; None: without end.
        step: how many batches were made before.
        transform: (key, batch) -> batch, or None.
        device: gets the arrays of each batch; None: they stay where they are.
        share: number of the part of each batch that is made, and how many parts there are.

    Example:
        >>> batches = nnc.data.batches(nnp.arange(6), 2)
        >>> len(list(batches))
        3
    """

    def __init__(
        self, arrays: Any, batch: int, key: Any, prefetch: int, length: int, per_epoch: int, epochs: int | None, step: int,
        transform: Transform | None, device: str | None, share: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        self.step, self._begin, self.per_epoch = step, step, per_epoch
        self._end = None if epochs is None else epochs * per_epoch
        end = self._end

        def make() -> Iterator[Any]:
            made = _generate(arrays, batch, key, length, per_epoch, step, end, transform, share)
            return made if device is None else (tree.map(lambda leaf: send(leaf, device), part) for part in made)

        self._source: Iterator[Any] = Prefetch(make, prefetch, WHERE) if prefetch else make()

    @property
    def epoch(self) -> int:
        """The pass over the rows that the next batch belongs to."""
        return self.step // self.per_epoch

    def __len__(self) -> int:
        """Returns the number of batches that are left."""
        if self._end is None:
            problem = "without end there is no length."
            raise user_error(ArgumentTypeError, WHERE, problem, fix="give epochs, or count per_epoch of each.")
        return max(self._end - self.step, 0)

    @api_boundary
    def __iter__(self) -> Iterator[B]:
        if self._end is not None and self._begin < self._end <= self.step:
            problem = f"all {self.step} batches were taken; another loop would find none."
            fix = "pass epochs=, or call nnc.data.batches again for each loop."
            raise user_error(ArgumentError, WHERE, problem, fix=fix)
        return self

    @api_boundary
    def __next__(self) -> B:
        item: B = next(self._source)
        self.step += 1
        return item

    def close(self) -> None:
        """Ends the iteration, and the thread."""
        self._source.close()  # type: ignore[attr-defined]  # a generator and a Prefetch have it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _generate(
    arrays: Any, batch: int, key: Any, length: int, per_epoch: int, step: int, end: int | None, transform: Transform | None,
    share: tuple[int, int],
) -> Iterator[Any]:  # fmt: skip
    order, ordered, (part_number, parts) = None, -1, share
    while end is None or step < end:
        epoch, place = divmod(step, per_epoch)
        begin, end_of_batch = place * batch, min((place + 1) * batch, length)
        count = (end_of_batch - begin) // parts
        rows: Any = slice(begin + part_number * count, begin + (part_number + 1) * count)
        if key is not None:
            if epoch != ordered:
                order, ordered = permutation(fold_in(key, epoch), length).to_device(CPU).data, epoch
            rows = order[rows]  # type: ignore[index]  # an order was drawn
        part = tree.map(lambda leaf, rows=rows: _take(leaf, rows), arrays)
        if transform is not None:
            own_key = None if key is None else _key_of_transform(key, step, share)
            part = call_function(transform, (own_key, part), where=WHERE, fix="define it as transform(key, batch).")
        yield part
        step += 1


TRANSFORM = 0x7472616E  # keys of transforms are folded in twice, so that they are none of the keys of orders


def _key_of_transform(key: Any, step: int, share: tuple[int, int]) -> Any:
    """Returns a key for each step, and for each share where there are several: processes draw other numbers for other rows."""
    own = fold_in(fold_in(key, step), TRANSFORM)
    return own if share[1] == 1 else fold_in(own, share[0])


def _take(leaf: Any, rows: Any) -> Any:
    if isinstance(leaf, Array) and leaf.device != CPU:
        places = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return take(leaf, device_put(places, leaf.device), 0, "error")
    if isinstance(leaf, Array):
        return Array(np.ascontiguousarray(leaf.data[rows]))
    if not tree.is_array(leaf):
        return leaf
    return np.array(leaf[rows]) if isinstance(rows, slice) else np.asarray(leaf[rows])  # indices copy by themselves


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_arrays(arrays: Any, leaves: list[Any]) -> int:
    """Returns the length that all leaves have."""
    if not leaves:
        raise user_error(ArgumentError, WHERE, "arrays has no arrays.", fix="pass an array, or a tree of them.")
    lengths = {}
    for path, leaf in tree.leaves_with_path(arrays):
        if not tree.is_array(leaf):
            continue
        if not isinstance(leaf, (np.ndarray, Array)):
            problem = f"arrays{path} is a {type(leaf).__name__}, not an array."
            fix = "convert lists with np.asarray; iterate outside of traced functions."
            raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)
        if not leaf.ndim:
            problem = f"arrays{path} is a number; it has no rows."
            fix = "give every array a first axis that counts the examples."
            raise user_error(ShapeError, WHERE, problem, operands={"leaf": asarray(leaf).spec}, fix=fix)
        lengths[f"arrays{path}"] = leaf.shape[0]
    if len(set(lengths.values())) > 1:
        problem = "arrays differ in length: " + ", ".join(f"{name} {n}" for name, n in lengths.items()) + "."
        raise user_error(ShapeError, WHERE, problem, fix="give every array one row for each example.")
    length = next(iter(lengths.values()))
    if not length:
        raise user_error(ArgumentError, WHERE, "the arrays have no rows.", fix="check how they were read.")
    return int(length)


def _check_share(share: Any, batch: int, length: int, drop_last: bool) -> tuple[int, int]:
    """Returns the number of the part and the number of parts, which split every batch evenly."""
    if not isinstance(share, tuple) or len(share) != 2:
        fix = "write share=(nnc.distributed.rank(), nnc.distributed.size())."
        raise user_error(ArgumentTypeError, WHERE, f"share is {share!r}, not a pair (rank, size).", fix=fix)
    number, parts = share
    check_count(WHERE, "share[1]", parts, 1)
    check_count(WHERE, "share[0]", number, 0)
    if number >= parts:
        fix = "write share=(nnc.distributed.rank(), nnc.distributed.size())."
        raise user_error(ArgumentError, WHERE, f"share is {share!r}: there is no rank {number} among {parts}.", fix=fix)
    last = 0 if drop_last else length % batch
    if batch % parts and (drop_last or length >= batch):
        problem = f"a batch of {batch} rows cannot be split evenly among {parts} processes."
        fix = f"choose batch={batch // parts * parts or parts}, or another multiple of {parts}."
        raise user_error(ShapeError, WHERE, problem, fix=fix)
    if last % parts:
        problem = f"the last batch of an epoch has {last} rows, which cannot be split evenly among {parts} processes."
        raise user_error(ShapeError, WHERE, problem, fix="pass drop_last=True, or choose another batch.")
    return operator.index(number), operator.index(parts)
