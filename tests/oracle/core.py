"""What is neither a function nor a link nor an optimizer: reports, serializers, hooks, graphs, utilities and modes."""
from __future__ import annotations

import io
import tempfile
import types
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from .programs import TIMES, arguments

# Programs, with a blank line between them; what they leave in `r` is compared.
CORE = """
s = c.reporter.Summary()
[s.add(v) for v in b.ravel()]
r = s.compute_mean(), s.make_statistics()

s = c.reporter.Summary()
[s.add(v, weight=w) for v, w in zip(b.ravel(), p.ravel())]
r = s.make_statistics()

s = c.reporter.DictSummary()
s.add({"a": k, "b": x.sum()})
s.add({"a": (l, 2.5)})
r = s.compute_mean(), s.make_statistics()

s = c.reporter.DictSummary()
s.add({"a": V(b[0, :1].sum(keepdims=True)[0:1].reshape(())), "b": k})
r = s.compute_mean()

q = c.Reporter()
m = L.Linear(1, 1)
q.add_observer("m", m)
r = {}
c.report({"a": k}) if flag else None

q = c.Reporter()
m = L.Classifier(L.Linear(4, 3))
q.add_observer("m", m)
q.add_observers("n", m.namedlinks(skipself=True))
o = {}
with q.scope(o):
    c.report({"a": k}, m)
    c.report({"b": l}, m.predictor)
    c.report({"free": 1})
    r = o

s = c.reporter.Summary()
s.add(k)
d = {}
z.DictionarySerializer(d).save(s)
u = c.reporter.Summary()
z.NpzDeserializer(d).load(u)
u.add(l)
r = d, u.make_statistics()

m = L.Linear(3, k)
z.save_npz(f + "/m", m, compression=flag)
n = L.Linear(3, k)
z.load_npz(f + "/m", n)
r = n.W, n.b

m = c.Chain(a=L.Linear(3, k), b=L.BatchNormalization(l))
z.save_npz(f + "/m", m)
r = dict(np.load(f + "/m"))

m = L.Linear(3, k)
z.save_npz(f + "/m", c.Chain(p=m))
n = L.Linear(3, k)
z.load_npz(f + "/m", n, path="p/")
r = n.W

m = c.Chain(a=L.Linear(3, k))
z.save_npz(f + "/m", m)
n = c.Chain(a=L.Linear(3, k), b=L.Linear(1, 1))
z.load_npz(f + "/m", n, strict=False)
r = n.a.W, n.b.W

m = c.Chain(a=L.Linear(3, k), b=L.Linear(1, l))
z.save_npz(f + "/m", m)
n = c.Chain(a=L.Linear(3, k), b=L.Linear(1, l))
z.load_npz(f + "/m", n, ignore_names=["b/W", "a/b"])
r = n.a.W, n.b.W, n.b.b

m = L.Linear(3, k)
z.save_hdf5(f + "/h", m)
n = L.Linear(3, k)
z.load_hdf5(f + "/h", n)
r = n.W, n.b

m = c.Chain(a=L.Linear(3, k))
z.save_hdf5(f + "/h", m)
n = c.Chain(a=L.Linear(3, k))
z.load_hdf5(f + "/h", n)
r = n.a.W

d = {}
s = z.DictionarySerializer(d)
r = [s("a", x), s("b", k), s["c"]("e", None), s("t", "text"), sorted(d)]

d = {"a": x, "c/e": np.array(k), "none": np.array(None)}
s = z.NpzDeserializer(d)
v = np.zeros_like(x)
r = [s("a", v), v, s["c"]("e", 0), s("none", 1), s("a", None)]

y = F.sum(F.exp(V(x)) * V(p))
y.backward(retain_grad=True)
r = y.grad, y.rank, y.creator.label, [i.rank for i in y.creator.inputs]

v = V(x)
y = F.sum(v ** 2)
y.backward()
y = F.sum(v * k)
y.backward()
r = v.grad

v = V(x)
y = v * 2
z_ = y + y
z_.grad = np.ones_like(x)
z_.backward(loss_scale=l)
r = v.grad

v = V(x)
r = c.grad([F.sum(v ** 3)], [v], enable_double_backprop=True)[0]
r = c.grad([F.sum(r)], [v])

v = V(x)
y = v * k
r = c.grad([y], [v], grad_outputs=[V(p)], set_grad=flag), v.grad

v = V(x)
w_ = V(y)
r = c.grad([v * w_], [v, w_], [V(p)], grad_inputs=[V(p), None], retain_grad=True)

v = V(x)
r = c.grad([F.exp(v)], [v, V(y)], [V(p)])

v = V(x)
a_ = F.exp(v)
b_ = a_ * 2
a_.unchain()
b_.grad = p
b_.backward()
r = v.grad, a_.grad

v = V(x)
h = F.tanh(v)
o_ = F.sum(h * h)
h.unchain_backward()
o_.backward()
r = v.grad, h.grad

v = V(x)
with c.no_backprop_mode():
    r = (v * 2).creator
with c.force_backprop_mode():
    r = r, (v * 2).creator is not None

v = V(x, requires_grad=False)
y = v * 2 + V(p)
r = y.requires_grad, v.requires_grad

v = V(x, name="n")
r = v.name, v.label, v.shape, v.ndim, v.size, str(v.dtype), len(v), v.rank

v = V(x)
v.cleargrad()
r = v.grad
v.grad = p.astype(x.dtype)
v.addgrad(v)
r = v.grad

v = V(x)
u = V(np.zeros_like(x))
u.copydata(v)
r = u

v = V(x)
v.to_cpu()
r = v, v.xp is np

v = V(b)
r = [u for u in v], v[k % 3], v[:, l], v[..., None].shape

r = [str(V(x)).split("(")[0], repr(V(np.array(k, "f")))]

r = c.as_variable(x), c.as_variable(V(x)), c.as_array(V(x)), c.as_array(x)

p_ = c.Parameter(k, (2, l))
p_.cleargrad()
r = p_, p_.grad, p_.is_initialized

p_ = c.Parameter()
i_ = p_.is_initialized
p_.initialize((l, k))
r = i_, p_.shape, p_.requires_grad

p_ = c.Parameter(c.initializers.Uniform(2.), (2, l))
r = p_

m = L.Linear(3, 2)
m.add_param("u", (l,), initializer=k) if hasattr(m, "add_param") else None
r = m.u, sorted(n for n, _ in m.namedparams())

m = L.Linear(3, 2)
m.add_persistent("v", k)
m.register_persistent("v")
d = {}
z.DictionarySerializer(d).save(m)
r = d

m = c.Chain()
m.add_link("a", L.Linear(2, l))
with m.init_scope():
    m.b = L.Linear(1, k)
    r = [(n, v.shape) for n, v in sorted(m.namedparams())]

m = c.ChainList(L.Linear(2, k), L.Linear(k, l))
m.append(L.Linear(1, 1))
r = len(m), [v.shape for v in m.params()], [n for n, _ in m.namedlinks()]

m = c.ChainList(L.Linear(2, k), L.Linear(k, l))
m.insert(1, L.Linear(1, 1))
del m[0]
r = [n for n, _ in m.namedparams()]

m = c.Sequential(L.Linear(2, k), F.relu, L.Linear(k, l))
m.insert(1, F.tanh)
r = len(m), m.count_by_layer_type("Linear"), m(b[:, :2])

m = c.Sequential(L.Linear(2, k), F.relu, L.Linear(k, l))
m.remove_by_layer_type("relu")
m.pop(0)
r = len(m), m.index(m[0])

m = c.Sequential(L.Linear(k, k), F.relu).repeat(l)
r = len(m), len(list(m.params())), len(c.Sequential(m, c.Sequential(F.exp)).flatten())

m = c.Sequential(L.Linear(2, k))
m.extend([F.relu, L.Linear(k, l)])
m.reverse()
r = sorted(n for n, _ in m.namedparams())

m = c.Chain(a=L.Linear(2, l))
m.a.disable_update()
r = m.update_enabled, m.a.update_enabled, m.count_params()
m.enable_update()
r = r, m.a.update_enabled

m = L.Linear(2, l)
n = L.Linear(2, l)
m.copyparams(n)
m.cleargrads()
n.cleargrads()
n.W.grad = np.ones_like(n.W.array)
m.addgrads(n)
r = m.W, m.W.grad

m = c.Chain(a=L.Linear(2, l))
r = [sorted(n for n, _ in m.namedparams(v)) for v in (True, False)]
r = r, [type(v).__name__ for v in m.links(True)], [type(v).__name__ for v in m.children()]

m = L.Linear(2, l)
m.W.array[:] = np.nan
m.repeat(k)
r = [len(m.repeat(k, v)) for v in ("init", "copy", "share")]

h = c.function_hooks.TimerHook()
h.__enter__()
F.exp(V(x)) + V(y)
h.__exit__(None, None, None)
r = sorted(h.summary()), [h.summary()[n]["occurrence"] for n in sorted(h.summary())]

h = c.function_hooks.PrintHook(file=out)
h.__enter__()
F.sum(F.exp(V(b)))
h.__exit__(None, None, None)
r = [v.split(":")[0].split(" at ")[0] for v in out.getvalue().split(chr(10))]

h = c.link_hooks.TimerHook()
h.__enter__()
c.Sequential(L.Linear(4, k), L.Linear(k, l))(b)
h.__exit__(None, None, None)
r = {n: v["occurrence"] for n, v in h.summary().items()}

v = V(b, name="in")
y = F.sum(F.exp(v) * 2)
g = c.computational_graph.build_computational_graph([y])
r = len(g.nodes), len(g.edges), sorted(n.label for n in g.nodes)

v = V(b, name="in")
y = F.sum(F.relu(L.Linear(4, 2)(v)))
g = c.computational_graph.build_computational_graph([y], remove_variable=flag, show_name=not flag, rankdir="LR")
r = len(g.nodes), len(g.edges), "rankdir=LR" in g.dump()

with c.using_config("train", flag):
    r = c.config.train, c.global_config.train, c.config.enable_backprop, c.config.debug, str(c.config.dtype)

r = [str(v) for v in (c.get_dtype(), c.get_dtype("e"), c.get_dtype(None, map_mixed16="f"), c.get_dtype(c.mixed16))]

with c.using_config("dtype", c.mixed16):
    r = str(c.get_dtype()), str(c.get_dtype(map_mixed16="f")), L.Linear(2, 2).W.dtype.name
    r = r, L.BatchNormalization(2).gamma.dtype.name

r = [c.utils.get_conv_outsize(9 + k, l + 1, l, k, flag, d=l), c.utils.get_deconv_outsize(k + 2, l + 1, l, 0, flag)]

a_ = c.utils.WalkerAlias([1, k + 1, l, 2])
r = a_.sample((3, 4)), a_.sample(5)

m = c.utils.to_coo(b * (b > 0))
r = m.to_dense(), m.data, m.row, m.col, m.shape, m.order

m = c.utils.CooMatrix(np.array([1., k], "f"), np.array([0, 1], "i"), np.array([l, 0], "i"), (2, 4), order="other")
r = m.to_dense(), m.order

r = c.utils.force_array(np.float32(k)), c.utils.force_array(x)
r = r, c.utils.force_type(np.dtype("e"), 2.5), c.utils.force_type(np.dtype("e"), x)

r = T.product({"a": [1, k], "b,c": [(1, 2), (3, 4)]}), T.product_dict([{"a": 1}], [{"b": k}, {"b": l}])

r = T.assert_allclose(x, x + 1e-6)

r = T.generate_matrix((2, 3, 3), singular_values=[3., 2., 1.]).shape

r = T.save_and_load_npz(*[L.Linear(3, 2, initialW=v) for v in (k, l)])
r = 1

d_ = b.astype("d")
r = c.gradient_check.numerical_grad(lambda: (np.exp(d_),), [d_], [np.ones_like(d_)], eps=1e-3)

r = c.gradient_check.check_backward(lambda v: v * v, b.astype("d"), np.ones((3, 4)), eps=1e-3, atol=1e-3, rtol=1e-3)

g = np.ones((3, 4))
r = c.gradient_check.check_double_backward(lambda v: v * v * v, b.astype("d"), g, g, atol=1e-3, rtol=1e-3)

d_ = c.get_device("@numpy")
r = d_.name, c.get_device(-1) == d_, str(d_), c.backend.get_device_from_array(x).name

u = np.zeros_like(x)
c.backend.copyto(u, x)
r = u

u = np.zeros_like(x, "d")
c.backend.copyto(u, x)
r = u

u = c.backends.cuda
r = u.to_cpu(x), u.to_cpu([x, None]), u.available, u.get_array_module(x) is np, str(u.get_device_from_array(x).id)

r = c.backends.intel64.is_ideep_available(), c.is_debug()

c.set_debug(flag)
r = c.is_debug()
c.set_debug(False)

r = [v for v in F.split_axis(V(b), 2, 1)]
a_, b_ = r
a_.grad = b[:, :2] * k
b_.grad = b[:, 2:]
b_.backward()
r = a_.creator.inputs[0].grad

o_ = c.optimizers.Adam(alpha=p.ravel()[0])
r = o_.hyperparam.get_dict(), o_.alpha, o_.epoch, o_.t, o_.lr if flag else 0

u = c.optimizers.adam.AdamRule(alpha=0.5)
r = u.hyperparam.alpha, u.hyperparam.beta1, sorted(u.hyperparam.get_dict())

m = L.Linear(3, l)
o_ = c.optimizers.SGD(p.ravel()[0]).setup(m)
m.W.update_rule.hyperparam.lr = k
m.cleargrads()
m.W.grad = np.ones_like(m.W.array)
o_.update()
r = m.W

m = L.Linear(3, l)
o_ = c.optimizers.SGD(0.5).setup(m)
m.W.update_rule.add_hook(lambda rule, param: param.grad.__imul__(k))
m.cleargrads()
m.W.grad = np.ones_like(m.W.array)
o_.update()
r = m.W

m = L.Linear(3, l)
o_ = c.optimizers.SGD(0.5).setup(m)
o_.add_hook(c.optimizer_hooks.WeightDecay(0.5), timing=("auto", "pre", "post")[k % 3])
m.cleargrads()
m.W.grad = np.ones_like(m.W.array)
o_.update()
r = m.W

m = L.Linear(3, l)
o_ = c.optimizers.Adam().setup(m)
m.b.update_rule.enabled = False
o_.add_hook(lambda o: o.target.W.grad.fill(k), "named")
m.cleargrads()
o_.update()
r = m.W, m.b
o_.remove_hook("named")

c.config.lazy_grad_sum = flag
v = V(x)
y = v * 2 + v * 3 + v
y.grad = p
y.backward()
c.config.lazy_grad_sum = False
r = v.grad

c.config.keep_graph_on_report = flag
q = c.Reporter()
o = {}
m = L.Linear(1, 1)
q.add_observer("m", m)
v = V(x)
with q.scope(o):
    c.report({"a": F.sum(v)}, m)
    r = o["m/a"], getattr(o["m/a"], "creator", 0) is None
    c.config.keep_graph_on_report = False

with c.datasets.open_pickle_dataset_writer(f + "/p") as u:
    [u.write(v) for v in (x, k, "text")]
with c.datasets.open_pickle_dataset(f + "/p") as u:
    r = len(u), u[0], u[k % 3]

u = io.BytesIO()
c.datasets.PickleDatasetWriter(u).write((x, l))
u.seek(0)
r = c.datasets.PickleDataset(u)[0]

i_ = c.iterators.SerialIterator(c.datasets.TupleDataset(x, x), l)
r = c.dataset.concat_examples(i_.next()), [n for n in (i_.epoch, i_.is_new_epoch)]
""".strip().split("\n\n")


def core(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The programs of the table."""
    for text in CORE:
        for seed in range(TIMES // 2):
            yield f"{text} {seed}", lambda text=text, seed=seed: run(lib, text, seed * 5 + len(text))


def run(lib: types.SimpleNamespace, text: str, seed: int) -> Any:
    """What a row leaves in `r`; contexts that it opens end with it."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), \
            lib.chainer.using_config("train", True), lib.chainer.using_config("enable_backprop", True), \
            lib.chainer.using_config("dtype", np.dtype("f")), lib.chainer.using_config("debug", False):
        scope = {**arguments(seed), "c": lib.chainer, "F": lib.F, "L": lib.L, "V": lib.chainer.Variable,
                 "T": lib.testing, "z": lib.serializers, "f": folder, "io": io, "out": io.StringIO()}
        exec(text, scope)
        return scope["r"]
