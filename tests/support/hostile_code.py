"""Functions as users may write them, and worse; each has an answer, or a reason why it has none."""

import signal

SECONDS = 1.0
# the processes that may be left are listed in the file `pids` beside it
HOSTILE = r"""
import json, os, signal, subprocess, sys, threading, time

def sockets():
    return [int(name) for name in os.listdir("/proc/self/fd") if linked(name).startswith("socket")]

def linked(name):
    try: return os.readlink(f"/proc/self/fd/{name}")
    except OSError: return ""

def write(text):
    for number in sockets(): os.write(number, text)

def started(*processes):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pids"), "a") as file:
        file.writelines(f"{process}\n" for process in (os.getpid(), *processes))

def away():
    # a process in a session of its own, whose parent has ended
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            started()
            os.closerange(0, 256)
            time.sleep(600)
        os._exit(0)
    os.wait()

def fine(*_): return 0.5
def is_slow(*_): time.sleep(1.5); return 0.5
def hangs(*_): started(); time.sleep(600)
def hangs_in_c(*_): started(); sum(range(10**14))
def half_a_message(*_): started(); write(b"[1, 0."); time.sleep(600)
def drips(*_):
    while True: write(b"["); time.sleep(0.05)
def garbage(*_): write(b"\x00\xff\n"); time.sleep(600)
def another_answer(*_): write(b'[999, 1.0, ""]\n'); return 0.5
def garbage_without_end(*_):
    while True: write(b"x" * 65536)
def closes_its_connection(*_):
    os.closerange(3, 256)
    started()
    time.sleep(600)
def forks_away(*_): away(); return 0.5
def forks_away_and_hangs(*_): away(); started(); time.sleep(600)
def forks_away_and_ends(*_): away(); os._exit(3)
def starts_threads(*_):
    for _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()
    return 0.5
def starts_a_shell(*_):
    started(subprocess.Popen("setsid sleep 600 & sleep 600", shell=True).pid)
    return 0.5
def exits(*_): sys.exit(4)
def ends(*_): os._exit(4)
def aborts(*_): os.abort()
def kills_itself(*_): os.kill(os.getpid(), signal.SIGKILL)
def kills_its_group(*_): os.kill(0, signal.SIGKILL)
def terminates_its_group(*_): os.kill(0, signal.SIGTERM); return 0.5
def stops_itself(*_): started(); os.kill(os.getpid(), signal.SIGSTOP)
def stops_its_group(*_): started(); os.kill(0, signal.SIGSTOP)
def kills_its_guard(*_): started(); os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)
def stops_its_guard(*_): started(); os.kill(os.getppid(), signal.SIGSTOP); time.sleep(600)
def wakes_its_guard(*_):
    for _ in range(2000): os.kill(os.getppid(), signal.SIGCHLD)
    return 0.5
def prints_without_end(*_):
    while True: os.write(1, b"x" * 65536)
def takes_memory(*_): return len(bytearray(8 << 30))
def takes_memory_in_pieces(*_):
    kept = []
    while True: kept.append(bytearray(16 << 20))
def recursion(*_): return recursion()
def raises(*_): raise ValueError("no")
def raises_what_cannot_be_printed(*_):
    class Odd(Exception):
        def __str__(self): raise SystemExit(5)
    raise Odd
def raises_half_a_character(*_): raise ValueError("\ud83d and \udcff")
def returns_half_a_character(*_): return "a\ud800b\ud83d\ude00"
def returns_much(*_): return "x" * (17 << 20)
def returns_nan(*_): return float("nan")
def returns_infinity(*_): return float("-inf")
def returns_itself(*_):
    itself = []
    itself.append(itself)
    return itself
def returns_an_object(*_): return object()
def returns_bytes(*_): return b"\xff"
def changes_its_streams(*_): sys.stdout = sys.stderr = None; print("x"); return 0.5
def closes_its_streams(*_): os.close(0); os.close(1); os.close(2); return 0.5
"""
LATE = f"took longer than {SECONDS:g} s"
# what a question is answered with: a value, or a piece of the problem
EXPECTED: dict[str, object] = {
    "fine": 0.5,
    "is_slow": 0.5,
    "hangs": LATE,
    "hangs_in_c": LATE,
    "half_a_message": LATE,
    "drips": LATE,
    "garbage": "wrote into the connection",
    "another_answer": "wrote into the connection",
    "garbage_without_end": "wrote without end",
    "closes_its_connection": "closed its connection",
    "forks_away": 0.5,
    "forks_away_and_hangs": LATE,
    "forks_away_and_ends": "ended with exit code 3",
    "starts_threads": 0.5,
    "starts_a_shell": 0.5,
    "exits": "raised SystemExit: 4",
    "ends": "ended with exit code 4",
    "aborts": f"ended with exit code -{signal.SIGABRT:d}",
    "kills_itself": f"ended with exit code -{signal.SIGKILL:d}",
    "kills_its_group": f"ended with exit code -{signal.SIGKILL:d}",
    "terminates_its_group": 0.5,
    "stops_itself": LATE,
    "stops_its_group": LATE,
    "kills_its_guard": f"ended with exit code -{signal.SIGKILL:d}",
    "stops_its_guard": LATE,
    "wakes_its_guard": 0.5,
    "prints_without_end": LATE,
    "takes_memory": "needed more than 0.5 GiB of memory",
    "takes_memory_in_pieces": "needed more than 0.5 GiB of memory",
    "recursion": "raised RecursionError",
    "raises": "raised ValueError: no",
    "raises_what_cannot_be_printed": "raised Odd",
    "raises_half_a_character": "raised ValueError: \ufffd and \ufffd",
    "returns_half_a_character": "a\ufffdb\U0001f600",
    "returns_much": "returned more than 16 MiB",
    "returns_nan": "raised ValueError",
    "returns_infinity": "raised ValueError",
    "returns_itself": "raised ValueError: Circular reference",
    "returns_an_object": "raised TypeError",
    "returns_bytes": "raised TypeError",
    "changes_its_streams": 0.5,
    "closes_its_streams": 0.5,
}
# what a tool returns becomes a text, whatever it is: JSON where there is a form for it
AS_RESULTS = {
    "returns_nan": "null",
    "returns_infinity": "null",
    "returns_itself": "[[...]]",
    "returns_an_object": "<object object>",
    "returns_bytes": "xff",
}
