"""Pytrees to and from safetensors files (https://huggingface.co/docs/safetensors), which hold no code and load anywhere."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np

from nnc.array.array import Array, asarray
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.files import Folder
from nnc.calls.spelling import spelled
from nnc.compiled.processes import Site, World, world
from nnc.device import CPU
from nnc.errors import ArgumentError, FileFormatError, TraceError, UnsupportedError, user_error
from nnc.errors.paths import access, path_to_read, path_to_write
from nnc.graph import spec_of
from nnc.io.container import DTYPES, damaged, read, read_header, write
from nnc.io.layout import Layout, Node, describe, fill, leaf_value, rebuild, walk
from nnc.io.shards import is_index, own_part, read_index, sizes_of, write_index, write_shard
from nnc.trace.core.parts import is_part, weight_splits
from nnc.trace.core.specs import ShapeDtypeStruct
from nnc.trace.dynamic.interpreter import Variable
from nnc.tree import leaves_with_path
from nnc.typing import A

NDArray = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

FORMAT = "nnc"  # the key of the structure in the file's metadata
VERSION = 1
_MODE = 0o666  # of new files, as far as the user's umask allows


# -- writing -----------------------------------------------------------------------------------------------------------


@spelled
def save(path: PathLike, tree: Any, *, sharded: bool = False) -> None:
    """Writes a pytree of arrays as a safetensors file.

    The names of the tensors are the paths of the leaves (`layers.0.weight`); numbers, strings and the structure go to the
    metadata. The file appears whole or not at all: it is written beside its place and then moved there. A process that is killed
    meanwhile leaves the file that was there before, and a hidden `.name.….part` beside it, which the next `save` in the folder
    removes. A checksum in the metadata lets `load` notice damage; other programs pass over it.

    Args:
        path: where to; a file there is replaced.
        tree: dicts, lists, tuples, dataclasses … of arrays of any dtype, numbers and strings; settings of modules and
            fields marked static are not written, and functions come back with `load(path, like=...)` alone.
        sharded: all processes call `save` together, and each writes a file of its own: its part of the state of
            `nnc.optim.sharded`, on rank 0 also all other values. The file at `path` becomes an index of them, which is written
            last: until then the checkpoint before is whole. `load` puts the parts together, on any number of processes.

    Raises:
        ArgumentTypeError: path and tree are swapped.
        ArgumentError: a part of a sharded state is not of the size that it has on so many processes; a weight is a process's part.
        TraceError: a leaf is a tracer.
        UnsupportedError: a dict has keys that are no strings or numbers, or a leaf is neither array, number, string nor
            function.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> nnc.io.save(path, {"w": nnp.ones(2), "layers": [nnp.zeros(1), None]})
        >>> nnc.io.load(path)
        {'layers': [Array([0.], dtype=float32), None], 'w': Array([1., 1.], dtype=float32)}
    """
    target = path_to_write("nnc.io.save", path)
    layout = describe(tree, "nnc.io.save")
    _refuse_parts(tree)
    arrays, wide = _tensors(layout)
    metadata = {FORMAT: json.dumps({"version": VERSION, "dtypes": wide, "tree": layout.structure})}
    if sharded:
        found = world()
        sizes = sizes_of(tree, layout, _ranks(found))
        with access("nnc.io.save", target):
            _write_sharded(target, arrays, metadata, sizes, found)
        return
    with access("nnc.io.save", target):
        _write(target, layout, arrays, metadata)


def _refuse_parts(value: Any) -> None:
    """Raises where a module has a part of a weight: the file would lack the parts of other processes."""
    for (path, x), split in zip(leaves_with_path(value), weight_splits(value), strict=True):
        if split and is_part(x, split):
            problem = f"{path.lstrip('.')} is the part of this process."
            fix = "save nnc.distributed.gather(model, mesh=mesh), which all processes call together, on rank 0."
            raise user_error(ArgumentError, "nnc.io.save", problem, operands={path: spec_of(x)}, fix=fix)


def _tensors(layout: Layout) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Returns the arrays of a layout, and the dtypes of arrays that safetensors stores as another."""
    arrays, wide = {}, {}
    for leaf, node in zip(layout.leaves, (node for _, node in walk(layout.structure)), strict=True):
        if "tensor" not in node:
            continue
        if hasattr(leaf.value, "spec") and not isinstance(leaf.value, (Array, Variable)):
            problem = f"{leaf.name} is {leaf.value.spec}, a traced value that has no elements yet."
            fix = "save outside the traced function, from its results."
            raise user_error(TraceError, "nnc.io.save", problem, fix=fix)
        data = np.array(asarray(leaf.value, device=CPU).concrete("nnc.io.save"), order="C", copy=None)
        if data.dtype == dtypes.complex128:
            wide[leaf.name] = data.dtype.name
            data = data.reshape(*data.shape, 1).view(np.float64)
        arrays[leaf.name] = data
    return arrays, wide


