"""NumPy in a traced call where no function of ours does the same: Python runs it at its place in every replay.

Arrays among the results are values like any other, so the call is split: functions before and after are compiled. So
are numbers that are computed with. Integers and truth values that the code needs become constants of the graph, which a
node compares in every replay: where one is another, the call goes on define-by-run. Draws from NumPy's global generator
are the primitive that functions draw with; Python draws from others that were there before the call.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import PRIMITIVES, Graph, Node, Op, Trait, Value
from kusari.runtime.python_rows import RunError

from ... import functions as F
from ..._random_state import state_of
from ...variable import Variable
from ..arrays.captured import outside_value, owner
from ..computed_numbers import KINDS, ComputedNumber, computed_number, number_of, settled
from ..errors import is_from_handler
from ..guards.changing import compared
from ..guards.reached import EXPECT, Reached
from ..trees import SCALARS, flatten, unflatten
from .effects import CHANGE, LOOK, Effect, add, refill

if TYPE_CHECKING:
    from .recorder import Tape

MOST_OTHER_CALLS = 2  # in which a number is another one: they count for nothing
SAME_RATIO = 8  # how many calls one that goes on define-by-run may cost
MOST_CHECKED_NODES = 64  # of one call: beyond that, Python that compares is slower than Python that computes
RAISING = frozenset(("raise", "call", "print", "log"))  # what `np.errstate` may ask for
_NUMBERS = (bool, np.bool_, *KINDS)
_PLAIN = (*SCALARS, type(Ellipsis), np.generic, np.dtype)


# -- functions ---------------------------------------------------------------------------------------------------------


def _call(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Apply NumPy's function to the arrays of a replay."""
    args, kwargs = unflatten(attrs["spec"], iter(arrays))
    try:
        with np.errstate(**attrs["errors"]):
            result = attrs["fn"](*args, **kwargs)
    except Exception as error:  # the user's code may catch it, or see what has happened before
        if is_from_handler(error):
            raise
        raise RunError(f"{attrs['name']} raises {type(error).__name__}: {error}") from error
    return tuple(map(np.asarray, leaves_of(result)))


@lru_cache(maxsize=1024)
def _op(name: str) -> Op:
    return Op(name, _call, Trait.OPAQUE)  # it may raise, so it runs where define-by-run runs it, needed or not


def leaves_of(result: Any) -> list[Any]:
    """Return the arrays and numbers of a result, in order."""
    return [x for y in result for x in leaves_of(y)] if isinstance(result, (tuple, list)) else [result]


def by_python(tape: Tape, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
              result: Any, **more: Any) -> Any:
    """Record that replays apply ``fn``, which has given ``result``; returns it with computed numbers.

    None if they cannot: ``fn`` has to be a function of the elements of its arrays and of numbers, and change nothing.
    ``more`` are attributes of the node.
    """
    if tape.fault is not None or tape.observation is None or tape.observation.silenced:
        return None  # it might warn, where replays have other filters
    given: list[Any] = []
    spec = flatten((args, kwargs), given)
    made, errors = leaves_of(result), np.geterr()
    if not made or not RAISING.isdisjoint(errors.values()) or not is_made_of_arrays((args, kwargs)):
        return None
    if any(x is y for x in made for y in given) or not all(map(_is_kept, made)):
        return None
    if len(made) > 1 and any(type(x) is not np.ndarray for x in made):
        return None
    inputs = [operand_value(tape, x) for x in given]
    if tape.fault is not None or any(v is None for v in inputs):
        return None
    outputs = [*map(np.asarray, made)]
    tape.append(_op(name), tuple([v for v in inputs if v is not None]), outputs, {
        "fn": fn, "spec": spec, "name": name, "errors": {} if errors == tape.errors else errors, **more})
    if type(made[0]) is not np.ndarray:
        return as_number(tape, name, result, outputs[0])
    tape.aliases.made([*zip(inputs, given, strict=True)], [(v, x) for x in made if (v := tape.known(x)) is not None])
    for x in made:
        tape.written.made(x)
    return result


