"""torchvision's random crops and flips on a batch of images at once, with the same draws.

This is no lever, as it has no `LEVER`. What a sample draws, it draws in the order of its chain; so
the numbers of all samples are drawn first, and then each step acts on all images.
"""

from __future__ import annotations

from typing import Any

from .transforms import V1, V2, name_of

SIZING = frozenset(
    f"{module}{name}" for module in (V1, f"{V2}_geometry.") for name in ("Resize", "CenterCrop")
)
"""They return an image that has their size as it is."""

FLIPS = {
    f"{module}Random{name}Flip": axis
    for module in (V1, f"{V2}_geometry.")
    for name, axis in (("Vertical", 1), ("Horizontal", 2))
}
CROP = f"{V1}RandomCrop"


class UnknownStepError(Exception):
    """A step of the chain is none of those that act on whole batches."""


class Flip:
    """Turns some of the images of a batch."""

    def __init__(self, torch: Any, step: Any, axis: int) -> None:
        self.torch, self.step, self.axis = torch, step, axis

    def draw(self) -> bool:
        """Return whether an image is turned."""
        return bool(self.torch.rand(1) < self.step.p)

    def apply_to(self, rows: Any, drawn: list[bool]) -> Any:
        """Return the images, those turned that drew it."""
        chosen = self.torch.tensor(drawn).nonzero().view(-1)
        rows[chosen] = rows[chosen].flip(self.axis)
        return rows


class Crop:
    """Cuts a window out of each image of a batch, after padding.

    Raises:
        UnknownStepError: it pads otherwise than with one number, or only where it must.
    """

    def __init__(self, torch: Any, step: Any, height: int, width: int) -> None:
        self.torch, self.step, self.size = torch, step, tuple(step.size)
        left, top, right, bottom = borders_of(step.padding)
        is_plain = step.padding_mode == "constant" and type(step.fill) is int
        self.borders = (left, right, top, bottom)
        rest = height + top + bottom - self.size[0], width + left + right - self.size[1]
        if step.pad_if_needed or not is_plain or min(rest) < 0:
            raise UnknownStepError(step)
        self.rest = rest

    def draw(self) -> tuple[int, int]:
        """Return where an image is cut: its first row and column."""
        rows, columns = self.rest
        if not (rows or columns):
            return 0, 0
        randint = self.torch.randint
        return int(randint(0, rows + 1, (1,))), int(randint(0, columns + 1, (1,)))

    def apply_to(self, rows: Any, drawn: list[tuple[int, int]]) -> Any:
        """Return the windows; a color stays the last axis."""
        torch, is_gray = self.torch, rows.ndim == 3
        borders = self.borders if is_gray else (0, 0, *self.borders)
        padded = torch.nn.functional.pad(rows, borders, value=self.step.fill)
        windows = padded.unfold(1, self.size[0], 1).unfold(2, self.size[1], 1)
        places = torch.tensor(drawn)
        cut = windows[torch.arange(len(drawn)), places[:, 0], places[:, 1]]
        return cut if is_gray else cut.movedim(1, -1)


class DrawnSteps:
    """The steps of a chain before its images become tensors.

    Args:
        torch: the module.
        steps: torchvision's.
        height, width: of the images.

    Raises:
        UnknownStepError: one of them is not known to act on a batch as on each image.
    """

    def __init__(self, torch: Any, steps: list[Any], height: int, width: int) -> None:
        self.acting: list[Flip | Crop] = []
        for step in steps:
            name = name_of(step)
            if name in SIZING:
                if not keeps_size(step, height, width):
                    raise UnknownStepError(step)
            elif name in FLIPS:
                self.acting.append(Flip(torch, step, FLIPS[name]))
            elif name == CROP:
                crop = Crop(torch, step, height, width)
                self.acting.append(crop)
                height, width = crop.size
            else:
                raise UnknownStepError(step)

    def draw(self, num: int) -> list[list[Any]]:
        """Return what so many images draw, in the order in which each of them would: by step."""
        drawn: list[list[Any]] = [[] for _ in self.acting]
        for _ in range(num):
            for step, values in zip(self.acting, drawn, strict=True):
                values.append(step.draw())
        return drawn

    def apply_to(self, rows: Any, drawn: list[list[Any]], first: int) -> Any:
        """Return images with what was drawn for them, from the first one's place on."""
        for step, values in zip(self.acting, drawn, strict=True):
            rows = step.apply_to(rows, values[first : first + len(rows)])
        return rows


def borders_of(padding: Any) -> tuple[int, int, int, int]:
    """Return what is added on the left, at the top, on the right and at the bottom [pixels]."""
    given = [padding or 0] if isinstance(padding, int) or padding is None else list(padding)
    if len(given) not in (1, 2, 4) or not all(type(one) is int and one >= 0 for one in given):
        raise UnknownStepError(padding)
    left, top, right, bottom = (given * 4)[:4]
    return left, top, right, bottom


def keeps_size(step: Any, height: int, width: int) -> bool:
    """Return whether a step only asks for the size that images have already."""
    size = getattr(step, "size", None)
    wanted = [size, size] if isinstance(size, int) else list(size or ())
    wanted = wanted * 2 if len(wanted) == 1 else wanted
    return wanted == [height, width] and getattr(step, "max_size", None) is None
