"""Threads that share the parts of a kernel."""
