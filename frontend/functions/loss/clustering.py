"""The discriminative loss of instance segmentation."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...elementwise import elementwise
from ...structured import Structured
from ...tape import composed
from ...utils import type_check
from ...variable import Variable, as_variable
from ..activation.rectifiers import relu
from ..array.cast import cast
from ..array.join import concat
from ..array.shape import expand_dims, reshape
from ..math.arithmetic import absolute
from ..math.exponential import square
from ..math.matmul import matmul
from ..math.pointwise import maximum
from ..math.reduction import sum as sum_


class Members(Structured):
    """``(N, n, H W)`` floats: 1 where the label is the cluster's number (1 to ``n``), 0 elsewhere; no gradient."""

    def __init__(self, n: int, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__()
        self.n = n
        self.shape = shape
        self.dtype = dtype

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("labels",))
        type_check.expect(in_types[0].dtype.kind == "i", in_types[0].shape == self.shape)

    def lower(self, b: Any, t: Any) -> tuple[Any, ...]:
        rows = b.reshape(t, (t.shape[0], 1, self.shape[1] * self.shape[2]))
        number = b.reshape(b.call("add", b.arange(self.n), 1), (1, self.n, 1))
        return b.cast(b.call("where", b.call("equal", rows, number), 1.0, 0.0), self.dtype),


@elementwise("RootOrZero", onnx="Sqrt", kind="f")
def _root(xp: Any, x: Any) -> Any:
    """The square root, whose gradient at 0 is 0."""
    return xp.sqrt(x)


@_root.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return xp.where(x > 0, gy * 0.5 / xp.sqrt(xp.where(x > 0, x, 1)), 0),


def _length(x: Any, norm: int, axis: Any) -> Variable:
    return sum_(absolute(x), axis=axis) if norm == 1 else _root(sum_(square(x), axis=axis))


@composed()
def discriminative_margin_based_clustering_loss(
        embeddings: Any, labels: Any, delta_v: float, delta_d: float, max_embedding_dim: int, norm: int = 1,
        alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.001) -> tuple[Variable, Variable, Variable]:
    """Discriminative loss of instance segmentation: pixels of one instance together, instances apart.

    The instances of an image are the pixels labelled 1 to ``max_embedding_dim``; other labels, such as 0, count as
    background. The centre of an instance is the mean of its pixels' embeddings, 0 if there are none.

    Args:
        embeddings: Floating-point vectors of the pixels, of shape (N, ``max_embedding_dim``, H, W).
        labels: Integers of shape (N, H, W).
        delta_v: Distance from its instance's centre from which on a pixel is pulled.
        delta_d: Half the distance between two centres of an image up to which they are pushed.
        max_embedding_dim: Number of channels, and of instances in an image.
        norm: 1 for sums of absolute values, 2 for Euclidean distances.
        alpha: Factor of the first loss.
        beta: Factor of the second loss.
        gamma: Factor of the third loss.

    Returns:
        Three scalars: squares of the pixels' distances beyond ``delta_v``, their mean over each instance's pixels in
        the batch and then over instances; squares of what distances between two centres lack to ``2 * delta_d``, their
        mean over pairs and images; sizes of the centres, each instance's over all images, their sum divided by the
        number of instances and images.

    Raises:
        ValueError: ``norm`` is neither 1 nor 2, or ``max_embedding_dim`` is not the positive number of channels.
        InvalidType: ``labels`` are no integers of the shape (N, H, W).

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.array([[[[1, 3, 0]], [[0, 0, 1]]]], dtype="f")
    >>> losses = F.discriminative_margin_based_clustering_loss(x, np.array([[[1, 1, 2]]]), 0.5, 2, 2)
    >>> [round(float(y.array), 4) for y in losses]
    [0.125, 1.0, 0.0015]

    See: De Brabandere et al., `Semantic Instance Segmentation with a Discriminative Loss Function
    <https://arxiv.org/abs/1708.02551>`_, 2017.
    """
    if norm not in (1, 2):
        raise ValueError(f"norm should be 1 or 2, but {norm!r} is given")
    if max_embedding_dim <= 0:
        raise ValueError(f"max_embedding_dim should be positive, but {max_embedding_dim} is given")
    if embeddings.ndim != 4 or embeddings.shape[1] != max_embedding_dim:
        raise ValueError(f"embeddings should be of shape (N, max_embedding_dim, H, W) with max_embedding_dim = "
                         f"{max_embedding_dim}, but are of shape {embeddings.shape}")
    x, dtype = as_variable(embeddings), embeddings.dtype
    x = cast(x, np.float32) if dtype == np.float16 else x
    n, k, h, w = x.shape
    x = reshape(x, (n, k, h * w))
    members = Members(k, (n, h, w), x.dtype.name).apply((labels,))[0]
    centres = matmul(members, x, transb=True) / expand_dims(maximum(sum_(members, axis=2), 1.0), 2)
    away = relu(_length(x - matmul(centres, members, transa=True), norm, 1) - float(delta_v))
    pull = sum_(members * expand_dims(square(away), 1), axis=(0, 2)) / maximum(sum_(members, axis=(0, 2)), 1.0)
    pairs = concat([centres[:, s:] - centres[:, :k - s] for s in range(1, max(k, 2))], axis=1)
    push = square(relu(2 * float(delta_d) - _length(pairs, norm, 2)))
    return (cast(alpha * (sum_(pull) / k), dtype), cast(beta * (sum_(push) / max(pairs.shape[1] * n, 1)), dtype),
            cast(gamma * (sum_(_length(centres, norm, (0, 2))) / max(k * n, 1)), dtype))
