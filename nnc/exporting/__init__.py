"""Compiled programs as object files with a C header, and how Python calls them."""
