"""Models of public repositories, define-by-run beside `@static_graph`: what becomes of them, how fast, how equal.

  python benchmarks/public_models.py --root ../public                 all rows, as a table in Markdown
  python benchmarks/public_models.py --root ../public capsules bert   some of them
  python benchmarks/public_models.py --list                           names, and the repositories they need

``--root`` has the checkouts as ``OWNER/NAME``. Each row runs in a process of its own, under the alias ``chainer``, on
one thread unless KUSARI_NUM_THREADS and OPENBLAS_NUM_THREADS say otherwise; a repository that is not there is passed
over with a word.

A row is a model with its loss. Two instances with equal parameters take the same steps of SGD on the same data; one of
them has its loss decorated. Ratios are processor time define-by-run / compiled, the median of rounds in which both take
turns; a call is the loss alone, without gradients, a step has ``backward()`` and ``update()`` as well. The difference
is the largest one of losses and of parameters after the steps, relative to the largest value.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COMPARED_STEPS = 5
ROUNDS = 3
RATE = 1e-4
SLICE_SECONDS = 0.05  # of one turn
Loss = Callable[..., Any]
Arguments = Callable[[np.random.RandomState], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A model, its loss as a function of the model and the arguments, and the arguments of a call."""

    model: Any
    loss: Loss
    arguments: Arguments


@dataclass(frozen=True)
class Row:
    """A model of a repository; ``folder`` of it goes on the path."""

    repository: str
    what: str
    build: Callable[[], Case]
    folder: str = ""
    needs: tuple[str, ...] = ()  # other repositories


ROWS: dict[str, Row] = {}


def row(repository: str, what: str, folder: str = "",
        needs: tuple[str, ...] = ()) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def add(build: Callable[[], Case]) -> Callable[[], Case]:
        ROWS[build.__name__] = Row(repository, what, build, folder, needs)
        return build
    return add


# -- data ------------------------------------------------------------------------------------------------------------


def images(*shape: int) -> Arguments:
    from chainer import Variable
    return lambda r: (Variable(r.uniform(-1, 1, shape).astype("f")),)


def pictures_and_labels(classes: int, *shape: int) -> Arguments:
    return lambda r: (r.uniform(0, 1, shape).astype("f"), r.randint(0, classes, shape[:1]).astype("i"))


def words(r: np.random.RandomState, n: int, *shape: int) -> Any:
    return r.randint(2, n, shape).astype("i")


def mean_square(y: Any) -> Any:
    import chainer.functions as F
    parts = y if isinstance(y, (tuple, list)) else (y,)
    return sum(F.mean(F.square(x)) for x in parts)


def of_output(model: Any, *args: Any) -> Any:
    return mean_square(model(*args))


def itself(model: Any, *args: Any) -> Any:
    return model(*args)


# -- the models ------------------------------------------------------------------------------------------------------


@row("hitachi-speech/EEND", "self-attentive diarization, permutation-free loss")
def eend() -> Case:
    from eend.chainer_backend.models import TransformerDiarization
    return Case(TransformerDiarization(2, 20, 32, 4, 2, 0.1), itself, lambda r: (
        [r.randn(30, 20).astype("f") for _ in range(4)], [r.randint(0, 2, (30, 2)).astype("i") for _ in range(4)]))


@row("hitachi-speech/EEND", "the same with attractors of an encoder and decoder")
def eend_attractors() -> Case:
    from eend.chainer_backend.models import TransformerEDADiarization
    return Case(TransformerEDADiarization(20, 32, 4, 2, 0.1), itself, lambda r: (
        [r.randn(30, 20).astype("f") for _ in range(4)], [r.randint(0, 2, (30, 2)).astype("i") for _ in range(4)]))


@row("pfnet-research/sngan_projection", "generator, conditional batch normalization")
def sngan_generator() -> Case:
    from gen_models.resnet_32 import ResNetGenerator
    return Case(ResNetGenerator(ch=16, dim_z=16, n_classes=5), lambda m, z, y: mean_square(m(len(z), z=z, y=y)),
                lambda r: (r.randn(4, 16).astype("f"), words(r, 5, 4)))


