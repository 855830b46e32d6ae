"""Links that normalize."""
