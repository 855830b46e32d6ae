"""Convolutions and their gradients as calls of cuDNN, with a kernel behind the call for an epilogue."""
from __future__ import annotations

from kusari.ir import CONVOLUTIONS, Node

from . import cudnn
from .choice import SCRATCH, Chooser, Chosen, epilogue_in, has_root
from .launches import Refused


class Convolutions(Chooser):
    """The convolutions of one plan."""

    kind = "convolutions"

    def has(self, node: Node) -> bool:
        """Whether a node is a convolution or a gradient of one, with or without an epilogue."""
        return has_root(node, frozenset(CONVOLUTIONS))

    def choose(self, node: Node) -> Chosen:
        """Return how the library computes a convolution; raises ``Refused`` with the reason why it does not."""
        library = cudnn.library(self.cuda)
        if isinstance(library, str):
            raise Refused(library)
        epilogue, outer = epilogue_in(node)
        geometry = cudnn.geometry_of(epilogue.node, bool(self.rounding))  # to bfloat16 by none
        a, b = (outer[v] for v in epilogue.node.inputs)
        result, value, behind = self.parts(node, epilogue)
        plan = library.convolution(self.device, geometry)
        to = SCRATCH if result is None else self.place(result)
        return Chosen(f"cuDNN {library.version}", self.kind, plan, str(plan), geometry.flops,
                      (self.place(a), self.place(b), to), to, plan.workspace_bytes,
                      geometry.result_bytes if result is None else 0, value, behind)
