"""A filter of system calls, as the program that the kernel runs at each (seccomp-bpf)."""

import errno
import os
import platform
import struct

from windlass.confinement.syscalls import CLONE, CLONE3, DENIED, NAMESPACE_FLAGS, NAMESPACES

# linux/audit.h
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# linux/bpf_common.h: load a word of the call's record, jump if equal, if not less, if a bit is set.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
# x86_64's second set of numbers.
_X32 = 0x40000000


def program(*, namespaces: bool = False, machine: str = "") -> bytes:
    """The filter's instructions (`struct sock_filter`), for bwrap's `--seccomp`.

    `namespaces` leaves the calls that build walls within walls. Empty on a machine whose numbers
    are not known here.
    """
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return b""
    column, architecture = known
    denied = DENIED if namespaces else DENIED | NAMESPACES
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if column == 0:
        code += _when(_AT_LEAST, _X32, errno.ENOSYS)
    for numbers in denied.values():
        if (number := numbers[column]) is not None:
            code += _when(_EQUAL, number, errno.EPERM)
    if not namespaces:
        code += _when(_EQUAL, CLONE3[column] or 0, errno.ENOSYS)
        code += [(_EQUAL, 0, 3, CLONE[column] or 0), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        code += _when(_ANY_BIT, NAMESPACE_FLAGS, errno.EPERM)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def descriptor(instructions: bytes) -> int:
    """An open file of a program, to be inherited by bwrap; the caller closes it."""
    made = os.memfd_create("seccomp")
    os.write(made, instructions)
    os.lseek(made, 0, os.SEEK_SET)
    return made


def _when(test: int, value: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, _FAIL | error)]
