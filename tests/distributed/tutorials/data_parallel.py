"""The manual's MNIST example, data parallel, on data of the same form."""
import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy as np
from chainer import training
from chainer.training import extensions


class MLP(chainer.Chain):
    def __init__(self, n_units, n_out):
        super().__init__(l1=L.Linear(784, n_units), l2=L.Linear(n_units, n_units), l3=L.Linear(n_units, n_out))

    def __call__(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


def get_data(count, seed):
    centers = np.random.RandomState(0).rand(10, 784).astype(np.float32)
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count).astype(np.int32)
    return chainer.datasets.TupleDataset(centers[labels] + 0.1 * random.rand(count, 784).astype(np.float32), labels)


def main():
    comm = chainermn.create_communicator("naive")
    model = L.Classifier(MLP(30, 10))
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(alpha=0.005), comm)
    optimizer.setup(model)
    if comm.rank == 0:
        train, test = get_data(400, 1), get_data(90, 2)
    else:
        train, test = None, None
    train = chainermn.scatter_dataset(train, comm, shuffle=True)
    test = chainermn.scatter_dataset(test, comm, shuffle=True)
    train_iter = chainer.iterators.SerialIterator(train, 20)
    test_iter = chainer.iterators.SerialIterator(test, 20, repeat=False, shuffle=False)
    updater = training.StandardUpdater(train_iter, optimizer)
    trainer = training.Trainer(updater, (4, "epoch"), out="unused")
    evaluator = extensions.Evaluator(test_iter, model)
    evaluator = chainermn.create_multi_node_evaluator(evaluator, comm)
    trainer.extend(evaluator)
    log = extensions.LogReport(filename=None)
    if comm.rank == 0:
        trainer.extend(log)
    trainer.run()
    total = comm.allreduce_obj(float(sum(np.abs(p.array).sum() for p in model.params())))
    if comm.rank == 0:
        own = float(sum(np.abs(p.array).sum() for p in model.params()))
        assert total == own * comm.size
        assert log.log[-1]["validation/main/accuracy"] > 0.9, log.log
        print("trained")


if __name__ == "__main__":
    main()