def _write(target: Path, layout: Layout, arrays: Mapping[str, NDArray], metadata: dict[str, str]) -> None:
    """Writes beside the target, looks whether it can be read, then moves."""
    folder = Folder(str(target.parent), None)
    with contextlib.suppress(OSError):  # a folder whose files may not be listed
        folder.remove_left_over()
    with folder.replacing(target.name, _MODE) as (file, part):
        write(file, arrays, metadata)
        file.flush()
        _verify(Path(part), layout, arrays)
        os.fsync(file.fileno())


def _ranks(found: World | None) -> int:
    return 1 if found is None else found.size


def _write_sharded(
    target: Path, arrays: Mapping[str, NDArray], metadata: Mapping[str, str], sizes: Mapping[str, int], found: World | None
) -> None:  # fmt: skip
    """Writes this process's file; when those of all processes are there, rank 0 writes the index."""
    rank, ranks = 0 if found is None else found.rank, _ranks(found)
    token = _together(found, os.urandom(4).hex())
    write_shard(target, token, rank, ranks, own_part(arrays, sizes, rank, ranks))
    _together(found, token)
    if not rank:
        write_index(target, token, ranks, metadata, sizes)
    _together(found, token)


def _together(found: World | None, text: str) -> str:
    """Returns the text of rank 0, when all processes have come here."""
    if found is None or found.size == 1:
        return text
    with found.waiting(Site("nnc.io.save", found.size, 1)):
        texts: list[str] = found.mpi.COMM_WORLD.allgather(text)
    return texts[0]


def _verify(part: Path, layout: Layout, arrays: Mapping[str, NDArray]) -> None:
    """Checks that `load` will find in a file the tree to be saved.

    Raises:
        UnsupportedError: it will not.
    """
    try:
        entries, texts, _ = read_header(part)
        found = {name: (DTYPES[entry["dtype"]], tuple(entry["shape"])) for name, entry in entries.items()}
        nodes = _leaves(part, _parse(part, texts[FORMAT])["tree"], entries)
        problem = "" if list(nodes) == [leaf.name for leaf in layout.leaves] else "two leaves have one name"
        if found != {name: (array.dtype, array.shape) for name, array in arrays.items()}:
            problem = "the tensors in it would not be those of the tree"
    except (FileFormatError, RecursionError) as error:
        problem = str(error)
    if problem:
        fix = "give the tree other keys, or less depth. A file that was there before is unchanged."
        raise user_error(UnsupportedError, "nnc.io.save", f"the file could not be loaded again: {problem}", fix=fix)


# -- reading -----------------------------------------------------------------------------------------------------------


