"""Compiled code in files: an object file is found by its text, the processor, LLVM's version and the passes.

Texts name what they call, and hold no addresses, so that their code is the same in every process.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnc.backends.cpu.engine import KERNEL, Engine, Recipe
from nnc.lower.cache import Cache

_KIND = "objects"
_TEXTS_OF_A_THREAD = 2  # fewer are compiled before a thread is ready


class Objects:
    """Makes object files of texts, or finds those that were made before.

    `threads` is how many compile at once; `folder` is where object files are kept, None: nowhere. `compiled` counts the texts that
    LLVM had to compile, `found` the others.
    """

    def __init__(self, engine: Engine, folder: Path | None, threads: int = 1) -> None:
        self.engine, self.compiled, self.found = engine, 0, 0
        self._cache = Cache(folder) if folder is not None else None
        self._threads = threads
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
        for i, code in zip(missing, self._make([texts[i] for i in missing], recipe), strict=True):
            found[i] = code
            self.compiled += 1
            if self._cache is not None:
                self._cache.write(_KIND, keys[i], base64.b64encode(code).decode())
        return [code for code in found if code is not None]

    def _make(self, texts: Sequence[str], recipe: Recipe) -> list[bytes]:
        compile_one = functools.partial(self.engine.compile, recipe=recipe)
        workers = min(self._threads, len(texts) // _TEXTS_OF_A_THREAD)
        if workers < 2:
            return [compile_one(text) for text in texts]
        with ThreadPoolExecutor(
            workers
        ) as pool:  # gone afterwards: forks of the process would wait for threads that they lack
            return list(pool.map(compile_one, texts))

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
