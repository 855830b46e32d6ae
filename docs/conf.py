"""Settings of Sphinx for ``make docs``: pages in Markdown, the reference from docstrings, warnings are errors."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

project = "Kusari"
author = "The Kusari developers"
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["notebooks"]
default_role = "py:obj"
html_theme = "furo"
html_title = "Kusari"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False
suppress_warnings = ["ref.python"]  # words that stand for several things: "array" is an attribute of two classes

myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "alphabetical"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def _functions_as_functions() -> None:
    """Let elementwise functions, which are objects, be documented as the functions they are used as."""
    import kusari.functions as functions
    from kusari.elementwise import ElementwiseFunction

    for name, found in vars(functions).items():
        if isinstance(found, ElementwiseFunction):
            def function(*args: Any, **kwargs: Any) -> Any: ...
            function.__name__ = function.__qualname__ = name
            function.__doc__, function.__module__ = found.__doc__, functions.__name__
            function.__signature__ = inspect.signature(found)
            setattr(functions, name, function)


FOLDERS = {"activation": "Activations", "array": "Shapes and indices", "connection": "With weights",
           "evaluation": "Scores", "loss": "Losses", "math": "Mathematics", "model": "Whole models", "noise": "Noise",
           "normalization": "Normalization", "pooling": "Pooling", "rnn": "Recurrent", "util": "Others",
           "caffe": "Others", "theano": "Others"}


def _by_folder(package: str) -> str:
    """Return the reference of a package, a section for each of its folders: members are listed in its ``__init__``."""
    import kusari

    module = getattr(kusari, package)
    members: dict[str, list[str]] = {title: [] for title in FOLDERS.values()}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            members[FOLDERS[node.module.partition(".")[0]]] += [alias.asname or alias.name for alias in node.names]
    text = ""
    for title, names in members.items():
        lines = [f".. auto{'class' if isinstance(getattr(module, name), type) else 'function'}:: {name}"
                 + "\n   :members:" * isinstance(getattr(module, name), type) for name in sorted(names, key=str.lower)]
        text += "".join([f"\n## {title}\n\n```{{eval-rst}}\n.. currentmodule:: kusari.{package}\n\n",
                         "\n".join(lines), "\n```\n"] if lines else [])
    return text


def _within(app: Any, name: str, source: list[str]) -> None:
    """Leave links to files outside of the pages as text, and list the decisions, which their page does in words."""
    folder = (ROOT / "docs" / name).parent
    if name == "decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"
    source[0] = re.sub(r"(?m)^% members of kusari\.(\w+), by folder$", lambda m: _by_folder(m[1]), source[0])

    def text(link: re.Match[str]) -> str:
        target = link[2].partition("#")[0]
        outside = target and "://" not in target and not (folder / target).resolve().is_relative_to(ROOT / "docs")
        return link[1] if outside else link[0]
    source[0] = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", text, source[0])


def _skip(app: Any, what: str, name: str, found: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that are modules' own imports: classes and functions of Python, NumPy and typing."""
    module = getattr(found, "__module__", None) or ""
    return True if what == "module" and not module.startswith("kusari") else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    if (ROOT / "typings" / "kusari").is_dir():
        sys.path.insert(0, str(ROOT / "typings"))
    _functions_as_functions()
    app.connect("autodoc-skip-member", _skip)
    app.connect("source-read", _within)
