"""Sandbox of python graders against hostile code, with real bubblewrap."""

import os
import pwd
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.environments.sandbox import needed_sandbox

from windlass.confinement.syscalls import DENIED, NAMESPACES
from windlass.core.account import server_account
from windlass.graders import Fault, Ungradable
from windlass.sandbox import NoSandbox, Program, Sandbox, SandboxLimits, make_sandbox

# Runs what the item says, and says what came of it.
SOURCE = """
import ctypes, json, os, pathlib, signal, socket, subprocess, sys, threading

kept = 0

class Told(Exception): pass

def grade(sample, item):
    global kept
    kept += 1
    scope = globals() | {"sample": sample, "item": item}
    if "tell" in item:
        raise Told(repr(eval(item["tell"], scope)))
    if "do" in item:
        exec(item["do"], scope)
    return eval(item.get("score", "1.0"), scope)
"""
# Every descriptor that is left to it, its answers' among them.
GARBLING = """
fds = [fd for fd in range(3, 9) if os.path.exists(fd)]
def write(data):
    for fd in fds:
        try: os.write(fd, data)
        except OSError: pass
"""
SMALL = SandboxLimits(memory=2**29, disk=2**20, seconds=3)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return needed_sandbox()


@pytest.mark.parametrize(
    ("program", "package"),
    [("bwrap", "bubblewrap"), ("prlimit", "util-linux"), ("choom", "util-linux")],
)
def test_there_is_none_without_its_programs(
    sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    package: str,
) -> None:
    """None with fewer limits, in particular."""
    for other in {"bwrap", "prlimit", "choom", "setpriv"} - {program}:
        (tmp_path / other).symlink_to(shutil.which(other) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match=re.escape(f"{package} ({program}) is not installed")):
        make_sandbox()


@pytest.fixture(scope="module")
def program(sandbox: Sandbox) -> Iterator[Program]:
    made = Program(sandbox, SOURCE, SMALL)
    yield made
    made.close()


def fault(program: Program, **item: Any) -> tuple[Fault, str]:
    with pytest.raises(Ungradable) as raised:
        program.grade("", item)
    return raised.value.fault, raised.value.message


def told(program: Program, expression: str) -> str:
    kind, message = fault(program, tell=expression)
    assert kind is Fault.PYTHON_RUNTIME
    return message.removeprefix("Told: ").rpartition(" (line")[0]


def still_grades(program: Program) -> None:
    assert program.grade("", {"score": "0.25"}) == 0.25


@pytest.mark.parametrize(
    ("sample", "score", "expected"),
    [
        ("blue", "sample['output_text'] == 'blue'", 1),
        ('{"n": [7]}', "sample['output_json']['n'][0]", 7),
        ("x", "float(sample['output_json'] is None)", 1),
        ("Öl \u2028\n", "len(sample['choices'][0]['message']['content'])", 5),
        ("x", "item['deep']['er'][1]", 0.5),
        ("x", "-item['big'] // 10**30", -1),
    ],
)
def test_answers_are_graded(program: Program, sample: str, score: str, expected: float) -> None:
    item = {"score": score, "deep": {"er": [0, 0.5]}, "big": 10**30}
    assert program.grade(sample, item) == expected


def test_one_process_answers_until_it_has_worked_for_its_life(sandbox: Sandbox) -> None:
    program = Program(sandbox, SOURCE, SMALL)
    assert [program.grade("", {"score": "kept"}) for _ in range(3)] == [1, 2, 3]
    program.close()
    program = Program(sandbox, SOURCE, SandboxLimits(seconds=3, life_seconds=0))
    assert [program.grade("", {"score": "kept"}) for _ in range(2)] == [1, 1]
    program.close()


