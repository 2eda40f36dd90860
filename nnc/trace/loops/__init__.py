"""Loops and branches: traced once, with their derivatives and batches."""
