"""Writing the graph of a reported variable to a file."""

import os
import shutil
import subprocess
from typing import Any

from ... import computational_graph
from ...configuration import config
from ...variable import Variable
from ..extension import Extension
from ._files import atomic_write

_VARIABLE_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
_FUNCTION_STYLE = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}


def is_graphviz_available() -> bool:
    """Whether Graphviz is installed: its program ``dot`` is found."""
    return shutil.which("dot") is not None


class DumpGraph(Extension):
    """Extension that writes the computational graph of a reported variable to a DOT file, once; and to a PNG file.

    The latter needs Graphviz, and is left out where that is not installed.

    The graph is that of the first iteration, in which ``config.keep_graph_on_report`` is set for it.

    Args:
        root_name: name of the reported variable, for example ``'main/loss'``.
        filename: name of the file in the trainer's ``out`` directory. Default ``'cg.dot'``; ``out_name`` is
            another word for it.
        variable_style: Graphviz attributes of variables.
        function_style: Graphviz attributes of functions.

    Raises:
        KeyError: at its call, when nothing of that name was reported.
        TypeError: at its call, when what was reported is not a variable.
    """

    default_name = "dump_graph"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(
        self,
        root_name: str,
        filename: str | None = None,
        variable_style: dict[str, Any] | None = None,
        function_style: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        other_word = kwargs.pop("out_name", "cg.dot")
        if kwargs:
            raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        self._root_name = root_name
        self._filename = other_word if filename is None else filename
        self._variable_style = _VARIABLE_STYLE if variable_style is None else variable_style
        self._function_style = _FUNCTION_STYLE if function_style is None else function_style
        self._original_flag: bool | None = None
        self._done = False

    def initialize(self, trainer: Any) -> None:
        """Have reported variables keep their graphs until the graph is written."""
        if not self._done:
            self._original_flag = bool(config.keep_graph_on_report)
            config.keep_graph_on_report = True

    def trigger(self, trainer: Any) -> bool:
        """True once: in the first iteration that is not done."""
        if self._done:
            return False
        self._done = True
        return True

    def __call__(self, trainer: Any) -> None:
        """Write the graph."""
        try:
            if self._root_name not in trainer.observation:
                raise KeyError(
                    f"{self._root_name!r} was not reported, so its graph cannot be written; "
                    f"reported were {sorted(trainer.observation)}"
                )
            variable = trainer.observation[self._root_name]
            if not isinstance(variable, Variable):
                raise TypeError(
                    f"the root of a computational graph must be a Variable; "
                    f"{self._root_name!r} is of type {type(variable).__name__}"
                )
            graph = computational_graph.build_computational_graph(
                [variable], variable_style=self._variable_style, function_style=self._function_style
            )
            path = os.path.join(trainer.out, self._filename)
            with atomic_write(path) as temporary, open(temporary, "w") as file:
                file.write(graph.dump())
            if is_graphviz_available():
                with atomic_write(os.path.splitext(path)[0] + ".png") as temporary:
                    subprocess.run(["dot", "-Tpng", path, "-o", temporary], check=True)
        finally:
            self._restore()

    def finalize(self) -> None:
        """Put the configuration back, in case the extension never came to its turn."""
        self._restore()

    def _restore(self) -> None:
        """Put the configuration back, once."""
        if self._original_flag is not None:
            config.keep_graph_on_report = self._original_flag
            self._original_flag = None

    def serialize(self, serializer: Any) -> None:
        """Save or load whether the graph was written."""
        serializer("_original_flag", bool(self._original_flag))
        self._done = bool(serializer("_flag_called", self._done))
