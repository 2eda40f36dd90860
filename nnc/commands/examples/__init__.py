"""Operands and parameters of commands that do not take any: the column `example`, filled when this package is imported.

Generated programs (nnc.testing.fuzz) and other users of valid calls import it; `import nnc` does not.
"""

from nnc.commands.examples import indexing, matrices, parts, windows

__all__ = ["indexing", "matrices", "parts", "windows"]
