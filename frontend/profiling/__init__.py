"""Profiles of all that runs: define-by-run's functions, compiled code and the work of making it.

Invariant: it costs nothing unless one is open.
"""
