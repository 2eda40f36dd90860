"""Printed sorts, top_k and searches."""
