"""An optimizer's update compiled, alone or as one schedule with forward and backward.

Invariant: an optimizer, rule or hook whose Python may have been overridden is left to define-by-run.
"""
