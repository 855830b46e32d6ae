"""Tracing Python itself: instrumented copies of the functions that a call executes."""
