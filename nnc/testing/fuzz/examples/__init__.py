"""Tables for the fuzzer, by names of commands: calls of those that do not take any operands, and freedoms of results."""

from nnc.testing.fuzz.examples.tables import EXAMPLES, FREEDOM, SURROGATES

__all__ = ["EXAMPLES", "FREEDOM", "SURROGATES"]
