"""The worked figures of the book: bytes of a parameter, tiles and waves."""

import pytest

from steptime.core.devices.hardware import find_accelerator
from steptime.plan.memory_fit import MODES
from steptime.plan.quantization import TILE, tile_blocks, waves


def tile_waste(m: int, n: int, *, tile: tuple[int, int] = TILE) -> float:
    """Return the fraction of the blocks' work that lies outside the output."""
    return 1.0 - m * n / (tile_blocks(m, n, tile=tile) * tile[0] * tile[1])


def wave_efficiency(blocks: int, multiprocessors: int) -> float:
    """Return the fraction of the waves' room that holds blocks."""
    return blocks / (waves(blocks, multiprocessors) * multiprocessors)


def speedup_by_multiprocessors(blocks: int, *, old: int, new: int) -> float:
    """Return how much faster a product is on a part with more multiprocessors: whole waves tell."""
    return waves(blocks, old) / waves(blocks, new)


def peak_of_parts(peak_flops_per_s: float, *, multiprocessors: int, of: int) -> float:
    """Return the peak of some multiprocessors, from the peak of a whole part with `of` of them."""
    return peak_flops_per_s * multiprocessors / of


@pytest.mark.parametrize(
    ("part", "bytes_"),
    [
        ("fp32, AdamW", (4, 8, 4, 16)),
        ("fp32, SGD with momentum or Lion", (4, 4, 4, 12)),
        ("half precision with fp32 master weights, AdamW", (6, 8, 4, 18)),
        ("half precision with fp32 master weights, AdamW, half gradients", (6, 8, 2, 16)),
        ("half precision with fp32 master weights, 8-bit AdamW", (6, 2, 4, 12)),
        ("half precision with fp32 master weights, Lion or Adafactor", (6, 4, 4, 14)),
        ("pure bf16, AdamW", (2, 4, 2, 8)),
    ],
)
def test_bytes_per_parameter_of_each_way_to_train(part, bytes_):
    mode = next(one for one in MODES if one.name == part)

    assert (mode.weights, mode.optimizer, mode.gradients, mode.total) == bytes_


def test_an_output_that_tiles_do_not_fill_wastes_the_rest():
    assert tile_waste(128, 256) == 0
    assert tile_waste(128, 257) == pytest.approx(1 - 257 / 512)
    assert tile_waste(129, 256) == pytest.approx(1 - 129 / 256)


def test_one_block_more_than_multiprocessors_takes_two_waves():
    assert (waves(108, 108), waves(109, 108)) == (1, 2)
    assert wave_efficiency(109, 108) == pytest.approx(109 / 216)


@pytest.mark.parametrize(
    ("name", "multiprocessors"),
    [
        ("NVIDIA A100-SXM4-80GB", 108),
        ("NVIDIA H100 80GB HBM3", 132),
        ("NVIDIA H200", 132),
        ("NVIDIA B200", 148),
    ],
)
def test_the_table_knows_the_multiprocessors(name, multiprocessors):
    assert find_accelerator(name).num_multiprocessors == multiprocessors


def test_the_up_projection_of_an_8b_model_has_3584_blocks():
    assert tile_blocks(8192, 14336) == 64 * 56 == 3584


@pytest.mark.parametrize(
    ("blocks", "speedup"),
    [(148, 1.0), (152, 2.0), (296, 1.0), (304, 1.5), (3584, 1.042), (50000, 1.027)],
)
def test_more_multiprocessors_help_by_whole_waves(blocks, speedup):
    found = speedup_by_multiprocessors(blocks, old=148, new=152)

    assert found == pytest.approx(speedup, abs=6e-4)


@pytest.mark.parametrize(
    ("peak", "of_152"), [(2250, 2311), (4500, 4622), (12600, 12941), (15000, 15405)]
)
def test_a_peak_goes_with_the_multiprocessors(peak, of_152):
    assert peak_of_parts(peak, multiprocessors=152, of=148) == pytest.approx(of_152, abs=0.5)
    assert peak_of_parts(2250, multiprocessors=1, of=148) == pytest.approx(15.2, abs=0.01)
