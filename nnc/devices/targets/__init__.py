"""Kinds of machines that were measured, one a file."""
