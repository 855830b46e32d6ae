"""The text of the thread pool's native code: the loop over a table of instructions, its barrier, and the workers.

Functions that rarely run are not optimised (``optnone``), which compiles them in a fraction of the time.
"""
from __future__ import annotations

import sys
from typing import Final

# Offsets in the shared state. `WORD` is (number of the run << 8 | number of threads), a change of it starts a run.
WORD: Final = 0
ARRIVED: Final = 64      # threads waiting at the barrier
ROUND: Final = 128       # number of the barrier
TABLE: Final = 192
ROWS: Final = 200
STOP: Final = 208
SLEEPING: Final = 256    # workers that need to be woken
BUSY: Final = 320        # a run is going on
WORKERS: Final = 384     # workers that take part in runs
READY: Final = 448       # workers that have started
SPIN: Final = 512        # pauses of a worker before it sleeps
PATIENCE: Final = 520    # pauses at a barrier before the thread yields its processor
CALLER: Final = 576      # the processor on which the caller of the run was when it began
MOVED: Final = 584       # number of the run in which a worker last went to another processor
STATE_BYTES: Final = 640

_TEXT = """
{declarations}


define internal void @barrier(ptr %state, i64 %nth) {{
entry:
  %alone = icmp eq i64 %nth, 1
  br i1 %alone, label %out, label %arrive
arrive:
  %arrived = getelementptr i8, ptr %state, i64 {ARRIVED}
  %round = getelementptr i8, ptr %state, i64 {ROUND}
  %patience.p = getelementptr i8, ptr %state, i64 {PATIENCE}
  %patience = load i64, ptr %patience.p
  %now = load atomic i64, ptr %round monotonic, align 8
  %before = atomicrmw add ptr %arrived, i64 1 acq_rel
  %others = sub i64 %nth, 1
  %last = icmp eq i64 %before, %others
  br i1 %last, label %release, label %wait
release:
  store atomic i64 0, ptr %arrived monotonic, align 8
  %next = add i64 %now, 1
  store atomic i64 %next, ptr %round release, align 8
  br label %out
wait:
  %count = phi i64 [0, %arrive], [%count.1, %again]
  %seen = load atomic i64, ptr %round acquire, align 8
  %done = icmp ne i64 %seen, %now
  br i1 %done, label %out, label %pause
pause:
  {pause}
  %count.1 = add i64 %count, 1
  %long = icmp sgt i64 %count.1, %patience
  br i1 %long, label %give, label %again
give:
  %ignored = call i32 @{give}()
  br label %again
again:
  br label %wait
out:
  ret void
}}

define internal void @walk(ptr %table, i64 %rows, ptr %state, i64 %tid, i64 %nth) {{
entry:
  %some = icmp sgt i64 %rows, 0
  br i1 %some, label %row, label %out
row:
  %i = phi i64 [0, %entry], [%i.1, %end], [%i.1, %meet]
  %kernel.p = getelementptr {{ptr, ptr, i64}}, ptr %table, i64 %i
  %kernel = load ptr, ptr %kernel.p
  %slots.p = getelementptr {{ptr, ptr, i64}}, ptr %table, i64 %i, i32 1
  %slots = load ptr, ptr %slots.p
  %how.p = getelementptr {{ptr, ptr, i64}}, ptr %table, i64 %i, i32 2
  %how = load i64, ptr %how.p
  %whose = lshr i64 %how, 8
  %shared = icmp eq i64 %whose, 0
  br i1 %shared, label %part, label %whole
part:
  call void %kernel(ptr %slots, i64 %tid, i64 %nth)
  br label %end
whole:
  %alone = icmp eq i64 %nth, 1
  %me = add i64 %tid, 1
  %own = icmp eq i64 %whose, %me
  %mine = or i1 %alone, %own
  br i1 %mine, label %all, label %end
all:
  call void %kernel(ptr %slots, i64 0, i64 1)
  br label %end
end:
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %rows
  %beside = trunc i64 %how to i1
  %on = and i1 %beside, %more
  br i1 %on, label %row, label %meet
meet:
  call void @barrier(ptr %state, i64 %nth)
  br i1 %more, label %row, label %out
out:
  ret void
}}

; The entry point: where the functions for Python are.
define void @parts(ptr %out) noinline optnone {{
entry:
  store ptr @run, ptr %out
  %worker.p = getelementptr ptr, ptr %out, i64 1
  store ptr @worker, ptr %worker.p
  %stop.p = getelementptr ptr, ptr %out, i64 2
  store ptr @stop, ptr %stop.p
  %pauses.p = getelementptr ptr, ptr %out, i64 3
  store ptr @pauses, ptr %pauses.p
  ret void
}}

; A call is {{table, rows, state, threads}}.
define void @run(ptr %call) {{
entry:
  %table = load ptr, ptr %call
  %rows.p = getelementptr i64, ptr %call, i64 1
  %rows = load i64, ptr %rows.p
  %state.p = getelementptr i64, ptr %call, i64 2
  %state = load ptr, ptr %state.p
  %nth.p = getelementptr i64, ptr %call, i64 3
  %nth = load i64, ptr %nth.p
  %many = icmp sgt i64 %nth, 1
  br i1 %many, label %claim, label %alone
claim:
  %busy = getelementptr i8, ptr %state, i64 {BUSY}
  %claimed = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{i64, i1}} %claimed, 1
  br i1 %mine, label %enough, label %alone
enough:
  ; Only now: before, somebody could have stopped the workers.
  %workers.p = getelementptr i8, ptr %state, i64 {WORKERS}
  %workers = load atomic i64, ptr %workers.p acquire, align 8
  %lacking = sub i64 %nth, 1
  %few = icmp slt i64 %workers, %lacking
  br i1 %few, label %release, label %together
release:
  store atomic i64 0, ptr %busy release, align 8
  br label %alone
alone:
  call void @walk(ptr %table, i64 %rows, ptr %state, i64 0, i64 1)
  ret void
together:
  %table.p = getelementptr i8, ptr %state, i64 {TABLE}
  store ptr %table, ptr %table.p
  %n.p = getelementptr i8, ptr %state, i64 {ROWS}
  store i64 %rows, ptr %n.p
  {here}
  %word = load atomic i64, ptr %state monotonic, align 8
  %number = and i64 %word, -256
  %number.1 = add i64 %number, 256
  %word.1 = or i64 %number.1, %nth
  store atomic i64 %word.1, ptr %state seq_cst, align 8
  %sleeping.p = getelementptr i8, ptr %state, i64 {SLEEPING}
  %sleeping = load atomic i64, ptr %sleeping.p seq_cst, align 8
  %any = icmp ne i64 %sleeping, 0
  br i1 %any, label %wake, label %go
wake:
  {wake}
  br label %go
go:
  call void @walk(ptr %table, i64 %rows, ptr %state, i64 0, i64 %nth)
  store atomic i64 0, ptr %busy release, align 8
  ret void
}}

define void @worker(ptr %state, i64 %tid) noinline optnone {{
entry:
  %sleeping = getelementptr i8, ptr %state, i64 {SLEEPING}
  %ready = getelementptr i8, ptr %state, i64 {READY}
  %stop.p = getelementptr i8, ptr %state, i64 {STOP}
  %spin.p = getelementptr i8, ptr %state, i64 {SPIN}
  %table.p = getelementptr i8, ptr %state, i64 {TABLE}
  %rows.p = getelementptr i8, ptr %state, i64 {ROWS}
  %first = load atomic i64, ptr %state acquire, align 8
  %ignored = atomicrmw add ptr %ready, i64 1 release
  br label %idle
idle:
  %seen = phi i64 [%first, %entry], [%word, %awake], [%word, %work]
  %spin = load i64, ptr %spin.p
  br label %look
look:
  %count = phi i64 [0, %idle], [%count.1, %pause], [0, %sleep]
  %word = load atomic i64, ptr %state acquire, align 8
  %new = icmp ne i64 %word, %seen
  br i1 %new, label %awake.0, label %wait
wait:
  %count.1 = add i64 %count, 1
  %long = icmp sgt i64 %count.1, %spin
  br i1 %long, label %sleep, label %pause
pause:
  {pause}
  br label %look
sleep:
  %more = atomicrmw add ptr %sleeping, i64 1 seq_cst
  {sleep}
  %less = atomicrmw sub ptr %sleeping, i64 1 seq_cst
  br label %look
awake.0:
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %end = icmp ne i64 %stop, 0
  br i1 %end, label %out, label %awake
awake:
  %nth = and i64 %word, 255
  %mine = icmp slt i64 %tid, %nth
  br i1 %mine, label %work, label %idle
work:
  {apart}
  %table = load ptr, ptr %table.p
  %rows = load i64, ptr %rows.p
  call void @walk(ptr %table, i64 %rows, ptr %state, i64 %tid, i64 %nth)
  br label %idle
out:
  ret void
}}

; Waits for a run that is going on, but not for ever, and tells the workers to return.
define void @stop(ptr %state) noinline optnone {{
entry:
  %busy = getelementptr i8, ptr %state, i64 {BUSY}
  %stop = getelementptr i8, ptr %state, i64 {STOP}
  %workers = getelementptr i8, ptr %state, i64 {WORKERS}
  store atomic i64 0, ptr %workers release, align 8
  br label %try
try:
  %count = phi i64 [0, %entry], [%count.1, %give]
  %claimed = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{i64, i1}} %claimed, 1
  %count.1 = add i64 %count, 1
  %enough = icmp sgt i64 %count.1, 1000000
  %end = or i1 %mine, %enough
  br i1 %end, label %tell, label %give
give:
  %ignored = call i32 @{give}()
  br label %try
tell:
  store atomic i64 1, ptr %stop release, align 8
  %word = load atomic i64, ptr %state monotonic, align 8
  %number = and i64 %word, -256
  %number.1 = add i64 %number, 256
  store atomic i64 %number.1, ptr %state seq_cst, align 8
  {wake}
  ret void
}}

define void @pauses(i64 %n) noinline optnone {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.1, %loop]
  {pause}
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""

# A worker that finds itself on the caller's processor goes to another one, if it may: schedulers can take a second and
# more to part two threads that run by turns, as they do at barriers. Once in 16 runs at most, since where all
# processors are busy it is of no use. What the thread may use stays as it is: the mask without this processor holds for
# a moment.
_APART = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @here(ptr %state) {{
entry:
  %cpu = call i32 @sched_getcpu()
  %caller.p = getelementptr i8, ptr %state, i64 {CALLER}
  store atomic i32 %cpu, ptr %caller.p monotonic, align 4
  ret void
}}

define internal void @apart(ptr %state, i64 %word) noinline optnone {{
entry:
  %mask = alloca [128 x i8], align 8
  %other = alloca [128 x i8], align 8
  %cpu = call i32 @sched_getcpu()
  %caller.p = getelementptr i8, ptr %state, i64 {CALLER}
  %caller = load atomic i32, ptr %caller.p monotonic, align 4
  %same = icmp eq i32 %cpu, %caller
  %known = icmp ult i32 %cpu, 1024
  %close = and i1 %same, %known
  br i1 %close, label %again, label %out
again:
  %moved.p = getelementptr i8, ptr %state, i64 {MOVED}
  %moved = load atomic i64, ptr %moved.p monotonic, align 8
  %number = lshr i64 %word, 8
  %since = sub i64 %number, %moved
  %soon = icmp ult i64 %since, 16
  br i1 %soon, label %out, label %ask
ask:
  store atomic i64 %number, ptr %moved.p monotonic, align 8
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %move, label %out
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %other, ptr %mask, i64 128, i1 false)
  %byte = lshr i32 %cpu, 3
  %place = getelementptr i8, ptr %other, i32 %byte
  %bit = and i32 %cpu, 7
  %one = shl i32 1, %bit
  %bit.8 = trunc i32 %one to i8
  %without = xor i8 %bit.8, -1
  %old = load i8, ptr %place
  %new = and i8 %old, %without
  store i8 %new, ptr %place
  %refused = call i32 @sched_setaffinity(i32 0, i64 128, ptr %other)
  %back = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %out
out:
  ret void
}}
"""

