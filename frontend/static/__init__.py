"""``@static_graph``: trace a function once, replay it compiled."""
from .errors import StaticGraphError as StaticGraphError
from .errors import StaticGraphWarning as StaticGraphWarning
from .function import StaticFunction as StaticFunction
from .function import keeping_objects as keeping_objects
from .function import static_functions as static_functions
from .function import static_graph as static_graph
from .trace.side_effects import static_code as static_code