@pytest.mark.parametrize(
    ("score", "words"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (line "),
        ("item['missing']", "KeyError: 'missing'"),
        ("'0.5'", "TypeError: grade returned str, not a number"),
        ("None", "TypeError: grade returned NoneType"),
        ("float('nan')", "ValueError: grade returned nan, which is not finite"),
        ("float('-inf')", "grade returned -inf"),
        ("10 ** 400", "OverflowError"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError"),
    ],
)
def test_what_goes_wrong_in_grade_is_told(program: Program, score: str, words: str) -> None:
    kind, message = fault(program, score=score)
    assert kind is Fault.PYTHON_RUNTIME
    assert words in message
    still_grades(program)


def test_what_goes_wrong_while_it_is_loaded_is_told(sandbox: Sandbox) -> None:
    program = Program(sandbox, "def grade(sample, item): return 1\n\nimport torch\n", SMALL)
    assert fault(program) == (
        Fault.PYTHON_RUNTIME,
        "ModuleNotFoundError: No module named 'torch' (line 3)",
    )
    program.close()


def test_it_sees_an_interpreter_and_nothing_else(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret of the server's")
    (tmp_path / "key").write_text("a secret of the server's")
    for path in ("/etc/passwd", tmp_path / "key", Path(__file__), "/proc/1/environ"):
        kind, message = fault(program, do=f"open({str(path)!r})")
        assert (kind, "FileNotFoundError" in message) == (Fault.PYTHON_RUNTIME, True)
    assert told(program, "sorted(os.listdir('/'))") == "['dev', 'lib64', 'python', 'tmp', 'usr']"
    assert told(program, "sorted(os.environ)") == "['LD_LIBRARY_PATH', 'PWD']"
    assert told(program, "(os.getuid(), os.getgid(), os.uname().nodename)") == (
        "(65534, 65534, 'sandbox')"
    )
    assert told(program, "json.__file__").startswith("'/python/lib")
    # Its own first process and itself; whoever else lives here has no number there.
    assert told(program, "os.getpid() < 5") == "True"
    assert "ProcessLookupError" in fault(program, do=f"os.kill({os.getpid() + 1000}, 0)")[1]


@pytest.mark.parametrize("path", ["/here", "/usr/here", "/python/here", "/dev/here"])
def test_it_writes_nowhere_but_to_its_own_folder(program: Program, path: str) -> None:
    assert "Read-only file system" in fault(program, do=f"open({path!r}, 'w')")[1]
    assert program.grade("", {"do": "pathlib.Path('/tmp/here').write_text('x')"}) == 1


def test_it_has_no_network(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address):
            listener.accept()[0].close()
        kind, message = fault(program, do=f"socket.create_connection({address!r}, 1)")
        assert kind is Fault.PYTHON_RUNTIME
        assert "OSError" in message or "ConnectionRefusedError" in message
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_it_gets_no_more_privileges(program: Program) -> None:
    assert told(program, "ctypes.CDLL(None).unshare(0x10000000)") == "-1"
    assert "OSError" in fault(program, do="os.setuid(0)")[1]
    assert "PermissionError" in fault(program, do="os.chroot('/tmp')")[1]


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("while os.fork() >= 0: pass", "BlockingIOError"),
        ("threading.Thread(target=print).start()", "RuntimeError: can't start new thread"),
        ("subprocess.run(['/python/bin/python3'])", "BlockingIOError"),
        ("bytearray(10 * 2**30)", "MemoryError"),
        ("bytes().join(bytes(2**26) for _ in range(100))", "MemoryError"),
        ("open('/tmp/x', 'wb').write(bytes(2**31))", "MemoryError"),
        ("f = open('/tmp/x', 'wb', 0)\nwhile f.write(bytes(2**18)): pass", "File too large"),
        ("os.memfd_create('x') and os.ftruncate(os.memfd_create('y'), 2**31)", "File too large"),
        (
            "for i in range(9): pathlib.Path(f'/tmp/{i}').write_bytes(bytes(2**18))",
            "No space left on device",
        ),
        ("fds = [os.dup(0) for _ in range(100)]", "Too many open files"),
    ],
)
def test_it_takes_only_so_much(sandbox: Sandbox, do: str, words: str) -> None:
    program = Program(sandbox, SOURCE, SMALL)
    kind, message = fault(program, do=do)
    program.close()
    assert kind is Fault.PYTHON_RUNTIME
    assert words in message


def test_what_it_prints_is_not_heard(program: Program) -> None:
    item = {"do": "print('x' * 2**24)\nprint('x' * 2**24, file=sys.stderr)"}
    assert program.grade("", item) == 1


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("while True: pass", "timeout: grade took longer than 3 seconds."),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", "timeout: "),
        ("os._exit(0)", "exit: "),
        ("ctypes.string_at(0)", "exit: "),
        ("os.kill(os.getpid(), signal.SIGKILL)", "exit: "),
        ("for fd in fds: os.close(fd)", "exit: "),
        ("write(b'x' * 9000)", "protocol: "),
        ("write(b'a ' + json.dumps({'score': 9}).encode() + bytes([10]))", "protocol: "),
        ("write(bytes([10]) * 2**22)", "protocol: "),
    ],
)
def test_one_that_hangs_dies_or_garbles_is_replaced(program: Program, do: str, words: str) -> None:
    kind, message = fault(program, do=GARBLING + do)
    assert kind is Fault.PYTHON_SERVER
    assert message.startswith(words)
    still_grades(program)


