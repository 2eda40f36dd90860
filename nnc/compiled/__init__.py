"""Compiled functions: the one room that joins tracing, lowering, running and devices."""
