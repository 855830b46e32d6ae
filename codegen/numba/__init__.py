"""Kernels as readable Python, compiled by Numba."""
