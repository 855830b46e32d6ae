"""``@static_graph``: trace a function once, replay it compiled.

Invariant: nothing outside imports this package to run a function; what the core reaches here it finds in `kusari.tape`.
"""
from .. import tape as _tape
from .composed import as_one as _as_one
from .errors import StaticGraphError as StaticGraphError
from .errors import StaticGraphWarning as StaticGraphWarning
from .function import StaticFunction as StaticFunction
from .function import keeping_objects as keeping_objects
from .function import static_functions as static_functions
from .function import static_graph as static_graph
from .step.compiled_update import compiled_update as _compiled_update
from .step.joined import forget as _forget
from .step.joined import look as _look
from .step.joined import updated as _updated
from .trace.python_nodes import static_code as static_code
from .verify.explain import explain as explain
from .verify.explain import reports as _reports

_tape.as_one, _tape.compiled_update, _tape.static_functions = _as_one, _compiled_update, static_functions
_tape.reports = _reports
_tape.look, _tape.updated, _tape.forget = _look, _updated, _forget
