"""Write ``tests/cupy_api.json``: the functions of the installed CuPy with the parameters that the stand-in checks.

Run under a Python with CuPy, which needs no card to be imported: ``python tools/cupy_api.py``.
"""
from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

MODULES = ("cupy", "cupy.linalg", "cupy.random", "cupy.fft", "cupy.lib.stride_tricks", "cupy.cuda", "cupyx",
           "cupyx.scipy.special")
INTO = Path(__file__).parents[1] / "tests/cupy_api.json"


def parameters(name: str, found: Any) -> str | None:
    """The parameters as text; ``ufunc`` for one, None for what cannot be called or says nothing."""
    if isinstance(found, cupy.ufunc):
        return "ufunc"
    if isinstance(found, type) or not callable(found):
        return None
    stated = re.match(rf"(?:[\w.]*\.)?{re.escape(name)}(\(.*?\))(?: ->.*)?$", (found.__doc__ or "").partition("\n")[0])
    if stated:  # compiled code states them in its docstring
        text = re.sub(r"\b(?:_ndarray_base|int|bool|Py_ssize_t|size_t|list|str) (?=\w)", "", stated[1])
        return text.replace("=u'", "='").replace("\\*", "*")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return None
    plain = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else None)
             for p in signature.parameters.values()]
    return str(inspect.Signature(plain))


def main() -> None:
    """Write the table."""
    table = {"version": cupy.__version__}
    for module in (*MODULES, "cupy.ndarray"):
        found = cupy.ndarray if module == "cupy.ndarray" else importlib.import_module(module)
        table[module] = {n: parameters(n, getattr(found, n)) for n in sorted(dir(found))
                         if not n.startswith("_") and not inspect.ismodule(getattr(found, n))}
    INTO.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
