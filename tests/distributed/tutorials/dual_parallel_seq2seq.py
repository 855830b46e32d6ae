"""The manual's sequence-to-sequence model: encoder and decoder on two ranks, pairs of ranks on parts of the data."""
import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import chainermn.functions
import chainermn.iterators
import chainermn.links
import numpy as np

N_VOCABULARY, EOS = 8, 0


class Encoder(chainer.Chain):
    def __init__(self, comm, n_layers, n_units):
        super().__init__(
            embed_x=L.EmbedID(N_VOCABULARY, n_units),
            # Corresponding decoder LSTM will be invoked on process 1.
            mn_encoder=chainermn.links.create_multi_node_n_step_rnn(
                L.NStepLSTM(n_layers, n_units, n_units, 0.1), comm, rank_in=None, rank_out=1))

    def __call__(self, *inputs):
        xs = [self.embed_x(x[::-1]) for x in inputs[:len(inputs) // 2]]
        _, _, _, delegate_variable = self.mn_encoder(xs)
        return delegate_variable


class Decoder(chainer.Chain):
    def __init__(self, comm, n_layers, n_units):
        super().__init__(
            embed_y=L.EmbedID(N_VOCABULARY, n_units),
            # Corresponding encoder LSTM will be invoked on process 0.
            mn_decoder=chainermn.links.create_multi_node_n_step_rnn(
                L.NStepLSTM(n_layers, n_units, n_units, 0.1), comm, rank_in=0, rank_out=None),
            W=L.Linear(n_units, N_VOCABULARY))

    def __call__(self, *inputs):
        ys = inputs[len(inputs) // 2:]
        eos = np.array([EOS], np.int32)
        ys_in = [self.embed_y(F.concat([eos, y], axis=0)) for y in ys]
        ys_out = np.concatenate([np.concatenate([y, eos]) for y in ys])
        _, _, os, _ = self.mn_decoder(ys_in)
        loss = F.softmax_cross_entropy(self.W(F.concat(os, axis=0)), ys_out)
        chainer.report({"loss": loss}, self)
        return loss


def convert(batch, device):
    return tuple([x for x, _ in batch] + [y for _, y in batch])


def main():
    comm = chainermn.create_communicator("naive")
    data_comm = comm.split(comm.rank % 2, comm.rank)  # ranks with the same half of the model
    model_comm = comm.split(comm.rank // 2, comm.rank)  # the two halves of one model
    random = np.random.RandomState(3)
    lines = [random.randint(1, N_VOCABULARY, random.randint(2, 5)).astype(np.int32) for _ in range(48)]
    data = [(x, x) for x in lines]  # to be repeated
    kind = Encoder if model_comm.rank == 0 else Decoder
    model = kind(model_comm, 1, 24)
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(0.02), data_comm)
    optimizer.setup(model)
    part = chainermn.scatter_dataset(data if data_comm.rank == 0 else None, data_comm, seed=0)
    iterator = chainermn.iterators.create_multi_node_iterator(
        chainer.iterators.SerialIterator(part, 12), model_comm)
    updater = chainer.training.StandardUpdater(iterator, optimizer, converter=convert)
    losses = []

    def note(trainer):
        losses.append(float(trainer.observation["main/loss"].array))
    trainer = chainer.training.Trainer(updater, (80, "iteration"), out="unused")
    if model_comm.rank == 1:
        trainer.extend(note, trigger=(1, "iteration"))
    trainer.run()
    same = data_comm.gather_obj([p.array.tobytes() for _, p in sorted(model.namedparams())])
    assert same is None or all(each == same[0] for each in same)
    every = comm.gather_obj(losses)
    if comm.rank == 0:
        assert every[1][-1] < 0.6 * every[1][0], every[1]
        print("trained")


if __name__ == "__main__":
    main()
