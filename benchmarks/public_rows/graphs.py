"""Models of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rows import Case, itself, mean_square, of_output, row, words


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


@row("koreyou/stochastic-gcn-chainer", "graph convolution of sampled neighbours, products with sparse matrices")
def sampled_graph() -> Case:
    import scipy.sparse as sp
    from nets import NSGCN
    adjacency = sp.random(20, 20, 0.3, "csr", "f", random_state=0)
    features = sp.random(20, 12, 0.5, "csr", "f", random_state=1)
    model = NSGCN(adjacency, features, np.random.RandomState(0).randint(0, 3, 20).astype("i"), 8)

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        mask = r.randint(0, 20, 4)
        return mask, adjacency, features, None, None, adjacency[mask], None, None
    return Case(model, itself, arguments, fewer=None)


@row("chainer/models", "relations of particles, read from their paths", "nri")
def particles() -> Case:
    from nri.models.encoders.mlp_encoder import MLPEncoder
    receivers, senders = (np.eye(4, dtype="f")[np.array(pairs)] for pairs in zip(
        *[(i, j) for i in range(4) for j in range(4) if i != j], strict=True))
    return Case(MLPEncoder(20, 16, 2), lambda m, x: mean_square(m(x, senders, receivers)), lambda r: (
        r.randn(4, 4, 5, 4).astype("f"),))
