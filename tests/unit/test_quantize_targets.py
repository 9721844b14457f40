"""What a network would take on small processors."""

from steptime.quantize.c.targets import TARGETS, estimates

RESNET_8 = {"macs": 12_501_632, "outputs": 127_562}


def of(name, **sizes):
    found = estimates(**RESNET_8, **sizes)
    return next(one for one in found if one.name.startswith(name))


def test_an_estimate_counts_products_and_numbers_that_are_written():
    one = of("Cortex-M4", arena_bytes=50_000, constant_bytes=80_000)
    cycles = 12_501_632 * 4.75 + 127_562 * 111
    assert one.estimated_ms == cycles / 80_000
    assert one.name == "Cortex-M4 at 80 MHz (STM32L476xG)"


def test_values_or_constants_that_are_too_large_do_not_fit():
    assert of("Cortex-M3", arena_bytes=60_000, constant_bytes=80_000).fits
    assert not of("Cortex-M3", arena_bytes=64 * 1024, constant_bytes=80_000).fits
    assert not of("Cortex-M3", arena_bytes=60_000, constant_bytes=512 * 1024).fits


def test_the_table_goes_from_the_smallest_memory_up():
    assert [one.ram_kib for one in TARGETS] == sorted(one.ram_kib for one in TARGETS)