def test_one_that_ended_unasked_is_no_ones_fault(program: Program) -> None:
    assert program.grade("", {}) == 1
    process = program.start()
    process.kill()
    process.wait()
    still_grades(program)


def test_whoever_waits_is_let_go_when_it_is_closed(sandbox: Sandbox) -> None:
    program = Program(sandbox, SOURCE, SandboxLimits(seconds=100))
    program.start()
    found: list[tuple[Fault, str]] = []
    waiting = threading.Thread(target=lambda: found.append(fault(program, do="while True: pass")))
    waiting.start()
    program.close()
    waiting.join(10)
    assert found[0][0] is Fault.PYTHON_SERVER
    assert fault(program)[1] == "start: The sandbox did not start."


def test_nothing_is_left_of_it(sandbox: Sandbox) -> None:
    program = Program(sandbox, SOURCE, SMALL)
    process = program.start()
    program.grade("", {"do": "signal.signal(signal.SIGHUP, signal.SIG_IGN)"})
    inner = psutil.Process(process.pid).children(recursive=True)
    assert len(inner) >= 2, "its first process, and Python"
    program.close()
    _, alive = psutil.wait_procs(inner, timeout=10)
    assert process.returncode is not None
    assert not alive


# What led out of the limits: the first process had none, and could be made to run another Python.
CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    # Addresses are made by the callee where it needs one: 0 is answered by the kernel, not by us.
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    return ctypes.get_errno() if result < 0 else 0
"""
PTRACE_SEIZE = 0x4206


def test_it_cannot_steer_its_first_process_nor_ask_the_kernel_for_more(sandbox: Sandbox) -> None:
    column = 0 if os.uname().machine == "x86_64" else 1
    program = Program(sandbox, CALL + SOURCE, SMALL)
    numbers = {name: pair[column] for name, pair in (DENIED | NAMESPACES).items()}
    assert told(program, f"call({numbers['ptrace']}, {PTRACE_SEIZE}, 1, 0, 0)") == "1"
    for name, number in numbers.items():
        if number is not None:
            # EPERM by the filter; what the kernel would say of such arguments is another error.
            assert told(program, f"call({number}, 0, 0, 0, 0, 0, 0)") == "1", name
    program.close()


def test_every_process_within_has_its_limits(sandbox: Sandbox) -> None:
    program = Program(sandbox, SOURCE, SMALL)
    process = program.start()
    program.grade("", {})
    inner = psutil.Process(process.pid).children(recursive=True)
    assert len(inner) >= 2, "the first process of its namespace among them"
    for each in inner:
        said = Path(f"/proc/{each.pid}/limits").read_text()
        assert re.search(rf"Max address space +{SMALL.memory} +{SMALL.memory} ", said)
        assert re.search(rf"Max file size +{SMALL.disk} +{SMALL.disk} ", said)
    program.close()


def test_its_user_owns_nothing(sandbox: Sandbox) -> None:
    if os.geteuid() != 0:
        # There is no other user to be: the namespace keeps it from what is ours.
        assert sandbox.account.uid == os.geteuid()
        return
    assert sandbox.account.uid not in {entry.pw_uid for entry in pwd.getpwall()}
    assert sandbox.account.uid != server_account().uid, "which owns the database"
