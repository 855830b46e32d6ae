"""The language that kernels are written in, and the parts that all of them have."""