@row("musyoku/chainer-glow", "flow: two steps of activation norm, 1x1 convolution and coupling")
def glow() -> Case:
    import chainer
    from glow import nn
    model = chainer.ChainList(*[part for _ in range(2) for part in (
        nn.Actnorm(8), nn.Invertible1x1Conv(8), nn.AffineCoupling(nn.AffineCouplingNonlinearMapping(4, 16)))])
    for link in model:
        if isinstance(link, nn.Actnorm):
            link.scale.array[...] = 1

    def loss(m: Any, x: Any) -> Any:
        total: Any = 0
        for link in m:
            x, log_det = link.forward_step(x)
            total += log_det
        return mean_square(x) - total / x.size
    return Case(model, loss, images(4, 8, 8, 8))


@row("soskek/attention_is_all_you_need", "Transformer for translation")
def transformer() -> Case:
    from net import Transformer
    return Case(Transformer(2, 50, 50, 32, h=4), itself, lambda r: (
        words(r, 50, 4, 12), words(r, 50, 4, 10), words(r, 50, 4, 10)))


@row("soskek/bert-chainer", "BERT with a classifier")
def bert() -> Case:
    import modeling
    config = modeling.BertConfig(100, 32, 2, 4, 64)
    return Case(modeling.BertClassifier(modeling.BertModel(config), 3), itself, lambda r: (
        words(r, 100, 4, 16), np.ones((4, 16), "i"), np.zeros((4, 16), "i"), words(r, 3, 4)))


@row("soskek/dynamic_routing_between_capsules", "capsules, routed three times")
def capsules() -> Case:
    from nets import CapsNet
    return Case(CapsNet(), itself, pictures_and_labels(10, 2, 1, 28, 28))


@row("soskek/captioning_chainer", "LSTM that writes captions")
def captions() -> Case:
    from nets import RNNDecoder
    return Case(RNNDecoder(1, 50, 32), lambda m, xs, ys: m(xs, ys, None), lambda r: (
        [r.randn(20).astype("f") for _ in range(4)], [words(r, 50, n) for n in (9, 8, 7, 6)]))


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


@row("pfnet-research/chainer-pix2pix", "generator: encoder and decoder")
def pix2pix() -> Case:
    import chainer
    from net import Decoder, Encoder
    model = chainer.ChainList(Encoder(3), Decoder(3))
    return Case(model, lambda m, x: mean_square(m[1](m[0](x))), images(1, 3, 256, 256))


@row("pfnet-research/chainer-pix2pix", "discriminator of pairs")
def pix2pix_discriminator() -> Case:
    from net import Discriminator
    return Case(Discriminator(3, 3), of_output, lambda r: (*images(1, 3, 64, 64)(r), *images(1, 3, 64, 64)(r)))


@row("joisino/chainer-PGGAN", "progressive GAN: generator, between two sizes")
def pggan_generator() -> Case:
    from network import Generator
    return Case(Generator(1), lambda m, z: mean_square(m(z, 0.5)), images(2, 512, 1, 1))


@row("joisino/chainer-PGGAN", "progressive GAN: discriminator, statistics of the batch")
def pggan_discriminator() -> Case:
    from network import Discriminator
    return Case(Discriminator(1), lambda m, x: mean_square(m(x, 0.5)), images(2, 3, 8, 8))


@row("pfnet-research/chainer-gan-lib", "minibatch discrimination")
def minibatch_discrimination() -> Case:
    from minibatch_discrimination.net import Discriminator
    return Case(Discriminator(B=8, C=3), of_output, images(4, 3, 32, 32))


@row("pfnet-research/chainer-gan-lib", "progressive GAN: generator")
def progressive() -> Case:
    from progressive.net import Generator
    return Case(Generator(16, 16, 6), lambda m, z: mean_square(m(z, 3.5)), images(2, 16, 1, 1))


@row("pfnet-research/chainer-gan-lib", "denoising features: denoiser")
def denoiser() -> Case:
    from dfm.net import Denoiser
    return Case(Denoiser(), of_output, images(8, 2048))


@row("pfnet-research/chainer-stylegan", "StyleGAN: mapping and synthesis with noise", "src/stylegan")
def stylegan() -> Case:
    import chainer
    from net import MappingNetwork, StyleGenerator
    model = chainer.ChainList(MappingNetwork(512), StyleGenerator(32))
    return Case(model, lambda m, z: mean_square(m[1](m[0](z), 1.5)), images(2, 512))


@row("pfnet-research/chainer-stylegan", "StyleGAN: discriminator", "src/stylegan")
def stylegan_discriminator() -> Case:
    from net import Discriminator
    return Case(Discriminator(32), lambda m, x: mean_square(m(x, 4)), images(2, 3, 16, 16))


