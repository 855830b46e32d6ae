"""Products and convolutions by tiles."""
