"""Scalar functions, and trees of them."""
