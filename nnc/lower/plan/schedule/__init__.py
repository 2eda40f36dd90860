"""Streams: which thread runs which steps of a program, and who waits for whom."""
