"""Programs that are run by Chainer and by Kusari, on random arguments; also the script that Chainer's Python runs.

Everything is drawn with ``numpy.random.RandomState``, which gives both sides the same numbers.
"""
from __future__ import annotations

import importlib
import pickle
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

TIMES = 12  # draws of arguments for each program
R = np.random.RandomState

# Expressions on `x` and `y` of one shape, `m` and `n` matrices that fit, `p` between 0 and 1, `t` labels of `b` (N, C),
# `i` an image, `axis`, `axes`, `flag` and small numbers `k` and `l`.
FUNCTIONS = """
sum(x, axis=axis, keepdims=flag)
sum(x, axis=axes)
mean(x, axis=axis, keepdims=flag)
average(x, axis=axis, weights=p, keepdims=flag)
max(x, axis=axis, keepdims=flag)
min(x, axis=axes, keepdims=flag)
prod(x, axis=axis, keepdims=flag)
logsumexp(x, axis=axis)
argmax(x, axis=axis)
argmin(x, axis=axis)
cumsum(x, axis=axis)
cumprod(x, axis=axis)
softmax(x, axis=axis)
log_softmax(x, axis=axis)
normalize(x, axis=axis)
concat([x, y], axis=axis)
stack([x, y], axis=axis)
hstack([x, y])
vstack([x, y])
dstack([x, y])
expand_dims(x, axis)
flip(x, axis)
fliplr(x)
flipud(x)
rollaxis(x, axis, k)
moveaxis(x, axis, k)
swapaxes(x, axis, k)
squeeze(x, axis)
squeeze(x)
transpose(x, axes)
transpose(x)
reshape(x, (-1, k + 1))
reshape(x, (k, -1))
flatten(x)
repeat(x, k, axis)
repeat(x, (k, l), axis)
tile(x, (k, l))
tile(x, k)
separate(x, axis)
split_axis(x, k + 1, axis)
split_axis(x, [k, k + l], axis)
pad(x, k, "constant")
pad(x, ((k, l),), "edge")
pad(x, (k, l), "reflect")
pad_sequence([x, x[:1]], padding=l)
broadcast_to(x, (k,) + x.shape)
diagonal(x, k, 0, axis)
get_item(x, k)
get_item(x, (slice(None, None, -1), k))
get_item(x, [k, 0])
get_item(x, x > 0)
where(x > 0, x, y)
maximum(x, y)
minimum(x, y)
add(x, y)
add(x, y, x)
clip(x, -k / 4., l / 4.)
fix(x * 3)
squared_difference(x, y)
absolute_error(x, y)
mean_squared_error(x, y)
mean_absolute_error(x, y)
huber_loss(x, y, k + 0.5)
huber_loss(x, y, 1., reduce="no")
bias(x, y[0], axis)
scale(x, y[0], axis)
scale(x, y, 0)
linear_interpolate(p, x, y)
elu(x, alpha=k)
selu(x)
relu6(x)
clipped_relu(x, z=k / 4.)
hard_sigmoid(x)
leaky_relu(x, slope=k / 4.)
swish(x, y[0])
crelu(x, axis=axis)
maxout(x, k + 1, axis=axis)
matmul(m, n)
matmul(m, n, transb=flag)
matmul(x, y, transb=True)
matmul(x, y)
tensordot(x, y, axes=k)
einsum("ij,ij->j", x, y)
einsum("...i,...i", x, y)
accuracy(b, t)
accuracy(b, t, ignore_label=k)
precision(b, t)
recall(b, t, label_num=4)
f1_score(b, t, beta=k + 1., label_num=4)
softmax_cross_entropy(b, t)
softmax_cross_entropy(b, t, normalize=flag, reduce="no")
softmax_cross_entropy(b, t, class_weight=np.arange(1, 5).astype(b.dtype), ignore_label=k)
sigmoid_cross_entropy(x, (x > 0).astype("i"), normalize=flag)
hinge(b, t, norm="L2")
hinge(b, t, norm="L1", reduce="no")
contrastive(b, b[::-1], t % 2, margin=k)
triplet(b, b[::-1], b * 2, margin=k)
cross_covariance(b, b * b)
decov(b)
bernoulli_nll(p, x)
gaussian_kl_divergence(x, y)
gaussian_nll(x, y, x * 2)
select_item(b, t)
embed_id(t, b.T.copy())
r2_score(x, y)
binary_accuracy(x, (y > 0).astype("i"))
max_pooling_2d(i, k + 1, stride=l, pad=k // 2, cover_all=flag)
average_pooling_2d(i, k + 1, stride=l, pad=k // 2)
max_pooling_nd(i, k + 1, stride=l, cover_all=flag)
average_pooling_nd(i, k + 1, pad=k // 2, pad_value=None)
unpooling_2d(i, k + 1, stride=l, cover_all=flag)
upsampling_2d(i, np.zeros(i.shape, "i"), k + 1, cover_all=flag)
spatial_pyramid_pooling_2d(i, k, pooling="max")
local_response_normalization(i, n=2 * k + 1)
depth2space(i, 2)
space2depth(i, 2)
im2col(i, k + 1, stride=l, pad=k // 2, cover_all=flag, dilate=l)
resize_images(i, (k + 3, l + 2), align_corners=flag)
convolution_2d(i, i[:2, :, :k + 1, :k + 1], stride=l, pad=k, dilate=l)
deconvolution_2d(i, i[:1].transpose(1, 0, 2, 3)[:, :, :k + 1, :k + 1], stride=l, pad=k // 2)
group_normalization(i, 2, np.ones(4, i.dtype), np.zeros(4, i.dtype))
layer_normalization(b, b[0], b[0])
batch_normalization(i, i[0, :, 0, 0], i[0, :, 0, 1])
fixed_batch_normalization(i, i[0, :, 0, 0], i[0, :, 0, 1], i[0, :, 0, 0], p.ravel()[0] + np.ones(4, i.dtype))
lstm(b[:, :1], b)
slstm(b[:, :1], b[:, :1], b, b)
shift(i, ksize=3, dilate=k)
batch_l2_norm_squared(x)
as_strided(x, (k, l), (1, 1))
scatter_add(x, k, y[0])
permutate(x, np.arange(len(x))[::-1].copy(), axis=0, inv=flag)
transpose_sequence([x, x[:1]])
spatial_transformer_grid(b.ravel()[:6].reshape(1, 2, 3), (k + 1, l + 1))
spatial_transformer_sampler(i[:, :2], i[:, :2])
""".split("\n")[1:-1]

