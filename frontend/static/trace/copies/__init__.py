"""Instrumented copies of functions: each read and store outside of local variables is a call of an observer.

Invariant: nothing but Python's library is imported here, and a copy that is made is proven to be of the very code.
"""
