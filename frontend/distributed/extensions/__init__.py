"""Extensions of trainers that run on several ranks."""
from .allreduce_persistent import AllreducePersistent
from .checkpoint import create_multi_node_checkpointer
from .multi_node_early_stopping_trigger import MultiNodeEarlyStoppingTrigger
from .multi_node_evaluator import GenericMultiNodeEvaluator, create_multi_node_evaluator
from .multi_node_snapshot import multi_node_snapshot
from .observation_aggregator import ObservationAggregator

MultiNodeEarlyStopping = MultiNodeEarlyStoppingTrigger

__all__ = ["AllreducePersistent", "GenericMultiNodeEvaluator", "MultiNodeEarlyStopping",
           "MultiNodeEarlyStoppingTrigger", "ObservationAggregator", "create_multi_node_checkpointer",
           "create_multi_node_evaluator", "multi_node_snapshot"]
