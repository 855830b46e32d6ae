"""The schedules of one static function on one object."""
from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ...configuration import config
from ..compile.families import Family, without_extents
from ..errors import Fault
from ..guards.changing import Changing
from ..guards.guard import Entry, Guard
from ..room import Holder, free_memory, made
from ..signature import without_numbers
from ..trace.recording import Recording

if TYPE_CHECKING:
    from .schedule import Schedule

SOON_SIGNATURES = 32     # of one owner: they are traced when they are first seen
OFTEN_CALLS = 6          # after which others are traced: compiling takes as long as hundreds of small calls
MAX_SCHEDULES = 256      # per owner: beyond that the least recently used one goes
MAX_OTHER_SCHEDULES = 4  # per signature, for guards that may hold again
MAX_REASONS = 8          # of retraces, kept per signature for ``explain``
MOST_FAULTY_TRACES = 2   # after which another fault is for good, though the call has stored something
MOST_WASTED_TRACES = 6   # in a row, never replayed, before a function falls back
ALIKE_SIGNATURES = 8     # that have fallen back, all for one reason, before others are looked at seldom
UNSEEN_CALLS = 1000      # of which one is looked at then: a signature takes a tenth of a small call


class CacheEntry(Holder, Protocol):
    """The state of a signature: a ``Recording`` that is traced only, a ``Schedule``, or a ``Fallback``.

    ``recording`` is None of a fallback, which has a ``fault``; ``schedule`` is there once it is compiled; ``check`` is
    the test of all guards, None where there are none.
    """

    @property
    def recording(self) -> Recording | None: ...
    @property
    def schedule(self) -> Schedule | None: ...
    @property
    def fault(self) -> Fault | None: ...
    @property
    def check(self) -> Callable[[], bool] | None: ...


class Fallback:
    """The entry of a signature that stays define-by-run."""

    recording = schedule = check = None
    nbytes = 0

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def release(self) -> None:
        """There are no frames."""


