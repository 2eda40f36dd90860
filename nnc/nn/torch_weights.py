"""Weights of PyTorch modules for models of nnc: the same arrays under other names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nnc.array.array import Array, asarray
from nnc.calls.spelling import spelled
from nnc.errors import TreeError, user_error
from nnc.nn.layers import Sequential
from nnc.nn.module import Module, is_container
from nnc.nn.multihead import MultiHeadAttention
from nnc.nn.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from nnc.nn.paths import assign, join
from nnc.nn.recurrent import GRU, LSTM, RNN
from nnc.typing import A, ArrayLike

__all__ = ["load_torch"]

NORMS = (BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm)
OF_NORMS = {"scale": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
# a path, the names it may have in PyTorch, which third of the last of them it is
Entry = tuple[str, tuple[str, ...], int]


@spelled
def load_torch(model: A, state: Mapping[str, ArrayLike], *, rename: Callable[[str], str] | None = None) -> A:
    """Returns the model with the arrays of a PyTorch `state_dict`.

    Names are the fields' names, with PyTorch's words where nnc has others: `weight`, `running_mean` … of norms,
    `weight_ih_l0_reverse` … of recurrent layers, `in_proj_weight` of attention; layers of a Sequential are counted. Arrays are
    copied, so that a module that goes on training does not change the model; nnc's arrays never change and are taken as they are.

    Args:
        model: a module.
        state: from names to arrays or tensors, as `module.state_dict()` or `nnc.io.load` of a safetensors file gives
            it.
        rename: from the name that a field would have by these rules to the one that it has in `state`.

    Raises:
        TreeError: a name is missing, or left over.
        ShapeError, DTypeError: an array does not fit.

    Example:
        >>> model = nnc.nn.Sequential(nnc.nn.Linear(2, 1, key=nnc.random.key(0)))
        >>> state = {"0.weight": np.ones((1, 2), np.float32), "0.bias": np.zeros(1, np.float32)}
        >>> nnc.nn.load_torch(model, state)(np.ones(2, np.float32))
        Array([2.], dtype=float32)
    """
    values, used, lines = {}, set(), []
    for path, names, third in _entries(model, "", ""):
        candidates = [rename(name) for name in names] if rename is not None else list(names)
        name = next((name for name in candidates if name in state), None)
        if name is None:
            lines.append(f"  {candidates[-1]}: missing, for {path}")
            continue
        used.add(name)
        given = state[name]
        array = np.asarray(given)
        part = np.split(array, 3)[third] if third >= 0 and name == candidates[-1] else array
        values[path] = asarray(part, copy=None if isinstance(given, Array) else True)
    lines += [f"  {name}: left over" for name in state if name not in used and not name.endswith("num_batches_tracked")]
    if lines:
        problem = "the names do not fit the model:\n" + "\n".join(lines)
        fix = "pass rename=, a function from the names expected to those of the state, or leave out other entries."
        raise user_error(TreeError, "nnc.nn.load_torch", problem, fix=fix)
    return assign(model, values)


def _entries(value: Any, path: str, name: str) -> Iterator[Entry]:
    if isinstance(value, (RNN, GRU, LSTM)):
        for i, cells in enumerate(value.layers):
            for j, cell in enumerate(cells):
                for at, (field,), _ in _entries(cell, _dotted(path, f"layers.{i}.{j}"), ""):
                    yield at, (_dotted(name, f"{field}_l{i}{'_reverse' if j else ''}"),), -1
    elif isinstance(value, MultiHeadAttention):
        for i, letter in enumerate("qkv"):
            for at, (field,), _ in _entries(getattr(value, f"{letter}_proj"), _dotted(path, f"{letter}_proj"), ""):
                names = (_dotted(name, f"{letter}_proj_{field}"), _dotted(name, f"in_proj_{field}"))
                yield at, names, i
        yield from _entries(value.out_proj, _dotted(path, "out_proj"), _dotted(name, "out_proj"))
    elif isinstance(value, Module):
        for field, part in value.__dict__.items():
            word = OF_NORMS.get(field, field) if isinstance(value, NORMS) else field
            is_counted = isinstance(value, Sequential) and field == "layers"
            yield from _entries(part, _dotted(path, field), name if is_counted else _dotted(name, word))
    elif is_container(value):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _entries(part, join(path, key), join(name, key))
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield path, (name,), -1


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
