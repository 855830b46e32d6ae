"""Random chains: made from a seed, run define-by-run and static, compared, and made smaller when they differ.

A chain is a list of steps, written out as the Python source of a method. ``check(seed)`` is the whole test;
``python -m static.chains 17`` (in ``tests/``) shows the chain of seed 17, what differs, and the shortest chain that
still does; ``python -m static.chains 0 1000`` checks a thousand.
"""
from __future__ import annotations

import linecache
import sys
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from static import chain_ops
from static.chain_ops import OPS

import kusari
import kusari.functions as F
from kusari.optimizer_hooks import GradientClipping, WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD
from kusari.static import StaticGraphWarning, static_graph

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 17)
OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda: SGD(0.05), "MomentumSGD": lambda: MomentumSGD(0.02), "Adam": lambda: Adam(0.01, eps=1e-3)}
TOLERANCES = {1: 0.0, 2: 1e-2, 4: 3e-4, 8: 1e-10}  # by the bytes of a number, relative to the largest
# What keeps gradients of gradients from being had: effects, random numbers, functions that know no second derivative.
NOT_TWICE = ("noise", "opaque", "batch_norm", "detached", "binary", "unary", "unary_twice", "pooling", "padded_pooling",
             "lstm", "gru", "peephole")


@dataclass(frozen=True)
class Line:
    """``h5 = binary(c, r, h1, h3)``."""

    name: str
    op: str
    numbers: tuple[int, ...]
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """What happens in one call: shapes, modes, attributes, and what goes backward."""

    shapes: int                # which of the shape sets
    seed: int                  # of the data
    train: bool = True
    backprop: bool = True
    alpha: float = 1.0
    flag: bool = False
    dtype: str = "f4"          # of the floating point inputs
    outputs: tuple[int, ...] = (0,)  # that gradients start from
    clear: bool = True         # gradients, before the call
    twice: bool = False        # the chain is called a second time before the backward
    rate: float = 1.0          # by which the learning rate is multiplied before the call
    layout: str = "C"          # of the inputs: "C", "F", "strided" or "readonly"
    event: str = ""            # before the call: parameters are "replaced", "frozen" or "thawed", states "reset"
    penalty: bool = False      # the gradients of inputs are part of the loss


@dataclass(frozen=True)
class Spec:
    """All there is to know of a random chain."""

    seed: int
    inputs: tuple[bool, ...]   # whether each is a Variable that asks for its gradient
    shape_sets: tuple[tuple[tuple[int, ...], ...], ...]
    lines: tuple[Line, ...]
    results: tuple[str, ...]
    tree: str                  # what the method returns: "one", "tuple", "list" or "dict"
    dtype: str
    calls: tuple[Call, ...]
    optimizer: str | None
    hook: str                  # of the optimizer: "", "decay" or "clip"
    whole: bool                # whole steps: optimizer.update(chain.loss, ...)
    nested: int                # so many lines are in a static method of their own

    @property
    def stores(self) -> bool:
        """Whether the loss is stored in an attribute, too."""
        return self.seed % 4 == 1

    def source(self) -> str:
        """Return the class's methods as Python."""
        names = [f"x{i}" for i in range(len(self.inputs))]
        lines = [f"def forward(self, {', '.join(names)}, t, m):", "    c = O.Now(self, t, m)"]
        lines += [f"    {x} = F.cast({x}, self.dtype)" for x in names]
        for k, line in enumerate(self.lines):
            call = f"O.{line.op}({'self.' + line.name if OPS[line.op][2] else 'c'}, {line.numbers}, " \
                   f"{', '.join(line.operands)})"
            if k < self.nested and not OPS[line.op][2]:
                args = ", ".join(dict.fromkeys(line.operands))
                call = f"self.part_{line.name}({args}, t, m)"
            lines.append(f"    {line.name} = {call}")
        every = ", ".join(self.results)
        result = {"one": self.results[0], "tuple": f"{every},", "list": f"[{every}]",
                  "dict": "{" + ", ".join(f"'{i}': {y}" for i, y in enumerate(self.results)) + "}"}[self.tree]
        lines += [f"    return {result}", ""]
        for k, line in enumerate(self.lines):
            if k < self.nested and not OPS[line.op][2]:
                args = ", ".join(dict.fromkeys(line.operands))
                lines += [f"def part_{line.name}(self, {args}, t, m):", "    c = O.Now(self, t, m)",
                          f"    return O.{line.op}(c, {line.numbers}, {', '.join(line.operands)})", ""]
        lines += [f"def loss(self, {', '.join(names)}, t, m):", f"    ys = self.forward({', '.join(names)}, t, m)",
                  f"    {'self.last = ' if self.stores else ''}loss = total(ys)", "    return loss"]
        return "\n".join(lines)


