"""Computes what the tiles and waves of a GPU's matrix products waste.

In: the sizes of a product, of a tile, and the number of multiprocessors. Out: fractions. A product
(m x k)(k x n) is covered by blocks of a tile's size; as many blocks as there are multiprocessors
run at once, and the last wave takes as long as a full one.

Source: NVIDIA, Matrix Multiplication Background User's Guide, sections on tile and wave
quantization; stas00/ml-engineering, training/performance.
"""

from __future__ import annotations

TILE = (128, 256)
"""Rows and columns of the tile that the largest products take on NVIDIA's GPUs."""


def tile_blocks(m: int, n: int, *, tile: tuple[int, int] = TILE) -> int:
    """Return the number of blocks that cover an output of m rows and n columns."""
    return -(-m // tile[0]) * -(-n // tile[1])


def tile_waste(m: int, n: int, *, tile: tuple[int, int] = TILE) -> float:
    """Return the fraction of the blocks' work that lies outside the output."""
    return 1.0 - m * n / (tile_blocks(m, n, tile=tile) * tile[0] * tile[1])


def waves(blocks: int, multiprocessors: int) -> int:
    """Return how many times all multiprocessors run a block each."""
    return -(-blocks // multiprocessors)


def wave_efficiency(blocks: int, multiprocessors: int) -> float:
    """Return the fraction of the waves' room that holds blocks."""
    return blocks / (waves(blocks, multiprocessors) * multiprocessors)


def speedup_by_multiprocessors(blocks: int, *, old: int, new: int) -> float:
    """Return how much faster a product is on a part with more multiprocessors: whole waves tell."""
    return waves(blocks, old) / waves(blocks, new)


def peak_of_parts(peak_flops_per_s: float, *, multiprocessors: int, of: int) -> float:
    """Return the peak of some multiprocessors, from the peak of a whole part with `of` of them."""
    return peak_flops_per_s * multiprocessors / of
