"""Passes from a symbolic graph to one that can be bound to buffers; nnc/lower/phases.py says in which order they run."""
