"""The form of a stored graph, as data: which fields there are, and which types they have."""

from __future__ import annotations

from typing import Any

_COUNT = "an integer of 0 or more"
_SPEC = {"shape": [_COUNT], "dtype": str, "layout?": str}
_ARRAY = {"dtype": str, "shape": [_COUNT], "data": str}
_NODE = {
    "command": str,
    "inputs": [_COUNT],
    "outputs": [_COUNT],
    "params?": dict,
    "graphs?": [_COUNT],
    "source?": _COUNT,
}
_GRAPH = {
    "name": str,
    "symbols": [(_COUNT, str)],
    "inputs": [_COUNT],
    "constants": [(_COUNT, _ARRAY)],
    "nodes": [_NODE],
    "outputs": [_COUNT],
    "attrs": dict,
}
# a list has any number of elements of one form; a tuple one element of each; fields with "?" may be left out
DOCUMENT = {"format": str, "version": _COUNT, "specs": [_SPEC], "sources": [(str, _COUNT, str)], "graphs": [_GRAPH]}


def check_form(tree: Any, form: Any = DOCUMENT, path: str = "the document") -> None:
    """Raises ValueError unless `tree` has a form; the text names the field.

    Example:
        >>> check_form({"version": "1"}, {"version": int})
        Traceback (most recent call last):
        ValueError: the document["version"] is '1', not of type int
    """
    if form is _COUNT:
        _require(type(tree) is int and tree >= 0, path, tree, form)
    elif isinstance(form, type):
        _require(type(tree) is form, path, tree, f"of type {form.__name__}")
    elif isinstance(form, list):
        _require(type(tree) is list, path, tree, "a list")
        for i, part in enumerate(tree):
            check_form(part, form[0], f"{path}[{i}]")
    elif isinstance(form, tuple):
        _require(type(tree) is list and len(tree) == len(form), path, tree, f"a list of {len(form)}")
        for i, (part, inner) in enumerate(zip(tree, form, strict=True)):
            check_form(part, inner, f"{path}[{i}]")
    else:
        _require(type(tree) is dict, path, tree, "an object")
        names = {name.removesuffix("?"): inner for name, inner in form.items()}
        for name in tree:
            _require(name in names, path, name, "one of its fields")
        for name in form:
            _require(name.endswith("?") or name in tree, path, tree, f"an object with the field {name}")
        for name, part in tree.items():
            check_form(part, names[name], f'{path}["{name}"]')


def _require(holds: bool, path: str, value: Any, wanted: str) -> None:
    if not holds:
        text = repr(value)
        raise ValueError(f"{path} is {text if len(text) < 60 else text[:57] + '...'}, not {wanted}")
