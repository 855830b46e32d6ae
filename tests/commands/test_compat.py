"""Chainer's import names lead to the very modules of Kusari."""

from __future__ import annotations

import importlib
import io
import pickle
import subprocess
import sys
import typing
from collections.abc import Iterator

import numpy
import pytest
from cupy_double import cupy

import kusari
import kusari.compat
import kusari.functions as F

A = numpy.arange(4, dtype="f").reshape(2, 1, 2)


@pytest.fixture
def _installed() -> Iterator[None]:
    kusari.compat.install()
    yield
    kusari.compat.uninstall()


MODULES = [
    ("chainer.functions", "kusari.functions"),
    ("chainer.links", "kusari.links"),
    ("chainer.training.extensions", "kusari.training.extensions"),
    ("chainer.backends.cuda", "kusari.backends.cuda"),
    ("chainer.cuda", "kusari.backends.cuda"),
    ("chainer.utils.type_check", "kusari.utils.type_check"),
    ("chainerx", "kusari.chainerx"),
]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("alias", "name"), MODULES)
def test_same_module_object(alias: str, name: str) -> None:
    module = importlib.import_module(name)
    assert importlib.import_module(alias) is module
    assert module.__name__ == name
    assert module.__spec__ is not None and module.__spec__.name == name


@pytest.mark.usefixtures("_installed")
def test_import_statements() -> None:
    names: dict[str, object] = {}
    exec(
        "import chainer\nimport chainer.functions as F\nfrom chainer import Variable, training\n"
        "from chainer.training import extensions\nfrom chainer.backends import cuda\nimport chainer.links",
        names,
    )
    chainer = names["chainer"]
    assert names["F"] is kusari.functions is chainer.functions  # type: ignore[attr-defined]
    assert names["Variable"] is kusari.Variable
    assert names["extensions"] is kusari.training.extensions
    assert names["cuda"] is kusari.backends.cuda


@pytest.mark.usefixtures("_installed")
def test_top_level_module() -> None:
    import chainer

    assert chainer.__version__ == kusari.compat.API_VERSION != kusari.__version__
    assert chainer.config is kusari.config
    assert "Variable" in dir(chainer)
    chainer.something = 1
    assert kusari.something == 1
    del chainer.something
    assert not hasattr(kusari, "something")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = chainer.nothing
    names: dict[str, object] = {}
    exec("from chainer import *", names)
    assert names["Variable"] is kusari.Variable


@pytest.mark.usefixtures("_installed")
def test_pickles_name_kusari_and_read_chainers() -> None:
    import chainer.initializers

    written = pickle.dumps(chainer.initializers.Constant)
    assert b"kusari" in written
    assert pickle.loads(b"cchainer.initializers\nConstant\n.") is kusari.initializers.Constant


@pytest.mark.usefixtures("_installed")
def test_modules_are_attributes_of_their_packages() -> None:
    import chainer

    assert chainer.distributions.normal.Normal is kusari.distributions.Normal
    assert chainer.optimizer_hooks.weight_decay.WeightDecay is kusari.optimizer_hooks.WeightDecay
    assert chainer.functions.activation.relu.relu is kusari.functions.relu
    with pytest.raises(AttributeError, match="nothing"):
        _ = chainer.link_hooks.nothing


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", ["experimental", "nondeterministic"])
def test_a_module_does_not_take_the_place_of_its_function(name: str) -> None:
    utils = importlib.import_module("chainer.utils")
    module = importlib.import_module(f"chainer.utils.{name}")
    assert getattr(module, name) is getattr(utils, name)


