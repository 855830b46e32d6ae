"""Gradients and whole training steps as ONNX graphs of plain operators."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kusari.ir import Builder, Graph

from ..backprop import grad
from ..configuration import using_config
from ..link import Link
from ..progress import Work
from ..static.arrays.bindings import ParameterBinding
from ..static.errors import NotCompilable
from ..static.gradients.differentiate import ZEROS, differentiate
from ..static.step.update import UpdateProgram
from ..static.trace.recording import NotStatic
from ..static.trees import flatten
from ..tape import recording
from ..variable import Variable
from .errors import ExportError
from .exporter import Export, export
from .files import save
from .hyperparameters import CLOCK, Inputs
from .origin import origins
from .trace import Call, Using, binding_names, call_of, output_names, roots, states_kept, to_array, unchanged
from .verify import check, compare_arrays, draws, runner, tolerances_of
from .versions import checked_opset, require_onnx

NEW = "new"    # "/l1/W" is a parameter before the step, "new/l1/W" the same after it
STEPS = 3      # as many steps are verified
NOISE = 1e-5   # gradients below this part of the greatest are taken for rounding


def export_gradient(model: Any, args: Any, filename: Any = None, inputs: bool = False, **options: Any) -> Any:
    """Export a model together with its gradients.

    The outputs are those of the model, then the gradients of its parameters (``grad/l1/W``), of the sum of all outputs:
    of a loss, its gradients. Plain operators, for any runtime.

    Args:
        model: As of `export`; its parameters are those of the link that it is or that it holds.
        args: As of `export`.
        filename: As of `export`.
        inputs: Whether to give the gradients of floating-point inputs, too (``grad/Input_0``).
        **options: Further arguments of `export`.

    Returns:
        onnx.ModelProto: As `export`.

    Raises:
        ExportError: As `export`; or nothing has a gradient.

    Example:
        >>> import numpy as np, kusari, kusari.functions as F, kusari.links as L, kusari.onnx
        >>> x, t = np.zeros((2, 4), np.float32), np.zeros(2, np.int32)
        >>> model = kusari.links.Classifier(L.Linear(4, 3))
        >>> made = kusari.onnx.export_gradient(model, (x, t))
        >>> [output.name for output in made.graph.output]
        ['Output_0', 'grad/predictor/W', 'grad/predictor/b']
    """
    require_onnx()
    names = options.pop("output_names", None)
    input_names = call_of(model, args, False, options.get("input_names")).names
    held = tuple(roots(model))

    def gradients(*args: Any, **kwargs: Any) -> dict[str, Any]:
        given: list[Any] = []
        flatten((args, kwargs), given)
        with using_config("enable_backprop", True):
            result = model(*args, **kwargs)
            leaves: list[Any] = []
            flatten(result, leaves)
            wanted: dict[str, Variable] = {}
            for root in held:
                wanted.update({f"grad{path}": p for path, p in root.namedparams() if p.requires_grad})
            if inputs:
                wanted.update({f"grad/{name}": x for name, x in zip(input_names, given, strict=True)
                               if x.dtype.kind == "f"})
            ys = [y for y in leaves if isinstance(y, Variable) and y.requires_grad and y.dtype.kind == "f"]
            if not ys or not wanted:
                raise ExportError("no output depends on a parameter"
                                  + ("" if inputs else "; inputs=True gives the gradients of inputs"))
            found = grad(ys, list(wanted.values()))
        outputs = dict(zip(output_names(result, names), leaves, strict=True))
        outputs.update((name, g) for name, g in zip(wanted, found, strict=True) if g is not None)
        if len(outputs) == len(leaves):
            raise ExportError("the outputs depend on nothing that has a gradient")
        return outputs
    return export(Using(gradients, held), args, filename, **options)


def export_train_step(model: Any, lossfun: Callable[..., Any], optimizer: Any, args: Any, filename: Any = None, *,
                      graph_name: str = "TrainStep", save_text: bool = False, opset_version: int | None = None,
                      input_names: Any = None, verify: bool = True, external_data_threshold: int | None = None) -> Any:
    """Export ``optimizer.update(lossfun, *args)``: forward, loss, backward and update as one graph of plain operators.

    The inputs are the arguments, and everything that the step changes: parameters (``/l1/W``), their optimizer states
    (``/l1/W/m``), running statistics (``/bn/avg_mean``), the number of updates (``/t``, where the optimizer uses it).
    Hyperparameters are inputs too, float64 numbers for a scheduler to set: ``hyper/lr``, and ``hyper/WeightDecay/rate``
    of hooks, and ``hyper/l1/W/lr`` where a parameter has its own; others, on which the arithmetic branches, like Adam's
    ``amsgrad``, are constants. All of these have initializers, their present values, so the first step needs the
    arguments only. The outputs are the loss and the new values (``new/l1/W``), to be given to the next step.

    Args:
        model: The link with the parameters, which gives them their names.
        lossfun: The function that returns the loss, one number: a link or a function.
        optimizer: An optimizer that is set up, whose rules and hooks state their arithmetic (all of Kusari's that are
            elementwise).
        args: Arguments of ``lossfun``, as of `export`.
        filename: As of `export`, like all other arguments.
        verify: Whether to check the model, and compare some steps with define-by-run. Model and optimizer stay as
            they are. Of steps that draw random numbers nothing but types is compared.

    Returns:
        onnx.ModelProto: The model.

    Raises:
        ExportError: As `export`; or the optimizer's arithmetic is not known.

    Example:
        >>> import numpy as np, kusari, kusari.functions as F, kusari.links as L, kusari.onnx
        >>> net = L.Linear(4, 3)
        >>> optimizer = kusari.optimizers.MomentumSGD(lr=0.1).setup(net)
        >>> x, t = np.zeros((2, 4), np.float32), np.zeros(2, np.int32)
        >>> def loss(x, t):
        ...     return F.softmax_cross_entropy(net(x), t)
        >>> made = kusari.onnx.export_train_step(net, loss, optimizer, (x, t))
        >>> [output.name for output in made.graph.output]
        ['loss', 'new/W', 'new/W/v', 'new/b', 'new/b/v']
    """
    require_onnx()
    if not isinstance(model, Link):
        raise ExportError(f"model must be the link with the parameters, got {type(model).__name__}")
    if optimizer.target is None:
        raise ExportError("the optimizer has no target; call optimizer.setup(model) first")
    opset = checked_opset(opset_version)
    held = tuple({id(link): link for link in (model, optimizer.target, *roots(lossfun))}.values())
    call = call_of(Using(lossfun, held), args, True, input_names)
    with (Work("exporting", graph_name if filename is None else str(filename)) as work,
          unchanged(call.model, generator=False), _kept(optimizer)):
        work.step("tracing")
        writer = _TrainStep(call, opset, optimizer)
        made = writer.model(True, graph_name)
        if verify:
            work.step("verifying")
            check(made)
            _verify(made, call, optimizer, {name: writer.changing[name] for name in writer.states})
    if filename is not None:
        save(made, filename, save_text, external_data_threshold)
    return made


class _TrainStep(Export):
    """One training step on its way to a model."""

    trains = True

    def __init__(self, call: Call, opset: int, optimizer: Any) -> None:
        self.optimizer = optimizer
        super().__init__(call, opset, {}, {}, ["loss"])
        changed = self.g.writes
        self.states = sorted(name for name in self.bound if name in changed)
        self.made += [changed[name] for name in self.states]
        self.output_names = ("loss", *(NEW + name for name in self.states))
        for clash in {*self.output_names} & {*call.names}:
            raise ExportError(f"the input name {clash!r} is the name of an output; choose another")

    def graph(self) -> tuple[Graph, Sequence[Any], list[str]]:
        """Append backward and update to the recorded forward."""
        rec = self.recording
        graph = rec.graph
        if len(graph.outputs) != 1 or graph.outputs[0].tensor.size != 1 or rec.differentiable != (True,):
            raise ExportError("lossfun must return the loss and nothing else, one number that depends on the "
                              f"parameters; it returned {self.result!r}")
        try:
            program = UpdateProgram(self.optimizer, with_hooks=True, anywhere=True)
            values = {id(p): v for v, p in rec.parameters}
            wanted = [p for p in program.params if id(p) in values and p.requires_grad]
            with origins([]):
                backward = differentiate(rec, (True,), tuple(values[id(p)] for p in wanted), ZEROS)
        except NotCompilable as error:
            raise ExportError(f"the optimizer cannot be exported: {error}") from None
        except NotStatic as error:
            raise ExportError(f"{error.fault.where}: the step cannot be exported: {error.fault.reason}") from None
        grads = {id(p): g for p, g in zip(wanted, backward.grads, strict=True) if g is not None}
        names = binding_names(self.call.model, rec)
        paths = {id(b.parameter): n for n, b in zip(names, rec.bindings, strict=True)
                 if isinstance(b, ParameterBinding)}
        for p in program.members if not program.hooks else program.params:
            if id(p) not in grads:
                raise ExportError(f"the loss does not depend on the parameter {p.name!r} of shape {p.shape}; disable "
                                  "its update, or set the optimizer up on what the loss uses")
        given = Inputs(program, paths)
        b = Builder("optimizer")
        hyper, states, _ = program.emit(b, grads, values)
        before = given.nodes(hyper)
        for clock, _ in given.clocks:
            b.assign(clock, b.call("add", clock, 1))
        seed = backward.seeds[0]
        assert seed is not None
        whole = Graph(
            f"{graph.name}_step", graph.inputs, (*graph.params, *(v for v, _ in states), *(v for v, _ in given.clocks),
                                           *(v for _, v, _ in given.entries)),
            (*graph.consts, *backward.consts, (seed, np.ones(seed.shape, seed.tensor.dtype))),
            (*graph.nodes, *backward.nodes, *before, *b.nodes), graph.outputs)
        names += [f"{paths[id(s.parameter)]}/{s.name}" for _, s in states]
        names += [CLOCK if len(given.clocks) == 1 else f"{CLOCK}{i}" for i in range(len(given.clocks))]
        bindings = (*rec.bindings, *(s for _, s in states), *(clock for _, clock in given.clocks))
        self.changing = dict(zip(names, bindings, strict=True))
        self.settings = [title for title, _, _ in given.entries]
        return whole, (*bindings, *(e for _, _, e in given.entries)), names + self.settings


@contextmanager
def _kept(optimizer: Any) -> Iterator[None]:
    """Context after which parameters, gradients and the optimizer are what they were."""
    before = [(p, None if p._array is None else p._array.copy(), p._grad, p._grad_var, p.update_rule)
              for p in optimizer.target.params()]
    rules = [(rule, rule.t, None if rule._state is None else copy.deepcopy(rule._state))
             for *_, rule in before if rule is not None]
    t, epoch = optimizer.t, optimizer.epoch
    try:
        yield
    finally:
        optimizer.t, optimizer.epoch = t, epoch
        for p, array, p._grad, p._grad_var, _ in before:
            if array is not None:
                p._array[...] = array
        for rule, rule.t, state in rules:
            rule._state = state


def _verify(made: Any, call: Call, optimizer: Any, states: dict[str, Any]) -> None:
    """Raise ``MismatchError`` unless the model does what some steps of define-by-run do, each from the same state."""
    run = runner(made)
    if run is None:
        return
    random, tolerances = draws(made), tolerances_of(made)
    losses: list[Any] = []

    def loss() -> Any:
        with states_kept(call.model):
            losses.append(call.apply(call.variables(), True))
        return losses[-1]
    data = dict(zip(call.names, call.arrays, strict=True))
    with _kept(optimizer), unchanged(call.model), recording(None), np.errstate(all="ignore"), using_config(
            "use_static_graph", False):
        for step in range(STEPS):
            actual = run({**data, **{name: to_array(b.array()) for name, b in states.items()}})
            if actual is None:
                return
            optimizer.update(loss)
            expected = [losses.pop().array, *(b.array() for b in states.values())]
            grads = {id(p): to_array(p.grad) for p in optimizer.target.params() if p.grad is not None}
            noise = NOISE * max((float(np.abs(g).max(initial=0)) for g in grads.values()), default=0.0)
            for name, a, e, binding in zip(
                    ("loss", *(NEW + name for name in states)), actual, map(to_array, expected),
                    (None, *states.values()), strict=True):
                g = grads.get(id(getattr(binding, "parameter", None)))
                if g is not None and g.shape == e.shape:
                    # Where a gradient is nothing but rounding, Adam and its like make steps of any sign from it.
                    a = np.where(np.abs(g) > noise, a, e)
                compare_arrays(name, np.asarray(a), e, f"step {step + 1}", values=not random,
                               tolerance=tolerances[name])
