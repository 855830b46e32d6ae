"""Backward graphs of recordings: define-by-run's own gradients, run once more on stand-ins.

Invariant: nothing here states a gradient, nor runs one on real arrays.
"""
