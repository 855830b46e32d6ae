"""Replays of a recording: schedules, arguments bound to frames, calls in flight, their node in define-by-run's graph.

Invariant: every call in flight has frames of its own; what follows its results is not known here.
"""
