"""Every public function, class and method of Chainer 7.8.1 is there, and takes what it takes there."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import signatures

ORACLE = os.environ.get("KUSARI_ORACLE")
# Beginnings of names, and why they are otherwise here.
OTHERWISE = {
    "backends.cuda.get_cudnn_dropout_states": "CuPy has no cuDNN any more",
    "backends.cuda.ndarray.": "CuPy's class, of which there is nothing where it is not installed",
    "computational_graph.DotNode": "of the drawing itself",
    "dataset.convert.Conveyor": "of ConcatWithAsyncTransfer itself",
    "FunctionAdapter.check_layout_forward": "there is one memory layout",
    "FunctionNode.check_layout_forward": "there is one memory layout",
    "function.FunctionAdapter.check_layout_forward": "there is one memory layout",
    "function_node.FunctionNode.check_layout_forward": "there is one memory layout",
    "links.Bilinear.zero_grads": "left over from version 1",
    "links.Parameter.forward": "`volatile` is refused in both",
    "links.TheanoFunction.forward": "cannot be made",
    "optimizer.make_deprecation_message": "of the module itself",
    "training.extensions.VariableStatisticsPlot.save_plot_using_module": "drawn without pyplot",
    "types.AbstractInitializer": "a protocol of the module's own annotations",
    "utils.type_check.": "expressions remember how they were written in another way",
    "variable.variable_": "repr and str",
}


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE does not name a Python with Chainer")
def test_signatures(tmp_path: Path) -> None:
    theirs, ours = (tmp_path / f"{name}.json" for name in ("chainer", "kusari"))
    for python, arguments in ((str(ORACLE), ["chainer", theirs]), (sys.executable, ["kusari", ours, theirs])):
        subprocess.run([python, "-m", "oracle.signatures", *map(str, arguments)], check=True,
                       cwd=Path(signatures.__file__).parents[1])
    expected, found = (json.loads(file.read_text()) for file in (theirs, ours))
    assert len(expected) > 4000
    wrong: dict[str, list[str]] = {name: ["missing"] for name in expected if name not in found}
    for name, signature in found.items():
        if signature is not None and expected[name] is not None and (
                differences := signatures.differences(expected[name], signature)):
            wrong[name] = differences
    used = {start for start in OTHERWISE for name in wrong if name.startswith(start)}
    assert {name: how for name, how in wrong.items() if not name.startswith(tuple(OTHERWISE))} == {}
    assert used == set(OTHERWISE)
