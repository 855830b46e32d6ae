"""The language that kernels are written in, and their parts that do not depend on what they compute."""
