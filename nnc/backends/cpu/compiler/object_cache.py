"""Compiled code in files: an object file is found by its text, the processor, LLVM's version and the passes.

Texts call functions by name and hold no addresses, so that their code is the same in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.llvm.llvm import KERNEL, Recipe, encode
from nnc.base.fork import undisturbed
from nnc.run.background import in_background
from nnc.run.store.cache import Cache

_KIND = "objects"
_TEXTS_OF_A_THREAD = 2  # fewer are compiled before a thread is ready
Maker = Callable[[], bytes]
_MOST_BEGUN = 1024  # texts that nobody has asked for yet; then all are forgotten


class Objects:
    """Makes object files of texts, or finds files that were made before.

    `folder` is where object files are kept, None: nowhere. `compiled` counts the texts that LLVM had to compile, `found` others.
    """

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine, self.compiled, self.found = engine, 0, 0
        self._cache = Cache(folder) if folder is not None else None
        self._begun: dict[tuple[str, Recipe], bytes | Maker] = {}
        machine = hashlib.sha256(engine.made_for["machine"].encode()).hexdigest()
        self._made_for = {**engine.made_for, "machine": machine}

    def begin(self, text: str, recipe: Recipe = KERNEL) -> None:
        """A text will be wanted soon: looks for its object file, and has it compiled meanwhile, where another process does that."""
        if self.engine.is_apart and (text, recipe) not in self._begun:
            if len(self._begun) >= _MOST_BEGUN:
                self._begun.clear()
            self._begun[text, recipe] = self._find(text, recipe) or self.engine.begin(text, recipe)

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """Returns the object file of a text; see `Engine.compile`."""
        return self.compile_all([text], recipe)[0]

    def compile_all(self, texts: Sequence[str], recipe: Recipe = KERNEL) -> list[bytes]:
        """Returns the object files of texts. Missing ones are made side by side, the longest first (as `llvm.serve` does)."""
        found = [self._begun.pop((text, recipe), None) or self._find(text, recipe) for text in texts]
        missing = [i for i, code in enumerate(found) if not isinstance(code, bytes)]
        missing.sort(key=lambda i: -len(texts[i]))
        self.found += len(texts) - len(missing)
        makers = [_maker(found[i]) or self.engine.begin(texts[i], recipe) for i in missing]
        for i, code in zip(missing, self._make(makers), strict=True):
            found[i] = code
            self.compiled += 1
            if self._cache is not None:
                in_background(partial(self._keep, self._cache, texts[i], recipe, code))
        return [code for code in found if isinstance(code, bytes)]

    def _make(self, makers: Sequence[Maker]) -> Iterator[bytes]:
        """Yields the makers' object files, one after the other: some can be kept while others are being made."""
        workers = min(self.engine.threads, len(makers) // _TEXTS_OF_A_THREAD)
        if workers < 2 or self.engine.is_apart:
            yield from (make() for make in makers)
            return
        # gone afterwards: forks of the process would wait for threads that they lack
        with ThreadPoolExecutor(workers) as pool:
            yield from undisturbed(lambda: pool.map(lambda make: make(), makers))

    def _find(self, text: str, recipe: Recipe) -> bytes | None:
        if self._cache is None or not self._cache.holds(_KIND):
            return None
        found = self._cache.read_bytes(_KIND, self._key(text, recipe))
        return found[0] if found else None

    def _keep(self, cache: Cache, text: str, recipe: Recipe, code: bytes) -> None:
        cache.write_bytes(_KIND, self._key(text, recipe), code)

    def _key(self, text: str, recipe: Recipe) -> dict[str, str]:
        return {"text": hashlib.sha256(text.encode()).hexdigest(), "recipe": encode(recipe), **self._made_for}


def _maker(found: bytes | Maker | None) -> Maker | None:
    return None if isinstance(found, bytes) else found
