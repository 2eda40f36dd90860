"""Compiled code in files: an object file is found by its text, the processor, LLVM's version and the passes.

Texts name what they call, and hold no addresses, so that their code is the same in every process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from nnc.backends.cpu.engine import RECIPE, Engine
from nnc.lower.cache import Cache

_KIND = "objects"


class Objects:
    """Makes object files of texts, or finds those that were made before.

    `folder` is where they are kept; None: nowhere. `compiled` counts the texts that LLVM had to compile.
    """

    def __init__(self, engine: Engine, folder: Path | None, pool: Executor | None = None) -> None:
        self.engine, self.compiled = engine, 0
        self._cache = Cache(folder) if folder is not None else None
        self._pool = pool
        machine = engine.machine
        self._made_for = {
            "machine": hashlib.sha256(f"{machine.triple} {machine.cpu} {machine.features}".encode()).hexdigest(),
            "llvm": machine.llvm,
            "passes": RECIPE,
        }

    def compile(self, text: str, inline: bool = False) -> bytes:
        """The object file of a text; see `Engine.compile`."""
        key = {"text": hashlib.sha256(text.encode()).hexdigest(), "inline": inline, **self._made_for}
        found = self._read(key)
        if found is None:
            found = self.engine.compile(text, inline)
            self.compiled += 1
            if self._cache is not None:
                self._cache.write(_KIND, key, base64.b64encode(found).decode())
        return found

    def compile_all(self, texts: Sequence[str]) -> list[bytes]:
        """The object files of texts, made in several threads."""
        if self._pool is None or len(texts) < 2:
            return [self.compile(text) for text in texts]
        return list(self._pool.map(self.compile, texts))

    def _read(self, key: Mapping[str, object]) -> bytes | None:
        value = self._cache.read(_KIND, key) if self._cache is not None else None
        try:
            return base64.b64decode(value, validate=True) if isinstance(value, str) else None
        except binascii.Error:
            return None