DISTRIBUTIONS = {
    "Bernoulli": "p=p", "Beta": "a=p + 1, b=p + 2", "Cauchy": "loc=x, scale=p", "Exponential": "lam=p",
    "Gamma": "k=p + 1, theta=p", "Geometric": "p=p", "Gumbel": "loc=x, scale=p", "Laplace": "loc=x, scale=p",
    "LogNormal": "mu=x, sigma=p", "Normal": "loc=x, scale=p", "Pareto": "scale=p, alpha=p + 3",
    "Poisson": "lam=p", "Uniform": "low=x, high=x + p", "Chisquare": "k=p + 2",
    "Categorical": "p=simplex", "Dirichlet": "alpha=p + 1", "OneHotCategorical": "p=simplex",
    "MultivariateNormal": "loc=b, scale_tril=np.tile(np.eye(4, dtype=b.dtype) * 2, (len(b), 1, 1))",
}
MEMBERS = ("batch_shape event_shape mean variance stddev entropy mode median covariance support params "
           "log_prob(at) prob(at) cdf(at) icdf(p) survival_function(at) log_cdf(at) perplexity").split()
OPTIMIZERS = {
    "SGD": "lr=p", "MomentumSGD": "lr=p, momentum=q", "NesterovAG": "lr=p, momentum=q", "AdaGrad": "lr=p, eps=q / 100",
    "AdaDelta": "rho=q, eps=p / 100", "Adam": "alpha=p, beta1=q, eta=p", "AdamW": "alpha=p, weight_decay_rate=q / 10",
    "AMSGrad": "alpha=p, beta2=q", "AdaBound": "alpha=p, final_lr=q, gamma=p / 10", "AMSBound": "alpha=p",
    "RMSprop": "lr=p, alpha=q, eps_inside_sqrt=q > 0.5", "RMSpropGraves": "lr=p / 10, alpha=q", "SMORMS3": "lr=p",
    "CorrectedMomentumSGD": "lr=p, momentum=q", "MSVAG": "lr=p, beta=q, weight_decay_rate=p / 10",
}
HOOKS = ["WeightDecay(p)", "Lasso(p)", "GradientClipping(q)", "GradientHardClipping(-q, p)", "GradientLARS(q, p)"]
TRIGGERS = """
IntervalTrigger(k, "iteration")
IntervalTrigger(k / 2., "epoch")
ManualScheduleTrigger([k, l + 2], "iteration")
ManualScheduleTrigger([k / 3., l], "epoch")
OnceTrigger()
OnceTrigger(True)
MaxValueTrigger("v", trigger=(k, "iteration"))
MinValueTrigger("v", trigger=(k, "iteration"))
BestValueTrigger("v", lambda best, new: new > best, trigger=(1, "epoch"))
EarlyStoppingTrigger(check_trigger=(1, "iteration"), monitor="v", patience=k, mode="min")
""".split("\n")[1:-1]
SHIFTS = """
ExponentialShift("lr", 0.5 + q, init=k)
ExponentialShift("lr", 0.5, target=q / 8, init=1.)
InverseShift("lr", gamma=p, power=q, init=1.)
LinearShift("lr", (p, q), (k, k + l))
PolynomialShift("lr", q, 8, init=p)
StepShift("lr", gamma=q, step=k, init=p)
MultistepShift("lr", gamma=q, step_value=[k, k + l], init=p)
WarmupShift("lr", p, k, q)
""".split("\n")[1:-1]
INITIALIZERS = ("Uniform LeCunUniform GlorotUniform HeUniform Normal LeCunNormal GlorotNormal HeNormal Orthogonal "
                "Zero One NaN Identity").split()
