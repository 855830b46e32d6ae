"""The manual's MNIST example, model parallel: the layers of one network on two ranks, defined in both ways."""
import sys

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import chainermn.datasets
import chainermn.functions
import numpy as np
from chainer import training


class MLP0SubA(chainer.Chain):
    def __init__(self, comm, n_out):
        super().__init__(l1=L.Linear(784, n_out))

    def __call__(self, x):
        return F.relu(self.l1(x))


class MLP0SubB(chainer.Chain):
    def __init__(self, comm):
        super().__init__()

    def __call__(self, y):
        return y


class MLP0(chainermn.MultiNodeChainList):
    def __init__(self, comm, n_out):
        super().__init__(comm=comm)
        self.add_link(MLP0SubA(comm, n_out), rank_in=None, rank_out=1)
        self.add_link(MLP0SubB(comm), rank_in=1, rank_out=None)


class MLP1Sub(chainer.Chain):
    def __init__(self, n_units, n_out):
        super().__init__(l2=L.Linear(None, n_units), l3=L.Linear(None, n_out))

    def __call__(self, h0):
        h1 = F.relu(self.l2(h0))
        return self.l3(h1)


class MLP1(chainermn.MultiNodeChainList):
    def __init__(self, comm, n_units, n_out):
        super().__init__(comm=comm)
        self.add_link(MLP1Sub(n_units, n_out), rank_in=0, rank_out=0)


class Sending(chainer.Chain):
    def __init__(self, comm, n_out):
        super().__init__(l1=L.Linear(784, n_out))
        self.comm = comm

    def __call__(self, x):
        h0 = F.relu(self.l1(x))
        phi = chainermn.functions.send(h0, self.comm, rank=1)
        return chainermn.functions.recv(self.comm, rank=1, delegate_variable=phi)


class Answering(chainer.Chain):
    def __init__(self, comm, n_units, n_out):
        super().__init__(l2=L.Linear(None, n_units), l3=L.Linear(None, n_out))
        self.comm = comm

    def __call__(self, *_):
        h0 = chainermn.functions.recv(self.comm, rank=0)
        h1 = F.relu(self.l2(h0))
        return chainermn.functions.send(self.l3(h1), self.comm, rank=0)


def get_data(count, seed):
    centers = np.random.RandomState(0).rand(10, 784).astype(np.float32)
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count).astype(np.int32)
    return chainer.datasets.TupleDataset(centers[labels] + 0.1 * random.rand(count, 784).astype(np.float32), labels)


def main(with_lists):
    comm = chainermn.create_communicator("naive")
    if comm.rank == 0:
        model = L.Classifier(MLP0(comm, 100) if with_lists else Sending(comm, 100))
    elif comm.rank == 1:
        model = MLP1(comm, 100, 10) if with_lists else Answering(comm, 100, 10)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    train = get_data(400, 1)
    if comm.rank == 1:
        train = chainermn.datasets.create_empty_dataset(train)
    train_iter = chainer.iterators.SerialIterator(train, 40, shuffle=False)
    updater = training.StandardUpdater(train_iter, optimizer)
    losses = []
    trainer = training.Trainer(updater, (4, "epoch"), out="unused")

    def note(trainer):
        losses.append(float(trainer.observation["main/loss"].array))
    if comm.rank == 0:
        trainer.extend(note, trigger=(1, "iteration"))
    trainer.run()
    if comm.rank == 0:
        assert losses[-1] < 0.5 * losses[0], losses


if __name__ == "__main__":
    for with_lists in (True, False):
        main(with_lists)
    if chainermn.create_communicator("naive").rank == 0:
        print("trained", file=sys.stdout)