@row("musyoku/chainer-qrnn", "quasi-recurrent network, an encoder of its own zoneout")
def qrnn() -> Case:
    from qrnn import QRNN

    def loss(m: Any, x: Any) -> Any:
        m.reset_state()
        return mean_square(m(x))
    return Case(QRNN(8, 8, kernel_size=2, pooling="fo", zoneout=0.2), loss, images(4, 8, 12))


@row("cemoody/lda2vec", "mixtures of topics with a Dirichlet prior", "lda2vec")
def lda2vec() -> Case:
    import dirichlet_likelihood
    import embed_mixture

    def loss(m: Any, ids: Any) -> Any:
        return mean_square(m(ids)) - 1e-3 * dirichlet_likelihood.dirichlet_likelihood(m.weights)
    return Case(embed_mixture.EmbedMixture(40, 8, 16), loss, lambda r: (words(r, 40, 16),))


@row("pfnet-research/contextual_augmentation", "language model in both directions")
def augmentation() -> Case:
    from nets import BiLanguageModel
    return Case(BiLanguageModel(50, 32, 1), lambda m, *xs: m.calculate_loss([[x] for x in xs]), lambda r: tuple(
        words(r, 50, n) for n in (12, 10, 9)))


@row("pfnet-research/graph-nvp", "flow of molecules as graphs", needs=("pfnet-research/chainer-chemistry",))
def graph_nvp() -> Case:
    from graph_nvp.hyperparams import Hyperparameters
    from graph_nvp.models.model import GraphNvpModel
    nodes, relations, features = 5, 3, 4
    made = Hyperparameters(
        nodes, relations, features, num_masks={"node": 5, "channel": 5}, mask_size={"node": 1, "channel": 1},
        num_coupling={"node": 2, "channel": 2}, mlp_channels=[16], gnn_channels={"gcn": [4, 8], "hidden": [8, 8]})
    return Case(GraphNvpModel(made), lambda m, adj, x: sum(map(mean_square, m(adj, x)[0])), lambda r: (
        r.randint(0, 2, (2, made.num_relations, made.num_nodes, made.num_nodes)).astype("f"),
        r.uniform(0, 1, (2, made.num_nodes, made.num_features)).astype("f")))


@row("pfnet-research/chainer-chemistry", "gated graph network of molecules")
def ggnn() -> Case:
    from chainer_chemistry.models.ggnn import GGNN
    return Case(GGNN(4, hidden_channels=8, n_update_layers=2), of_output, lambda r: (
        words(r, 10, 3, 6), r.randint(0, 2, (3, 4, 6, 6)).astype("f")))


@row("pfnet-research/chainer-chemistry", "SchNet")
def schnet() -> Case:
    from chainer_chemistry.models.schnet import SchNet
    return Case(SchNet(4, hidden_channels=8, n_update_layers=2, num_rbf=20), of_output, lambda r: (
        words(r, 10, 3, 6), r.uniform(1, 3, (3, 6, 6)).astype("f")))


@row("crcrpar/chainer-VAE", "variational autoencoder")
def vae() -> Case:
    from net import VAE
    return Case(VAE(64, 4, 32), itself, lambda r: (r.randint(0, 2, (16, 64)).astype("f"),))


@row("chainer/chainer", "recursive network of trees, thin stack", "examples/sentiment")
def thin_stack() -> Case:
    from train_recursive_minibatch import ThinStackRecursiveNet

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        nodes = [np.array(places, "i") for places in ([0, 2, 4], [1, 3, 5], [4, 5, 6])]  # left, right, where
        drawn = [[words(r, n, k) for _ in range(2)] for n, k in ((5, 3), (30, 4), (5, 4))]  # labels, words, theirs
        return tuple(x for part in (*[[x, x] for x in nodes], *drawn) for x in part)
    return Case(ThinStackRecursiveNet(30, 16, 5), itself, arguments)


# -- one row -----------------------------------------------------------------------------------------------------------


