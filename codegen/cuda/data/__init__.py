"""Data movement, gathers, running totals, pooling."""
