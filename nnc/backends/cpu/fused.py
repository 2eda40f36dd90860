"""Fused steps as compiled kernels."""

from __future__ import annotations

from nnc.backends.cpu.threads import vector_bytes
