"""The way of bytes between ranks: MPI, or nothing at all where there is one rank."""
from .channel import Channel, Lone, Mpi, launched_ranks, world

__all__ = ["Channel", "Lone", "Mpi", "launched_ranks", "world"]
