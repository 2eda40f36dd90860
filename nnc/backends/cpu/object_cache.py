"""Compiled code in files: an object file is found by its text, the processor, LLVM's version and the passes.

Texts name what they call, and hold no addresses, so that their code is the same in every process.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from nnc.backends.cpu.engine import KERNEL, Engine, Recipe
from nnc.lower.cache import Cache

_KIND = "objects"


class Objects:
    """Makes object files of texts, or finds those that were made before.

    `folder` is where they are kept; None: nowhere. `compiled` counts the texts that LLVM had to compile, `found` the others.
    """

    def __init__(self, engine: Engine, folder: Path | None, pool: Executor | None = None) -> None:
        self.engine, self.compiled, self.found = engine, 0, 0
        self._cache = Cache(folder) if folder is not None else None
        self._pool = pool
        machine = engine.machine
        self._made_for = {
            "machine": hashlib.sha256(f"{machine.triple} {machine.cpu} {machine.features}".encode()).hexdigest(),
            "llvm": machine.llvm,
        }

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """The object file of a text; see `Engine.compile`."""
        return self.compile_all([text], recipe)[0]

    def compile_all(self, texts: Sequence[str], recipe: Recipe = KERNEL) -> list[bytes]:
        """The object files of texts. Those that must be made are made in several threads."""
        keys = [self._key(text, recipe) for text in texts]
        found = [self._read(key) for key in keys]
        missing = [i for i, code in enumerate(found) if code is None]
        self.found += len(texts) - len(missing)
        compile_one = functools.partial(self.engine.compile, recipe=recipe)
        work = self._pool.map if self._pool is not None and len(missing) > 1 else map
        for i, code in zip(missing, work(compile_one, [texts[i] for i in missing]), strict=True):
            found[i] = code
            self.compiled += 1
            if self._cache is not None:
                self._cache.write(_KIND, keys[i], base64.b64encode(code).decode())
        return [code for code in found if code is not None]

    def _key(self, text: str, recipe: Recipe) -> dict[str, object]:
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {
            "text": digest,
            "recipe": dataclasses.asdict(recipe) | {"passes": list(recipe.passes)},
            **self._made_for,
        }

    def _read(self, key: Mapping[str, object]) -> bytes | None:
        value = self._cache.read(_KIND, key) if self._cache is not None else None
        return base64.b64decode(value) if isinstance(value, str) else None
