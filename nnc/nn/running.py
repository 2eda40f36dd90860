"""The convention of layers with a state, and `Run`, which follows it for modules made of others.

A module is stateful if it, or a module in it, has a field declared with `field(state=True)`, such as running averages. Calling
one returns `(output, new self)`; calling any other returns the output alone. The choice between the two stands in the structure of
the model, so it never depends on values, on training or on inference.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, cast

from nnc import random
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.nn.module import Module, is_container

__all__ = ["Run", "is_stateful"]

Path = tuple[Any, ...]


@spelled
def is_stateful(module: Any) -> bool:
    """Whether calling `module` returns (output, new self): it, or a module in it, has a field of state that is not None.

    Args:
        module: a module.

    Example:
        >>> nnc.nn.is_stateful(nnc.nn.BatchNorm(3)), nnc.nn.is_stateful(nnc.nn.LayerNorm(3))
        (True, False)
    """
    return _has_state(module)


def _has_state(value: Any) -> bool:
    if isinstance(value, Module):
        states, content = _states(cast(Hashable, type(value))), value.__dict__
        return any(content.get(name) is not None for name in states) or any(map(_has_state, content.values()))
    return is_container(value) and any(map(_has_state, value.values() if isinstance(value, dict) else value))


@lru_cache(maxsize=1024)
def _states(cls: Any) -> tuple[str, ...]:
    """Returns the names of the fields that hold state."""
    return tuple([item.name for item in dataclasses.fields(cls) if item.metadata.get("state")])


def takes_key(module: Module) -> bool:
    """Whether calling `module` takes a `key` to draw with; one beside a `query` is attended to."""
    return _takes_key(cast(Hashable, type(module)))


@lru_cache(maxsize=1024)
def _takes_key(cls: Any) -> bool:
    parameters = inspect.signature(cls.__call__).parameters
    parameter = parameters.get("key")
    return parameter is not None and (parameter.kind is parameter.KEYWORD_ONLY or "query" not in parameters)


class Run:
    """One call of a module made of others. The module calls its parts through it, as if they had no state and drew no random
    numbers.

    `run.name` stands for the part `self.name`, also within lists, tuples and dicts. Calling it hands on a key of its own, where
    the part takes `key=`, and keeps the new self that a stateful part returns. `run.result(out)` is the module's result: `out`
    and its new self where the module is stateful, else `out` alone.

    Args:
        module: the module that is called.
        key: the key of the call; None in inference.

    Raises:
        ArgumentTypeError: (by a call) a part is stateful, but returns no (output, new self).

    Example:
        >>> class Block(nnc.nn.Module):
        ...     linear: nnc.nn.Linear
        ...     norm: nnc.nn.BatchNorm
        ...     dropout: nnc.nn.Dropout
        ...
        ...     def __call__(self, x, *, key=None):
        ...         run = nnc.nn.Run(self, key=key)
        ...         x = nnc.nn.relu(run.norm(run.linear(x)))
        ...         return run.result(run.dropout(x))
        >>> block = Block(nnc.nn.Linear(3, 4, key=nnc.random.key(0)), nnc.nn.BatchNorm(4), nnc.nn.Dropout(0.1))
        >>> out, block = block(np.ones((8, 3), np.float32), key=nnc.random.key(1))
        >>> out.shape
        (8, 4)
    """

    __slots__ = ("_count", "_key", "_module")

    def __init__(self, module: Module, *, key: Any = None) -> None:
        self._module, self._key, self._count = module, key, 0

    def __getattr__(self, name: str) -> Any:
        return _view(self, (name,))

    def result(self, out: Any) -> Any:
        """Returns the module's result: (out, new self) where it is stateful, else out.

        Args:
            out: output of the module.
        """
        return (out, self._module) if _has_state(self._module) else out

    def _new_key(self) -> Any:
        self._count += 1
        return None if self._key is None else random.fold_in(self._key, self._count)


class Part:
    """A module, or a container of modules, in a run."""

    __slots__ = ("_path", "_run")

    def __init__(self, run: Run, path: Path) -> None:
        self._run, self._path = run, path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the output of the module alone; its new self is kept in the run."""
        run, module = self._run, _get(self._run._module, self._path)
        if takes_key(module) and kwargs.get("key") is None:
            kwargs["key"] = run._new_key()
        out = module(*args, **kwargs)
        if not _has_state(module):
            return out
        if not (isinstance(out, tuple) and len(out) == 2 and type(out[1]) is type(module)):
            name = type(module).__name__
            problem = "it holds a state, but its call returns no (output, new self)."
            fix = f"call its parts through run = nnc.nn.Run(self), and return run.result(out), in {name}.__call__."
            raise user_error(ArgumentTypeError, name, problem, fix=fix)
        run._module = _put(run._module, self._path, out[1])
        return out[0]

    def __getattr__(self, name: str) -> Any:
        return _view(self._run, (*self._path, name))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            places = range(len(self))[index]
            return [_view(self._run, (*self._path, i)) for i in places]
        return _view(self._run, (*self._path, index))

    def __len__(self) -> int:
        return len(_get(self._run._module, self._path))

    def __iter__(self) -> Iterator[Any]:
        value = _get(self._run._module, self._path)
        return iter(value) if isinstance(value, dict) else (self[i] for i in range(len(value)))


def _view(run: Run, path: Path) -> Any:
    value = _get(run._module, path)
    return Part(run, path) if _holds_modules(value) else value


def _holds_modules(value: Any) -> bool:
    if is_container(value):
        return any(map(_holds_modules, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Module)


def _get(value: Any, path: Path) -> Any:
    for step in path:
        value = getattr(value, step) if isinstance(value, Module) and isinstance(step, str) else value[step]
    return value


def _put(value: Any, path: Path, new: Any) -> Any:
    """Returns a copy of `value` with `new` at `path`."""
    if not path:
        return new
    step, inner = path[0], _put(_get(value, path[:1]), path[1:], new)
    if isinstance(value, Module):
        return value.replace(**{step: inner})
    if isinstance(value, dict):
        return {**value, step: inner}
    place = step % len(value)
    return type(value)(inner if i == place else part for i, part in enumerate(value))
