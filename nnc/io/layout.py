"""How a pytree lies in a file: names of its leaves, and its structure as JSON.

A name joins the keys on the way to a leaf with dots, as other programs write it: `layers.0.weight`. Keys that hold dots, look
like numbers or are empty stand in JSON quotes, so that no two leaves share a name.

The JSON of a node is one of
    {"tensor": name}                  an array; with "dtype" where safetensors has none for it
    {"value": x}                      a Python number, bool or string; with "type" where JSON has none for it
    {"opaque": text}                  a function or a class: only a tree given as `like` can bring it back
    {"none": null}                    None
    {"dict": [[key, node], …]}, {"list": [node, …]}, {"tuple": [node, …]}
    {"record": [[field, node], …]}    a namedtuple, dataclass or registered class, by its fields
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import optree

from nnc import tree
from nnc.array.array import as_value
from nnc.array.promote import dtype_of
from nnc.base import dtypes
from nnc.errors import TreeError, UnsupportedError, user_error
from nnc.errors.errors import shorten
from nnc.graph import TensorSpec, spec_of

Node = dict[str, Any]
PLAIN_NAME = re.compile(r"(?!-?\d+$|__metadata__$)[^.\"\ud800-\udfff]+")
_MOST_NAMES = 1 << 27  # characters of all names together, which a forged structure could make more than memory holds
_MOST_BITS = 1 << 13  # of an int; Python reads no more than 4300 digits by itself


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a tree, or a setting that the file holds, and its name; `path` is how Python reaches it."""

    name: str
    path: str
    value: Any
    is_setting: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """A tree taken apart for a file."""

    leaves: tuple[Leaf, ...]
    structure: Node


def describe(value: Any, where: str) -> Layout:
    """Returns the named leaves of a pytree, and its structure.

    Raises:
        UnsupportedError: a key of a dict is no string, number, None or tuple of them.
    """
    tree.flatten(value)  # registers the dataclasses in it
    leaves: list[Leaf] = []
    structure = _describe(value, "", "", leaves, where)
    return Layout(tuple(leaves), structure)


def _describe(value: Any, name: str, path: str, leaves: list[Leaf], where: str) -> Node:
    if value is None:
        return {"none": None}
    kind = type(value)
    if tree.structure(value).is_leaf():
        leaves.append(Leaf(name or "array", path, value))
        return _leaf_node(value, name or "array", where)
    children, metadata, entries, _ = optree.tree_flatten_one_level(value, namespace=tree.NAMESPACE)
    nodes = []
    for entry, child in zip(entries, children, strict=True):
        field = _field_name(value, entry)
        key = _encode_key(field, where)
        step = f".{field}" if _is_record(value) else f"[{_quote(field)}]"
        nodes.append([key, _describe(child, _join(name, field), path + step, leaves, where)])
    for field, setting in _saved_settings(metadata).items():
        leaves.append(Leaf(_join(name, field), f"{path}.{field}", setting, is_setting=True))
        nodes.append([field, _leaf_node(setting, leaves[-1].name, where)])
    if kind is list or kind is tuple:
        return {kind.__name__: [node for _, node in nodes]}
    return {"dict" if isinstance(value, dict) else "record": nodes}


def _saved_settings(metadata: Any) -> dict[str, Any]:
    """Returns the settings of a dataclass that a file holds, among optree's facts about it."""
    settings = metadata[1] if isinstance(metadata, tuple) and len(metadata) == 2 else None
    if not isinstance(settings, tree.Settings):
        return {}
    return {name: value for name, value in settings.items if name in settings.saved}


def _quote(key: Any) -> str:
    return json.dumps(key) if isinstance(key, str) else repr(key)


def _is_record(value: Any) -> bool:
    return not isinstance(value, (dict, list)) and (type(value) is not tuple)


def _field_name(value: Any, entry: Any) -> Any:
    """Returns the key of a child: namedtuples count their children, but name them."""
    fields = getattr(type(value), "_fields", None)
    return fields[entry] if isinstance(value, tuple) and fields is not None and isinstance(entry, int) else entry


