"""Dtypes, options, the ambient context, files and processes: every other room may use them."""