@overload
def load(path: PathLike, like: ShapeDtypeStruct, *, device: str | None = None) -> Array: ...
@overload
def load(path: PathLike, like: A, *, device: str | None = None) -> A: ...
@overload
def load(path: PathLike, like: None = None, *, device: str | None = None) -> Any: ...
@spelled
def load(path: PathLike, like: Any = None, *, device: str | None = None) -> Any:
    """Reads a pytree of arrays from a safetensors file.

    Args:
        path: a file that `save` or another program wrote, or the index that `save(sharded=True)` wrote on any number of
            processes: parts are put together, so that the tree is whole.
        like: a tree of the structure wanted, of arrays or ShapeDtypeStructs; names, shapes and dtypes must agree.
        device: gets each tensor as soon as it is read; by default the device of the array in `like`, else the one of
            `nnc.default_device`.

    Returns:
        a tree like `like`. Without it, the tree that was saved, with dataclasses and namedtuples as dicts of their
        fields; or, of a file from another program, a dict from names to arrays.

    Raises:
        MissingFileError: there is no such file.
        FileFormatError: it is damaged, or a process's file of it is missing.
        TreeError: it does not match `like`; every difference is listed.
        UnsupportedError: there is no such device.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> nnc.io.save(path, (nnp.ones(2), 3))
        >>> nnc.io.load(path, like=(nnp.zeros(2), 0))
        (Array([1., 1.], dtype=float32), 3)
        >>> nnc.io.load(path, device="sim:0")[0].device
        'sim:0'
    """
    source = path_to_read("nnc.io.load", path)
    places = _devices(like) if device is None else {}
    ambient = get_context().device  # of the argument `device`, if it is given
    default = CPU if ambient is None else ambient.device.name
    with access("nnc.io.load", source):
        arrays, header = _read(source, lambda name, data: Array(data).to_device(places.get(name, default)))
    if header is None:
        return arrays if like is None else fill(like, arrays, "nnc.io.load", foreign=True)
    found = _leaves(source, header["tree"], arrays)
    if like is not None:
        return fill(like, found, "nnc.io.load")
    try:
        return rebuild(header["tree"], arrays, "nnc.io.load")
    except RecursionError:
        raise damaged(source, "its tree is nested too deep") from None


def _devices(like: Any) -> dict[str, str]:
    """Returns the devices of the arrays of a tree by name."""
    leaves = describe(like, "nnc.io.load").leaves if like is not None else ()
    return {x.name: x.value.device for x in leaves if isinstance(x.value, Array) and not x.value.is_deleted()}


def _read(source: Path, put: Callable[[str, NDArray], Array]) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Returns the tensors of a file by name, and nnc's header where the file has one."""
    texts, tensors = (read_index if is_index(source) else read)(source)
    try:
        header = _parse(source, texts[FORMAT]) if FORMAT in texts else None
    except FileFormatError:
        deque(tensors, maxlen=0)  # a wrong checksum is reported first
        raise
    wide = {} if header is None else header["dtypes"]
    return {name: put(name, _narrow(source, data, wide.get(name))) for name, data in tensors}, header


def _parse(source: Path, text: str) -> dict[str, Any]:
    """Returns the header; a missing entry shows when the tree is walked."""
    try:
        header = json.loads(text)
        version = header["version"]
        tree, wide = header["tree"], header["dtypes"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise damaged(source, "its description of the tree cannot be read") from None
    if version != VERSION:
        problem = f"{source} has version {version!r} of the format, this nnc reads {VERSION}."
        fix = "update nnc, or save the file again with the nnc you have."
        raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
    if not isinstance(tree, dict) or not isinstance(wide, dict):
        raise damaged(source, "its description of the tree cannot be read")
    return {"tree": tree, "dtypes": wide}


def _narrow(source: Path, data: NDArray, dtype: str | None) -> NDArray:
    """Returns a tensor in the dtype that it had before it was stored as pairs of floats."""
    if dtype is None:
        return data
    if dtype != "complex128" or data.dtype != dtypes.float64 or data.shape[-1:] != (2,):
        raise damaged(source, f"a tensor of {dtype} is stored as {data.dtype}{list(data.shape)}")
    return data.view(np.complex128).reshape(data.shape[:-1])


def _leaves(source: Path, structure: Node, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of all leaves by name."""
    found, named = {}, set()
    try:
        for name, node in walk(structure):
            found[name] = leaf_value(node, arrays)
            named.add(node.get("tensor"))
    except (ValueError, RecursionError) as error:
        raise damaged(source, f"its tree and its tensors do not belong together ({error})") from None
    named.discard(None)
    if named != set(arrays):
        raise damaged(source, f"its tree does not name the tensors {', '.join(sorted(set(arrays) - named))}")
    return found
