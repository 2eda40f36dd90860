"""What the fuzzer knows of commands, by their names: how to call those that do not take any operands, and how to judge results."""

from nnc.testing.fuzz.examples.tables import EXAMPLES, FREEDOM, SURROGATES

__all__ = ["EXAMPLES", "FREEDOM", "SURROGATES"]