_FUTEX = {"x86_64": 202, "amd64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}


def pool_text(triple: str, futex: bool | None = None) -> str:
    """Return the pool's LLVM text for a machine; ``futex`` False polls even where there are futexes."""
    arch = triple.split("-")[0]
    declarations: list[str] = []
    if arch in ("x86_64", "amd64", "i386", "i686"):
        declarations.append("declare void @llvm.x86.sse2.pause()")
        pause = "call void @llvm.x86.sse2.pause()"
    elif arch in ("aarch64", "arm64"):
        declarations.append("declare void @llvm.aarch64.hint(i32)")
        pause = "call void @llvm.aarch64.hint(i32 1)"
    else:
        pause = "fence seq_cst"
    windows = "windows" in triple or "win32" in triple
    give = "SwitchToThread" if windows else "sched_yield"
    declarations.append(f"declare i32 @{give}()")
    number = _FUTEX.get(arch) if "linux" in triple else None
    if number is not None and futex is not False:
        declarations.append("declare i64 @syscall(i64, ptr, i64, i64, ptr, ptr, i64)")
        # 129 and 128: wake and wait within the process; the futex is the low half of the word.
        wake = f"%woken = call i64 @syscall(i64 {number}, ptr %state, i64 129, i64 1000, ptr null, ptr null, i64 0)"
        sleep = f"%slept = call i64 @syscall(i64 {number}, ptr %state, i64 128, i64 %seen, ptr null, ptr null, i64 0)"
    else:
        name, amount = ("Sleep", 1) if windows else ("usleep", 100)
        declarations.append(f"declare i32 @{name}(i32)")
        wake, sleep = "", f"%slept = call i32 @{name}(i32 {amount})"
    here = apart = ""
    if "linux" in triple:
        declarations.append(_APART.format(CALLER=CALLER, MOVED=MOVED))
        here, apart = "call void @here(ptr %state)", "call void @apart(ptr %state, i64 %word)"
    return _TEXT.format(declarations="\n".join(declarations), pause=pause, give=give, wake=wake, sleep=sleep,
                        here=here, apart=apart,
                        ARRIVED=ARRIVED, ROUND=ROUND, PATIENCE=PATIENCE, WORKERS=WORKERS, BUSY=BUSY, TABLE=TABLE,
                        ROWS=ROWS, SLEEPING=SLEEPING, READY=READY, STOP=STOP, SPIN=SPIN)


if sys.byteorder == "big":  # the futex must be the half of the word that counts
    _FUTEX.clear()