def total(ys: Any, which: tuple[int, ...] | None = None) -> Any:
    """Add up the (chosen) results of a chain, each with other weights for its elements."""
    flat = list(ys.values()) if isinstance(ys, dict) else list(ys) if isinstance(ys, (list, tuple)) else [ys]
    if which is not None:
        flat = [flat[i] for i in which]
    loss: Any = None
    for k, y in enumerate(flat):
        part = F.cast(F.sum(F.sin(y + k)), np.float64) / max(1, y.size)
        loss = part if loss is None else loss + part
    return loss


def generate(seed: int) -> Spec:
    """Draw a chain."""
    r = np.random.RandomState(seed)

    def chance(p: float) -> bool:
        return bool(r.rand() < p)

    inputs = tuple([chance(0.5) for _ in range(r.randint(1, 4))])
    ranks = [r.choice([1, 2, 2, 2, 3, 3, 4]) for _ in inputs]
    dtype = "f8" if chance(0.25) else "f4"
    sets = tuple([tuple([tuple([int(SIZES[r.randint(0 if chance(0.1) else 1, len(SIZES) - 4 * (n > 2))])
                                for _ in range(n)]) for n in ranks]) for _ in range(2)])
    names = [f"x{i}" for i in range(len(inputs))]
    lines: list[Line] = []
    table = list(OPS)
    for k in range(int(r.randint(2, 13))):
        name = table[r.randint(len(table))]
        near = names[-3:] if chance(0.6) else names
        operands = tuple([str(near[r.randint(len(near))]) for _ in range(OPS[name][0])])
        lines.append(Line(f"h{k}", name, tuple(r.randint(0, 1000, 4).tolist()), operands))
        names.append(f"h{k}")
    used = {x for line in lines for x in line.operands}
    ends = [line.name for line in lines if line.name not in used]
    tree = str(r.choice(["one", "tuple", "list", "dict"]))
    if tree == "one":
        results = (ends[-1],)
    else:
        pool = ends + [str(x) for x in r.choice(names, 1)]
        results = tuple(dict.fromkeys(str(x) for x in r.choice(pool, int(r.randint(1, 4)))))
    penalized = any(inputs) and chance(0.3) and not any(line.op in NOT_TWICE for line in lines)
    base = Call(0, 0)
    calls: list[Call] = []
    for k in range(int(r.randint(3, 7))):
        if k >= 2 and chance(0.5):
            change = str(r.choice(["shapes", "train", "alpha", "flag", "dtype", "backprop"]))
            base = replace(base, **{
                "shapes": {"shapes": 1 - base.shapes}, "train": {"train": not base.train},
                "alpha": {"alpha": float(r.choice([0.5, 2.0, -1.5]))}, "flag": {"flag": not base.flag},
                "dtype": {"dtype": str(r.choice(["f2", "f4", "f8"]))}, "backprop": {"backprop": not base.backprop},
            }[change])
        outputs = tuple(sorted(set(r.randint(0, len(results), 2).tolist())))
        calls.append(replace(base, seed=k, outputs=outputs, clear=chance(0.8), twice=chance(0.15),
                             rate=0.5 if chance(0.2) else 1.0, penalty=penalized and chance(0.3),
                             layout=str(r.choice(["F", "strided", "readonly"])) if chance(0.25) else "C",
                             event=str(r.choice(["replaced", "frozen", "thawed", "reset"])) if chance(0.2) else ""))
    optimizer = str(r.choice(list(OPTIMIZERS))) if chance(0.5) else None
    return Spec(seed, inputs, sets, tuple(lines), results, tree, dtype, tuple(calls), optimizer,
                str(r.choice(["", "", "decay", "clip"])),
                whole=optimizer is not None and chance(0.5), nested=int(r.randint(0, 4)) if chance(0.3) else 0)


class Base(kusari.Chain):
    """What random chains have in common."""

    alpha: float
    flag: bool

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.dtype = np.dtype(spec.dtype)
        self.setting = {"shift": 0.25}
        with self.init_scope(), kusari.using_config("dtype", self.dtype):
            for line in spec.lines:
                make = OPS[line.op][2]
                if make is not None:
                    setattr(self, line.name, make())


