"""Seccomp: the kernel refuses system calls of this process and of everything that it starts.

In: rules, each with a system call, what its arguments must be, and what happens then. Out: a
program for the kernel, and, where a rule says `ASK`, a descriptor on which another process
decides. A call that no rule names passes, at no cost.
Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steptime.isolate import kernel

from .syscall_numbers import Processor, this_processor

ALLOW = 0x7FFF0000
ASK = 0x7FC00000
_REFUSE = 0x00050000

_SET_MODE_FILTER = 1
# Without this flag, kernels before 5.16 slow a filtered process down against Spectre.
_SPECULATION_AS_BEFORE = 1 << 2
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = (
    1 << 5
)  # since 5.19: a signal does not make a call that is being decided start over

# Instructions of the kernel's small machine, and where `struct seccomp_data` has what they load.
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_ABOVE, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
_SECOND_TABLE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """What one argument must be, as a number of 32 bits.

    Attributes:
        index: which argument, from 0.
        value: what it must be, after `mask`; None with `bits` or `is_set`.
        mask: the bits that count.
        bits: at least one of these bits must be set.
        is_set: the argument, of 64 bits, must not be zero.
    """

    index: int
    value: int | None = None
    mask: int = 0xFFFFFFFF
    bits: int = 0
    is_set: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule:
    """What happens with a call if all its `arguments` are so; the first rule that fits decides."""

    name: str
    action: int
    arguments: tuple[Argument, ...] = ()


def refuse(number: int) -> int:
    """Return the action that makes a call fail with this errno."""
    return _REFUSE | number


def assemble(rules: Iterable[CallRule], processor: Processor) -> bytes:
    """Return the program for the kernel."""
    by_call: dict[int, list[CallRule]] = {}
    for rule in rules:
        if rule.name in processor.numbers:
            by_call.setdefault(processor.numbers[rule.name], []).append(rule)
    code = [(_LOAD, 0, 0, _ARCH_AT), (_JUMP_EQUAL, 1, 0, processor.audit_arch)]
    code.append((_RETURN, 0, 0, refuse(errno.ENOSYS)))
    code.append((_LOAD, 0, 0, _NUMBER_AT))
    if processor.has_second_table:
        code += [(_JUMP_ABOVE, 0, 1, _SECOND_TABLE), (_RETURN, 0, 0, refuse(errno.ENOSYS))]
    for number, of_call in by_call.items():
        block = [line for rule in of_call for line in _lines_of(rule)]
        block.append((_RETURN, 0, 0, ALLOW))
        code += [(_JUMP_EQUAL, 0, len(block), number), *block]
    code.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


_Line = tuple[int, int, int, int]


def _lines_of(rule: CallRule) -> list[_Line]:
    """Return the lines of one rule; they fall through to the next rule if it does not fit."""
    lines: list[_Line] = [(_RETURN, 0, 0, rule.action)]
    for argument in reversed(rule.arguments):
        lines = [*_test(argument, len(lines)), *lines]
    return lines


def _test(argument: Argument, rest: int) -> list[_Line]:
    """Return the lines that skip the `rest` of a rule if an argument is not so."""
    low = _ARGS_AT + 8 * argument.index
    if argument.is_set:
        return [
            (_LOAD, 0, 0, low),
            (_JUMP_EQUAL, 0, 2, 0),
            (_LOAD, 0, 0, low + 4),
            (_JUMP_EQUAL, rest, 0, 0),
        ]
    if argument.bits:
        return [(_LOAD, 0, 0, low), (_JUMP_ANY_BIT, 0, rest, argument.bits)]
    lines: list[_Line] = [(_LOAD, 0, 0, low)]
    if argument.mask != 0xFFFFFFFF:
        lines.append((_AND, 0, 0, argument.mask))
    return [*lines, (_JUMP_EQUAL, 0, rest, argument.value or 0)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install(rules: Sequence[CallRule]) -> int | None:
    """Put this process, for ever, behind these rules.

    Returns:
        the descriptor on which calls with `ASK` wait for their answers; None if no rule asks.

    Raises:
        OSError: this kernel does not do that, or not for this processor.
    """
    processor = this_processor()
    if processor is None:
        raise OSError(errno.ENOSYS, "its system calls are not known to Steptime")
    asks = any(rule.action == ASK for rule in rules)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    code = assemble(rules, processor)
    flags = [_SPECULATION_AS_BEFORE]
    if asks:
        ask = _SPECULATION_AS_BEFORE | _NEW_LISTENER
        flags = [ask | _WAIT_KILLABLE, ask]
    for index, choice in enumerate(flags):
        try:
            found = _install(processor, code, choice)
        except OSError as error:
            if error.errno != errno.EINVAL or index == len(flags) - 1:
                raise
        else:
            return found if asks else None
    return None


def _install(processor: Processor, code: bytes, flags: int) -> int:
    program = _Program(length=len(code) // 8, code=code)
    return kernel.syscall(
        processor.seccomp,
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(flags),
        ctypes.byref(program),
        what="seccomp",
    )
