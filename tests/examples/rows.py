"""The runs of Chainer's examples: which script, with which arguments, on which data, and how far the numbers agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from examples import data

Maker = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Step:
    """One process: a script below the folder of examples, and its arguments."""

    script: str
    arguments: str = ""
    stdin: str = ""
    lines: int = 0  # of numbers, after which it is ended; 0 lets it run to its end
    ranks: int = 1  # processes of it that mpiexec starts


@dataclass(frozen=True)
class Row:
    """Processes that run one after the other in one folder.

    Attributes:
        tolerance: relative, of printed numbers; 0 is the same text, None compares nothing.
        needs: modules that both libraries' Pythons must have.
        fails: a part of the message with which it fails on Kusari.
        numpy: the version of NumPy from which on it fails so; none means always.
        chainer: whether it works on Chainer; None where that is not tried.
        note: the reason of a failure, or of numbers that differ or are not compared.
    """

    name: str
    steps: tuple[Step, ...]
    makers: tuple[Maker, ...] = ()
    tolerance: float | None = 1e-4
    needs: tuple[str, ...] = ()
    fails: str = ""
    numpy: tuple[int, ...] = ()
    chainer: bool | None = True
    note: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def run(script: str, arguments: str = "", lines: int = 0) -> tuple[Step, ...]:
    """A row's only step."""
    return (Step(script, arguments, lines=lines),)


MNIST = "mnist/train_mnist"
SMALL = "-e 2 -u 20"
PLOT, IMAGE = ("matplotlib",), ("PIL",)
PTB = "--test -u 12 -e 20 -b 4 -l 5"
WORDS = "--test -u 8 -e 3 -b 20 -w 2"
SEQUENCES = ("train.src train.tgt vocab.src vocab.tgt --validation-source valid.src --validation-target valid.tgt "
             "-u 8 -l 2 -e 4 -b 10 --log-interval 4 --validation-interval 12")
IMAGENET = "list.txt list.txt -R . -B 2 -b 2 -E 1 -j 1 --test -a"
STATIC = "static_graph_optimizations"
NATIVE = "needs ChainerX, which the Chainer of the comparison was built without"
SAME = "; prints Chainer's numbers on `@numpy`"
NCCL = "needs NCCL on Chainer"
HALF = "Adam's `eps` is 0 in half precision: not a number after some steps"
SCHEDULES = "Chainer's static schedules give other numbers than its define-by-run; Kusari's give the same"
CAPTIONS = "--mscoco-root . --max-iters 2 --batch-size 2 --val-keep-quantity 6 --val-iter 2 --snapshot-iter 2 --rnn"

