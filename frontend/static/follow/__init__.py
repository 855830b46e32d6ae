"""Functions applied define-by-run to results of a static call, and the backward through them as one schedule.

Invariant: the graph stays define-by-run's; compiled code runs in place of a function's forward or of a backward.
"""
