"""NumPy's arrays in a traced call: arguments, constants, arrays from outside, and results of NumPy on these."""
