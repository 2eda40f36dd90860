"""Names nnc.numpy as the namespace of its arrays, and makes sure that commands run."""

from __future__ import annotations

import sys

import nnc.trace.eager  # noqa: F401  (registers the interpreter that runs commands at once)
from nnc.array import set_namespace

set_namespace(sys.modules["nnc.numpy"])
