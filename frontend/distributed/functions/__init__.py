"""Communication with gradients."""
from .collective_communication import allgather, allreduce, alltoall, bcast, gather, scatter
from .point_to_point_communication import recv, send
from .pseudo_connect import pseudo_connect

__all__ = ["allgather", "allreduce", "alltoall", "bcast", "gather", "pseudo_connect", "recv", "scatter", "send"]
