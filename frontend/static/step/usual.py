"""The usual case of a whole step as one function, and the path to it: all is as it was, and plain arrays are given."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kusari.runtime.python_rows import LateIndexError

from ...configuration import config
from ...epochs import Scaled
from ..errors import NotCompilable, Stale
from ..guards.check import Checks
from ..signature import ArrayTypes, unpack
from ..source import Source
from .rule_groups import NO_LONGER, write_clocks

if TYPE_CHECKING:
    from .step import Step
    from .update import UpdateProgram


def never(_: Sequence[Any]) -> bool:
    """Stands for the usual case of a step that has none."""
    return False


def usual_step(program: UpdateProgram, free: list[Any], inputs: Sequence[int],
               deliver: Callable[[Source, str], None]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes a step on plain arrays; it returns False, with nothing done, where it does not fit.

    Those ``inputs`` of the arrays are given to a frame that is ``free``, and ``deliver`` writes what comes of its
    results. There is none, `never`, for a program with hyperparameters that are inputs, or with scales.
    """
    if program.scaling is not None or program.varying or program.more or not all(g.plain for g in program.groups):
        return never
    source = Source("step", "step(arrays)")
    own, frames = source.name(program.optimizer, "optimizer"), source.name(free, "free")
    arguments, found, error = map(source.fresh, ("arguments", "found", "error"))
    with source.block("try"):
        source.line(f"if {own}._loss_scale is not None or {own}._reducer is not None or "
                    f"{source.name(Scaled, 'Scaled')}.ever: return False")
        program.write_test(source)
        for group in program.groups:
            source.line(*group.test_parent(source))
        source.line(f"{arguments} = {frames}.pop()")
    source.line(f"except {NO_LONGER}: return False", "except IndexError: return False")
    write_clocks(source, program.optimizer, program.groups, "1")
    given = "arrays"
    if [*inputs] != [*range(len(inputs))]:
        given = f"({', '.join([f'arrays[{i}]' for i in inputs])}{',' * (len(inputs) == 1)})"
    with source.block("try"):
        source.line(f"{found} = {arguments}.run({given})")
    with source.block(f"except BaseException as {error}"):
        source.line(f"{source.name(retreat, 'retreat')}({source.name(program, 'program')}, {error})", "raise")
    source.line(f"{frames}.append({arguments})")
    deliver(source, found)
    return source.function()


def retreat(program: UpdateProgram, error: BaseException) -> None:
    """Undo the count of a step that has failed, and of those before it that turn out to have changed nothing."""
    for _ in range(1 + (error.undone if isinstance(error, LateIndexError) else 0)):
        program.retreat()


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