@pytest.mark.usefixtures("_installed")
def test_missing_module_is_named_as_imported() -> None:
    with pytest.raises(ModuleNotFoundError, match="chainer.no_such_module"):
        importlib.import_module("chainer.no_such_module")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("module", "names"), [
    ("functions.activation.relu", "relu"), ("functions.math.basic_math", "add"), ("functions.math.minmax", "argmax"),
    ("functions.connection.convolution_2d", "convolution_2d"), ("links.connection.convolution_2d", "Convolution2D"),
    ("links.rnn.n_step_lstm", "NStepLSTM"), ("distributions.normal", "Normal"), ("links.connection.linear", "Linear"),
    ("optimizers.rmsprop_graves", "RMSpropGraves RMSpropGravesRule"), ("optimizer_hooks.weight_decay", "WeightDecay"),
])
def test_modules_of_chainer_without_a_file_of_their_own(module: str, names: str) -> None:
    package, _, last = f"chainer.{module}".rpartition(".")
    found: dict[str, object] = {}
    exec(f"from {package} import {last}\nimport {package}.{last}", found)
    room = importlib.import_module(f"kusari.{module.partition('.')[0]}")
    for name in names.split():
        assert getattr(found[last], name) is getattr(room, name, getattr(found[last], name))
        assert pickle.loads(f"cchainer.{module}\n{name}\n.".encode()) is getattr(found[last], name)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = found[last].Nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="nonsense"):
        importlib.import_module(f"{package}.nonsense")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("module", "name", "here"), [
    ("chainer.graph_optimizations.static_graph", "static_graph", "kusari.static"),
    ("chainer.graph_optimizations", "static_code", "kusari.static"),
    ("chainer.backends._cpu", "CpuDevice", "kusari.backends.cpu"),
    ("chainer.utils.conv_nd", "get_conv_outsize", "kusari.utils.conv"),
    ("chainer._backend", "Device", "kusari.device"),
    ("chainer.functions.normalization.l2_normalization", "normalize", "kusari.functions"),
    ("chainer.graph_optimizations.static_graph_utilities", "static_code", "kusari.static"),
    ("chainer.initializers.sampling", "UpsamplingDeconvFilter", "kusari.initializers"),
    ("chainer.links.rnn.n_step_rnn", "NStepGRU", "kusari.links"),
    ("chainer.training._updater", "Updater", "kusari.training"),
    ("chainer._runtime_info", "print_runtime_info", "kusari.runtime_info"),
    ("chainer.functions.math.basic_math", "mul", "operator"),
    ("chainer.functions.util.forget", "forget", "kusari.functions"),
    ("chainer.gradient_check", "assert_allclose", "kusari.compat_helpers"),
    ("chainer.training.updaters.multiprocess_parallel_updater", "gather_grads", "kusari.compat_helpers"),
    ("chainer.links.theano.theano_function", "TheanoFunction", "kusari.links"),
    ("chainer.training.extensions.util", "ProgressBar", "kusari.compat_helpers"),
    ("chainer.functions.theano.theano_function", "TheanoFunction", "kusari.links"),
    ("chainer.utils.nondeterministic", "nondeterministic", "kusari.utils"),
    ("onnx_chainer.functions.activation", "convert_ReLU", "kusari.onnx.functions"),
    ("chainer.utils.meta", "final", "kusari.utils"),
    ("chainer.warnings", "PerformanceWarning", "kusari.compat_helpers"),
    ("onnx_chainer.export", "export", "kusari.onnx.compat.export"),
])
def test_modules_that_are_called_otherwise(module: str, name: str, here: str) -> None:
    assert getattr(importlib.import_module(module), name) is getattr(importlib.import_module(here), name)
    assert callable(importlib.import_module("kusari.static").static_graph)
    assert callable(importlib.import_module("onnx_chainer").export)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("module", "name", "value"), [
    ("chainer", "_get_link_hooks", kusari.link_hook.get_link_hooks),
    ("chainer", "_get_function_hooks", kusari.function_hook.get_function_hooks),
    ("chainer.link_hook", "_ForwardPreprocessCallbackArgs", kusari.link_hook.ForwardPreprocessArgs),
    ("chainer.link_hook", "_ForwardPostprocessCallbackArgs", kusari.link_hook.ForwardPostprocessArgs),
])
def test_private_names_that_programs_use(module: str, name: str, value: object) -> None:
    assert getattr(importlib.import_module(module), name) is value


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", ["_concat_arrays", "_concat_arrays_with_padding"])
def test_examples_put_together(name: str) -> None:
    concat = getattr(importlib.import_module("chainer.dataset.convert"), name)
    numpy.testing.assert_array_equal(concat([numpy.arange(2), numpy.arange(3)], -1), [[0, 1, -1], [0, 1, 2]])
    assert concat([(1, 2), (3, 4)], None).shape == (2, 2)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("kind", ["grads", "params"])
def test_parameters_in_one_array(kind: str) -> None:
    updater = importlib.import_module("chainer.training.updaters.multiprocess_parallel_updater")
    model, other = (kusari.Sequential(kusari.links.Linear(2, 3), kusari.links.Linear(3, 1)) for _ in range(2))
    assert updater.size_num_grads(model) == (13, 4)
    with pytest.raises(RuntimeError, match=f"gather_{kind} works only on GPU"):
        getattr(updater, f"gather_{kind}")(model)
    F.sum(model(numpy.ones((1, 2), "f"))).backward()
    with cupy() as stand_in:
        for link in model, other:
            link.to_device("@cupy:0")
        together = getattr(updater, f"gather_{kind}")(model)
        assert type(together) is stand_in.ndarray
        assert (together.shape, together.dtype) == ((13,), numpy.float32)
        getattr(updater, f"scatter_{kind}")(other, together)
        for p, q in zip(model.params(), other.params(), strict=True):
            a, b = (p.grad, q.grad) if kind == "grads" else (p.array, q.array)
            numpy.testing.assert_array_equal(a.get(), b.get())


