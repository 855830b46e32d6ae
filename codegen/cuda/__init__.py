"""Kernels as CUDA C."""
