"""Tables for the fuzzer, by names of commands: calls of those that do not take any operands, and freedoms of results."""
