"""Kernels as LLVM IR text."""
