"""Loop nests."""
