"""Streams: which thread runs which steps of a program, and which steps wait for others."""
