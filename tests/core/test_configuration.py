"""Configuration: defaults, threads, scopes, environment variables."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import kusari
from kusari import config, environment, global_config, using_config
from kusari.configuration import GlobalConfig, LocalConfig

DEFAULTS = {
    "autotune": False, "compute_mode": None, "cpu_codegen": "llvm", "cudnn_deterministic": False,
    "cudnn_fast_batch_normalization": False,
    "debug": False, "dtype": np.float32, "enable_backprop": True, "follow_static": True,
    "in_recomputing": False, "join_loops": True,
    "_will_recompute": False, "keep_define_by_run": True, "keep_graph_on_report": False, "lazy_grad_sum": False,
    "train": True, "type_check": True, "use_cudnn": "auto",
    "use_cudnn_tensor_core": "auto", "use_ideep": "never", "use_static_graph": True, "warn_nondeterministic": False,
    "winograd": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name: str) -> None:
    assert getattr(config, name) == getattr(global_config, name) == DEFAULTS[name]


def test_show() -> None:
    lines = io.StringIO()
    with using_config("user_x", 3), using_config("train", False):
        config.show(lines)
    shown = dict(line.split() for line in lines.getvalue().splitlines())
    assert shown == {**{k: str(np.dtype(v) if k == "dtype" else v) for k, v in DEFAULTS.items()},
                     "user_x": "3", "train": "False"}  # fmt: skip
    lines = io.StringIO()
    global_config.show(lines)
    assert len(lines.getvalue().splitlines()) == len(DEFAULTS)


def test_local_hides_global() -> None:
    config.train = False
    assert (config.train, global_config.train) == (False, True)
    global_config.train = "other"
    assert config.train is False
    del config.train
    assert config.train == "other"


def test_threads_have_their_own() -> None:
    seen: list[object] = []
    with using_config("train", "here"):
        global_config.user_x = 5
        thread = threading.Thread(target=lambda: seen.extend([config.train, config.user_x]))
        thread.start()
        thread.join()
    assert seen == [True, 5]


def test_user_keys() -> None:
    for one in (config, global_config):
        with pytest.raises(AttributeError, match=r"'(Local|Global)Config' object has no attribute 'user_foo'"):
            one.user_foo  # noqa: B018
    function = print
    global_config.user_foo = lambda: function
    assert config.user_foo() is function
    del global_config.user_foo
    assert not hasattr(config, "user_foo")


def test_own_configuration_objects() -> None:
    shared = GlobalConfig()
    shared.depth = 1
    mine = LocalConfig(shared)
    with using_config("depth", 2, mine):
        assert (mine.depth, shared.depth) == (2, 1)
    with using_config("depth", 3, shared), using_config("width", 1, shared):
        assert mine.depth == 3
    assert mine.depth == 1
    assert not hasattr(shared, "width")
    assert not hasattr(config, "depth")


def test_scopes_nest_and_repeat() -> None:
    scope = using_config("train", False)
    with scope:
        with scope, using_config("train", 1):
            assert config.train == 1
        assert config.train is False
    assert "train" not in vars(config)
    with pytest.raises(ValueError, match="x"), scope:
        raise ValueError("x")
    assert config.train is True


def test_scope_as_decorator() -> None:
    @using_config("train", False)
    def function(x):
        return x, config.train, kusari.no_backprop_mode()(lambda: config.enable_backprop)()

    assert function(2) == (2, False, False)
    assert (config.train, config.enable_backprop) == (True, True)


@pytest.mark.parametrize(("name", "close"), [("trian", "train"), ("use_static_graphs", "use_static_graph")])
def test_a_name_that_is_nearly_a_known_one(name: str, close: str) -> None:
    with pytest.warns(UserWarning, match=f"no such entry, did you mean '{close}'") as caught, using_config(name, False):
        assert getattr(config, name) is False
    assert caught[0].filename == __file__


def test_names_of_ones_own_are_not_asked_about() -> None:
    """The entries under which no warning is given: known, far from known, or set before."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("train", "user_train_mode", "depth"):
            with using_config(name, 1):
                assert getattr(config, name) == 1
        config.trains = 1
        with using_config("trains", 2):
            assert config.trains == 2
        del config.trains


