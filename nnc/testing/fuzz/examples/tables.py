"""The tables of all examples; another package adds rows for its commands to them."""

from nnc.testing.fuzz.examples import indexing, matrices, parts, windows
from nnc.testing.fuzz.examples.draw import Draw, Freedom

# Operands and params on which a command is defined: an array where its elements matter, else a spec.
EXAMPLES: dict[str, Draw] = {**indexing.EXAMPLES, **matrices.EXAMPLES, **parts.EXAMPLES, **windows.EXAMPLES}
# (random generator, results, **params) -> results that are as right: eigenvectors of another sign, for example.
FREEDOM: dict[str, Freedom] = matrices.FREEDOM
# Commands whose derivative is by definition not that of their values: differences do not approximate it.
SURROGATES = frozenset({"gamma_draw", "log_gamma_draw"})
# Commands that divide and rotate within, so that no float of their results is exact, not even a 0.
ROUNDED = frozenset(matrices.EXAMPLES) - {"dot"} | {"fft", "rfft", "irfft"}
