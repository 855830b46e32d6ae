"""Links that connect units."""
