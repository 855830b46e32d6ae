"""Models that make data: adversarial networks, flows, autoencoders."""

from __future__ import annotations

from typing import Any

from .rows import Case, images, itself, mean_square, of_output, row, words


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


@row("crcrpar/chainer-VAE", "variational autoencoder")
def vae() -> Case:
    from net import VAE
    return Case(VAE(64, 4, 32), itself, lambda r: (r.randint(0, 2, (16, 64)).astype("f"),))


@row("dhgrs/chainer-VQ-VAE", "vectors of a codebook, decoded by a WaveNet")
def vq_vae() -> Case:
    import chainer.functions as F
    from net import VAE, ConditionEmbed, Encoder
    from WaveNet import WaveNet
    decoder = WaveNet(n_loop=1, n_layer=3, filter_size=2, input_dim=16, residual_channels=8, dilated_channels=8,
                      skip_channels=8, quantize=16, use_logistic=False, n_mixture=6, log_scale_min=-40,
                      condition_dim=12, dropout_zero_rate=0)
    model = VAE(Encoder(8), decoder, ConditionEmbed(3, 4, 8), 8, 5, 0.25, F.softmax_cross_entropy)
    return Case(model, lambda m, *args: sum(m(*args)), lambda r: (
        r.randn(2, 1, 128, 1).astype("f"), r.randn(2, 16, 128, 1).astype("f"), r.randint(0, 3, 2).astype("i"),
        r.randint(0, 16, (2, 128, 1)).astype("i")))


@row("raahii/mocogan-chainer", "GAN of videos: a generator and two discriminators, three optimizers")
def mocogan() -> Case:
    import chainer
    import chainer.functions as F
    from model.net import ImageDiscriminator, ImageGenerator, VideoDiscriminator
    model = chainer.ChainList(ImageGenerator(n_filters=4, video_len=16),
                              ImageDiscriminator(n_filters=4), VideoDiscriminator(n_filters=4))

    def made(m: Any, x: Any) -> Any:
        return m[0](len(x))[0].transpose(1, 2, 0, 3, 4)

    def of_generator(m: Any, x: Any) -> Any:
        fake = made(m, x)
        return F.mean(F.softplus(-m[1](fake[:, :, 0]))) + F.mean(F.softplus(-m[2](fake)))

    def of_pictures(m: Any, x: Any) -> Any:
        return F.mean(F.softplus(-m[1](x[:, :, 0]))) + F.mean(F.softplus(m[1](made(m, x)[:, :, 0])))

    def of_videos(m: Any, x: Any) -> Any:
        return F.mean(F.softplus(-m[2](x))) + F.mean(F.softplus(m[2](made(m, x))))
    return Case(model, (of_generator, of_pictures, of_videos), images(2, 3, 16, 64, 64))


@row("pfnet-research/hyperbolic_wrapped_distribution", "embeddings in a hyperbolic space, normal distributions wrapped")
def hyperbolic() -> Case:
    from lib.models.embedding import EmbeddingLoss, make_encoder
    return Case(EmbeddingLoss(make_encoder(20, "nagano", n_latent=4)), itself, lambda r: (words(r, 20, 8, 3),))


@row("pfnet-research/chainer-disentanglement-lib", "disentangled factors: penalty on the covariance of codes")
def disentangled() -> Case:
    from net.dipvae import DIPVAE
    return Case(DIPVAE(), lambda m, x: m.get_loss_func()(x), lambda r: (r.randint(0, 2, (4, 3, 64, 64)).astype("f"),))


@row("chainer/models", "mixture density network", "mdn")
def mixtures() -> Case:
    from mdn import MDN
    return Case(MDN(2, 16, 3), lambda m, x, y: m.negative_log_likelihood(x, y), lambda r: (
        r.randn(16, 2).astype("f"), r.randn(16, 2).astype("f")))
