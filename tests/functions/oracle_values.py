"""Run by Chainer's Python: what Chainer gives for every row of the table, pickled to the file named first.

The table is written for `kusari.functions`; here that name stands for `chainer.functions`.
"""
from __future__ import annotations

import pickle
import sys
import types
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")


def main() -> None:
    """Compute values and gradients; a row that Chainer refuses is left out."""
    import chainer  # type: ignore[import-not-found]
    import chainer.functions as functions  # type: ignore[import-not-found]

    functions.ravel = functions.flatten
    stand_in = types.ModuleType("kusari")
    stand_in.functions = functions  # type: ignore[attr-defined]
    sys.modules.update({"kusari": stand_in, "kusari.functions": functions})
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from functions import rows

    found: dict[str, Any] = {}
    for row in rows.ROWS:
        try:
            found[row.name] = rows.evaluate(chainer.Variable, chainer.grad, row)
        except Exception as error:
            found[row.name] = repr(error)
    with open(sys.argv[1], "wb") as file:
        pickle.dump(found, file, protocol=4)


if __name__ == "__main__":
    main()
