"""Reads one number out of a tensor on the CPU without calling an operator of torch.

An operator would be seen by a mode, a profiler or a trace of the user's. Memory is read as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_double, c_float, c_uint16
from typing import Any

Read = Callable[[int], float]


def _read_float(address: int) -> float:
    return c_float.from_address(address).value


def _read_double(address: int) -> float:
    return c_double.from_address(address).value


def _read_half(address: int) -> float:
    bits = c_uint16.from_address(address).value
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def _read_bfloat16(address: int) -> float:
    bits = c_uint16.from_address(address).value
    return float(struct.unpack("<f", struct.pack("<HH", 0, bits))[0])


def readers(torch: Any) -> dict[Any, Read]:
    """Return what reads a number at an address, by its type."""
    return {
        torch.float32: _read_float,
        torch.float64: _read_double,
        torch.float16: _read_half,
        torch.bfloat16: _read_bfloat16,
    }


def is_finite(value: float) -> bool:
    """Return whether a number is neither infinite nor NaN: the difference to itself is zero."""
    return value - value == 0.0
