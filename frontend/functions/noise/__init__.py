"""Functions that draw random numbers in training."""
