"""The remedy for asking a traced array for its value, found in the expression of the user's line that asks for it.

`math.sin(x)` wants `nnp.sin(x)`, `range(n)` a loop of nnc, `[1.0, 2.0][i]` an array. The expression is read when an error has
occurred, and never before.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from nnc.base.context import get_context
from nnc.base.source import user_frame

_DECIDE = "use nnc.cond, nnp.where or nnc.while_loop for decisions on values"
_CONVERSIONS = {float: "astype('float32')", int: "astype(int)", complex: "astype('complex64')"}
_MATHS = ("math", "cmath")
_OWN_NAMES = {"fabs": "abs", "pow": "power", "fmod": "fmod", "isclose": "isclose", "dist": "linalg.norm"}
_LONGEST = 60  # characters of a remedy's code


def remedy(tracer: Any, asked: str) -> str:
    """Returns the sentence that says how to do without the value of a traced array.

    Args:
        asked: the conversion that asked for the value, such as "float" or "index".
    """
    node, frame = _expression()
    static, name = _static(tracer)
    if asked == "bool" and name:
        return f"{static}, so that its value is known; or {_DECIDE}."
    code = "" if asked == "bool" else _code(node, frame, tracer.__array_namespace__())
    if code:
        return f"{code}; or {static if name else 'leave this out of the traced function'}."
    return f"{_DECIDE}; {static}; or leave this out of the traced function."


def numpy_remedy(tracer: Any) -> str:
    """Returns the call of nnc.numpy in place of the one of NumPy in the user's line; empty where none is found."""
    node, frame = _expression()
    if not isinstance(node, ast.Call) or frame is None:
        return ""
    return _replacement(node, frame, tracer.__array_namespace__())


def hash_remedy(tracer: Any) -> str:
    """Returns the sentence that says how to do without the hash of a traced array."""
    node, _ = _expression()
    index = _short(node.slice) if isinstance(node, ast.Subscript) else "i"
    static, name = _static(tracer)
    declared = static if name else f"declare `{index}` static, with static_argnames of nnc.compile"
    return f"index an array with `table[{index}]`, where table = nnp.asarray([...]); or {declared}."


def _static(tracer: Any) -> tuple[str, str]:
    """Returns the advice to declare an argument static, and its name, where the tracer stands for an integer or a flag that was
    given to a compiled function; else the general advice and no name.
    """
    call, symbol = get_context().call, getattr(tracer, "symbol", None)
    inputs = tracer.owner.builder.inputs if symbol is not None else ()
    if call is None or symbol not in inputs:
        return "declare arguments that are no arrays with static_argnums", ""
    name, value = call.argument([*inputs].index(symbol), len(inputs))
    if not name.isidentifier() or not isinstance(value, int):
        return "declare arguments that are no arrays with static_argnums", ""
    return f"declare {name} static, with nnc.compile(..., static_argnames={name!r})", name


def _expression() -> tuple[ast.expr | None, FrameType | None]:
    """Returns the expression that the user's frame evaluates now, and the frame; None for the expression where it cannot be
    read.
    """
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return None, None
    place = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, begin, end = place
    if first is None or last is None or begin is None or end is None:
        return None, frame
    lines = [linecache.getline(frame.f_code.co_filename, i).encode() for i in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body, frame
    except (SyntaxError, ValueError):  # a file that has changed, or none
        return None, frame


def _code(node: ast.expr | None, frame: FrameType | None, namespace: Any) -> str:
    """Returns the advice for an expression that converts a traced array; empty where none fits."""
    if isinstance(node, ast.Subscript):
        return _indexing(node, frame)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return 'print it while the function runs: nnc.debug.print("{}", x)'
    if not isinstance(node, ast.Call) or frame is None:
        return ""
    function = _value(node.func, frame)
    if function is range and node.args:
        first, last = ["0", _short(node.args[0])] if len(node.args) == 1 else [_short(x) for x in node.args[:2]]
        return f"loop with nnc.fori_loop({first}, {last}, body, init)"
    if isinstance(function, type) and function in _CONVERSIONS and len(node.args) == 1:
        return f"convert the dtype with {_short(node.args[0])}.{_CONVERSIONS[function]}"
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist"):
        return "return the array and read its elements outside, or print it with nnc.debug.print"
    found = _replacement(node, frame, namespace)
    return f"use {found}" if found else ""


def _indexing(node: ast.Subscript, frame: FrameType | None) -> str:
    """Returns the advice for an index of a sequence of numbers or of functions; empty for other sequences."""
    sequence = _value(node.value, frame) if frame is not None else None
    if isinstance(sequence, (list, tuple)) and any(callable(x) for x in sequence):
        return f"select a function with nnc.switch({_short(node.slice)}, {_short(node.value)}, *operands)"
    if isinstance(sequence, str) or (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        return ""
    return f"index an array: nnp.asarray({_short(node.value)})[{_short(node.slice)}]"


def _replacement(call: ast.Call, frame: FrameType, namespace: Any) -> str:
    """Returns the call of nnc.numpy in place of a call of NumPy or math; empty where there is none."""
    function = _value(call.func, frame)
    path = _path(call.func, function, frame)
    if not path:
        return ""
    listed = bool(call.args) and isinstance(call.args[0], (ast.List, ast.Tuple))
    if path in ("array", "asarray") and listed:
        path = "stack"
    found = namespace
    for part in path.split("."):
        found = getattr(found, part) if part in getattr(found, "__all__", ()) else None
    arguments = [_short(x) for x in call.args] + [f"{x.arg}={_short(x.value)}" for x in call.keywords if x.arg]
    text = f"nnp.{path}({', '.join(arguments)})"
    return "" if found is None else text if len(text) <= _LONGEST else f"nnp.{path}(...)"


def _path(node: ast.expr, function: Any, frame: FrameType) -> str:
    """Returns the dotted name of a function of NumPy or math within nnc.numpy; empty for other functions."""
    parts = ast.unparse(node).split(".")
    root = _value(ast.Name(parts[0]), frame)
    if root is np:
        return ".".join(parts[1:])
    if isinstance(root, ModuleType) and root.__name__ in _MATHS:
        return _OWN_NAMES.get(parts[-1], parts[-1])
    name, module = str(getattr(function, "__name__", "")), str(getattr(function, "__module__", None) or "")
    if module in _MATHS:
        return _OWN_NAMES.get(name, name)
    if isinstance(function, np.ufunc) or module == "numpy":
        return name
    return f"{module.removeprefix('numpy.')}.{name}" if module.startswith("numpy.") else ""


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Returns the value of a name, or of a name within modules; None for other expressions."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        return vars(owner).get(node.attr) if isinstance(owner, ModuleType) else None
    return None


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST // 2 else "..."
