"""Passes that compute several nodes in one go over memory."""