def build(spec: Spec, noise: float = 0.0) -> Any:
    """Make the chain; ``noise`` is the relative rounding error to simulate after every line."""
    source = spec.source()
    if noise:
        out: list[str] = []
        for text in source.splitlines():
            out.append(text)
            if text.startswith("    h"):
                name = text.split()[0]
                out.append(f"    {name} = jitter({name})")
        source = "\n".join(out)
    rs = np.random.RandomState(7)

    def jitter(y: Any) -> Any:
        if y.dtype.kind != "f":
            return y
        return y * (1 + noise * rs.uniform(-1, 1, y.shape)).astype(y.dtype)

    scope: dict[str, Any] = {"O": chain_ops, "F": F, "jitter": jitter, "total": total, "__name__": "random_chain"}
    name = f"<chain {spec.seed}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # where tracing finds it
    exec(compile(source, name, "exec"), scope)
    methods = {k: static_graph(f) for k, f in scope.items() if k in ("forward", "loss") or k.startswith("part_")}
    np.random.seed(spec.seed)
    return type("RandomChain", (Base,), methods)(spec)


def data(spec: Spec, call: Call) -> list[np.ndarray]:
    """Return the arrays of a call: the inputs, labels and a mask."""
    r = np.random.RandomState(1000 * spec.seed % 2**31 + call.seed)
    xs = [_laid_out(r.uniform(-2, 2, shape).astype(call.dtype), call.layout)
          for shape in spec.shape_sets[call.shapes]]
    n = 1 + sum(spec.shape_sets[call.shapes][0]) % 4
    return [*xs, r.randint(0, min(n, chain_ops.WIDE), n).astype(np.int32), r.rand(n) < 0.5]


def _laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """Return the same elements in another layout."""
    if layout == "F":
        return np.asfortranarray(x)
    if layout == "strided":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if layout == "readonly":
        x.flags.writeable = False
    return x


Seen = dict[str, Any]


def run(spec: Spec, static: bool, noise: float = 0.0) -> list[Seen]:
    """Do all calls; returns what can be observed after each."""
    chain = build(spec, noise)
    chain.cleargrads()  # they are NaN before
    optimizer = OPTIMIZERS[spec.optimizer]().setup(chain) if spec.optimizer else None
    if optimizer is not None and spec.hook:
        optimizer.add_hook(WeightDecay(0.01) if spec.hook == "decay" else GradientClipping(0.5))
    found: list[Seen] = []
    with kusari.using_config("use_static_graph", static), np.errstate(all="ignore"):
        for call in spec.calls:
            np.random.seed(100 + call.seed)
            chain.alpha, chain.flag = call.alpha, call.flag
            _happen(chain, call.event)
            seen = _whole(spec, chain, optimizer, call) if spec.whole else _parts(spec, chain, optimizer, call)
            for name, p in chain.namedparams():
                seen[f"param {name}"] = p.array.copy()
                seen[f"grad {name}"] = None if p.grad is None else p.grad.copy()
            for name, link in chain.namedlinks():
                for key in ("h", "c"):
                    if isinstance(getattr(link, key, None), kusari.Variable):
                        seen[f"state {name}/{key}"] = getattr(link, key).array.copy()
                for key in sorted(link._persistent):
                    seen[f"state {name}/{key}"] = np.array(getattr(link, key))
            state = np.random.get_state()
            seen["random"] = np.array([state[1].astype(np.int64).sum(), state[2], state[3]])
            found.append(seen)
    return found


def _happen(chain: Any, event: str) -> None:
    """Let something happen to the parameters."""
    if event == "replaced":
        for p in chain.params():
            p.array = p.array * p.dtype.type(0.9)
    elif event == "reset":
        for link in chain.links():
            if hasattr(link, "reset_state"):
                link.reset_state()
    elif event:
        for link in list(chain.children())[:1]:
            (link.disable_update if event == "frozen" else link.enable_update)()


def _whole(spec: Spec, chain: Any, optimizer: Any, call: Call) -> Seen:
    xs = data(spec, call)
    if call.rate != 1:
        name = "alpha" if spec.optimizer == "Adam" else "lr"
        setattr(optimizer, name, getattr(optimizer, name) * call.rate)
    if not call.train:
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            return {"loss": chain.loss(*xs).array}
    leaves = [kusari.Variable(x) if v else x for x, v in zip(xs, spec.inputs, strict=False)]
    asking = [x for x in leaves if isinstance(x, kusari.Variable)]
    if not call.clear:
        for x in asking:
            x.grad = np.full_like(x.array, 0.5)
    given = [x * 1 if call.twice and isinstance(x, kusari.Variable) else x for x in leaves]  # with a graph behind them
    states = [getattr(link, key) for link in chain.links() for key in ("h", "c") if hasattr(link, key)]
    optimizer.update(chain.loss, *given, *xs[len(given):])
    seen: Seen = {"t": np.array(optimizer.t)}
    for what, variables in (("leaf", asking), ("state", [v for v in states if isinstance(v, kusari.Variable)])):
        seen.update({f"grad of {what} {i}": None if v.grad is None else v.grad.copy() for i, v in enumerate(variables)})
    if spec.stores:
        seen["stored"] = chain.last.array.copy()
        if (spec.seed + call.seed) % 5 == 0 and chain.last.requires_grad:
            chain.last.backward()
    if (spec.seed + call.seed) % 3:
        for v in [getattr(link, key, None) for link in chain.links() for key in ("h", "c")]:
            if isinstance(v, kusari.Variable):
                v.unchain_backward()
    return seen


