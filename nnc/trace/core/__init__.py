"""Tracing of functions over arrays: values, interpreters, and the transforms made of them."""
