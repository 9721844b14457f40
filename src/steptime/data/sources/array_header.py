"""The header of numpy's file format, and an array in memory that has one. Nothing is unpickled."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from steptime.data.stored_bytes import DamagedBytesError

MAX_HEADER_BYTES = 1 << 16
"""numpy's own limit is 10,000 characters; a structure with many fields may have more."""


def parse_header(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Return dtype, shape, whether in Fortran order, and the bytes before the values.

    Source: numpy.lib.format, "Format Version 1.0" to "3.0"; the header is a literal of Python.
    """
    if not head.startswith(b"\x93NUMPY") or head[6] not in (1, 2, 3):
        raise DamagedBytesError("it does not begin as an array of numpy does")
    width = 2 if head[6] == 1 else 4
    length = int.from_bytes(head[8 : 8 + width], "little")
    text = head[8 + width : 8 + width + length]
    if len(text) < length:
        raise DamagedBytesError(f"it should have {length:,} bytes")
    fields = ast.literal_eval(re.sub(r"(?<=\d)L", "", text.decode("utf-8")))  # of Python 2: 3L
    shape = fields["shape"]
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise DamagedBytesError(f"its shape is {shape!r}")
    dtype = np.dtype(npy_format.descr_to_dtype(fields["descr"]))
    return dtype, shape, bool(fields["fortran_order"]), 8 + width + length


def parse_array(data: bytes) -> NDArray[Any]:
    """Return the array that bytes of numpy's format hold.

    Raises:
        DamagedBytesError: they are damaged, or hold objects.
    """
    try:
        dtype, shape, is_fortran, begin = parse_header(data)
    except SyntaxError as error:
        raise DamagedBytesError("the header of an array is damaged") from error
    if dtype.hasobject:
        raise DamagedBytesError("an array holds pickled objects, which are never unpickled")
    count = math.prod(shape)
    if count * dtype.itemsize > len(data) - begin:
        raise DamagedBytesError("an array is cut off")
    flat = np.frombuffer(data, dtype, count, begin)
    return flat.reshape(shape, order="F" if is_fortran else "C")