def _parts(spec: Spec, chain: Any, optimizer: Any, call: Call) -> Seen:
    if call.clear:
        chain.cleargrads()
    arrays = data(spec, call)
    seen: Seen = {}
    with kusari.using_config("train", call.train), kusari.using_config("enable_backprop", call.backprop):
        given = [kusari.Variable(x) if v else x for x, v in zip(arrays, spec.inputs, strict=False)]
        ys = chain(*given, *arrays[len(spec.inputs):])
        again = chain(*given, *arrays[len(spec.inputs):]) if call.twice else None
        flat = list(ys.values()) if isinstance(ys, dict) else list(ys) if isinstance(ys, (list, tuple)) else [ys]
        assert type(ys) is {"one": kusari.Variable, "tuple": tuple, "list": list, "dict": dict}[spec.tree]
        for i, y in enumerate(flat):
            seen[f"output {i}"] = y.array.copy()
            seen[f"requires_grad {i}"] = np.array(int(y.requires_grad))
        loss = total(ys, call.outputs)
        if again is not None:
            loss = loss + 0.5 * total(again, call.outputs)
        if call.penalty and call.backprop and loss.requires_grad:
            gxs = kusari.grad([loss], [x for x in given if isinstance(x, kusari.Variable)], enable_double_backprop=True)
            for gx in gxs:
                if gx is not None:
                    loss = loss + F.cast(F.sum(gx * gx), loss.dtype)
        if call.backprop and loss.requires_grad:
            loss.backward()
            if optimizer is not None and all(p.grad is not None for p in chain.params()):
                optimizer.update()
    for i, x in enumerate(given):
        if isinstance(x, kusari.Variable):
            seen[f"grad x{i}"] = None if x.grad is None else x.grad.copy()
    return seen


@dataclass
class Outcome:
    """What came of a chain: "same", "wild" (numbers too large, or too sensitive, to compare), or what differs."""

    verdict: str
    differences: list[str] = field(default_factory=list)