def picked(tape: Tape, array: Any, mask: Any) -> Any:
    """Return ``array[mask]``, which is recorded when it is needed; None if the two have no values."""
    source, chosen = operand_value(tape, array), operand_value(tape, mask)
    if tape.fault is not None or tape.observation is None or source is None or chosen is None:
        return None
    result = array[mask]
    spec = flatten(((array, mask), {}), [])

    def record() -> None:
        tape.append(_op("__getitem__()"), (source, chosen), (result,), {
            "fn": operator.getitem, "spec": spec, "name": "__getitem__()", "errors": {}})
        tape.written.made(result)
    tape.picked.take(result, array, source, chosen, record)
    return result


def apart(nodes: Iterable[Node], outputs: tuple[Value, ...], sources: Iterable[Value],
          where: str) -> tuple[tuple[Node, ...], tuple[Value, ...]]:
    """Return nodes and results that read copies of ``sources``, which change before gradients may read them."""
    copies = {v: Value(v.type, v.hint) for v in sources}
    attrs = {"fn": np.copy, "spec": flatten(((np.zeros(0),), {}), []), "name": "numpy.copy", "errors": {}}
    made = [Node(_op("numpy.copy"), (v,), (copy,), attrs, where) for v, copy in copies.items()]
    return (*made, *[n.on(copies) for n in nodes]), tuple([copies.get(v, v) for v in outputs])


def as_number(tape: Tape, name: str, number: Any, array: Any) -> Any:
    """Return the number that an array without axes is, as one that the trace follows; replays compare truth values."""
    if isinstance(number, bool) or not isinstance(number, KINDS):
        compare(tape, name, number, array)
        return number
    return computed_number(number, array, tape.numbers)


def compare(tape: Tape, name: str, number: Any, array: Any) -> None:
    """Record that replays compare a number."""
    if compared(tape, array):
        return
    value = tape.known(array)
    if value is None or tape.checks >= MOST_CHECKED_NODES:
        tape.note_at_user(f"{name} takes more than {MOST_CHECKED_NODES} numbers out of the traced computation")
        return
    tape.append(CHECK, (value,), (), {"name": name, "expected": number, "tally": Tally()})
    tape.checks += 1


def told(tape: Tape, number: ComputedNumber, name: str) -> None:
    """Take note that code which is not recorded reads a number: replays compare integers, floats are faults."""
    if tape.fault is not None or tape.compared.get(id(number)) is number:
        return
    tape.compared[id(number)] = number
    if isinstance(number, (int, np.integer)):
        compare(tape, name, number.kusari_value, number.kusari_array)
    elif not compared(tape, number.kusari_array):
        tape.note_at_user(taken_out(f"{name} of a {number.kusari_kind.__name__}"))


def taken_out(what: str) -> str:
    """Return the reason of a use that no function computes."""
    return (f"{what} takes data out of the traced computation; use functions instead (shapes and dtypes may be read "
            "freely), or move the line out of the static function")


def is_made_of_arrays(tree: Any) -> bool:
    """Whether a value consists of arrays, numbers, dtypes and containers of them."""
    if type(tree) in (tuple, list):
        return all(map(is_made_of_arrays, tree))
    if type(tree) is dict:
        return all(map(is_made_of_arrays, tree.values()))
    if type(tree) is slice:
        return is_made_of_arrays((tree.start, tree.stop, tree.step))
    return type(tree) is np.ndarray or isinstance(tree, _PLAIN) or isinstance(tree, type) and issubclass(
        tree, (np.generic, bool, int, float, complex))


def _is_kept(x: Any) -> bool:
    """Whether a result can be a value, or be compared."""
    return isinstance(x, _NUMBERS) or type(x) is np.ndarray and x.dtype.kind in "fiubc" and x.dtype.isnative


def operand_value(tape: Tape, array: Any) -> Value | None:
    """Return the value of an array that NumPy reads; None if it has none."""
    tape.contents.expect(array)
    if tape.of_parameters.has(array):
        return tape.of_parameters.value(tape, array)
    value = tape.constants.value(tape, array)
    if value is None and tape.knows_elements(array):
        value = tape.known(array)
    return outside_value(tape, array) if value is None else value


# -- changes that a function of the user's may look at ----------------------------------------------------------------


