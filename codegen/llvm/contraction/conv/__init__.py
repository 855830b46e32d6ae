"""Convolutions as they are defined."""