ROWS = (
    Row("glance", run("glance/glance.py"), (data.mushrooms,), needs=PLOT),
    Row("mnist, resumed, and inference", (
        Step(f"{MNIST}.py", SMALL),
        Step(f"{MNIST}.py", "-e 3 -u 20 -r result/snapshot_iter_60"),
        Step(f"{MNIST}.py", "-e 4 -u 20 --autoload"),
        Step("mnist/inference.py", "-u 20 -s result/snapshot_iter_120")), (data.mnist,), tolerance=3e-2, needs=PLOT,
        note="Kusari's snapshots keep NumPy's generator: the second epoch after resuming has another order"),
    Row("mnist custom loop", run(f"{MNIST}_custom_loop.py", SMALL), (data.mnist,), needs=PLOT),
    Row("mnist data parallel", run(f"{MNIST}_data_parallel.py", f"{SMALL} -d @numpy -D @numpy"), (data.mnist,),
        needs=PLOT),
    Row("mnist model parallel", run(f"{MNIST}_model_parallel.py", f"{SMALL} -d @numpy -D @numpy"), (data.mnist,),
        needs=PLOT),
    Row("mnist mixed16", run(f"{MNIST}.py", SMALL), (data.mnist,), needs=PLOT,
        environment={"CHAINER_DTYPE": "mixed16"}, note=HALF),
    Row("mnist float16", run(f"{MNIST}.py", SMALL), (data.mnist,), needs=PLOT,
        environment={"CHAINER_DTYPE": "float16"}, note=HALF),
    Row("mnist on @intel64", run(f"{MNIST}.py", f"{SMALL} -d @intel64"), (data.mnist,), needs=PLOT,
        chainer=False, note="needs iDeep on Chainer; NumPy here" + SAME),
    Row("mnist multiprocess", run(f"{MNIST}_data_parallel_updater.py", "-e 1 -u 20 -j 1 -d @numpy"), (data.mnist,),
        needs=PLOT, chainer=False, note=NCCL),
    Row("mnist on native", run(f"{MNIST}.py", f"{SMALL} -d native"), (data.mnist,), needs=PLOT,
        chainer=False, note=NATIVE + SAME),
    Row("cifar", run("cifar/train_cifar.py", "-e 1 -b 32"), (data.cifar,), tolerance=5e-3),
    Row("cifar100 with early stopping", run(
        "cifar/train_cifar.py", "--dataset cifar100 -e 1 -b 32 --early-stopping validation/main/loss"),
        (data.cifar,), tolerance=5e-3),
    Row("cifar custom loop", run("cifar/train_cifar_custom_loop.py", "-e 1 -b 32"), (data.cifar,), tolerance=5e-3),
    Row("dcgan", run("dcgan/train_dcgan.py", "-e 2 -b 16 --display_interval 1 --snapshot_interval 8"), (data.cifar,),
        tolerance=5e-3, needs=IMAGE, note="rounding: with `CHAINER_DTYPE=float64` all printed digits are equal"),
    Row("dcgan of pictures", run("dcgan/train_dcgan.py", "-e 1 -b 20 --display_interval 1 -i pictures"),
        (data.many_pictures,), tolerance=1e-3, needs=IMAGE),
    Row("ptb, and text generated", (
        Step("ptb/train_ptb.py", PTB), Step("ptb/gentxt.py", "-m model.npz -p w3 -u 12 --length 8")), (data.ptb,)),
    Row("ptb custom loop", run("ptb/train_ptb_custom_loop.py", PTB), (data.ptb,)),
    Row("word2vec skip-gram, and search", (
        Step("word2vec/train_word2vec.py", f"{WORDS} -m skipgram -o hsm"),
        Step("word2vec/search.py", stdin="w1\nw2\nnone\n")), (data.ptb,)),
    Row("word2vec negative sampling", run("word2vec/train_word2vec.py", f"{WORDS} -m skipgram -o ns"), (data.ptb,)),
    Row("word2vec bag of words", run("word2vec/train_word2vec.py", f"{WORDS} -m cbow -o original"), (data.ptb,)),
    Row("seq2seq", run("seq2seq/seq2seq.py", SEQUENCES), (data.parallel_texts,)),
    Row("seq2seq of text datasets", run("seq2seq/seq2seq.py", f"{SEQUENCES} --use-dataset-api"),
        (data.parallel_texts,)),
    Row("vae", run("vae/train_vae.py", "-e 2 --test --dim-h 20"), (data.mnist,), needs=PLOT),
    Row("vae binary", run("vae/train_vae.py", "-e 2 --test --dim-h 20 -k 3 --binary"), (data.mnist,), needs=PLOT),
    Row("wavenet, and sound generated", (
        Step("wavenet/train.py", "-b 2 -l 1024 -e 1 --n_loop 1 --n_layer 3 --r_channels 8 --s_channels 8 "
             "--a_channels 16 --display_interval 1 --snapshot_interval 5 --prefetch 1"),
        Step("wavenet/generate.py", "-i VCTK-Corpus/wav48/p1/0.wav -m result/snapshot_iter_5 --n_loop 1 --n_layer 3 "
             "--r_channels 8 --s_channels 8 --a_channels 16")), (data.sounds,), needs=PLOT),
    Row("sentiment", run("sentiment/train_sentiment.py", "--test -e 4 -p 2 -b 5 -u 6"), (data.trees,)),
    Row("sentiment in minibatches", run("sentiment/train_recursive_minibatch.py", "--test -e 4 -p 2 -b 5 -u 6"),
        (data.trees,)),
    Row("sentiment's own tests", run("-m pytest", "sentiment/test_thin_stack.py -m 'not gpu'"), tolerance=None,
        note="pytest prints times"),
    Row("tagging", run("pos/postagging.py", "-e 12")),
    Row("memory network, and its test", (
        Step("memnn/train_memnn.py", "train.txt test.txt -e 2 -u 6 --sentence-repr bow"),
        Step("memnn/test_memnn.py", "model test.txt")), (data.stories,)),
    Row("memory network of positions", run("memnn/train_memnn.py", "train.txt test.txt -e 2 -u 6 --sentence-repr pe"),
        (data.stories,)),
    Row("captions nsteplstm", run("image_captioning/train.py", f"{CAPTIONS} nsteplstm --snapshot-iter 9"),
        (data.photographs, data.vgg16), needs=(*IMAGE, *PLOT)),
    Row("captions lstm, and predicted", (
        Step("image_captioning/train.py", f"{CAPTIONS} lstm --max-caption-length 6"),
        Step("image_captioning/predict.py", "--img 0.png --model result/model_2 --mscoco-root . --rnn lstm "
             "--max-caption-length 4")), (data.photographs, data.vgg16), needs=(*IMAGE, *PLOT)),
    *[Row(f"text classification {model}", (
        Step("text_classification/train_text_classifier.py",
             f"-e 2 -b 20 -u 8 --dataset {name} --model {model}"),
        Step("text_classification/run_text_classifier.py", "--model-setup result/args.json", stdin="w1 w2\n\n")),
        (data.classified_texts,), fails="NumPy", numpy=(2, 4),
        note="NumPy from 2.4 on refuses `int()` of an array of one element")
      for model, name in (("cnn", "TREC"), ("rnn", "TREC"), ("bow", "imdb.binary"))],
    *[Row(f"reinforcement {name}", run(f"reinforcement_learning/{script}.py",
                                       f"-e 6 --replay-start-size 30 -b 8 -u 8 {more}"))
      for name, script, more in (("dqn", "dqn_cartpole", ""), ("ddpg", "ddpg_pendulum", ""),
                                 ("double dqn", "dqn_cartpole", "--target-type double_dqn"))],
    Row("serialization", (Step("serialization/save.py"), Step("serialization/load.py")), tolerance=None,
        needs=("h5py",), note="Chainer writes the parameters of a link in the order of a set"),
    Row("static mnist", run(f"{STATIC}/mnist/train_mnist.py", f"{SMALL} -d -1"), (data.mnist,)),
    Row("static mnist with side effects", run(
        f"{STATIC}/mnist/train_mnist.py", f"{SMALL} -d -1 -m MLPSideEffect"), (data.mnist,)),
    Row("static mnist custom loop", run(f"{STATIC}/mnist/train_mnist_custom_loop.py", f"{SMALL} -d -1"),
        (data.mnist,)),
    Row("static cifar", run(f"{STATIC}/cifar/train_cifar.py", "-e 1 -b 32 -d -1"), (data.cifar,), tolerance=None,
        note=SCHEDULES),
    Row("static cifar custom loop", run(f"{STATIC}/cifar/train_cifar_custom_loop.py", "-e 1 -b 32 -d -1"),
        (data.cifar,), tolerance=None, note=SCHEDULES),
    Row("static ptb", run(f"{STATIC}/ptb/train_ptb_custom_loop.py", f"{PTB} -d -1"), (data.ptb,), fails="reset",
        chainer=False, note="the script calls a method that its iterator has not"),
    # Pictures are a pixel larger than the network's input: there is one way to cut it out. Fifty batch normalizations
    # of two pictures make a rounding four million times as large: float32 is some percent off after a step.
    # Chainer draws orders in the thread that reads ahead, at any time beside the draws of parameters and masks: it does
    # not come to that in the first step of a long epoch.
    *[Row(f"imagenet {name}", run("imagenet/train_imagenet.py", f"{IMAGENET} {name}{more}"),
          (partial(data.photographs, size=225),), tolerance=tolerance, needs=IMAGE)
      for name, tolerance, more in (
          ("googlenet", 1e-3, ""), ("resnet50", 1e-5, " --dtype float64"), ("resnext50", 1e-5, " --dtype float64"))],
    *[Row(f"imagenet {name}", run("imagenet/train_imagenet.py", f"long{IMAGENET} {name}{more}", lines=1),
          (partial(data.photographs, size=size),), tolerance=tolerance, needs=IMAGE)
      for name, size, tolerance, more in (
          ("nin", 228, 1e-4, ""), ("alex", 228, 1e-4, ""), ("googlenetbn", 225, 1e-5, " --dtype float64"))],
    Row("imagenet nin in float16", run("imagenet/train_imagenet.py", f"{IMAGENET} nin --dtype float16"),
        (partial(data.photographs, size=228),), tolerance=None, needs=IMAGE, chainer=None,
        note="Chainer works on it for minutes"),
    Row("imagenet mean", run("imagenet/compute_mean.py", "list.txt -R ."), (data.photographs,), needs=IMAGE),
    Row("imagenet resnet50_nhwc", run("imagenet/train_imagenet.py", f"{IMAGENET} resnet50_nhwc"),
        (partial(data.photographs, size=225),), needs=IMAGE, chainer=False, note="needs cuDNN on Chainer"),
    Row("imagenet multiprocess", run("imagenet/train_imagenet_data_parallel.py",
                                     "list.txt list.txt -R . -B 2 -b 2 -E 1 -j 1 --test -a nin -d @numpy"),
        (partial(data.photographs, size=228),), needs=IMAGE, chainer=False, note=NCCL),
    Row("pix2pix", run("pix2pix/train_facade.py", "-e 1 --display_interval 1", lines=4), (data.facades,),
        tolerance=5e-3, needs=IMAGE),
    Row("optuna", run("optuna/chainer_simple.py"), (data.mnist,)),
    Row("optuna with pruning", run("optuna/chainer_integration.py"), (data.mnist,)),
    Row("caffe_export", run("caffe_export/export.py", "-a googlenet -o out"), (data.googlenet,)),
    Row("modelzoo", run("modelzoo/evaluate_caffe_net.py", "list.txt alexnet small.caffemodel -b . -m mean.npy -B 2"),
        (data.photographs, data.caffe_network), needs=IMAGE),
    Row("onnx_chainer resnet50", run("../onnx_chainer/examples/resnet50/export.py", "-I 0.png -O onnx_model"),
        (data.photographs, data.chainercv_resnet50), needs=("chainercv", "onnx")),
    Row("chainerx mnist", run("../chainerx_cc/examples/mnist_py/train_mnist.py", "-E 1"), (data.packed_mnist,),
        chainer=None, note=NATIVE),
    Row("imagenet on native", run("imagenet/train_imagenet.py", f"{IMAGENET} nin -d native"),
        (partial(data.photographs, size=228),), needs=IMAGE, chainer=None, note=NATIVE),
    *[Row(f"chainermn {name}", (Step(f"{script}.py", arguments, ranks=ranks),), (maker,),
          needs=("mpi4py", *PLOT), fails=fails, chainer=not fails, note=note)
      for name, script, arguments, ranks, maker, fails, note in (
          ("mnist", "chainermn/mnist/train_mnist", "-e 2 -u 20", 2, data.mnist, "", ""),
          ("mnist pure_nccl", "chainermn/mnist/train_mnist", "-e 2 -u 20 --communicator pure_nccl", 2, data.mnist, "",
           "the script takes the communicator naive where it is given no GPU"),
          ("model parallel", "chainermn/mnist/train_mnist_model_parallel", "-e 2 -u 20", 2, data.mnist, "", ""),
          ("dual parallel", "chainermn/mnist/train_mnist_dual_parallel", "-e 2 -u 20", 4, data.mnist, "", ""),
          ("dcgan", "chainermn/dcgan/train_dcgan", "-e 1 -b 16 --display_interval 1 --snapshot_interval 8", 2,
           data.cifar, "", ""),
          ("cifar", "chainermn/cifar/train_cifar", "-e 1 -b 16 --communicator naive", 2, data.cifar,
           "as an integer", "its own mistake: a tuple for a number of labels"),
          ("parallel convolution", "chainermn/parallel_convolution/train", "-e 1 -b 16", 2, data.cifar,
           "x.shape[1] == W.shape[1]", "its own mistake: an attribute that the link sets itself"),
          ("imagenet", "chainermn/imagenet/train_imagenet",
           "list.txt list.txt -B 1 -b 1 -E 1 -j 1 --communicator naive", 2, data.photographs, "requires GPU",
           "it refuses to run without a GPU"),
          ("seq2seq", "chainermn/seq2seq/seq2seq", "-b 5 -u 8 -s 2e", 2, data.europarl, "finalize",
           "its own mistake: an evaluator without an iterator; the numbers before the end are equal"),
          ("seq2seq model parallel", "chainermn/seq2seq/seq2seq_mp1", "-b 5 -u 8 -s 2e", 2, data.europarl, "finalize",
           "its own mistakes: the same, and a broadcast to which each rank gives an object, at which Chainer stops"),
          ("optuna", "optuna/chainermn_simple", "study sqlite://", 2, data.mnist, "", ""),
          ("optuna with pruning", "optuna/chainermn_integration", "study sqlite://", 2, data.mnist, "", ""))],
    Row("chainerx imagenet", run("../chainerx_cc/examples/imagenet_py/train_imagenet.py",
                                 "list.txt list.txt -B 2 -b 2 -E 1 -j 1"),
        (partial(data.photographs, size=225),), needs=IMAGE, chainer=None, note=NATIVE),
)
