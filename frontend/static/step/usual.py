"""The usual case of steps and updates as one function each: all is as it was, and arrays are plain."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kusari.runtime.python_rows import LateIndexError

from ...configuration import config
from ...epochs import Scaled
from ..errors import NotCompilable, Stale, is_from_handler
from ..guards.check import Checks
from ..signature import ArrayTypes, unpack
from ..source import Source
from .rule_groups import NO_LONGER, write_apart, write_clocks

if TYPE_CHECKING:
    from ..replay.arguments import Arguments
    from .step import Step
    from .update import UpdateProgram

# What binding raises where arrays are of other kinds, or not where they were; nothing has been done by then.
UNFIT = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
AFTER_STEPS = 100  # of the general kind, which by then take as much longer as it takes to write what is usual


def due(program: UpdateProgram) -> bool:
    """Count a step of the general kind; returns whether there were enough of them."""
    program.general_steps += 1
    return program.general_steps >= AFTER_STEPS


def never(_: Sequence[Any]) -> bool:
    """Stands for the usual case of a step that has none."""
    return False


def usual_step(program: UpdateProgram, free: list[Any], inputs: Sequence[int],
               deliver: Callable[[Source, str], None]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes a step on plain arrays; it returns False, with nothing done, where it does not fit.

    Those ``inputs`` of the arrays are given to a frame that is ``free``, and ``deliver`` writes what comes of its
    results. There is none, `never`, for a program with scales, or with hyperparameters of the user's making.
    """
    if not _is_plain(program):
        return never
    source = Source("step", "step(arrays)")
    own, frames = source.name(program.optimizer, "optimizer"), source.name(free, "free")
    arguments, found, error = map(source.fresh, ("arguments", "found", "error"))
    with source.block("try"):
        source.line(f"if {own}._reducer is not None: return False")
        hyper = _write_test(source, program)
        source.line(f"{arguments} = {frames}.pop()")
    source.line(f"except {NO_LONGER}: return False", "except IndexError: return False")
    more = _write_advance(source, program, hyper, f"{frames}.append({arguments})")
    given = [f"arrays[{i}]" for i in inputs]
    if [*inputs] == [*range(len(inputs))]:
        given = ["*arrays"]
    with source.block("try"):
        together = f"({', '.join([*given, *more])},)" if more or given != ["*arrays"] else "arrays"
        source.line(f"{found} = {arguments}.run({together})")
    with source.block(f"except BaseException as {error}"):
        source.line(f"{source.name(retreat, 'retreat')}({source.name(program, 'program')}, {error})", "raise")
    source.line(f"{frames}.append({arguments})")
    deliver(source, found)
    return source.function()


def usual_update(program: UpdateProgram, arguments: Arguments) -> Callable[[], bool]:
    """Return a function that updates by gradients that are there; it returns False, with nothing done, where it cannot.

    There is none, `no_update`, where there is no `usual_step`, and for parameters on a card.
    """
    if not _is_plain(program) or program.place is not None:
        return no_update
    source = Source("update", "update()")
    grads = [source.fresh("grad") for _ in program.params]
    with source.block("try"):
        hyper = _write_test(source, program)
        source.line(*[f"{g} = {source.name(p, 'p')}._grad" for g, p in zip(grads, program.params, strict=True)])
        write_apart(source, program.members, grads)
    source.line(f"except {NO_LONGER}: return False")
    more = _write_advance(source, program, hyper)
    back, members = f"{source.name(program.retreat, 'retreat')}()", {id(p) for p in program.members}
    with source.block("try"):
        given = [] if program.changes_gradients else [
            g for g, p in zip(grads, program.params, strict=True) if id(p) in members]
        together = "".join([f"{x}, " for x in (*more, *given)])
        source.line(f"{source.name(arguments, 'arguments')}.run(({together}))")
    for errors, then in (((NotCompilable, Stale, *UNFIT), "return False"), ((MemoryError, IndexError), "raise")):
        with source.block(f"except {source.name(errors, 'errors')}"):
            source.line(back, then)
    source.line("return True")
    return source.function()


def no_update() -> bool:
    """Stands for the usual case of an update that has none."""
    return False


def _is_plain(program: UpdateProgram) -> bool:
    return program.scaling is None and not program.more and all(g.plain for g in program.groups)


def _write_test(source: Source, program: UpdateProgram) -> Callable[[], list[str]]:
    """Append lines that return False, or raise, where a plain program would do something else.

    Returns a function that appends lines which take over hyperparameters, and returns the inputs that they are.
    """
    source.line(f"if {source.name(program.optimizer, 'optimizer')}._loss_scale is not None or "
                f"{source.name(Scaled, 'Scaled')}.ever: return False")
    program.write_test(source)
    writers = [group.write_hyper(source) for group in program.groups]
    return lambda: [x for write in writers for x in write()]


def _write_advance(source: Source, program: UpdateProgram, hyper: Callable[[], list[str]], *back: str) -> list[str]:
    """Append lines that count the step and take over hyperparameters; returns the names of inputs that they are.

    Where rules raise, nothing is counted, the lines ``back`` run, and False is returned: the general case goes on.
    """
    write_clocks(source, program.optimizer, program.groups, "1")
    if not program.groups:
        return []
    with source.block("try"):
        names = hyper()
    error = source.fresh("error")
    with source.block(f"except {source.name(Exception, 'Exception')} as {error}"):
        source.line(f"{source.name(program.retreat, 'retreat')}()", *back,
                    f"if {source.name(is_from_handler, 'is_from_handler')}({error}): raise", "return False")
    return names


def retreat(program: UpdateProgram, error: BaseException, python: bool = False) -> None:
    """Undo the count of a step that has failed, and of those before it that turn out to have changed nothing.

    Raises ``Stale`` where states are not to be found: nothing has been done, unless code in ``python`` has raised.
    """
    for _ in range(1 + (error.undone if isinstance(error, LateIndexError) else 0)):
        program.retreat()
    if isinstance(error, (KeyError, AttributeError)) and not python and not is_from_handler(error):
        raise Stale(f"a state is gone: {error}") from error


def fast_path(optimizer: Any, types: ArrayTypes, names: tuple[str, ...], checks: Checks, step: Step,
              ) -> Callable[[Any, tuple[Any, ...], tuple[str, ...]], bool]:
    """Return a function that does a step of ``optimizer`` again in the mode of now, for arguments of ``types``.

    The last have ``names``. It returns whether it did: False where something is not as it was. It keeps neither alive.
    """
    source = Source("step", "step(optimizer, args, names)")
    own, done, failed = source.fresh("own"), source.fresh("done"), "return False"
    with source.block("try"):
        given = unpack(source, "args", len(types.types), types.first)
        source.line(f"{own} = {source.name(weakref.ref(step), 'reference')}()",
                    f"if {own} is None or optimizer is not {source.name(weakref.ref(optimizer), 'known')}() or "
                    f"names != {source.name(names, 'own_names')} or {source.name(config, 'config')}.train is not "
                    f"{source.literal(config.train, 'train')} or not ({types.test(source, given)}): {failed}")
        checks.write(source, failed)
    source.otherwise(failed)
    arrays = source.fresh("arrays")
    with source.block("try"):
        source.line(f"{arrays} = {given.together}", f"{done} = {own}.usual({arrays})",
                    f"return {own}({arrays}) if {done} is False else {done}")
    source.line(f"except {source.name((Stale, NotCompilable), 'errors')}: {failed}")
    return source.function()