class Side:
    """One of the two instances of a row."""

    def __init__(self, made: Row, static: bool) -> None:
        import kusari
        np.random.seed(0)
        case = made.build()
        self.model, self.arguments = case.model, case.arguments
        self.loss = kusari.static_graph(case.loss) if static else case.loss
        self.data = [case.arguments(np.random.RandomState(i)) for i in range(COMPARED_STEPS)]
        self.optimizer: Any = None

    def call(self, i: int) -> Any:
        return self.loss(self.model, *self.data[i % len(self.data)])

    def step(self, i: int) -> float:
        import chainer
        loss = self.call(i)
        self.model.cleargrads()
        loss.backward()
        if self.optimizer is None:  # parameters without shapes have them now
            self.optimizer = chainer.optimizers.SGD(RATE).setup(self.model)
        self.optimizer.update()
        return float(loss.array)

    def steps(self) -> tuple[list[float], Any]:
        losses = []
        for i in range(COMPARED_STEPS):
            np.random.seed(i)
            losses.append(self.step(i))
        arrays = [p.array.ravel() for _, p in sorted(self.model.namedparams()) if p.array is not None]
        return losses, np.concatenate(arrays)


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two arrays, relative to the largest value."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    if not a.size or np.array_equal(a, b, equal_nan=True):
        return 0.0
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))


def ratio(plain: Callable[[int], Any], static: Callable[[int], Any]) -> float:
    """Return the processor time of one relative to the other's, which take turns."""
    for f in (plain, static):
        for i in range(3):
            f(i)
    begin = time.process_time()
    static(0)
    count = max(1, int(SLICE_SECONDS / max(time.process_time() - begin, 1e-6)))
    found = []
    for turn in range(ROUNDS):
        seconds = {}
        for f in (plain, static) if turn % 2 else (static, plain):
            begin = time.process_time()
            for i in range(count):
                f(i)
            seconds[f] = time.process_time() - begin
        found.append(seconds[plain] / seconds[static])
    return statistics.median(found)


def verdict(loss: Any) -> str:
    """Return what became of a decorated loss."""
    entries = [entry for cache in loss.static.caches() for entry in cache.entries.values()]
    faults = [str(entry.fault).replace(f"{Path.cwd()}/", "") for entry in entries if entry.fault is not None]
    if faults:
        return f"falls back: {faults[0]}"
    schedules = [entry.schedule for entry in entries if entry.schedule is not None]
    if not schedules:
        return "traced only"
    by_python = sorted({row.node.op.name for s in schedules for c in s.compiled for row in c.program.instructions
                        if row.kernel is None and not row.node.op.name.startswith(("report", "check", "random"))})
    return f"split: Python runs {', '.join(by_python)}" if by_python else "compiled"


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one row, in this process."""
    import kusari
    warnings.simplefilter("ignore")
    made = ROWS[name]
    plain, static = Side(made, False), Side(made, True)
    (losses, parameters), (others, changed) = plain.steps(), static.steps()
    apart = max(difference(losses, others), difference(parameters, changed))
    step = ratio(plain.step, static.step)
    with kusari.no_backprop_mode():
        call = ratio(plain.call, static.call)
    return {"verdict": verdict(static.loss), "call": call, "step": step, "difference": apart}


# -- the table ---------------------------------------------------------------------------------------------------------


def results(root: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield the names of rows with their figures, or a word why there are none."""
    for name in names:
        made = ROWS[name]
        home = root / made.repository
        if not home.is_dir():
            yield name, "not there"
            continue
        paths = [home / made.folder, home, *(root / other for other in made.needs)]
        env = {"KUSARI_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(
            [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])}
        done = subprocess.run([sys.executable, __file__, "--one", name], cwd=home, env=env, capture_output=True,
                              text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode == 0 and lines:
            yield name, json.loads(lines[-1])
        else:
            yield name, "fails: " + (done.stderr.strip().splitlines() or ["?"])[-1]


def line(name: str, found: dict[str, Any] | str) -> str:
    """Return a line of the table."""
    made = ROWS[name]
    head = f"| `{name}` | {made.repository} | {made.what} |"
    if isinstance(found, str):
        return f"{head} {found} | | | |"
    return f"{head} {found['verdict']} | {found['call']:.2f} | {found['step']:.2f} | {found['difference']:.0e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="rows; all without any")
    parser.add_argument("--root", type=Path, default=Path("public"), help="the folder of the checkouts")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        import kusari.compat
        sys.path.remove(str(Path(__file__).resolve().parent))  # whose modules have names of those of repositories
        kusari.compat.install()
        print("\n" + json.dumps(measured(args.names[0])))
        return
    names = args.names or [*ROWS]
    if args.list:
        print("\n".join(f"{name:28}{ROWS[name].repository}" for name in names))
        return
    print("| row | repository | model | `@static_graph` | call | step | difference |\n|---|---|---|---|---|---|---|")
    for name, found in results(args.root.resolve(), names):
        print(line(name, found), flush=True)


if __name__ == "__main__":
    main()
