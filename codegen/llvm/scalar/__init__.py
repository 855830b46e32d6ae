"""Scalar functions of vectors."""
