"""Recordings of arrays on a graphics card: graphs are compiled to kernels that CuPy launches.

`place.py` is where the rest of ``kusari.static`` comes in.
"""
