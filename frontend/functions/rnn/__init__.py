"""Recurrent cells, and whole recurrent networks over sequences."""
