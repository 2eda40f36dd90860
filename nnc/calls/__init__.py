"""Calls of public functions: errors about unknown arguments, and commands that are remembered for the next like call."""
