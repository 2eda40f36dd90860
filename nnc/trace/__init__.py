"""Tracing, and the transforms made of it: differentiation, batching, loops."""
