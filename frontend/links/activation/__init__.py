"""Activations with parameters."""
