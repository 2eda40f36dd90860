"""Passes that decide in which order, how often and in which layout values are computed, so that they take less memory."""
