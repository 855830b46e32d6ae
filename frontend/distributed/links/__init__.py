"""Links that communicate."""
from .batch_normalization import MultiNodeBatchNormalization
from .create_mnbn_model import create_mnbn_model
from .multi_node_chain_list import MultiNodeChainList
from .n_step_rnn import create_multi_node_n_step_rnn

__all__ = ["MultiNodeBatchNormalization", "MultiNodeChainList", "create_mnbn_model", "create_multi_node_n_step_rnn"]
