"""Functions and distributions on random arguments."""
from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import TIMES, arguments

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
f1_score(b, t, k + 1., 4)
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
absolute(x)
arccos(x)
arcsin(x)
arctan(x * 3)
arctan2(x, p)
arctanh(x)
fmod(x, p)
gaussian(x, y)
dropout(x, ratio=0.5)
rrelu(x)
gumbel_softmax(b, tau=l)
zoneout(x, y, ratio=0.5)
simplified_dropconnect(b, b.repeat(l, 0), ratio=0.4)
prelu(x, y[0])
softplus(x, beta=l)
squared_error(x, y)
sum_to(x, y[:1].shape)
broadcast(x, y[:1])
cast(x, "d")
identity(x, y)
linear(b, b.repeat(l, 0))
linear(i, i[:k + 1].reshape(-1, 96), n_batch_axes=1)
bilinear(b, b[:, :2], np.cos(np.arange(24)).reshape(4, 2, 3).astype(b.dtype))
cholesky(q[0])
det(q[0])
batch_det(q)
inv(q[0])
batch_inv(q)
batch_matmul(q, q, transa=flag)
crf1d(b[0, :, None] * b[0], [b, b], [t, t])
argmax_crf1d(b[0, :, None] * b[0], [b, b])
connectionist_temporal_classification([b, b * 2, b, b], t[:, None] % 3, 3)
classification_summary(b, t, label_num=4)
discriminative_margin_based_clustering_loss(i, (i[:, 0] > 0).astype("i"), 0.5, 1.5, 4)
negative_sampling(b, t, np.cos(np.arange(16)).reshape(4, 4).astype(b.dtype), lambda shape: np.ones(shape, "i"), k)
black_out(b, t, np.cos(np.arange(16)).reshape(4, 4).astype(b.dtype), np.ones((3, 2), "i"))
fft((x, y))
ifft((x, y))
forget(lambda v: v * 2, x)
convolution_nd(i, i[:2, :, :k + 1, :k + 1], stride=l, pad=k, cover_all=flag)
convolution_1d(i[:, :, 0], i[:2, :, 0, :k + 1], stride=l, dilate=l)
deconvolution_nd(i, i[:1].transpose(1, 0, 2, 3)[:, :, :k + 1, :k + 1], stride=l)
deconvolution_1d(i[:, :, 0], i[:1, :, 0, :k + 1].transpose(1, 0, 2), stride=l)
depthwise_convolution_2d(i, i[:1, :, :k + 1, :k + 1], stride=l, pad=k)
dilated_convolution_2d(i, i[:2, :, :2, :2], dilate=l)
local_convolution_2d(i, np.cos(np.arange(480)).reshape(2, 5, 3, 4, 2, 2).astype(i.dtype))
deformable_convolution_2d_sampler(i, np.tile(i[:, :2, :5, :3], (1, 4, 1, 1)), i[:2, :, :2, :2])
decorrelated_batch_normalization(i, groups=2)
fixed_decorrelated_batch_normalization(b, b[0], q[:1, :1, :1] * np.eye(4, dtype=b.dtype), groups=1)
batch_renormalization(b, b[0], b[1], l, k, running_mean=b[2].copy(), running_var=b[2] ** 2)
fixed_batch_renormalization(b, b[0], b[1], b[0], b[0] ** 2)
max_pooling_1d(i[:, :, 0], k + 1, stride=l)
max_pooling_3d(i[None], k + 1, stride=l)
average_pooling_1d(i[:, :, 0], k + 1, pad=k // 2)
average_pooling_3d(i[None], l)
unpooling_1d(i[:, :, 0], k + 1, stride=l, cover_all=flag)
unpooling_3d(i[None], l)
unpooling_nd(i, k + 1, stride=l, cover_all=flag)
roi_average_align_2d(i, np.array([[0, 0, 3, 4], [1, 1, 3, 3]], "f"), np.array([0, 1], "i"), 2, 0.9, l)
roi_average_pooling_2d(i, np.array([[0, 0, 3, 4], [1, 1, 3, 3]], "f"), np.array([0, 1], "i"), 2, 0.9)
roi_max_align_2d(i, np.array([[0, 0, 3, 4], [1, 1, 3, 3]], "f"), np.array([0, 1], "i"), (k + 1, l), 0.5, l)
roi_max_pooling_2d(i, np.array([[0, 0, 3, 4], [1, 1, 3, 3]], "f"), np.array([0, 1], "i"), (l, 2), 0.9)
roi_pooling_2d(i, np.array([[0, 0, 0, 3, 4], [1, 1, 1, 3, 3]], "f"), 2, 2, 0.9)
tree_lstm(b[:, :1], b[:, :1], b[:, [0, 0, 1, 2, 3]])
polygamma(np.full(x.shape, l, "i"), p)
zeta(p + 1, p)
""".split("\n")[1:-1]
OF_ONE = """
tan arctan sin cos sinh cosh tanh exp expm1 sigmoid sign square relu floor ceil erf erfc erfcx ndtr log_ndtr identity
""".split()
OF_ONE_BETWEEN_0_AND_1 = "sqrt rsqrt log log1p log2 log10 lgamma digamma erfinv erfcinv ndtri".split()
FUNCTIONS += [f"{name}(x)" for name in OF_ONE] + [f"{name}(p)" for name in OF_ONE_BETWEEN_0_AND_1]

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


def functions(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Values and gradients of functions."""
    for text in FUNCTIONS:
        for seed in range(TIMES):
            yield f"F.{text} {seed}", lambda text=text, seed=seed: function(lib, text, arguments(seed * 7 + len(text)))


def function(lib: types.SimpleNamespace, text: str, drawn: dict[str, Any]) -> Any:
    """The value of an expression, then the gradients of what it uses."""
    scope = {name: getattr(lib.F, name) for name in dir(lib.F) if not name.startswith("_")}
    kept = {name: lib.chainer.Variable(value) for name, value in drawn.items()
            if name in "xypbmniq" and f"{name}." not in text and f"{name}[" not in text and f"{name} " not in text}
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
