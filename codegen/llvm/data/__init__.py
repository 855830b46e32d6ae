"""Data movement, pooling, cumulative sums and random draws."""
