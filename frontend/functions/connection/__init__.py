"""Layers without state."""
