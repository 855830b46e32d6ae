"""Functions that rearrange, join and cut arrays."""