@pytest.mark.usefixtures("_installed")
def test_numbers_of_cards() -> None:
    link = kusari.links.Linear(1, 1)
    with pytest.warns(DeprecationWarning, match="_device_id"):
        assert link._device_id is None
    with cupy():
        link.to_device("@cupy:0")
        with pytest.warns(DeprecationWarning, match="_device_id"):
            assert link._device_id == 0


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("module", "name", "arguments", "expected"), [
    ("utils.array", "as_vec", (A,), A.ravel()), ("utils.array", "as_mat", (A,), A.reshape(2, 2)),
    ("utils.array", "empty_like", (A[:0],), A[:0]), ("gradient_check", "assert_allclose", (A, A), None),
])
def test_deprecated_functions(module: str, name: str, arguments: tuple[object, ...], expected: object) -> None:
    function = getattr(importlib.import_module(f"chainer.{module}"), name)
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated"):
        numpy.testing.assert_array_equal(function(*arguments), expected)


@pytest.mark.usefixtures("_installed")
def test_renamed_and_constant_names() -> None:
    assert importlib.import_module("chainer.backends._cpu")._to_cpu([numpy.ones(1)])[0] == 1
    assert importlib.import_module("chainer.device_resident").DeviceResidentsVisitor.visit_array
    assert importlib.import_module("chainer._version").__version__ == kusari.compat.API_VERSION
    assert importlib.import_module("chainer.links.caffe.protobuf3").caffe_pb2.NetParameter().layer is not None
    assert importlib.import_module("chainer.memory_layouts").CUDNN_CHANNEL_FIRST_X is None
    for module, name, package in (("serializers.hdf5", "_available", "h5py"),
                                  ("links.model.vision.resnet", "available", "PIL")):
        there = importlib.util.find_spec(package) is not None
        assert getattr(importlib.import_module(f"chainer.{module}"), name) is there
    assert kusari.compat.API_VERSION in importlib.import_module("chainer._runtime_info")._get_runtime_info()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("module", "name", "arguments", "call"), [
    ("array.swapaxes", "Swapaxes", (0, 1), lambda x: F.swapaxes(x, 0, 1)),
    ("array.hstack", "Hstack", (), lambda x: F.hstack([x])),
    ("array.cast", "Cast", ("d",), lambda x: F.cast(x, "d")),
    ("normalization.l2_normalization", "NormalizeL2", (), F.normalize),
])
def test_classes_of_functions_that_are_made_otherwise(module: str, name: str, arguments: typing.Any, call: typing.Any
                                                      ) -> None:  # fmt: skip
    x = kusari.Variable(numpy.arange(6, dtype="f").reshape(2, 3))
    cls = getattr(importlib.import_module(f"chainer.functions.{module}"), name)
    found, expected = cls(*arguments).apply((x,))[0], call(x)
    numpy.testing.assert_array_equal(found.array, expected.array)
    assert not isinstance(x.creator, cls)


@pytest.mark.usefixtures("_installed")
def test_classes_know_nodes_that_are_called_otherwise() -> None:
    x = numpy.ones((2, 3), "f")
    for module, name, y in (("normalization.l2_normalization", "NormalizeL2", F.normalize(x)),
                            ("evaluation.r2_score", "R2_score", F.r2_score(x, x))):
        assert isinstance(y.creator, getattr(importlib.import_module(f"chainer.functions.{module}"), name))


@pytest.mark.usefixtures("_installed")
def test_helpers() -> None:
    precision, imgproc, util = map(importlib.import_module, (
        "chainer.utils.precision", "chainer.utils.imgproc", "chainer.training.extensions.util"))

    class Seen(kusari.FunctionNode):
        @precision._fp16_mixed_precision_helper
        def forward(self, inputs: typing.Any) -> typing.Any:
            self.dtypes = [x.dtype.char for x in inputs]
            return *inputs, None

    for given, seen in (("ee", "ff"), ("eb", "fb"), ("ff", "ff"), ("ed", "fd")):
        node = Seen()
        outputs = node.apply(tuple([numpy.zeros(2, c) for c in given]))[:2]
        assert "".join(node.dtypes) == seen
        assert "".join(y.dtype.char for y in outputs) == ("fd" if given == "ed" else given)
    parts = imgproc.oversample([numpy.arange(48.0).reshape(1, 6, 8)], (2, 3))
    assert parts.shape == (10, 1, 2, 3) and parts[9, 0, 0].tolist() == parts[4, 0, 0, ::-1].tolist() == [20, 19, 18]

    class Bar(util.ProgressBar):
        def get_lines(self) -> list[str]:
            return ["one\n", "two\n"]

    out = io.StringIO()
    bar = Bar(out=out)
    bar.update()
    bar.close()
    assert out.getvalue() == "\033[Jone\ntwo\n\033[2A\033[J"
    assert bar.update_speed(1, 0.5) == (numpy.inf, numpy.inf) and bar.update_speed(2, 1.0)[0] > 0


