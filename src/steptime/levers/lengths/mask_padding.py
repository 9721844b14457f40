"""Padding behind the rows of a batch: what it is by the attention mask, and how it is cut off.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library. The
guest uses it too: to tell how much there is, and to compare batches whatever padding they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..tools.tensors import MAX_DEPTH, map_tensors, parts_of

NAMES = ("attention_mask", "input_mask", "padding_mask")
"""Fields that are masks by their name; others are recognized by their values."""

Fields = list[tuple[str, Any]]
"""The tensors of a batch, each with the key or place at which it stands."""


def fields_of(torch: Any, batch: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a batch of tuples, lists, dicts and objects, by name."""
    if isinstance(batch, torch.Tensor):
        if batch.layout is torch.strided and not batch.is_nested:
            yield name, batch
    elif depth <= MAX_DEPTH and not callable(batch) and not isinstance(batch, (str, bytes)):
        for key, part in parts_of(batch)[0]:
            yield from fields_of(torch, part, str(key), depth + 1)


def find_useful(torch: Any, fields: Iterable[tuple[str, Any]]) -> tuple[str, Any] | None:
    """Return the mask's name and which positions hold content; None where there is no mask.

    Content is True in a tensor of shape (rows, length). A field that is not named as a mask is one
    where its rows begin with content and end with padding, and another field holds one and the
    same whole number wherever there is padding.
    """
    tables = [(name, t) for name, t in fields if t.dim() == 2 and t.shape[0] and t.shape[1] > 1]
    for name, table in sorted(tables, key=lambda one: one[0] not in NAMES):
        useful = as_mask(torch, table)
        if useful is None:
            continue
        if name in NAMES or (ends_in_padding(useful) and has_padding_id(torch, useful, tables)):
            return name, useful
    return None


def as_mask(torch: Any, table: Any) -> Any:
    """Return a table of zeros and ones as booleans, with content in each row; None for others."""
    if table.dtype is torch.bool:  # torch's own layers mark padding with True
        useful = table if bool(table[:, 0].any()) else ~table
    elif bool(((table == 0) | (table == 1)).all()):
        useful = table != 0
    else:
        return None
    return useful if bool(useful.any(dim=1).all()) else None


def ends_in_padding(useful: Any) -> bool:
    """Return whether padding stands behind the content of each row, and some row has padding."""
    return not (bool((useful[:, 1:] & ~useful[:, :-1]).any()) or bool(useful.all()))


def has_padding_id(torch: Any, useful: Any, tables: Fields) -> bool:
    """Return whether a table of whole numbers holds one and the same wherever there is padding."""
    for _, table in tables:
        if table.shape == useful.shape and is_whole(torch, table):
            padding = table[~useful]
            if bool((padding == padding[0]).all()) and bool((table[useful] > 1).any()):
                return True
    return False


def is_whole(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor holds whole numbers."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def row_lengths(torch: Any, useful: Any) -> list[int]:
    """Return the length of each row up to its last content."""
    places = torch.arange(1, useful.shape[1] + 1, device=useful.device)
    lengths: list[int] = (useful * places).amax(dim=1).tolist()
    return lengths


def trim(torch: Any, batch: Any, *, multiple_of: int = 1) -> Any:
    """Return the batch cut to its longest row; the batch itself where nothing may be cut.

    All tensors of shape (rows, length, …) are cut at the same place. Columns are cut from the end
    only, and only those in which each of these tensors holds nothing but its padding.
    """
    fields = list(fields_of(torch, batch))
    found = find_useful(torch, fields)
    if found is None or bool(found[1][:, -1].any()):
        return batch  # some row is as long as the batch
    rows, length = found[1].shape
    if any(is_tied(tuple(tensor.shape), rows, length) for _, tensor in fields):
        return batch
    together = [tensor for _, tensor in fields if tuple(tensor.shape[:2]) == (rows, length)]
    kept = max(content_length(torch, tensor) for tensor in together)
    kept = min(length, -(-kept // multiple_of) * multiple_of)
    if kept == length:
        return batch
    cut = {id(tensor): tensor[:, :kept].contiguous() for tensor in together}
    return map_tensors(torch, batch, lambda tensor: cut.get(id(tensor), tensor))


def is_tied(shape: tuple[int, ...], rows: int, length: int) -> bool:
    """Return whether a shape has the batch's length elsewhere: a square mask, shared positions."""
    return length in (shape[2:] if shape[:1] == (rows,) else shape)


def content_length(torch: Any, tensor: Any) -> int:
    """Return the columns up to the last one that is not padding: the value that all rows end in.

    The tensor has shape (rows, length, …), and its last column holds padding alone. Positions that
    count on from column to column are no content.
    """
    is_table = tensor.dim() == 2 and is_whole(torch, tensor)
    if is_table and bool((tensor[:, 1:] - tensor[:, :-1] == 1).all()):
        return 0
    differs = (tensor != tensor[:1, -1:]).reshape(*tensor.shape[:2], -1)
    columns = differs.any(dim=2).any(dim=0).nonzero()
    return int(columns[-1]) + 1 if len(columns) else 0
