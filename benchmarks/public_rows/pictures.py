"""Models of pictures: classification, key points, super-resolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rows import Case, images, itself, mean_square, of_output, pictures_and_labels, row, words


@row("soskek/dynamic_routing_between_capsules", "capsules, routed three times")
def capsules() -> Case:
    from nets import CapsNet
    return Case(CapsNet(), itself, pictures_and_labels(10, 2, 1, 28, 28))


@row("DeNA/Chainer_Realtime_Multi-Person_Pose_Estimation", "key points of people, six stages")
def poses() -> Case:
    from models.CocoPoseNet import CocoPoseNet
    return Case(CocoPoseNet(), lambda m, x: mean_square([h for part in m(x) for h in part]), images(1, 3, 32, 32))


@row("DeNA/Chainer_Realtime_Multi-Person_Pose_Estimation", "key points of hands")
def hands() -> Case:
    from models.HandNet import HandNet
    return Case(HandNet(), of_output, images(1, 3, 32, 32))


@row("tsurumeso/waifu2x-chainer", "super-resolution, residual blocks with squeeze and excitation")
def waifu2x() -> Case:
    from lib.srcnn import UpResNet10
    return Case(UpResNet10(3), of_output, images(1, 3, 48, 48))


@row("tsurumeso/waifu2x-chainer", "super-resolution by transposed convolution")
def waifu2x_upconv() -> Case:
    from lib.srcnn import UpConv7
    return Case(UpConv7(3), of_output, images(1, 3, 32, 32))


@row("corochann/chainer-pointnet", "PointNet: clouds of points")
def pointnet() -> Case:
    from chainer_pointnet.models.pointnet.pointnet_cls import PointNetCls
    return Case(PointNetCls(5), itself, lambda r: (r.randn(16, 3, 32, 1).astype("f"), words(r, 5, 16)))


@row("corochann/chainer-pointnet", "PointNet++: sampling of farthest points, balls around them")
def pointnet2() -> Case:
    import chainer
    from chainer_pointnet.models.pointnet2.set_abstraction_all_block import SetAbstractionGroupAllModule
    from chainer_pointnet.models.pointnet2.set_abstraction_block import SetAbstractionModule
    model = chainer.ChainList(
        SetAbstractionModule(k=8, num_sample_in_region=4, radius=1.0, mlp=[8, 16], initial_idx=0),
        SetAbstractionGroupAllModule(mlp=[16, 32], mlp2=[]))

    def loss(m: Any, points: Any) -> Any:
        coordinates, features, _ = m[0](points, None)
        return mean_square(m[1](coordinates, features)[1])
    return Case(model, loss, lambda r: (r.randn(4, 32, 3).astype("f"),))


@row("ronekko/deep_metric_learning", "metric learning: lifted structures")
def lifted_structures() -> Case:
    import chainer.links as L
    from lib.functions.lifted_struct_loss import lifted_struct_loss
    return Case(L.Linear(16, 8), lambda m, a, p: lifted_struct_loss(m(a), m(p)), lambda r: (
        r.randn(6, 16).astype("f"), r.randn(6, 16).astype("f")))


@row("ronekko/deep_metric_learning", "metric learning: pairs and a distance to proxies")
def proxies() -> Case:
    import chainer
    import chainer.links as L
    from lib.functions.n_pair_mc_loss import n_pair_mc_loss
    from lib.functions.proxy_nca_loss import proxy_nca_loss
    model = chainer.Chain(net=L.Linear(16, 8))
    model.add_param("proxies", (5, 8), initializer=chainer.initializers.Normal(1.0))

    def loss(m: Any, x: Any, other: Any, t: Any) -> Any:
        y = m.net(x)
        return proxy_nca_loss(y, m.proxies, t) + n_pair_mc_loss(y, m.net(other), 1e-3)
    return Case(model, loss, lambda r: (r.randn(6, 16).astype("f"), r.randn(6, 16).astype("f"), words(r, 5, 6)))


@row("ronekko/deep_metric_learning", "metric learning: facility location, a search among the distances")
def clustering() -> Case:
    import chainer.links as L
    from lib.functions.clustering_loss import clustering_loss
    return Case(L.Linear(16, 8), lambda m, x, t: clustering_loss(m(x), t, 1.0), lambda r: (
        r.randn(8, 16).astype("f"), r.randint(0, 3, 8).astype("i")))


@row("wkentaro/fcn", "segmentation: fully convolutional network, three scales")
def fcn8s() -> Case:
    from fcn.models import FCN8s
    return Case(FCN8s(n_class=4), itself, lambda r: (
        r.uniform(-1, 1, (1, 3, 32, 32)).astype("f"), r.randint(0, 4, (1, 32, 32)).astype("i")), fewer=None)


def zoo(name: str, batch: int, size: int) -> Case:
    """Return a classifier of chainercv2, by the names of its module and function."""
    from importlib import import_module

    import chainer.functions as F
    module, function = name.split(".")
    net = getattr(import_module(f"chainercv2.models.{module}"), function)(in_size=(size, size), classes=10)
    return Case(net, lambda m, x, t: F.softmax_cross_entropy(m(x), t), pictures_and_labels(10, batch, 3, size, size))


ZOO = "osmr/imgclsmob"


@row(ZOO, "MobileNetV3, small", "chainer_")
def mobilenet() -> Case:
    return zoo("mobilenetv3.mobilenetv3_small_w7d20", 2, 224)


@row(ZOO, "ShuffleNetV2, half as wide", "chainer_")
def shufflenet() -> Case:
    return zoo("shufflenetv2.shufflenetv2_wd2", 2, 224)


@row(ZOO, "SE-ResNet for small pictures", "chainer_")
def seresnext() -> Case:
    return zoo("seresnet_cifar.seresnet20_cifar10", 4, 32)


@row(ZOO, "DenseNet for small pictures", "chainer_")
def densenet() -> Case:
    return zoo("densenet_cifar.densenet40_k12_bc_cifar10", 4, 32)


@row(ZOO, "octave convolutions", "chainer_")
def octaves() -> Case:
    return zoo("octresnet.octresnet10_ad2", 2, 224)


@row("chainer/chainercv", "SSD: boxes at two scales, hard negatives")
def ssd() -> Case:
    import chainer
    import chainer.links as L
    from chainercv.links.model.ssd import Multibox, multibox_loss
    model = chainer.ChainList(
        L.Convolution2D(3, 8, 3, 2, 1), L.Convolution2D(8, 8, 3, 2, 1), Multibox(4, ((2,), (2, 3))))

    def loss(m: Any, x: Any, boxes: Any, labels: Any) -> Any:
        h = chainer.functions.relu(m[0](x))
        return sum(multibox_loss(*m[2]([h, chainer.functions.relu(m[1](h))]), boxes, labels, 3))

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        count = 64 * 4 + 16 * 6
        return (r.uniform(0, 1, (2, 3, 16, 16)).astype("f"), r.randn(2, count, 4).astype("f"),
                (r.randint(0, 4, (2, count)) * (r.rand(2, count) < 0.1)).astype("i"))
    return Case(model, loss, arguments)


@row("chainer/chainercv", "SegNet: pooling of places, unpooling")
def segnet() -> Case:
    from chainercv.links import PixelwiseSoftmaxClassifier, SegNetBasic
    return Case(PixelwiseSoftmaxClassifier(SegNetBasic(4)), itself, lambda r: (
        r.uniform(0, 1, (2, 3, 32, 32)).astype("f"), r.randint(-1, 4, (2, 32, 32)).astype("i")))


@row("chainer/chainercv", "Faster R-CNN: proposals, sampled regions")
def faster_rcnn() -> Case:
    import chainer.functions as F
    import chainer.links as L
    from chainer import Chain
    from chainercv.links.model.faster_rcnn import FasterRCNN, FasterRCNNTrainChain, RegionProposalNetwork

    class Head(Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.loc, self.score = L.Linear(8 * 9, 4 * 4), L.Linear(8 * 9, 4)

        def forward(self, x: Any, rois: Any, indices: Any) -> Any:
            rois = np.concatenate((indices[:, None].astype("f"), rois[:, [1, 0, 3, 2]]), axis=1)
            h = F.roi_pooling_2d(x, rois, 3, 3, 1 / 4)
            return self.loc(h), self.score(h)
    extractor = L.Convolution2D(3, 8, 4, 4)
    rpn = RegionProposalNetwork(8, 8, anchor_scales=[1, 2], feat_stride=4, proposal_creator_params={
        "n_train_pre_nms": 60, "n_train_post_nms": 20, "min_size": 2})
    model = FasterRCNNTrainChain(FasterRCNN(extractor, rpn, Head(), np.zeros((3, 1, 1), "f"), 32, 64))
    return Case(model, itself, lambda r: (
        r.uniform(0, 1, (1, 3, 32, 32)).astype("f"), np.array([[[2, 2, 14, 14], [10, 8, 30, 28]]], "f"),
        r.randint(0, 3, (1, 2)).astype("i"), np.array([1.0], "f")), fewer=None)


@row("hy-ml/chainer-retinanet", "RetinaNet's losses: focal, of boxes that have an object", needs=("chainer/chainercv",))
def focal_loss() -> Case:
    import chainer
    import chainer.links as L
    from models.loss import FocalLoss, SmoothL1
    model = chainer.Chain(box=L.Linear(8, 4), score=L.Linear(8, 3))

    def loss(m: Any, x: Any, boxes: Any, labels: Any) -> Any:
        return FocalLoss()(m.score(x), labels) + SmoothL1()(m.box(x), boxes, labels)
    return Case(model, loss, lambda r: (
        r.randn(20, 8).astype("f"), r.randn(20, 4).astype("f"), np.tile(np.arange(4, dtype="i"), 5)))


@row("Idein/chainer-pose-proposal-net", "key points as boxes of a grid")
def pose_proposals() -> Case:
    from model import PoseProposalNet
    model = PoseProposalNet("resnet18", (64, 64), ["a", "b", "c"], [(0, 1), (1, 2)], (3, 3), (1, 1), (1, 1))
    w, h = model.outsize

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        def grid(*shape: int) -> Any:
            return r.uniform(0, 1, shape).astype("f")
        return (grid(2, 3, 64, 64), np.round(grid(2, 3, h, w)), np.round(grid(2, 2, 3, 3, h, w)),
                *(grid(2, 3, h, w) for _ in range(4)), np.round(grid(2, 2, 3, 3, h, w)))
    return Case(model, itself, arguments)


@row("pfnet-research/chainer-ADDA", "adaptation to another domain: an encoder and a discriminator, two optimizers")
def adda() -> Case:
    import chainer
    import chainer.functions as F
    from models import Discriminator, Encoder
    model = chainer.ChainList(Discriminator(), Encoder(), Encoder())  # the last one reads the source, and stays

    def of_discriminator(m: Any, source: Any, target: Any) -> Any:
        return (-F.sum(F.log_softmax(m[0](m[2](source)))[:, 0]) / len(source)
                - F.sum(F.log_softmax(m[0](m[1](target)))[:, 1]) / len(target))

    def of_encoder(m: Any, source: Any, target: Any) -> Any:
        return -F.sum(F.log_softmax(m[0](m[1](target)))[:, 0]) / len(target)
    return Case(model, (of_discriminator, of_encoder), lambda r: tuple(
        r.uniform(0, 1, (4, 3, 28, 28)).astype("f") for _ in range(2)))


@row("chainer/models", "relation network: questions about pictures", "relation-networks")
def relations() -> Case:
    import chainer.functions as F
    from model import RelationNetwork
    return Case(RelationNetwork(4), lambda m, x, q, t: F.softmax_cross_entropy(m(x, q), t), lambda r: (
        r.uniform(0, 1, (2, 3, 32, 32)).astype("f"), r.randint(0, 2, (2, 6)).astype("i"), words(r, 4, 2)))
