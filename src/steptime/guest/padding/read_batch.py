"""Finds out how much of a batch is padding, from what the batch itself holds.

In: named tensors. Out: a `BatchLook`, or None where nothing tells of lengths. What says most is
believed first: bounds of packed sequences, a mask, labels that the loss leaves out, and last the
run of one token at the end of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .host_rows import FLAGS, ITEM_BYTES, WHOLE, Named, is_on_host, rows_of
from .row_lengths import (
    UsedPart,
    are_solid,
    find_padding,
    num_ignored,
    pads_with_one_token,
    read_bounds,
    read_mask,
    restarts,
)

BOUNDS, MASK, PIXELS, LABELS, RUNS = range(5)
"""What said it, by its place in `record.loaders.batch_rows.SEEN_BY`, the surest first."""

_TOKENS = ("input_ids", "decoder_input_ids", "ids", "tokens", "x")
_LABELS = ("labels", "label", "targets", "target", "y", "")
_MASKS = ("attention_mask", "input_mask", "attn_mask", "mask", "")
_UNSURE = ("", "mask")
_PADDING_MASKS = ("padding_mask", "pad_mask")
_MAX_ROWS_WRITTEN = 256


class BatchLook(NamedTuple):
    """What a batch holds.

    Attributes:
        seen_by: what said it.
        num_rows: its rows; of packed sequences these, if it has several.
        width: positions of a row, with padding.
        lengths: used positions of each row that was read, or of each packed sequence.
        num_seen: positions that were read, with padding.
        num_needed: positions that are left if each batch is cut to its longest row.
        num_trained: positions that the loss takes; -1 if no labels were seen.
        token: the padding token that ends rows; -1 if another thing than its runs told.
        num_bytes: bytes that were read.
    """

    seen_by: int
    num_rows: int
    width: int
    lengths: tuple[int, ...]
    num_seen: int
    num_needed: int
    num_trained: int = -1
    token: int = -1
    num_bytes: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Return its rows and their width."""
        return self.num_rows, self.width


def tokens_of(tensors: Sequence[Named]) -> Named | None:
    """Return the tensor of tokens: two dimensions of whole numbers, by its name if it has one."""
    found = [one for one in tensors if one.dtype in WHOLE[:2] and len(one.shape) == 2]
    named = next((one for name in _TOKENS for one in found if one.name == name), None)
    others = (one for one in found if "mask" not in one.name and one.name not in _LABELS[:-1])
    return named or next(others, None)


def read_batch(tensors: Sequence[Named]) -> BatchLook | None:
    """Return what the tensors on the host tell; None if they tell nothing."""
    here = [one for one in tensors if is_on_host(one)]
    tokens = tokens_of(here)
    look = _read_bounds(here, tokens) or _read_masks(here, tokens) or _read_pixels(here)
    if look is None and tokens is not None:
        look = _read_tokens(here, tokens)
    if look is None or tokens is None or look.seen_by in (PIXELS, LABELS):
        return look
    found = _labels_of(here, tokens)
    return look if found is None else _with_labels(look, *found)


# -- packed sequences


def _read_bounds(here: Sequence[Named], tokens: Named | None) -> BatchLook | None:
    for one in here:
        if len(one.shape) == 1 and "cu_seq" in one.name and one.dtype in WHOLE[:2]:
            bounds = read_bounds(rows_of(one)[0], one.dtype)
            if bounds is not None:
                return _packed(bounds, tokens)
        if one.name == "position_ids" and one.shape[0] == 1 and one.dtype in WHOLE[:2]:
            begins = restarts(rows_of(one)[0], one.dtype) if len(one.shape) == 2 else None
            if begins is not None and len(begins) > 1:
                return _packed([*begins, one.shape[1]], tokens)
    return None


def _packed(bounds: Sequence[int], tokens: Named | None) -> BatchLook:
    num = bounds[-1] if tokens is None else tokens.shape[0] * tokens.shape[1]
    lengths = [end - begin for begin, end in pairwise(bounds)]
    num_rows = 1 if tokens is None else tokens.shape[0]
    return BatchLook(
        seen_by=BOUNDS,
        num_rows=num_rows,
        width=num // num_rows,
        lengths=_spaced([length for length in lengths if length]),
        num_seen=max(num, bounds[-1]),
        num_needed=bounds[-1],
        num_bytes=8 * len(bounds),
    )


# -- masks


def _read_masks(here: Sequence[Named], tokens: Named | None) -> BatchLook | None:
    for one in here:
        if len(one.shape) != 2 or one.dtype not in FLAGS or one is tokens:
            continue
        is_padding = one.name.endswith(_PADDING_MASKS)
        if not (is_padding or one.name in _MASKS):
            continue
        if tokens is None and one.name in _UNSURE:
            continue  # it may be anything
        if tokens is not None and one.shape not in _shapes_like(tokens, is_padding=is_padding):
            continue
        look = _read_mask(one, tokens, is_padding=is_padding)
        if look is not None:
            return look
    return None