class Alike:
    """Signatures of a mode that have fallen back in turn, for one reason.

    ``unseen`` calls stay define-by-run until the next is looked at; 0 where each is.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault, self.count, self.unseen = fault, 0, 0


def guards_hold(entry: CacheEntry) -> bool:
    """Whether all that a call has read besides its arguments is as it was when ``entry`` was recorded."""
    return entry.check is None or entry.check()


class ScheduleCache:
    """The schedules of one static function on one object.

    Invariant: held outside the object's ``__dict__``, so copies and pickles never carry it.
    """

    def __init__(self) -> None:
        self.entries: OrderedDict[Any, CacheEntry] = OrderedDict()
        self.lock = threading.RLock()
        # The thread whose next call goes on define-by-run, and what that has run already.
        self.run: tuple[int, Any] | None = None
        # The fast path to the schedule that ran last: nearly always it is the one to run next.
        self.recent: Callable[[tuple[Any, ...]], Any] | None = None
        self.step: Callable[[Any, tuple[Any, ...], tuple[str, ...]], bool] | None = None  # likewise of the whole step
        self.joined: Callable[[tuple[Any, ...]], Any] | None = None  # the step of a loop that goes on to its update
        # Schedules of the same signature whose guards do not hold now, and how many traces never ran compiled.
        self._others: dict[Any, list[CacheEntry]] = {}
        self._wasted: dict[Any, int] = {}
        self._numbers: OrderedDict[Any, tuple[Any, int, bool]] = OrderedDict()
        self._steps: weakref.WeakKeyDictionary[Recording, list[tuple[Any, Any, str]]] = weakref.WeakKeyDictionary()
        self.retraces: dict[Any, list[str]] = {}
        self._waiting: dict[Any, int] = {}  # calls of signatures that have to come often
        self._families: OrderedDict[Any, Family] = OrderedDict()
        self._alike: dict[Any, Alike] = {}  # by mode
        self.objects: set[Any] = set()  # arguments with which it stays define-by-run, by their numbers
        self._made = 0  # large frames, when it was looked at who has them
        self.hooked: dict[str, Any] | None = None  # the namespace of a link that had hooks in the last call
        self.changing = Changing()

    def family(self, key: Any) -> Family:
        """Return the family of a signature: all that differ in extents only have one."""
        with self.lock:
            general = without_extents(key)
            found = self._families.pop(general, None) or Family()
            self._families[general] = found
            if len(self._families) > MAX_SCHEDULES:
                self._families.popitem(last=False)
            return found

    def fall_back(self, key: Any, fault: Fault, others: bool) -> None:
        """Let a signature stay define-by-run, and after many for the same reason ``others`` of its mode, unseen."""
        with self.lock:
            mode = key[:2]
            alike = self._alike.get(mode)
            if alike is None or alike.fault != fault:
                alike = Alike(fault)
            self.put(key, Fallback(fault))
            self._alike[mode] = alike
            self.count_alike(key, others)

    def count_alike(self, key: Any, others: bool) -> None:
        """Count a call that stays define-by-run as its mode's last fallback does; after many ``others`` are unseen."""
        mode = key[:2]
        with self.lock:
            alike = self._alike.get(mode)
            if alike is None:
                return
            alike.count += 1
            if others and alike.count >= ALIKE_SIGNATURES and not self._others and all(
                    e.fault for k, e in self.entries.items() if k[:2] == mode):
                alike.unseen = alike.unseen or UNSEEN_CALLS

    def is_unseen(self) -> bool:
        """Whether a call stays define-by-run without a look at its arguments; counts it."""
        alike = self._alike.get((config.train, config.enable_backprop)) if self._alike else None
        if alike is None or not alike.unseen:
            return False
        alike.unseen = alike.unseen - 1 or UNSEEN_CALLS
        return alike.unseen < UNSEEN_CALLS

    @property
    def alike(self) -> list[Fault]:
        """The reasons for which most calls are not looked at."""
        return [a.fault for a in self._alike.values() if a.unseen]

    def put(self, key: Any, entry: CacheEntry) -> None:
        with self.lock:
            if entry.fault is None:
                self._alike.pop(key[:2], None)
                self.objects.clear()
            self.entries[key] = entry
            self.entries.move_to_end(key)
            self.recent = self.step = None
            while len(self.entries) > MAX_SCHEDULES:
                old, entry = self.entries.popitem(last=False)
                for e in (entry, *self._others.pop(old, ())):
                    e.release()
                self._wasted.pop(old, None)
            for known in (self._others, self._wasted):  # of signatures that never came to an entry
                if len(known) > 2 * MAX_SCHEDULES:
                    del known[next(k for k in known if k not in self.entries)]

    def other(self, key: Any, entry: CacheEntry) -> tuple[CacheEntry | None, Fault | None]:
        """Put ``entry``, whose guards fail, aside for one whose guards hold; a fault when that goes on and on."""
        with self.lock:
            others = self._others.setdefault(key, [])
            recorded = entry.recording
            assert recorded is not None  # fallbacks have no guards
            wasted = entry.schedule is None and recorded not in self._steps  # it has never run compiled
            changes = recorded.checks.changes()
            self.changing.learn(recorded.checks.guards)
            found = next(filter(guards_hold, others), None)
            if found is not None:
                others.remove(found)
            elif self.waste(key, wasted):
                return None, Fault(f"{changes} changes in every call; pass it as an argument, or keep it in a "
                                   "persistent array", recorded.where)
            others.insert(0, entry)
            del others[MAX_OTHER_SCHEDULES:]
            if found is None:
                self.note(key, f"{recorded.where}: {changes}")
                self.drop(key)
            else:
                self.put(key, found)
            return found, None

    def fitting(self, key: Any) -> CacheEntry | None:
        """Return the recording or schedule of ``key`` whose guards hold, if any; it is the entry from then on."""
        entry = self.entries.get(key)
        if entry is None or guards_hold(entry):
            self.touch(key)
            return None if entry is None or entry.recording is None else entry
        with self.lock:
            others = self._others.get(key, [])
            found = next(filter(guards_hold, others), None)
            if found is not None:
                others[others.index(found)] = entry
                self.put(key, found)
            return found

    def note_step(self, recording: Recording, optimizer: Any, step: Any, reason: str) -> None:
        """Keep that ``optimizer`` makes whole steps of a recording, or why it does not."""
        known = [s for s in self._steps.get(recording, []) if s[0]() not in (None, optimizer)]
        made = None if step is None else weakref.ref(step)
        self._steps[recording] = [*known, (weakref.ref(optimizer), made, reason)]

    def steps(self, entry: CacheEntry) -> list[tuple[Any, str]]:
        """Return the whole steps of a recording or of its schedule, or None and the reason why there is none."""
        every = [] if entry.recording is None else self._steps.get(entry.recording, [])
        found = [(None if made is None else made(), reason) for of, made, reason in every if of() is not None]
        return [(step, reason) for step, reason in found if step is not None or reason]

    def note(self, key: Any, reason: str) -> None:
        """Keep why ``key`` is traced again, for ``explain``."""
        reasons = self.retraces.setdefault(key, [])
        reasons.append(reason)
        del reasons[:-MAX_REASONS]
        while len(self.retraces) > MAX_SCHEDULES:
            del self.retraces[next(iter(self.retraces))]

    def others(self, key: Any) -> list[CacheEntry]:
        """Return the schedules of ``key`` whose guards did not hold when they were last asked."""
        return self._others.get(key, [])

    def tries_again(self, key: Any, guards: Iterable[Guard]) -> bool:
        """Whether to trace the next call, too, after a fault: the call has stored another thing where it read one.

        So does a first call that initializes. ``guards`` are those of what was read before the fault.
        """
        stored = any(isinstance(g, Entry) and not g.holds() for g in guards)
        return stored and not self.waste(key, True) and self._wasted[key] <= MOST_FAULTY_TRACES

    def waste(self, key: Any, wasted: bool) -> bool:
        """Count one more trace for ``key``; returns whether that has become pointless."""
        count = self._wasted[key] = self._wasted.get(key, 0) + 1 if wasted else 0
        return count >= MOST_WASTED_TRACES

    def postpones(self, key: Any, soon: int) -> bool:
        """Whether a new signature stays define-by-run for now: beyond ``soon`` of them it has to come ``OFTEN_CALLS``.

        Code with ever new shapes would trace all of them, and, turning through more than are kept, replay none. As
        many as are kept are traced at once where their kernels are there already.
        """
        with self.lock:
            known = self._families.get(without_extents(key)) if len(self.entries) >= soon else None
            if len(self.entries) < (MAX_SCHEDULES if known is not None and known.shares else soon):
                return False
            count = self._waiting.pop(key, 0) + 1
            if count >= OFTEN_CALLS:
                return False
            self._waiting[key] = count
            if len(self._waiting) > 4 * MAX_SCHEDULES:
                del self._waiting[next(iter(self._waiting))]
            return True

    @property
    def waiting(self) -> int:
        """Number of signatures that have not come often enough."""
        return len(self._waiting)

    def numbers_change(self, key: Any) -> tuple[bool, bool]:
        """Whether call after call has numbers or objects that no earlier one had, so that to trace it is pointless.

        Also returns whether earlier ones have fallen back.

        Where they stay what they are, the second such call is worth a trace.
        """
        general = without_numbers(key)
        with self.lock:
            last, count, fell_back = self._numbers.pop(general, (key, 0, False))
            entry = self.entries.get(last)
            used = entry is not None and (entry.schedule is not None or entry.recording in self._steps)
            count = 0 if used or last == key else count + 1
            fell_back = fell_back if entry is None else entry.fault is not None
            self._numbers[general] = key, count, fell_back
            if len(self._numbers) > MAX_SCHEDULES:
                self._numbers.popitem(last=False)
        return count >= MOST_WASTED_TRACES, fell_back

    def free_memory(self, entry: CacheEntry) -> None:
        """Let idle schedules give back memory, if more is held than when this was last asked; ``entry`` runs next."""
        if self._made != (now := made()):
            self._made = now
            with self.lock:
                others = [e for several in self._others.values() for e in several]
                free_memory([*others, *self.entries.values()], entry)

    def touch(self, key: Any) -> None:
        """Note that the entry of ``key`` is used."""
        with self.lock:
            if key in self.entries:
                self.entries.move_to_end(key)

    def drop(self, key: Any) -> None:
        """Forget the entry of ``key``."""
        with self.lock:
            self.entries.pop(key, None)
            self.recent = self.step = None