def make_changes(tape: Tape) -> None:
    """Record that replays change here what the call has changed outside so far, not at their end."""
    for effect in () if tape.observation is None else tape.observation.take_changes():
        leaves: list[Any] = []
        spec = flatten(effect.args, leaves)
        values = [operand_value(tape, x) for x in leaves]
        if any(v is None for v in values):
            tape.note_at_user(f"{effect.what} is changed to something that no function has computed")
            return
        tape.append(CHANGE, tuple([v for v in values if v is not None]), (), {"effect": effect, "spec": spec})
        if effect.function is not add:
            tape.written.changed(effect)


def look_again(tape: Tape, reached: Reached, given: Iterable[Any] = (), returned: Iterable[Variable] = ()) -> None:
    """Record that arrays which were changed have the elements that Python of the user's, which may have, has left.

    Arrays that it was ``given`` are values anyway; other state within its reach has to be as it was.
    """
    known = {id(owner(x)) for x in given}
    changed = [x for x in reached.arrays if id(owner(x)) not in known]
    if not {id(owner(x)) for x in changed}.isdisjoint([id(owner(y._array)) for y in returned]):
        tape.note_at_user("a function of the user's returns an array from outside that it has changed; let it return a "
                          "copy")
        return
    if tape.observation is not None and tape.observation.guarded:
        tape.append(EXPECT, (), (), {"guards": reached.expected})
    effects = tape.written.early()
    known |= {id(owner(e.array())) for e in effects}
    for array in {id(x): x for x in map(owner, changed)}.values():
        if array in tape.of_parameters:
            tape.note_at_user("a function of the user's changes an array whose elements the call changes, too")
        elif type(array) is np.ndarray and id(array) not in known and not tape.is_argument(array):
            effects.append(Effect(refill, (array,), (), "the elements of an array from outside", array))
            tape.written.change(tape, array)
    for effect in effects:
        memory = owner(effect.array())
        made = memory.copy()
        tape.append(LOOK, (), (made,), {"effect": effect})
        value = tape.known(made)
        if value is not None:
            views = [y for y in tape.live_arrays() if y is not memory and owner(y) is memory]
            tape.alias(memory, value, views)
        tape.contents.take(memory)


# -- numbers that replays compare --------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Tally:
    """How often a number was what it was in the trace, and how often another one."""

    same: int = 0
    other: int = 0

    @property
    def pays(self) -> bool:
        """Whether it is the same in nearly all calls."""
        return self.other <= MOST_OTHER_CALLS or self.other * SAME_RATIO <= self.same


def _compare(attrs: Any, array: Any) -> tuple[Any, ...]:
    """Compare a number of a replay with that of the trace."""
    tally = attrs["tally"]
    if array != attrs["expected"]:
        tally.other += 1
        raise RunError(f"{attrs['name']} gives {array}, and gave {attrs['expected']} in the trace")
    tally.same += 1
    return ()


CHECK = Op("check", _compare, Trait.OPAQUE)


def assumptions(graph: Graph) -> list[Node]:
    """Return the nodes that compare numbers of the user's code."""
    return [n for n in graph.nodes if n.op is CHECK]


def changed(before: Iterable[Node], after: Iterable[Node]) -> Node | None:
    """Return the first of the nodes ``before`` whose number is another one ``after``, in a trace of the same call."""
    found = [n.attrs["expected"] for n in after]
    return next((n for i, n in enumerate(before) if i >= len(found) or n.attrs["expected"] != found[i]), None)


def reason(node: Node) -> str:
    """Return why a call whose numbers change cannot be replayed."""
    return (f"{node.attrs['name']} takes a number out of the traced computation, and it is another one in other calls; "
            "use functions instead (shapes and dtypes may be read freely), or move the line out of the static function")


# -- operators on numbers ----------------------------------------------------------------------------------------------

_WITH_VARIABLES = frozenset((operator.add, operator.sub, operator.mul, operator.truediv))


def of_numbers(tape: Tape, native: Callable[..., Any], operands: tuple[Any, ...], on_arrays: Callable[..., Any]) -> Any:
    """Apply an operator to numbers of which one is computed, recorded ``on_arrays``; NotImplemented if that cannot be.
    """
    if any(issubclass(type(x), Variable) for x in operands):
        return _with_variable(native, *operands)
    if not all(isinstance(x, (np.ndarray, *KINDS)) for x in operands):
        return NotImplemented
    plain = [x.kusari_value if isinstance(x, ComputedNumber) else x for x in operands]
    of_numpy = [x.dtype for x in plain if isinstance(x, (np.ndarray, np.generic))]
    if not of_numpy:
        found = _of_python(tape, native, operands, plain)
    else:
        common = np.result_type(*of_numpy, *[x for x in plain if type(x) in (int, float)])
        given = [_operand(x, common) if isinstance(x, ComputedNumber) else x for x in operands]
        found = NotImplemented if any(x is None for x in given) else on_arrays(*given)
    return _as_sum(found, native, operands)