def _leaf_node(value: Any, name: str, where: str) -> Node:
    if type(value) is complex or (type(value) is float and not math.isfinite(value)):
        return {"value": str(value), "type": type(value).__name__}
    is_large = type(value) is int and value.bit_length() > _MOST_BITS
    if type(value) in (bool, int, float, str) and not is_large:
        return {"value": value}
    is_array = tree.is_array(value) and not is_large
    if is_array and dtypes.is_known(dtype_of(value).newbyteorder("=")):
        return {"tensor": name}
    if callable(value) or isinstance(value, np.dtype):
        return {"opaque": getattr(value, "__qualname__", None) or type(value).__qualname__}
    kind = f"an array of dtype {dtype_of(value)}" if is_array else f"a {type(value).__qualname__}"
    kind = f"an int of {value.bit_length()} bits" if is_large else kind
    fix = "leave it out of the tree, or convert it to an array, a number or a string."
    if is_array and dtype_of(value).names is not None:
        kind = f"a structured array, of dtype {dtype_of(value)}"
        fix = "save an array for each field: {field: x[field] for field in x.dtype.names}."
    raise user_error(UnsupportedError, where, f"{name} is {kind}, which a file cannot hold.", fix=fix)


def _join(prefix: str, key: Any) -> str:
    text = key if isinstance(key, str) and PLAIN_NAME.fullmatch(key) else _segment(key)
    return f"{prefix}.{text}" if prefix else text


def _segment(key: Any) -> str:
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    encoded = _encode_key(key, "nnc.io")
    return json.dumps(encoded if isinstance(encoded, (str, dict)) else {"key": encoded})


def _encode_key(key: Any, where: str) -> Any:
    if isinstance(key, tuple):
        return {"tuple": [_encode_key(part, where) for part in key]}
    if key is None or isinstance(key, (str, float)) or (isinstance(key, int) and key.bit_length() <= _MOST_BITS):
        return key
    shown = f"of {key.bit_length()} bits" if isinstance(key, int) else repr(key)
    problem = f"the tree has a key {shown} ({type(key).__name__}), which a file cannot hold."
    raise user_error(UnsupportedError, where, problem, fix="use strings, numbers, None or tuples of them as keys.")


def _decode_key(key: Any) -> Any:
    """Returns the key of a dict, as `_encode_key` gives it.

    Raises:
        ValueError: it is none.
    """
    if isinstance(key, dict) and isinstance(key.get("tuple"), list):
        return tuple(_decode_key(part) for part in key["tuple"])
    is_key = key is None or isinstance(key, (str, float)) or (isinstance(key, int) and key.bit_length() <= _MOST_BITS)
    if not is_key:
        raise ValueError(f"{shorten(key)} is no key")
    return key


def walk(node: Node) -> Iterator[tuple[str, Node]]:
    """The leaves of a structure with their names.

    Raises:
        ValueError: it is not the structure of a tree, or its names are too long.
    """
    left: list[tuple[str, Any]] = [("", node)]
    length = 0
    while left:
        name, node = left.pop()
        children = _children(node)
        if children is None:
            yield name or "array", node
            continue
        joined = []
        for key, child in children:
            joined.append((_join(name, key), child))
            length += len(joined[-1][0])
            if length > _MOST_NAMES:
                raise ValueError("its names are too long")
        left += reversed(joined)


def _children(node: Any) -> Iterator[tuple[Any, Any]] | None:
    """The children of a node with their keys; None for a leaf.

    Raises:
        ValueError: it is no node.
    """
    kind = next(iter(node), None) if isinstance(node, dict) else None
    content = node[kind] if isinstance(kind, str) else None
    if kind in ("dict", "record") and isinstance(content, list):
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("a node has a child without a key")
        return ((_decode_key(key), child) for key, child in content)
    if kind in ("list", "tuple") and isinstance(content, list):
        return iter(enumerate(content))
    if kind == "none" and content is None:
        return iter(())
    is_text = kind in ("tensor", "opaque") and isinstance(content, str)
    if not (is_text or (kind == "value" and isinstance(content, (bool, int, float, str)))):
        raise ValueError(f"{shorten(node)} is no node")
    return None


def leaf_value(node: Node, tensors: Mapping[str, Any]) -> Any:
    """Returns the value of a leaf of a structure; an opaque one is its own node.

    Raises:
        ValueError: there is no such tensor, or the value is not of its type.
    """
    if "tensor" in node:
        if node["tensor"] not in tensors:
            raise ValueError(f"there is no tensor {shorten(node['tensor'])}")
        return tensors[node["tensor"]]
    if "value" in node:
        kind = node.get("type")
        if kind in ("float", "complex") and isinstance(node["value"], str):
            return (float if kind == "float" else complex)(node["value"])
        if kind is not None:
            raise ValueError(f"{shorten(node)} is no value")
        return node["value"]
    return node


