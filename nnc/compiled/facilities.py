"""The compilers, threads and caches of this process, for `nnc.debug`."""

from nnc.backends.cpu.compiler.jit import compiler, why_absent
from nnc.backends.cpu.threads.threads import threads
from nnc.backends.cuda.compiler.linking import find_linker
from nnc.backends.onednn.library import library
from nnc.run.store.cache import Cache

__all__ = ["Cache", "compiler", "find_linker", "library", "threads", "why_absent"]
