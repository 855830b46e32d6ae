"""Eight well-known models, and how they become ONNX files whose batch size is open.

    python examples/onnx_models.py --model resnet50 --out resnet50.onnx
    cd examples; python -m kusari export onnx_models:vgg16 --input 1,3,224,224 --dynamic batch --out vgg16.onnx

The second form needs no script at all: any function that makes a model will do.
"""

import argparse

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L


class MLP(kusari.Chain):
    """A multilayer perceptron for digits."""

    def __init__(self, n_units=1000, n_out=10):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(784, n_units)
            self.l2 = L.Linear(n_units, n_units)
            self.l3 = L.Linear(n_units, n_out)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


class LeNet(kusari.Chain):
    """LeCun et al., Gradient-based learning applied to document recognition, 1998."""

    def __init__(self, n_out=10):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(1, 6, 5, pad=2)
            self.conv2 = L.Convolution2D(6, 16, 5)
            self.fc1 = L.Linear(400, 120)
            self.fc2 = L.Linear(120, 84)
            self.fc3 = L.Linear(84, n_out)

    def forward(self, x):
        h = F.average_pooling_2d(F.tanh(self.conv1(x)), 2)
        h = F.average_pooling_2d(F.tanh(self.conv2(h)), 2)
        return self.fc3(F.tanh(self.fc2(F.tanh(self.fc1(h)))))


class VGG16(kusari.Chain):
    """Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, 2014."""

    def __init__(self, width=64, n_units=4096, n_out=1000, size=224):
        super().__init__()
        channels = 3
        with self.init_scope():
            self.blocks = kusari.ChainList()
            for depth, factor in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)):
                block = kusari.ChainList()
                for _ in range(depth):
                    block.append(L.Convolution2D(channels, width * factor, 3, pad=1))
                    channels = width * factor
                self.blocks.append(block)
            self.fc6 = L.Linear(channels * (size // 32) ** 2, n_units)
            self.fc7 = L.Linear(n_units, n_units)
            self.fc8 = L.Linear(n_units, n_out)

    def forward(self, x):
        for block in self.blocks:
            for convolution in block:
                x = F.relu(convolution(x))
            x = F.max_pooling_2d(x, 2)
        x = F.dropout(F.relu(self.fc6(x)))
        x = F.dropout(F.relu(self.fc7(x)))
        return self.fc8(x)


class Bottleneck(kusari.Chain):
    """Three convolutions around which the input passes by."""

    def __init__(self, n_in, n_mid, stride):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(n_in, n_mid, 1, stride, nobias=True)
            self.bn1 = L.BatchNormalization(n_mid)
            self.conv2 = L.Convolution2D(n_mid, n_mid, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(n_mid)
            self.conv3 = L.Convolution2D(n_mid, 4 * n_mid, 1, nobias=True)
            self.bn3 = L.BatchNormalization(4 * n_mid)
            if stride > 1 or n_in != 4 * n_mid:
                self.conv4 = L.Convolution2D(n_in, 4 * n_mid, 1, stride, nobias=True)
                self.bn4 = L.BatchNormalization(4 * n_mid)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (self.bn4(self.conv4(x)) if hasattr(self, "conv4") else x))


class ResNet50(kusari.Chain):
    """He et al., Deep residual learning for image recognition, 2015."""

    def __init__(self, width=64, n_out=1000):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, width, 7, 2, 3, nobias=True)
            self.bn1 = L.BatchNormalization(width)
            self.blocks = kusari.ChainList()
            n_in = width
            for depth, n_mid, stride in ((3, width, 1), (4, 2 * width, 2), (6, 4 * width, 2), (3, 8 * width, 2)):
                for i in range(depth):
                    self.blocks.append(Bottleneck(n_in, n_mid, stride if i == 0 else 1))
                    n_in = 4 * n_mid
            self.fc = L.Linear(n_in, n_out)

    def forward(self, x):
        h = F.max_pooling_2d(F.relu(self.bn1(self.conv1(x))), 3, 2)
        for block in self.blocks:
            h = block(h)
        return self.fc(F.average_pooling_2d(h, h.shape[2:]))


class LanguageModel(kusari.Chain):
    """Two layers of LSTM over words, with one matrix for reading and writing them; Press and Wolf, 2016."""

    def __init__(self, n_words=10000, n_units=650):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_words, n_units)
            self.lstm = L.NStepLSTM(2, n_units, n_units, 0.5)
            self.bias = kusari.Parameter(0, n_words)
        self.n_units = n_units

    def forward(self, words):
        batch, steps = words.shape
        xs = F.separate(F.dropout(self.embed(words)), axis=0)
        _, _, ys = self.lstm(None, None, xs)
        h = F.reshape(F.stack(ys), (-1, self.n_units))
        return F.reshape(F.linear(h, self.embed.W, self.bias), (batch, steps, -1))


