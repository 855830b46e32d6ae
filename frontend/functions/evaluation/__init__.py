"""Measures of quality, without gradients."""