def _shapes_like(tokens: Named, *, is_padding: bool) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a mask; where tokens have time first, one of padding has it second."""
    return (tokens.shape, tokens.shape[::-1]) if is_padding else (tokens.shape,)


def _read_mask(one: Named, tokens: Named | None, *, is_padding: bool) -> BatchLook | None:
    rows = rows_of(one)
    used = read_mask(rows, one.dtype, is_inverted=is_padding) if rows else None
    is_known = one.name == "attention_mask" or tokens is None or one.shape != tokens.shape
    if used is not None and tokens is not None and not is_known:
        ids, size = rows_of(tokens), ITEM_BYTES[tokens.dtype]
        if not _fits(used, ids, size):  # some scripts mark the tokens, others the padding
            used = read_mask(rows, one.dtype, is_inverted=not is_padding)
            used = used if used is not None and _fits(used, ids, size) else None
    if used is not None and one.name in _UNSURE and all(row.num == one.shape[1] for row in used):
        return None  # it may be of something else
    return None if used is None else _look(MASK, one, used, num_bytes=sum(map(len, rows)))


def _fits(used: Sequence[UsedPart], ids: Sequence[bytes], size: int) -> bool:
    """Return whether a mask without a telling name is one of padding."""
    return are_solid(used) and pads_with_one_token(ids, used, size)


def _read_pixels(here: Sequence[Named]) -> BatchLook | None:
    """Return how much of padded images is image, where a mask of their pixels says so."""
    for one in here:
        if one.name != "pixel_mask" or len(one.shape) != 3 or one.dtype not in FLAGS:
            continue
        rows, (_, height, width) = rows_of(one), one.shape
        used = read_mask(rows, one.dtype)
        if not used:
            continue
        highest = max(-(-one.end // width) for one in used)
        widest = max(one.num // max(1, -(-one.end // width)) for one in used)
        flat = one._replace(shape=(one.shape[0], height * width))
        look = _look(PIXELS, flat, used, num_bytes=sum(map(len, rows)))
        return look._replace(num_needed=len(used) * highest * widest)
    return None


def _look(seen_by: int, one: Named, used: Sequence[UsedPart], *, num_bytes: int) -> BatchLook:
    """Return the look at rows of which these positions are used."""
    filled = [row for row in used if row.num]
    begin = min((row.begin for row in filled), default=0)
    end = max((row.end for row in filled), default=0)
    return BatchLook(
        seen_by=seen_by,
        num_rows=one.shape[0],
        width=one.shape[1],
        lengths=_spaced([row.num for row in used]),
        num_seen=len(used) * one.shape[1],
        num_needed=len(used) * (end - begin),
        num_bytes=num_bytes,
    )


def _spaced(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths; of very many, some that are evenly spaced."""
    return tuple(lengths[:: max(1, -(-len(lengths) // _MAX_ROWS_WRITTEN))])


# -- tokens and labels


def _labels_of(here: Sequence[Named], tokens: Named) -> tuple[Named, list[bytes]] | None:
    """Return the labels if the loss leaves some of them out."""
    for one in here:
        is_like = one is not tokens and one.shape == tokens.shape
        if is_like and one.dtype in WHOLE[:2] and one.name in _LABELS:
            rows = rows_of(one)
            if rows and num_ignored(rows, one.dtype):
                return one, rows
    return None


def _read_tokens(here: Sequence[Named], tokens: Named) -> BatchLook | None:
    rows, size = rows_of(tokens), ITEM_BYTES[tokens.dtype]
    found = _labels_of(here, tokens)
    if not rows or tokens.shape[1] <= 2:
        return None
    if found is None:
        runs = find_padding(rows, size, None)
        if runs is None:
            return None
        token, used = runs
        num_bytes = 2 * sum(map(len, rows))
        return _look(RUNS, tokens, used, num_bytes=num_bytes)._replace(token=token)
    labels, labels_rows = found
    if len(labels_rows) != len(rows):
        return None
    runs = find_padding(rows, size, labels_rows, labels.dtype)
    if runs is None:
        return None
    look = _look(LABELS, tokens, runs[1], num_bytes=3 * sum(map(len, rows)))
    return _with_labels(look, *found)


def _with_labels(look: BatchLook, labels: Named, rows: Sequence[bytes]) -> BatchLook:
    """Return the look with how many positions the loss takes."""
    num = sum(len(row) // ITEM_BYTES[labels.dtype] for row in rows)
    return look._replace(num_trained=max(0, num - num_ignored(rows, labels.dtype)))


def names_of(args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """Return what a call was given, with names as far as it has them."""
    return [*(("", one) for one in args), *kwargs.items()]