def compare(spec: Spec) -> Outcome:
    """Run a chain both ways and compare everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = run(spec, False)
        except (ValueError, TypeError, IndexError, ZeroDivisionError, kusari.errors.KusariError) as error:
            return Outcome("wild", [f"define-by-run: {type(error).__name__}: {error}"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            static = run(spec, True)
        except Exception as error:
            return Outcome("different", [f"static raises {type(error).__name__}: {error}"])
    told = [str(w.message) for w in caught if issubclass(w.category, StaticGraphWarning)]
    if told:
        return Outcome("different", told)
    if not all(np.isfinite(x).all() and float(np.abs(x).max(initial=0)) < 1e6 for seen in eager
               for k, x in seen.items() if x is not None and k != "random"):
        return Outcome("wild", ["not finite"])
    found = differences(spec, eager, static, None)
    if not found:
        return Outcome("same")
    with warnings.catch_warnings():  # how much would rounding errors of the last digit change?
        warnings.simplefilter("ignore")
        rough = [run(spec, False, (3e-7 if spec.dtype == "f4" else 1e-15) * k) for k in (1, 3)]
    found = differences(spec, eager, static, rough)
    return Outcome("different" if found else "same", found)


def differences(spec: Spec, eager: list[Seen], static: list[Seen], rough: list[list[Seen]] | None) -> list[str]:
    """Return where two runs differ by more than rounding, call by call."""
    found: list[str] = []
    for i, (a, b) in enumerate(zip(eager, static, strict=True)):
        if a.keys() != b.keys():
            found.append(f"call {i}: {a.keys() ^ b.keys()}")
            continue
        for key, x in a.items():
            y = b[key]
            if x is None or y is None:
                if x is not y:
                    found.append(f"call {i}, {key}: {_brief(x)} became {_brief(y)}")
                continue
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                found.append(f"call {i}, {key}: {x.dtype}{x.shape} became {y.dtype}{y.shape}")
                continue
            tolerance = max(TOLERANCES[np.dtype(spec.dtype).itemsize], TOLERANCES[min(8, x.dtype.itemsize)])
            size = float(np.abs(x).max(initial=0))
            allowed = tolerance * (size + 0.03) if x.dtype.kind == "f" else 0.0
            for other in rough or ():
                z = other[i].get(key)
                if z is None or z.shape != x.shape:
                    continue
                allowed = max(allowed, 100 * float(np.abs(z - x).max(initial=0)))
                if not np.isfinite(allowed) or allowed > 0.05 * (size + 0.03):
                    return found  # from here on nothing can be said
            off = float(np.abs(x.astype(np.float64) - y).max(initial=0))
            if not off <= allowed:
                found.append(f"call {i}, {key}: off by {off:.3g} ({allowed:.3g} allowed), "
                             f"{_brief(x)} became {_brief(y)}")
    return found


def _brief(x: Any) -> str:
    return "None" if x is None else f"{x.dtype}{list(x.shape)} {np.array2string(x.ravel()[:4], precision=5)}"


def shrink(spec: Spec) -> Spec:
    """Return a smaller chain that still differs."""
    def fails(s: Spec) -> bool:
        try:
            return compare(s).verdict == "different"
        except Exception:
            return False

    while (smaller := next(filter(fails, _smaller(spec)), None)) is not None:
        spec = smaller
    return spec


def _smaller(spec: Spec) -> Any:
    """Yield chains with something left out."""
    for i in reversed(range(len(spec.calls))):
        yield replace(spec, calls=spec.calls[:i] + spec.calls[i + 1:])
    for line in spec.lines:
        for other in line.operands:
            rest = tuple([replace(x, operands=tuple([other if o == line.name else o for o in x.operands]))
                          for x in spec.lines if x is not line])
            yield replace(spec, lines=rest, results=tuple([other if y == line.name else y for y in spec.results]))
    if len(spec.results) > 1:
        for i in range(len(spec.results)):
            calls = tuple([replace(c, outputs=(0,)) for c in spec.calls])
            yield replace(spec, results=spec.results[:i] + spec.results[i + 1:], calls=calls)
    if spec.tree != "one" and len(spec.results) == 1:
        yield replace(spec, tree="one")
    for change in ({"optimizer": None, "whole": False}, {"whole": False}, {"nested": 0}, {"dtype": "f4"}):
        if any(getattr(spec, k) != v for k, v in change.items()):
            yield replace(spec, **change)
    for i, call in enumerate(spec.calls):
        for change in (
                {"twice": False}, {"clear": True}, {"alpha": 1.0}, {"rate": 1.0}, {"dtype": "f4"}, {"train": True}):
            if any(getattr(call, k) != v for k, v in change.items()):
                yield replace(spec, calls=(*spec.calls[:i], replace(call, **change), *spec.calls[i + 1:]))
    for i, wants in enumerate(spec.inputs):
        if wants:
            yield replace(spec, inputs=(*spec.inputs[:i], False, *spec.inputs[i + 1:]))


def report(spec: Spec) -> str:
    """Return a chain and what differs, for the reader."""
    return "\n".join([f"seed {spec.seed}: {spec.dtype}, optimizer {spec.optimizer}, whole steps: {spec.whole}",
                      f"inputs {spec.shape_sets}, asking for gradients: {spec.inputs}", spec.source(),
                      *map(str, spec.calls), *compare(spec).differences[:8]])


def check(seed: int) -> str:
    """Check one chain; returns the verdict, raises ``AssertionError`` with all that is needed to look into it."""
    outcome = compare(generate(seed))
    if outcome.verdict == "different":
        raise AssertionError(f"the chain of seed {seed} differs (`cd tests; python -m static.chains {seed}` shows it)\n"
                             + "\n".join(outcome.differences[:5]))
    return outcome.verdict


def main(arguments: list[str]) -> None:
    """Check one seed in detail, or a range of them."""
    first = int(arguments[0])
    if len(arguments) == 1:
        spec = generate(first)
        print(report(spec))
        if compare(spec).verdict == "different":
            print("\n-- smaller\n" + report(shrink(spec)))
        return
    counts: dict[str, int] = {}
    for seed in range(first, int(arguments[1])):
        outcome = compare(generate(seed))
        counts[outcome.verdict] = counts.get(outcome.verdict, 0) + 1
        if outcome.verdict == "different" or "define-by-run" in "".join(outcome.differences):
            print(seed, *outcome.differences[:2], sep="\n   ", flush=True)
    print(counts)


if __name__ == "__main__":
    main(sys.argv[1:])
