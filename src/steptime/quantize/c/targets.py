"""Small processors, and an estimate of what a network takes on each."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.quantize.values.quantized_model import TargetEstimate

_CODE_BYTES, _STACK_BYTES = 8 * 1024, 2 * 1024
"""Kernels for a Cortex-M3 have 4,848 bytes (gcc 12, -O2), and what calls them a little."""


@dataclass(frozen=True, slots=True)  # a table, whose columns are the fields in order
class Target:
    """A processor on a chip, and the cycles of the C that Steptime writes.

    That C makes one product at a time; kernels written by hand use the `lanes` for products of
    bytes. Cycles for a product are those of the innermost loop of `st_add_shared`, as gcc 12 -O2
    writes it, by Arm's tables (Cortex-M0: DDI 0432C 3.3, -M3: DDI 0337I 3.3.1, -M4: DDI 0439D
    3.3.1; no wait for memory). For a number that is written they are 70 instructions (150 on a
    Cortex-M0), as `benchmarks/quantize/instructions.py` finds, at the same cycles each. Of the
    Cortex-M7 and -M55 Arm has no such tables: a Cortex-M4's are scaled by CoreMark/MHz (3.42; 5.01
    and 4.40, Arm's comparison of Cortex-M processors). Clock and memory are from the data sheet.
    """

    name: str
    chip: str
    lanes: int
    clock_mhz: int
    ram_kib: int
    flash_kib: int
    cycles_per_mac: float
    cycles_per_output: float


TARGETS = (
    Target("Cortex-M0", "STM32F091xC", 1, 48, 32, 256, 7.5, 205),
    Target("Cortex-M3", "STM32F103xE", 1, 72, 64, 512, 5.75, 134),
    Target("Cortex-M4", "STM32L476xG", 2, 80, 128, 1024, 4.75, 111),
    Target("Cortex-M7", "STM32F746xG", 2, 216, 320, 1024, 3.24, 76),
    Target("Cortex-M55", "Alif E3", 8, 400, 13_824, 5632, 3.69, 86),
)
"""Lanes: a product an instruction; DSP, two of 16 bits (SMLAD); MVE, eight of bytes a cycle."""


def estimates(
    *, macs: int, outputs: int, arena_bytes: int, constant_bytes: int
) -> tuple[TargetEstimate, ...]:
    """Return what a network takes on each processor.

    Args:
        macs: multiplications for one input.
        outputs: numbers that its operators write for one input.
        arena_bytes: its values at once [bytes].
        constant_bytes: its weights, biases and tables [bytes].
    """
    ram, flash = (arena_bytes + _STACK_BYTES) / 1024, (constant_bytes + _CODE_BYTES) / 1024
    return tuple(
        TargetEstimate(
            name=f"{one.name} at {one.clock_mhz} MHz ({one.chip})",
            estimated_ms=(macs * one.cycles_per_mac + outputs * one.cycles_per_output)
            / (one.clock_mhz * 1e3),
            fits=ram <= one.ram_kib and flash <= one.flash_kib,
        )
        for one in TARGETS
    )
