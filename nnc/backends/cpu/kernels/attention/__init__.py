"""Printed attention and its derivatives."""
