"""Links that are models around other links."""
