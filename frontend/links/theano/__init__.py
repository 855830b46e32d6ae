"""The name of a link of Chainer's that is not here."""
