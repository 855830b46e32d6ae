"""The observer that instrumented copies call: Python's and NumPy's rules once more, with notes of reads and changes.

Invariant: ``first_call`` is the only door; nothing in ``trace`` itself imports this room.
"""