def _as_sum(found: Any, native: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Note of the result of an operator which number it is with another one added, if it is; returns it."""
    if isinstance(found, ComputedNumber) and native in (operator.add, operator.sub) and isinstance(
            operands[0], ComputedNumber) and type(operands[1]) is int:
        number, offset = operands[0].kusari_sum or (operands[0], 0)
        found.kusari_sum = number, offset + (operands[1] if native is operator.add else -operands[1])
    return found


def _with_variable(native: Callable[..., Any], *operands: Any) -> Any:
    """Apply an operator to a Variable and a computed number, which becomes a Variable of as many elements."""
    like = next(x for x in operands if issubclass(type(x), Variable))
    number = next(x for x in operands if isinstance(x, ComputedNumber))
    if native not in _WITH_VARIABLES or like.dtype.kind != "f":
        return NotImplemented
    spread = F.broadcast_to(cast_number(number, like.dtype), like.shape)
    return native(*[spread if x is number else x for x in operands])


def cast_number(number: ComputedNumber, dtype: Any) -> Variable:
    """Return a number as a Variable of a floating-point dtype; integers become doubles first, as in NumPy."""
    x = Variable(number.kusari_array, requires_grad=False)
    return F.cast(x if number.kusari_kind is not int else F.cast(x, np.float64), dtype)


def stored_number(number: ComputedNumber, dtype: Any) -> Any:
    """Return the array of a number that is stored to elements of a dtype; the number where it may be too large."""
    if number.kusari_kind is not int or dtype == np.int64:
        return number.kusari_array
    return cast_number(number, dtype)._array if dtype.kind == "f" else settled(number, "__setitem__()")


def of_single_numbers(f: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return a function of NumPy's and its arguments with arrays in place of computed numbers, of which it makes
    numbers again: of Python's, and of integers.
    """
    kinds = {i: x.kusari_kind for i, x in enumerate(args) if isinstance(x, ComputedNumber) and not issubclass(
        x.kusari_kind, np.floating)}
    if not kinds:
        return f, args

    def again(*args: Any, **kwargs: Any) -> Any:  # a number's dtype gives way to those of arrays
        return f(*[number_of(kinds[i], x) if i in kinds else x for i, x in enumerate(args)], **kwargs)
    return again, tuple([x.kusari_array if isinstance(x, ComputedNumber) and i in kinds else x
                         for i, x in enumerate(args)])


def of_python(tape: Tape, f: Callable[..., Any], numbers: tuple[Any, ...]) -> Any:
    """Apply a function of the library's ``math`` to numbers; NotImplemented if none of them is computed."""
    if not any(isinstance(x, ComputedNumber) for x in numbers) or not all(isinstance(x, KINDS) for x in numbers):
        return NotImplemented
    return _of_python(tape, f, numbers, [x.kusari_value if isinstance(x, ComputedNumber) else x for x in numbers])


def _of_python(tape: Tape, native: Callable[..., Any], operands: tuple[Any, ...], plain: list[Any]) -> Any:
    """Apply an operator to numbers of Python's own types."""
    arrays = tuple([x.kusari_array if isinstance(x, ComputedNumber) else x for x in operands])
    kinds = tuple([type(x) for x in plain])
    try:
        result = native(*plain)
    except (ArithmeticError, ValueError):
        tape.note_at_user(f"{native.__name__} raises, and need not in other calls")
        raise

    def again(*operands: Any) -> Any:
        return native(*[number_of(kind, x) for kind, x in zip(kinds, operands, strict=True)])
    found = by_python(tape, native.__name__, again, arrays, {}, result)
    return NotImplemented if found is None else found


def extreme_of(tape: Tape, f: Any, numbers: list[Any]) -> Any:
    """Apply ``min`` or ``max`` to numbers of which some are computed; None if that cannot be recorded."""
    if len(numbers) < 2 or not any(isinstance(x, ComputedNumber) for x in numbers) or not all(
            isinstance(x, KINDS) for x in numbers):
        return None
    plain = [x.kusari_value if isinstance(x, ComputedNumber) else x for x in numbers]
    kind = type(f(plain))

    def extreme(*numbers: Any) -> Any:
        return kind(f(numbers))

    def is_of_kind(*numbers: Any) -> Any:  # one of another type would be promoted otherwise
        return type(f(numbers)) is kind
    extreme.__name__ = is_of_kind.__name__ = f.__name__
    if {*map(type, plain)} != {kind}:
        _of_python(tape, is_of_kind, tuple(numbers), plain)
    found = _of_python(tape, extreme, tuple(numbers), plain)
    return None if found is NotImplemented else found


def _operand(number: ComputedNumber, common: Any) -> Any:
    """Return the array of a number among NumPy's operands, whose dtype decides where the number is one of Python's.

    None where that dtype may not have the number in other calls.
    """
    if issubclass(number.kusari_kind, np.generic) or number.kusari_array.dtype == common:
        return number.kusari_array
    if common.kind not in "fc":
        return None
    return cast_number(number, common)._array


def rows_of_slice(tape: Tape, index: slice, count: int) -> Any:
    """Return the numbers of the rows, of so many, that a slice picks, as a value; None if replays cannot."""
    def rows(*bounds: Any) -> Any:
        return np.arange(*slice(*[None if x is None else int(x) for x in bounds]).indices(count))
    bounds = index.start, index.stop, index.step
    plain = [x.kusari_value if isinstance(x, ComputedNumber) else x for x in bounds]
    given = tuple([x.kusari_array if isinstance(x, ComputedNumber) else x for x in bounds])
    return by_python(tape, "rows of a slice", rows, given, {}, rows(*plain))


# -- draws -------------------------------------------------------------------------------------------------------------

_BY_SHAPE = {"rand": "random_sample", "randn": "standard_normal"}
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("random_sample", "random", "standard_normal", "standard_exponential", "standard_cauchy"), ()),
    **dict.fromkeys(("normal", "laplace", "gumbel", "logistic"), ("loc", "scale")), "uniform": ("low", "high"),
    **dict.fromkeys(("randint", "random_integers"), ("low", "high")),
    "binomial": ("n", "p"), "exponential": ("scale",), "rayleigh": ("scale",),
    "poisson": ("lam",), "geometric": ("p",), "beta": ("a", "b"), "gamma": ("shape", "scale"),
    "lognormal": ("mean", "sigma"), "standard_gamma": ("shape",), "chisquare": ("df",), "choice": ("a",)}