def test_questions_about_chainerx_are_answered_under_the_alias() -> None:
    x: typing.Any = kusari.Variable(numpy.ones(1))
    assert not hasattr(x, "_has_chainerx_array")
    kusari.compat.install()
    assert x._has_chainerx_array is False
    x.to_chx()
    assert x._has_chainerx_array is True
    x.from_chx()
    kusari.compat.uninstall()
    assert not hasattr(x, "_has_chainerx_array")
    assert kusari.backend.ChainerxDevice.from_array(x.array) is None
    assert kusari.backend.Intel64Device.from_array(x.array) is None


@pytest.mark.usefixtures("_installed")
def test_classes_of_functions() -> None:
    import chainer
    import chainer.functions as F
    import numpy as np
    from chainer import basic_math
    from chainer.backends import _cpu
    from chainer.functions.activation.relu import ReLU
    from chainer.functions.connection.convolution_2d import Convolution2DFunction
    from chainer.utils import array, conv_nd

    x = chainer.Variable(np.array([[-1, 2]], "f"))
    for function, kind, other in ((F.relu, ReLU, basic_math.Add), (lambda v: v * 2, basic_math.MulConstant, ReLU),
                                  (lambda v: v + v, basic_math.Add, basic_math.AddConstant),
                                  (lambda v: F.convolution_2d(*[v[None, None]] * 2), Convolution2DFunction, ReLU)):
        node = function(x).creator
        assert isinstance(node, kind) and not isinstance(node, other)
    for made, expected in ((ReLU(), [[0, 2]]), (basic_math.SubFromConstant(2), [[3, 0]]),
                           (F.activation.leaky_relu.LeakyReLU(0.5), [[-0.5, 2]])):
        assert isinstance(made, type(made)) and made.apply((x,))[0].array.tolist() == expected
    sparse = chainer.utils.to_coo(np.array([[0, 2], [3, 0]], "f"))
    product = F.math.sparse_matmul.CooMatMul(sparse.row, sparse.col, sparse.shape, sparse.order, transa=True)
    w = chainer.Variable(sparse.data.array)
    y, = product.apply((w, np.eye(2, dtype="f")))
    y.grad = np.ones((2, 2), "f")
    y.backward()
    assert (y.array.tolist(), w.grad.tolist()) == ([[0, 3], [2, 0]], [1, 1])
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = F.math.sparse_matmul.Nothing
    assert _cpu.CpuDevice is chainer.backend.CpuDevice
    assert array.sum_to is chainer.utils.sum_to and conv_nd.as_tuple(1, 2) == (1, 1)
    assert conv_nd.im2col_nd_cpu is chainer.utils.conv.im2col_nd_gpu
    x.node._rank = 3
    assert (x.rank, (x + 1).rank) == (3, 4)
    image = chainer.Variable(np.ones((1, 2, 6, 6), "f"))
    node = F.convolution_2d(image, np.ones((2, 2, 3, 3), "f"), stride=(1, 2), pad=(3, 4), dilate=(5, 1)).creator
    assert [getattr(node, name) for name in "sy sx ph pw dy dx".split()] == [1, 2, 3, 4, 5, 1]
    node = F.resize_images(image, (2, 3)).creator
    assert (node.out_H, node.out_W, F.dropout(image, 0.25).creator.dropout_ratio) == (2, 3, 0.25)
    assert F.batch_normalization(image, np.ones(2, "f"), np.ones(2, "f")).creator.axis == (0, 2, 3)
    for pool in (F.max_pooling_2d, F.average_pooling_2d):
        node = pool(image, (2, 3), (1, 2), (1, 0)).creator
        assert [getattr(node, name) for name in "kh kw sy sx ph pw".split()] == [2, 3, 1, 2, 1, 0]


def test_uninstall_takes_the_names_away() -> None:
    kusari.compat.install()
    kusari.compat.install()
    importlib.import_module("chainer.utils")
    assert kusari.compat.installed()
    kusari.compat.uninstall()
    assert not kusari.compat.installed()
    assert not [name for name in sys.modules if name.partition(".")[0] == "chainer"]


def test_refuses_when_chainer_is_there_already() -> None:
    program = (
        "import sys, types; sys.modules['chainer'] = types.ModuleType('chainer')\n"
        "import kusari.compat\n"
        "try: kusari.compat.install()\n"
        "except kusari.errors.KusariError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "before the first 'import chainer'" in done.stdout
