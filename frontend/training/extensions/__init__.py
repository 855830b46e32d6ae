"""Extensions of the training loop: evaluation, reports, snapshots, schedules of hyperparameters."""

from . import snapshot_writers
from ._snapshot import snapshot, snapshot_object
from .computational_graph import DumpGraph
from .evaluator import Evaluator
from .exponential_shift import ExponentialShift
from .fail_on_nonnumber import FailOnNonNumber
from .inverse_shift import InverseShift
from .linear_shift import LinearShift
from .log_report import LogReport
from .micro_average import MicroAverage
from .multistep_shift import MultistepShift
from .parameter_statistics import ParameterStatistics
from .plot_report import PlotReport
from .polynomial_shift import PolynomialShift
from .print_report import PrintReport
from .progress_bar import ProgressBar
from .step_shift import StepShift
from .value_observation import observe_lr, observe_value
from .variable_statistics_plot import VariableStatisticsPlot
from .variable_unchain import unchain_variables
from .warmup_shift import WarmupShift

dump_graph = DumpGraph  # its name before it was a class

__all__ = [
    "DumpGraph",
    "Evaluator",
    "ExponentialShift",
    "FailOnNonNumber",
    "InverseShift",
    "LinearShift",
    "LogReport",
    "MicroAverage",
    "MultistepShift",
    "ParameterStatistics",
    "PlotReport",
    "PolynomialShift",
    "PrintReport",
    "ProgressBar",
    "StepShift",
    "VariableStatisticsPlot",
    "WarmupShift",
    "dump_graph",
    "observe_lr",
    "observe_value",
    "snapshot",
    "snapshot_object",
    "snapshot_writers",
    "unchain_variables",
]
