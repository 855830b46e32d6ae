"""Learn which mushrooms are poisonous, from 22 properties of 8,124 of them, with the Trainer.

    python examples/mushrooms.py --data path/to/mushrooms.csv

The table is the UCI/Kaggle "Mushroom Classification" one: a header, then one mushroom per line, the class (e or p)
first and every property a letter. Written to --out: the log, curves, the computational graph and snapshots, from the
newest of which --resume goes on.
"""

import argparse
import importlib.util
import os

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import datasets, iterators, optimizers, training
from kusari.training import extensions


def read(path):
    """All mushrooms: every letter becomes its place in its column's alphabet."""
    letters = np.genfromtxt(path, delimiter=",", dtype=str, skip_header=1)
    numbers = np.stack([np.unique(column, return_inverse=True)[1] for column in letters.T], axis=1)
    return datasets.TupleDataset(numbers[:, 1:].astype(np.float32), numbers[:, :1].astype(np.int32))


def network(n_units):
    """Two hidden layers of `n_units` and one output: positive means poisonous."""
    model = kusari.Sequential(L.Linear(n_units), F.relu).repeat(2)
    model.append(L.Linear(1))
    return model


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("MUSHROOMS_CSV", "mushrooms.csv"), help="the table")
    parser.add_argument("--epoch", type=int, default=50, help="number of passes over the training set")
    parser.add_argument("--batchsize", type=int, default=100)
    parser.add_argument("--unit", type=int, default=44, help="width of the hidden layers")
    parser.add_argument("--device", default="-1", help="-1 or @numpy: the CPU; 0, 1, ... or @cupy:0: a GPU")
    parser.add_argument("--out", default="result", help="directory for what is written")
    parser.add_argument("--resume", action="store_true", help="go on from the newest snapshot in --out")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not os.path.exists(args.data):
        parser.error(
            f"there is no table at {args.data}: download the data set 'Mushroom Classification' and give its place "
            "with --data or in the environment variable MUSHROOMS_CSV"
        )
    return args


def main():
    args = arguments()
    np.random.seed(args.seed)
    device = kusari.get_device(int(args.device) if args.device.lstrip("-").isdigit() else args.device)
    mushrooms = read(args.data)
    train, test = datasets.split_dataset_random(mushrooms, int(len(mushrooms) * 0.7), seed=args.seed)
    train_iter = iterators.SerialIterator(train, args.batchsize)
    test_iter = iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    model = L.Classifier(network(args.unit), lossfun=F.sigmoid_cross_entropy, accfun=F.binary_accuracy)
    optimizer = optimizers.SGD().setup(model)
    updater = training.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)

    trainer.extend(extensions.Evaluator(test_iter, model, device=device))
    trainer.extend(extensions.DumpGraph("main/loss"))
    trainer.extend(extensions.snapshot(n_retains=1, autoload=args.resume), trigger=(20, "epoch"))
    trainer.extend(extensions.LogReport())
    losses, accuracies = (["main/" + key, "validation/main/" + key] for key in ("loss", "accuracy"))
    if importlib.util.find_spec("matplotlib"):
        trainer.extend(extensions.PlotReport(losses, "epoch", filename="loss.png"))
        trainer.extend(extensions.PlotReport(accuracies, "epoch", filename="accuracy.png"))
    trainer.extend(extensions.PrintReport(["epoch", *losses, *accuracies, "elapsed_time"]))
    trainer.run()

    x, t = test[np.random.randint(len(test))]
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        score = model.predictor(device.send(x[None])).array[0, 0]
    names = ["edible", "poisonous"]
    print(f"a mushroom of the test set: predicted {names[int(score >= 0)]}, actually {names[t[0]]}")


if __name__ == "__main__":
    main()
