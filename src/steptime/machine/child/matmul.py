"""The rate of matrix products by dtype, over a search of shapes.

Operands are random: on a GPU, zeros draw less power, and clocks would be higher than in training.
Operands stay where the last product left them, in a cache if they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .repeat import Candidate, Clock, RepeatedWork, Search, Setting, describe, nothing

CPU_SIZES = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
GPU_SIZES = (1024, 2048, 4096, 6144, 8192, 12288, 16384)
ONE_THREAD_SIZES = (256, 512, 1024)
"""Squares that are measured with one thread as well: small products gain less from more."""
LAYOUTS = ("nn", "nt")
# From the best square: long, wide and deep products, as in the layers of a transformer.
RECTANGLES = ((4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 0.5))

DTYPES = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
}


class Products:
    """The candidates of one dtype on one device."""

    def __init__(
        self, torch: Any, device: str, dtype: str, *, num_threads: int, limit_bytes: int
    ) -> None:
        self.torch = torch
        self.device = device
        self.dtype = dtype
        self.num_threads = num_threads
        self.limit_bytes = limit_bytes
        self.is_cpu = device == "cpu"

    def first(self) -> Iterator[Candidate]:
        """Yield both layouts: for some dtypes, one has no fast kernel and is much slower."""
        size = (CPU_SIZES if self.is_cpu else GPU_SIZES)[1]
        for layout in LAYOUTS:
            yield self.candidate((size, size, size), layout=layout)

    def squares(self, best: Setting) -> Iterator[Candidate]:
        """Yield squares from small to large, so that each shows how long the next one takes."""
        for size in CPU_SIZES if self.is_cpu else GPU_SIZES:
            if [size] * 3 != best["shape"]:
                yield self.candidate((size, size, size), layout=best["layout"])

    def near(self, best: Setting) -> Iterator[Candidate]:
        """Yield the other layout, single threads, and rectangles of the same kind."""
        shape, layout = best["shape"], best["layout"]
        other = next(one for one in LAYOUTS if one != layout)
        yield self.candidate(tuple(shape), layout=other)
        if self.is_cpu and self.num_threads > 1:
            yield self.candidate(tuple(shape), layout=layout, num_threads=1)
            for size in ONE_THREAD_SIZES:
                if [size] * 3 != shape:
                    yield self.candidate((size, size, size), layout=layout, num_threads=1)
        for factors in RECTANGLES:
            m, n, k = (int(size * factor) for size, factor in zip(shape, factors, strict=True))
            yield self.candidate((m, n, k), layout=layout)

    def candidate(
        self,
        shape: tuple[int, int, int],
        *,
        layout: str,
        num_threads: int | None = None,
    ) -> Candidate:
        """Return a product of (m, k) and (k, n); with `nt`, the second is stored as (n, k)."""
        threads = (num_threads or self.num_threads) if self.is_cpu else None
        setting = {"shape": list(shape), "layout": layout, "num_threads": threads}
        m, n, k = shape
        return Candidate(
            setting=setting,
            amount=2.0 * m * n * k,
            make=lambda: self._work(shape, layout, threads),
        )

    def _work(self, shape: tuple[int, int, int], layout: str, threads: int | None) -> RepeatedWork:
        torch = self.torch
        m, n, k = shape
        dtype = getattr(torch, DTYPES[self.dtype])
        if (m * k + k * n) * dtype.itemsize + m * n * 4 > self.limit_bytes:
            raise RuntimeError("it does not fit into the free memory")
        left = self._operand(m, k, dtype)
        right = self._operand(n, k, dtype).t() if layout == "nt" else self._operand(k, n, dtype)
        product: Callable[..., object]
        if self.dtype == "int8":
            product = torch._int_mm
            result = torch.empty(m, n, dtype=torch.int32, device=self.device)
        else:
            product = torch.mm
            result = torch.empty(m, n, dtype=dtype, device=self.device)
        return RepeatedWork(
            call=lambda: product(left, right, out=result),
            finish=nothing if self.is_cpu else (lambda: torch.cuda.synchronize(self.device)),
            prepare=lambda: self._prepare(threads),
        )

    def _operand(self, rows: int, columns: int, dtype: Any) -> Any:
        torch = self.torch
        if dtype is torch.int8:
            return torch.randint(-100, 100, (rows, columns), dtype=dtype, device=self.device)
        return torch.randn(rows, columns, device=self.device).to(dtype)

    def _prepare(self, threads: int | None) -> None:
        if threads is not None and self.torch.get_num_threads() != threads:
            self.torch.set_num_threads(threads)
        self.torch.set_float32_matmul_precision("high" if self.dtype == "tf32" else "highest")


def measure(
    torch: Any, device: str, dtype: str, clock: Clock, *, num_threads: int, limit_bytes: int
) -> dict[str, Any]:
    """Return the ceiling of one dtype on a device; no product takes more than `limit_bytes`."""
    more = {"dtype": dtype}
    unit = "ops_per_s" if dtype == "int8" else "flops_per_s"
    products = Products(torch, device, dtype, num_threads=num_threads, limit_bytes=limit_bytes)
    errors = (RuntimeError, TypeError, NotImplementedError)
    search = Search(clock, errors=errors)
    if dtype == "int8" and not hasattr(torch, "_int_mm"):
        return describe("matmul", device, unit, search, **more)
    search.try_all(products.first())
    for further in (products.squares, products.near):
        best = search.best()
        if best is not None:
            search.try_all(further(best.candidate.setting))
    return describe("matmul", device, unit, search, **more)


def measure_again(
    torch: Any, device: str, dtype: str, clock: Clock, *, setting: Setting, limit_bytes: int
) -> dict[str, Any]:
    """Return the ceiling of another device of the machine, at the setting of the first one."""
    products = Products(torch, device, dtype, num_threads=1, limit_bytes=limit_bytes)
    search = Search(clock, errors=(RuntimeError,))
    shape = tuple(setting["shape"])
    search.try_all([products.candidate(shape, layout=setting["layout"])])
    return describe("matmul", device, "flops_per_s", search, dtype=dtype)