def test_debug() -> None:
    assert not kusari.is_debug()
    with kusari.using_config("debug", True):
        assert kusari.is_debug()
    kusari.set_debug(True)
    assert kusari.is_debug()


@pytest.mark.parametrize(
    ("variables", "expression", "value"),
    [
        ({"CHAINER_DEBUG": "1"}, "debug", "True"),
        ({"CHAINER_DEBUG": "1", "KUSARI_DEBUG": "0"}, "debug", "False"),
        ({"KUSARI_DTYPE": "mixed16"}, "dtype", "dtype('mixed16')"),
        ({"CHAINER_DTYPE": "float64"}, "dtype", "dtype('float64')"),
        ({"CHAINER_TYPE_CHECK": "0"}, "type_check", "False"),
        ({"CHAINER_KEEP_GRAPH_ON_REPORT": "1"}, "keep_graph_on_report", "True"),
        ({"CHAINER_LAZY_GRAD_SUM": "1"}, "lazy_grad_sum", "True"),
        ({"CHAINER_WARN_NONDETERMINISTIC": "1"}, "warn_nondeterministic", "True"),
        ({"KUSARI_CPU_CODEGEN": "numba"}, "cpu_codegen", "'numba'"),
        ({"CHAINER_USE_CUDNN": "never"}, "use_cudnn", "'never'"),
    ],
)
def test_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expression: str, value: str) -> None:
    from kusari import configuration

    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert repr(getattr(configuration._defaults(), expression)) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("KUSARI_DEBUG", "maybe", "KUSARI_DEBUG must be 0 or 1, but it is 'maybe'"),
        ("CHAINER_DTYPE", "float8", "CHAINER_DTYPE must be one of mixed16, float16, float32, float64, but"),
    ],
)
def test_wrong_environment(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    from kusari import configuration

    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=message):
        configuration._defaults()


@pytest.mark.parametrize(("name", "text", "message"), [
    ("KUSARI_LOG", "plan, passes,code", "KUSARI_LOG must .* of cache, passes, static; .* called 'plan', 'code'"),
    ("KUSARI_DUMP", "passes", r"KUSARI_DUMP must be the folder .* it is 'passes'; if .* write '\./passes'"),
    ("KUSARI_DUMP", "0", "KUSARI_DUMP must be the folder that graphs are written to, but it is '0'"),
    ("KUSARI_DUMP", __file__, "KUSARI_DUMP must be .* but '.*test_configuration.py' is a file"),
])
def test_wrong_words(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=message):
        environment.show_logs()


@pytest.mark.parametrize(("name", "text", "message"), [
    ("KUSARI_NUM_THREAD", "2", "KUSARI_NUM_THREAD: there is no such variable. Known are .*KUSARI_NUM_THREADS, "),
    ("KUSARI_CACHE", "maybe", "KUSARI_CACHE must be 0 or 1, but it is 'maybe'"),
    ("KUSARI_NUMPY_ALIASES", "2", "KUSARI_NUMPY_ALIASES must be 0 or 1"),
    ("KUSARI_PROGRESS", "bar", "KUSARI_PROGRESS must be 0 or 1"),
    ("KUSARI_CACHE_SIZE", "1GB", "KUSARI_CACHE_SIZE must be a number of bytes, but it is '1GB'")])
def test_wrong_variables(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    environment.check()
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=message):
        environment.check()


def test_import_is_light() -> None:
    code = (
        "import sys, kusari; heavy = {'numba', 'llvmlite', 'onnx', 'cupy', 'matplotlib', 'networkx', 'onnxruntime'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout.strip() == "[]"


def test_get_dtype() -> None:
    assert kusari.get_dtype() == np.float32
    assert kusari.get_dtype("f8") == np.float64
    with using_config("dtype", kusari.mixed16):
        assert kusari.get_dtype() == np.float16
        assert kusari.get_dtype(map_mixed16=np.float32) == np.float32
        assert kusari.get_dtype(np.float64) == np.float64
    assert np.dtype(kusari.mixed16.dtype) == np.float16
