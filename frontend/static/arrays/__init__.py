"""NumPy's arrays in a traced call: arguments, constants, arrays from outside, and what NumPy computes of them."""
