"""Contractions, that is sums of products: the common parts, and a room for each kind."""