CONVERTED = """
concat_examples([x, y])
concat_examples([x, x[:1]], padding=k)
concat_examples([(x, k), (y, l)])
concat_examples([(x, k), (y[:1], l)], padding=(k, None))
concat_examples([{"a": x, "b": 1.5}, {"a": y, "b": 2}])
concat_examples([k, l])
concat_examples([k, 1.5])
concat_examples([True, False])
concat_examples([(k, [1, 2]), (l, [3, 4])])
concat_examples([])
concat_examples([x, None])
concat_examples([np.float16(k), np.float16(l)])
ConcatWithAsyncTransfer()([x, y])
identity([x, y])
""".split("\n")[1:-1]
DATASETS = """
SubDataset(data, k, k + l + 1)
SubDataset(data, k, 7, order)
split_dataset(data, k)
split_dataset_n(data, k)
split_dataset_random(data, k, seed=l)
split_dataset_n_random(data, k, seed=l)
get_cross_validation_datasets(data, k + 1)
get_cross_validation_datasets_random(data, k + 1, seed=l)
ConcatenatedDataset(data, data[:l])
TupleDataset(data, data[::-1])
DictDataset(a=data, b=data[::-1])
TransformDataset(data, lambda v: v * k)
""".split("\n")[1:-1]


def arguments(seed: int) -> dict[str, Any]:
    """Draw what the expressions may use."""
    r = R(seed)
    dtype = "fffde"[r.randint(5)]
    shape = tuple(r.randint(1, 4, r.randint(1, 5)).tolist())

    def uniform(low: float, high: float, *shape: int) -> Any:
        return r.uniform(low, high, shape).astype(dtype)

    b, rows = uniform(-1, 1, 3, 4), uniform(0.1, 1, 3, 4)
    return {
        "x": uniform(-1, 1, *shape), "y": uniform(-1, 1, *shape), "p": uniform(0.1, 0.9, *shape), "b": b,
        "m": uniform(-1, 1, 2, 3), "n": uniform(-1, 1, *((2, 3), (3, 2))[r.randint(2)]),
        "i": uniform(-1, 1, 2, 4, 6, 4),
        "t": r.randint(0, 4, 3).astype("i"), "axis": int(r.randint(-len(shape) - 1, len(shape) + 1)),
        "axes": tuple(r.permutation(len(shape)).tolist()), "flag": bool(r.randint(2)), "k": int(r.randint(0, 4)),
        "l": int(r.randint(1, 4)), "simplex": rows / rows.sum(1, keepdims=True), "np": np, "order": r.permutation(8),
        "data": np.arange(8) * 10,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Return what can be pickled and compared: arrays, numbers, texts, and lists, tuples and dictionaries of them."""
    if hasattr(value, "creator") or type(value).__name__ == "Parameter":
        value = value.array
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(v) for v in value.tolist()]
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, str, type(None))):
        return value
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [plain(value[i]) for i in range(len(value))] + [plain(value[::2]), plain(value[len(value):])]
    return type(value).__name__


def attempt(program: Callable[[], Any]) -> Any:
    """Return what a program gives, or that it fails."""
    np.random.seed(0)
    random.seed(0)
    try:
        return plain(program())
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:200]}", "fails"


def functions(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Values and gradients of functions."""
    for text in FUNCTIONS:
        for seed in range(TIMES):
            yield f"F.{text} {seed}", lambda text=text, seed=seed: function(lib, text, arguments(seed * 7 + len(text)))


def function(lib: types.SimpleNamespace, text: str, drawn: dict[str, Any]) -> Any:
    """The value of an expression, then the gradients of what it uses."""
    scope = {name: getattr(lib.F, name) for name in dir(lib.F) if not name.startswith("_")}
    kept = {name: lib.chainer.Variable(value) for name, value in drawn.items()
            if name in "xypbmni" and f"{name}." not in text and f"{name}[" not in text and f"{name} " not in text}
    y = eval(text, {**scope, **drawn, **kept, "float": float})
    ys = [v for v in (y if isinstance(y, (list, tuple)) else [y]) if hasattr(v, "creator")]
    if all(v.dtype.kind == "f" and v.size for v in ys):
        for v in ys:
            v.grad = np.cos(np.arange(v.size)).reshape(v.shape).astype(v.dtype)
        for v in ys:
            if v.grad is not None and v.creator is not None:
                v.backward()
    return [y, {name: v.grad for name, v in kept.items()}]


def distributions(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Members of distributions, and divergences."""
    for name, text in DISTRIBUTIONS.items():
        for seed in range(3):
            drawn = arguments(seed * 5 + 1)
            drawn = {**drawn, "x": drawn["x"].astype("f"), "p": drawn["p"].astype("f")}

            def make(name: str = name, text: str = text, drawn: dict[str, Any] = drawn) -> Any:
                return eval(f"d.{name}({text})", {**drawn, "d": lib.distributions})
            drawn["at"] = (drawn["t"] if name == "Categorical" else np.eye(4, dtype="i")[drawn["t"]]
                           if name == "OneHotCategorical" else drawn["b"] if name == "MultivariateNormal" else
                           drawn["simplex"] if name == "Dirichlet" else np.round(drawn["p"] + 1)
                           if name in ("Geometric", "Poisson") else np.round(drawn["p"]) if name == "Bernoulli"
                           else drawn["p"] + 1 if name == "Pareto" else drawn["p"])
            for member in MEMBERS:
                yield f"{name}.{member} {seed}", lambda make=make, member=member, drawn=drawn: eval(
                    f"d.{member}", {**drawn, "d": make()})
            for shape in ((), (2,)):
                yield f"{name}.sample({shape}) {seed}", lambda make=make, shape=shape: make().sample(shape).shape
            yield f"kl_divergence {name} {seed}", lambda make=make: lib.chainer.kl_divergence(make(), make())


def optimizers(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Parameters after some updates."""
    def run(name: str, text: str, seed: int) -> Any:
        r = R(seed)
        scope = {"p": r.uniform(0.01, 0.2), "q": r.uniform(0.1, 0.9)}
        optimizer = eval(f"o.{name}({text})", {**scope, "o": lib.optimizers})
        link = lib.chainer.Link()
        shape = ((), (3,), (2, 3))[r.randint(3)]
        dtype = "fde"[r.randint(3)]
        with link.init_scope():
            link.w = lib.chainer.Parameter(r.uniform(-1, 1, shape).astype(dtype))
        optimizer.setup(link)
        if seed % 2:
            optimizer.add_hook(eval(f"h.{HOOKS[r.randint(len(HOOKS))]}", {**scope, "h": lib.optimizer_hooks}))
        found = []
        for _ in range(4):
            link.w.grad = r.uniform(-1, 1, shape).astype(dtype)
            optimizer.update()
            found.append(link.w.array.copy())
        return found, optimizer.t
    for name, text in OPTIMIZERS.items():
        for seed in range(TIMES):
            yield f"{name} {seed}", lambda name=name, text=text, seed=seed: run(name, text, seed)


def trainings(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """When triggers fire, and what hyperparameters are shifted to."""
    def fires(text: str, seed: int) -> Any:
        r, drawn = R(seed), arguments(seed)
        drawn["k"] += 1
        trigger = eval(f"t.{text}", {**drawn, "t": lib.triggers})
        trainer = lib.testing.get_trainer_with_mock_updater((99, "iteration"), iter_per_epoch=int(r.randint(1, 5)))
        found = []
        for _ in range(14):
            trainer.updater.update()
            trainer.observation = {"v": float(r.randint(0, 9))}
            if r.randint(5):
                found.append(bool(trigger(trainer)))
        target: dict[str, Any] = {}
        trigger.serialize(lib.serializers.DictionarySerializer(target))
        return found, sorted(target)

    def shifted(text: str, seed: int) -> Any:
        r, drawn = R(seed), arguments(seed)
        drawn["k"] += 1
        optimizer = lib.optimizers.SGD(lr=1.0).setup(lib.L.Linear(1, 1))
        trainer = lib.testing.get_trainer_with_mock_updater((99, "iteration"), iter_per_epoch=3)
        trainer.updater.get_optimizer = lambda name: optimizer
        extension = eval(f"e.{text}", {**drawn, "p": r.uniform(0.1, 1), "q": r.uniform(0.1, 0.9), "e": lib.extensions})
        found = [optimizer.lr]
        extension.initialize(trainer)
        for _ in range(9):
            trainer.updater.update()
            extension(trainer)
            found.append(optimizer.lr)
        return found
    for texts, run in ((TRIGGERS, fires), (SHIFTS, shifted)):
        for text in texts:
            for seed in range(TIMES):
                yield f"{text} {seed}", lambda run=run, text=text, seed=seed: run(text, seed)


def data(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Datasets, iterators, converters and initializers."""
    def batches(kind: str, seed: int) -> Any:
        r = R(seed)
        iterator = getattr(lib.iterators, kind)(
            list(range(int(r.randint(1, 8)))), int(r.randint(1, 6)), repeat=bool(r.randint(2)),
            shuffle=(None, True, False)[r.randint(3)])
        found = []
        try:
            for _ in range(7):
                found.append([iterator.next(), iterator.epoch, iterator.is_new_epoch, iterator.epoch_detail,
                              iterator.previous_epoch_detail])
        except StopIteration:
            found.append("stopped")
        finally:
            iterator.finalize()
        return found

    def filled(kind: str, seed: int) -> Any:
        r = R(seed)
        array = np.zeros(tuple(r.randint(1, 5, r.randint(1, 4)).tolist()), "fde"[r.randint(3)])
        getattr(lib.initializers, kind)()(array)
        return array
    for kind in ("SerialIterator", "MultithreadIterator"):
        for seed in range(TIMES):
            yield f"{kind} {seed}", lambda kind=kind, seed=seed: batches(kind, seed)
    for kind in INITIALIZERS:
        for seed in range(TIMES):
            yield f"{kind} {seed}", lambda kind=kind, seed=seed: filled(kind, seed)
    for texts, where in ((CONVERTED, lib.dataset), (DATASETS, lib.datasets)):
        for text in texts:
            for seed in range(TIMES // 2):
                drawn = {**vars(where.convert if where is lib.dataset else where), **arguments(seed)}
                yield f"{text} {seed}", lambda text=text, drawn=drawn: eval(text, drawn)


AREAS = {"functions": functions, "distributions": distributions, "optimizers": optimizers, "trainings": trainings,
         "data": data}


def evaluate(library: str, area: str) -> dict[str, Any]:
    """Run all programs of an area with a library."""
    def part(name: str = "") -> Any:
        return importlib.import_module(library + name)
    lib = types.SimpleNamespace(
        chainer=part(), F=part(".functions"), L=part(".links"), testing=part(".testing"),
        triggers=part(".training.triggers"), extensions=part(".training.extensions"),
        **{name: part(f".{name}") for name in
           "distributions optimizers optimizer_hooks serializers iterators datasets dataset initializers".split()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: attempt(program) for name, program in AREAS[area](lib)}


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(evaluate("chainer", sys.argv[1]), file, protocol=4)
