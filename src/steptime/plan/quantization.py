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


def waves(blocks: int, multiprocessors: int) -> int:
    """Return how many times all multiprocessors run a block each."""
    return -(-blocks // multiprocessors)