class Transformer(kusari.Chain):
    """One encoder block with the normalization in front; Vaswani et al., Attention is all you need, 2017."""

    def __init__(self, n_units=512, n_heads=8):
        super().__init__()
        self.n_heads = n_heads
        with self.init_scope():
            self.norm1 = L.LayerNormalization(n_units)
            self.qkv = L.Linear(n_units, 3 * n_units)
            self.out = L.Linear(n_units, n_units)
            self.norm2 = L.LayerNormalization(n_units)
            self.wide = L.Linear(n_units, 4 * n_units)
            self.narrow = L.Linear(4 * n_units, n_units)

    def attend(self, x):
        n, length, units = x.shape
        heads = F.reshape(self.qkv(x, n_batch_axes=2), (n, length, 3, self.n_heads, units // self.n_heads))
        q, k, v = F.separate(F.transpose(heads, (2, 0, 3, 1, 4)), axis=0)
        scores = F.matmul(q, k, transb=True) * (units // self.n_heads) ** -0.5
        h = F.matmul(F.softmax(scores, axis=3), v)
        return self.out(F.reshape(F.transpose(h, (0, 2, 1, 3)), (n, length, units)), n_batch_axes=2)

    def normalized(self, norm, x):
        return F.reshape(norm(F.reshape(x, (-1, x.shape[2]))), x.shape)

    def forward(self, x):
        x = x + self.attend(self.normalized(self.norm1, x))
        h = self.wide(self.normalized(self.norm2, x), n_batch_axes=2)
        h = 0.5 * h * (1 + F.erf(h * 0.5 ** 0.5))
        return x + self.narrow(h, n_batch_axes=2)


class Generator(kusari.Chain):
    """Radford et al., Unsupervised representation learning with deep convolutional adversarial networks, 2015."""

    def __init__(self, n_hidden=100, width=512, bottom=4):
        super().__init__()
        self.shape = width, bottom, bottom
        with self.init_scope():
            self.l0 = L.Linear(n_hidden, width * bottom * bottom)
            self.bn0 = L.BatchNormalization(width * bottom * bottom)
            self.dc1 = L.Deconvolution2D(width, width // 2, 4, 2, 1)
            self.bn1 = L.BatchNormalization(width // 2)
            self.dc2 = L.Deconvolution2D(width // 2, width // 4, 4, 2, 1)
            self.bn2 = L.BatchNormalization(width // 4)
            self.dc3 = L.Deconvolution2D(width // 4, 3, 4, 2, 1)

    def forward(self, z):
        h = F.reshape(F.relu(self.bn0(self.l0(z))), (len(z), *self.shape))
        h = F.relu(self.bn1(self.dc1(h)))
        h = F.relu(self.bn2(self.dc2(h)))
        return F.sigmoid(self.dc3(h))


class VAE(kusari.Chain):
    """Kingma and Welling, Auto-encoding variational Bayes, 2013; reconstructs from the mean of its code."""

    def __init__(self, n_in=784, n_units=500, n_code=20):
        super().__init__()
        with self.init_scope():
            self.hidden = L.Linear(n_in, n_units)
            self.mean = L.Linear(n_units, n_code)
            self.ln_var = L.Linear(n_units, n_code)
            self.back = L.Linear(n_code, n_units)
            self.pixels = L.Linear(n_units, n_in)

    def forward(self, x):
        h = F.tanh(self.hidden(x))
        mean, ln_var = self.mean(h), self.ln_var(h)
        z = F.gaussian(mean, ln_var) if kusari.config.train else mean
        y = self.pixels(F.tanh(self.back(z)))
        return {"y": F.sigmoid(y), "mean": mean, "ln_var": ln_var,
                "kl": F.gaussian_kl_divergence(mean, ln_var) / len(x)}


MODELS = {
    # name: (what makes it, shape and dtype of its input)
    "mlp": (MLP, (1, 784), "float32"),
    "lenet": (LeNet, (1, 1, 28, 28), "float32"),
    "vgg16": (VGG16, (1, 3, 224, 224), "float32"),
    "resnet50": (ResNet50, (1, 3, 224, 224), "float32"),
    "language_model": (LanguageModel, (1, 35), "int32"),
    "transformer": (Transformer, (1, 16, 512), "float32"),
    "generator": (Generator, (1, 100), "float32"),
    "vae": (VAE, (1, 784), "float32"),
}

mlp, lenet, vgg16, resnet50 = MLP, LeNet, VGG16, ResNet50
language_model, transformer, generator, vae = LanguageModel, Transformer, Generator, VAE


def main():
    import kusari.onnx

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="lenet")
    parser.add_argument("--out", metavar="FILE", help="default: the model's name with .onnx")
    parser.add_argument("--opset", type=int)
    args = parser.parse_args()
    make, shape, dtype = MODELS[args.model]
    x = np.random.default_rng(0).uniform(0, 1, shape).astype(dtype)
    out = args.out or f"{args.model}.onnx"
    made = kusari.onnx.export(make(), {"x": x}, out, opset_version=args.opset, dynamic_shapes={"x": {0: "batch"}})
    print(f"{out}: {len(made.graph.node)} nodes, {len(made.graph.initializer)} arrays")


if __name__ == "__main__":
    main()
