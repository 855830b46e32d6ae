"""Instrumented copies of functions: each read and store outside of local variables is a call of an observer.

Invariant: a copy is proven to be of the very code; nothing of the frontend is imported here.
"""
