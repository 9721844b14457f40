"""Processes that are there for one question: a bench, the order of batches, a forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .mode import Alone, GuestMode, Targets

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext

Wish = Mapping[str, Any]


class BenchMode(Alone):
    """Time the script's loader and its loop."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish

    def install(
        self, context: TorchContext, targets: Targets, finish: Callable[[TorchContext], None]
    ) -> None:
        """Put the hooks of one pass in place."""
        from ..bench.loop_pass import install_bench

        install_bench(context, self.wish, targets)


class ForecastMode(Alone):
    """Forecast the peak of the script's step without its memory."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish

    def install(
        self, context: TorchContext, targets: Targets, finish: Callable[[TorchContext], None]
    ) -> None:
        """Make parameters fake from here on."""
        from ..forecast.script_forecast import install_forecast

        install_forecast(context, self.wish)


class OrderMode(GuestMode):
    """Note the order in which the loaders hand out their samples."""

    records_calls = may_rest = False

    def __init__(self, wish: Wish) -> None:
        self.wish = wish

    def install(
        self, context: TorchContext, targets: Targets, finish: Callable[[TorchContext], None]
    ) -> None:
        """Watch the loaders of this process."""
        from ..order.order_hooks import install

        install(context, self.wish)
