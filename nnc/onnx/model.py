"""Models as frozen records, read from protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Node(NamedTuple):
    """One node of a model: the call of an operator.

    `attributes` holds ints, floats, str, lists of these, NumPy arrays, and sub-graphs. `version` is that of the node's domain
    which the model asks for. An absent input or output has the name "".
    """

    operator: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str
