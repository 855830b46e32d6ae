"""Recomputation in place of memory."""