RANDOM = PRIMITIVES["random"]


def drawn(tape: Tape, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Record that replays draw as ``numpy.random.name`` has drawn ``result``; returns it as a value of the trace.

    None if they cannot.
    """
    if type(result) not in (np.ndarray, float, int) or tape.fault is not None:
        return None
    if name == "permutation":
        if len(args) != 1 or kwargs or type(args[0]) is not int:
            return None
        dist, given = name, args
    elif name in _BY_SHAPE:
        dist, given = _BY_SHAPE[name], ()
    else:
        names = _PARAMETERS.get(name)
        if names is None or len(args) > len(names) + 1 or not kwargs.keys() <= {*names, "size"}:
            return None
        dist, given = name, args[:len(names)]
        for left in names[len(given):]:
            if left not in kwargs:
                break
            given += kwargs[left],
        if len(given) != len(args[:len(names)]) + len(kwargs.keys() & {*names}):
            return None
    if not all(type(x) in (int, float) for x in given):
        return None
    array = np.asarray(result)
    tape.append(RANDOM, (), (array,), {
        "dist": dist, "args": given, "shape": array.shape, "dtype": array.dtype.name})
    tape.expect_draws()
    tape.draws = True
    if type(result) is not np.ndarray:
        return as_number(tape, f"numpy.random.{name}", result, array)
    tape.written.made(result)
    return result


def drawn_by_python(tape: Tape, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Record that replays draw as ``f``, a method of a generator, has drawn ``result``; returns it as a value.

    None if they cannot.
    """
    generator = f.__self__
    if state_of(generator) is None:
        return None
    return by_python(tape, f"{type(generator).__name__}.{f.__name__}", f, args, kwargs, result, generator=generator)
