"""Poolings: windows reduced to numbers, and numbers spread over windows."""
