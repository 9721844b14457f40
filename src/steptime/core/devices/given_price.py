"""The price of the machine, as a user gives it: `2.49/h`, in whatever currency.

In: a text. Out: the price of an hour. Errors say what was expected.
"""

from __future__ import annotations

from steptime.errors import UsageError

MAX_PRICE = 1_000_000.0
"""An hour of the largest machines costs less."""


def parse_price(text: str | None, *, flag: str = "--hourly-price") -> float | None:
    """Return the price of an hour; None where none is given.

    Raises:
        UsageError: the text is no price, or out of range.
    """
    if text is None:
        return None
    number, slash, unit = text.strip().partition("/")
    try:
        price = float(number)
    except ValueError:
        price = float("nan")
    if (slash and unit.strip() != "h") or not 0 < price <= MAX_PRICE:
        raise UsageError(
            f"{flag} must be the price of an hour, above 0 and up to {MAX_PRICE:,.0f}, "
            f"got `{text}`.",
            hint="Write a number without a currency, for all devices together: 2.49",
        )
    return price
