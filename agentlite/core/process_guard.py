"""What a user's code has started ends with it: a guard process stands above that code.

Linux only. A process group or a session would not do: a child leaves both with setsid(). But
a process whose parent has ended becomes a child of the nearest subreaper above it, and the guard
is one. So whatever the worker starts stays below the guard, and the guard can find and kill it.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

AVAILABLE = sys.platform == "linux"
STOP = signal.SIGUSR1 if AVAILABLE else None  # asks the guard to end all, and itself
ENDING = 10.0  # seconds that the killed may take to be gone
MOST_PRINTED = 64 << 20  # bytes that are shown of what the worker prints
SUBREAPER, DEATH_SIGNAL = 36, 1  # of prctl(2)


def fork_under_guard(parent_sentinel: int, *sockets: int) -> None:
    """Forks. Returns in the worker alone: the caller becomes its guard, and never returns.

    The guard ends when the worker has ended, when the parent of the guard has (`parent_sentinel`
    becomes readable), or at STOP; by then it has killed every descendant, and it ends as the worker
    did. `sockets` are the worker's. The worker's output goes to the guard's stderr.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(SUBREAPER, 1, 0, 0, 0)
    woken, wakes = os.pipe()
    printed, prints = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)  # the byte in the pipe is what counts
    guard = os.getpid()
    worker = os.fork()
    if worker:
        for descriptor in (prints, *sockets):
            os.close(descriptor)
        _watch(worker, parent_sentinel, woken, printed)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guard:  # it ended before the line above
        os._exit(1)
    os.setsid()  # a signal that the worker sends to its group does not reach the guard
    for descriptor in (1, 2):
        os.dup2(prints, descriptor)
    for descriptor in (woken, wakes, printed, prints):
        os.close(descriptor)


def _watch(worker: int, parent_sentinel: int, woken: int, printed: int) -> None:
    watched, shown, status = [parent_sentinel, woken, printed], 0, None
    while status is None:
        ready = wait(watched)
        if printed in ready:
            piece = os.read(printed, 1 << 16)
            shown = _show(piece, shown)
            if not piece:
                watched.remove(printed)
        if parent_sentinel in ready:
            break
        if woken in ready:
            if signal.SIGUSR1 in os.read(woken, 1 << 10):
                break
            status = _reap(worker)
    # the worker first, or it would see its helpers die and say so
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    end = time.monotonic() + ENDING
    while time.monotonic() < end:
        for process in _descendants():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        try:
            reaped = _reap(worker)
        except ChildProcessError:  # no child is left, dead or alive
            break
        status = reaped if status is None else status
        time.sleep(0.005)
    os.set_blocking(printed, False)
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(printed, 1 << 16):
            shown = _show(piece, shown)
    _end_as(os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL)


def _show(piece: bytes, shown: int) -> int:
    """Passes a piece on, unless enough was shown. Returns what was printed until now, in bytes."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads our stderr any more
        if shown < MOST_PRINTED:
            sys.stderr.buffer.write(piece[: MOST_PRINTED - shown])
            if shown + len(piece) >= MOST_PRINTED:
                limit = f"{MOST_PRINTED >> 20} MiB"
                sys.stderr.buffer.write(f"\n(more than {limit} printed: no more shown)\n".encode())
            sys.stderr.buffer.flush()
    return shown + len(piece)


def _reap(worker: int) -> int | None:
    """Collects the children that have ended. The status of the worker, if it is among them. Raises
    ChildProcessError where there are no children.
    """
    status = None
    while True:
        process, how = os.waitpid(-1, os.WNOHANG)
        if not process:
            return status
        if process == worker:
            return how


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            # the name, in brackets, may hold anything; behind it: the state, the parent
            parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    found = [os.getpid()]
    for process in found:  # grows while it is read
        found += children.get(process, [])
    return found[1:]


def _end_as(exit_code: int) -> None:
    """Ends as the worker did, by the same signal if it was one."""
    if exit_code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    os._exit(exit_code)


def die_with_parent() -> None:
    """In a process that was just forked: the system kills it when its parent ends, however that
    ends. Linux only; elsewhere it is left to itself.
    """
    if AVAILABLE:
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def limit_memory(gibibytes: float) -> None:
    """For this process, and each that it starts, on its own: of private memory, so that what a GPU
    driver only reserves does not count. Systems other than Linux have no such limit.
    """
    if AVAILABLE:
        import resource

        size, hard = int(min(gibibytes * 2**30, 2**62)), resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))
