"""The filter of system calls: its numbers by libseccomp, its program run as the kernel does."""

import ctypes
import ctypes.util
import errno
import struct

import pytest

from windlass.confinement import seccomp
from windlass.confinement.syscalls import (
    CLONE,
    CLONE3,
    DENIED,
    NAMESPACE_FLAGS,
    NAMESPACES,
    Numbers,
)

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALL: dict[str, Numbers] = DENIED | NAMESPACES | {"clone": CLONE, "clone3": CLONE3}
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def verdict(program: bytes, number: int, *, architecture: int, argument: int = 0) -> int:
    """The kernel's verdict on a call, from an interpreter of the few instructions that we use."""
    record = struct.pack("=IIQ6Q", number, architecture, 0, argument, 0, 0, 0, 0, 0)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = word = 0
    while True:
        kind, yes, no, value = code[at]
        at += 1
        if kind == 0x06:
            return int(value)
        if kind == 0x20:
            (word,) = struct.unpack_from("=I", record, value)
            continue
        holds = {0x15: word == value, 0x35: word >= value, 0x45: bool(word & value)}[kind]
        at += yes if holds else no


def test_the_numbers_are_those_of_libseccomp() -> None:
    found = ctypes.util.find_library("seccomp")
    if found is None:
        # The interpreter of the table below is the other check.
        return
    library = ctypes.CDLL(found)
    for column, architecture in enumerate(ARCHITECTURES.values()):
        for name, numbers in ALL.items():
            said = library.seccomp_syscall_resolve_name_arch(
                ctypes.c_uint32(architecture), name.encode()
            )
            # Releases before a call was made do not know its name.
            assert said == -1 or (said if said >= 0 else None) == numbers[column], name


@pytest.mark.parametrize("column", [0, 1], ids=list(ARCHITECTURES))
def test_what_is_denied_is_denied_and_nothing_else(column: int) -> None:
    machine, architecture = list(ARCHITECTURES.items())[column]
    program = seccomp.program(machine=machine)
    denied = {numbers[column] for numbers in (DENIED | NAMESPACES).values()} - {None}
    for number in range(512):
        said = verdict(program, number, architecture=architecture)
        if number in denied:
            assert said == FAIL | errno.EPERM
        elif number == CLONE3[column]:
            assert said == FAIL | errno.ENOSYS
        else:
            assert said == ALLOW
    spaces = verdict(program, CLONE[column] or 0, architecture=architecture, argument=0x10000000)
    assert spaces == FAIL | errno.EPERM
    assert verdict(program, 0, architecture=0x40000003) == KILL, "another set of numbers"


def test_walls_within_walls_may_be_built_and_nothing_more() -> None:
    program = seccomp.program(namespaces=True, machine="x86_64")
    architecture = ARCHITECTURES["x86_64"]
    for name, (number, _) in NAMESPACES.items():
        assert verdict(program, number, architecture=architecture) == ALLOW, name
    for name, (number, _) in DENIED.items():
        assert verdict(program, number, architecture=architecture) == FAIL | errno.EPERM, name
    clone = CLONE[0]
    assert verdict(program, clone, architecture=architecture, argument=NAMESPACE_FLAGS) == ALLOW
    second_set = verdict(program, 0x40000000, architecture=architecture)
    assert second_set == FAIL | errno.ENOSYS


def test_a_machine_of_other_numbers_has_no_filter() -> None:
    assert seccomp.program(machine="riscv64") == b""