def rebuild(node: Node, tensors: dict[str, Any], where: str, name: str = "") -> Any:
    """Returns the tree of a structure: dicts, lists and tuples as they were, records as dicts of their fields.

    Raises:
        UnsupportedError: a leaf was neither array nor number nor string.
    """
    kind = next(iter(node))
    if kind == "none":
        return None
    if kind in ("dict", "record"):
        pairs = [(_decode_key(key), child) for key, child in node[kind]]
        return {key: rebuild(child, tensors, where, _join(name, key)) for key, child in pairs}
    if kind in ("list", "tuple"):
        parts = [rebuild(child, tensors, where, _join(name, i)) for i, child in enumerate(node[kind])]
        return tuple(parts) if kind == "tuple" else parts
    if kind == "opaque":
        problem = f"{name} was {node['opaque']}, a Python object that the file does not hold."
        fix = "pass like=..., a tree of the same structure that has it."
        raise user_error(UnsupportedError, where, problem, fix=fix)
    return leaf_value(node, tensors)


def fill(like: Any, found: dict[str, Any], where: str, foreign: bool = False) -> Any:
    """Returns the tree `like` with the values of `found`, by name; a foreign file holds no settings.

    Raises:
        TreeError: names, shapes or dtypes differ; every difference is listed.
    """
    layout = describe(like, where)
    wanted = {leaf.name: leaf.value for leaf in layout.leaves if not (foreign and leaf.is_setting)}
    found = {name: _as_number(value, wanted[name]) if name in wanted else value for name, value in found.items()}
    lines = [
        f"  {name}: missing in the file, {_kind(value)} in `like`"
        for name, value in wanted.items()
        if name not in found
    ]
    lines += [
        f"  {name}: {_kind(value)} in the file, missing in `like`"
        for name, value in found.items()
        if name not in wanted
    ]
    for name, value in wanted.items():
        if name in found and _kind(found[name]) != _kind(value):
            lines.append(f"  {name}: {_kind(found[name])} in the file, {_kind(value)} in `like`")
    if lines:
        fix = "build `like` with the settings of the saved model, or load without `like` and pick the arrays that are needed."
        raise user_error(TreeError, where, "the file does not match `like`:\n" + "\n".join(lines), fix=fix)
    return _fill(like, "", found)


def _fill(value: Any, name: str, found: dict[str, Any]) -> Any:
    if value is None:
        return None
    if tree.structure(value).is_leaf():
        return found[name or "array"] if tree.is_array(value) or isinstance(value, str) else value
    children, metadata, entries, unflatten = optree.tree_flatten_one_level(value, namespace=tree.NAMESPACE)
    filled = [
        _fill(child, _join(name, _field_name(value, entry)), found)
        for entry, child in zip(entries, children, strict=True)
    ]
    saved = _saved_settings(metadata)
    if saved:
        order, settings = cast(tuple[Any, tree.Settings], metadata)
        items = tuple(
            (field, found.get(_join(name, field), old) if field in saved else old) for field, old in settings.items
        )
        metadata = order, tree.Settings(items, settings.saved)
    return unflatten(metadata, filled)


def _as_number(value: Any, like: Any) -> Any:
    """Returns a number as `like` has it, a Python number or an array without axes: compiled functions turn numbers into such
    arrays.
    """
    if not (tree.is_array(value) and tree.is_array(like)) or dtypes.is_scalar(value) == dtypes.is_scalar(like):
        return value
    specs = [TensorSpec((), np.dtype(type(x))) if dtypes.is_scalar(x) else spec_of(x) for x in (value, like)]
    if any(spec.shape for spec in specs) or specs[0].dtype.kind != specs[1].dtype.kind:
        return value
    if dtypes.is_scalar(like):
        return np.asarray(value).item()
    number = np.asarray(value)
    return as_value(number.astype(specs[1].dtype)) if np.can_cast(np.min_scalar_type(number), specs[1].dtype) else value


def _kind(value: Any) -> str:
    """Returns a leaf in words: the spec of an array, the value of a string, else the type."""
    if tree.is_array(value) and not dtypes.is_scalar(value):
        return str(spec_of(value))
    if isinstance(value, dict):
        return f"an object ({value['opaque']})"
    if isinstance(value, str):
        return repr(value)
    if dtypes.is_scalar(value):
        return f"a Python {type(value).__name__}"
    return f"an object ({getattr(value, '__qualname__', None) or type(value).__qualname__})"
