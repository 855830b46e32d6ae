"""Loop nests, and updates of many tensors."""
