"""Edits behind the statement that gives a model its name."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.levers.compiling.compile import WAYS, arguments
from steptime.patch.bindings import find_binding
from steptime.patch.changes import After
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground, words_of
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.site_values import EditSite

NO_BLOCKS = "no_blocks"
UNKNOWN_BLOCKS = (
    "The recipe does not say which classes the blocks of {name} have: an older Steptime made it. "
    "Tune again."
)
_BY_HAND = {
    "hooked_blocks": "A block of {name} has hooks: it runs as it is in the recipe, and would be "
    "compiled with them.",
    "unnamed_blocks": "Not all modules of {name} with the name of a block's class are its blocks.",
}


def compile_models(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`model.compile(...)`, or that of its blocks: it leaves the names of its state as they are."""
    take(settings, "mode", "scope")
    mode, scope = str(settings["mode"]), str(settings.get("scope", "model"))
    if mode not in WAYS:
        raise CannotPlaceError(f"There is no edit yet for its mode `{mode}`.")
    if scope not in ("model", "blocks"):
        raise CannotPlaceError(f"There is no edit yet for its scope `{scope}`.")
    sites = ground.sites("model_call")

    def place_model(spot: FoundSite) -> tuple[After, ...]:
        binding = find_binding(ground, spot)
        line = f"{binding.expression}.compile({arguments(mode)})"
        return (After(source=binding.source, statement=binding.statement, line=line),)

    def place_blocks(spot: FoundSite) -> tuple[After, ...]:
        binding, classes = find_binding(ground, spot), classes_of(spot.site)
        name = binding.source.fresh_name("block")
        lines = block_lines(binding.expression, classes, mode, name=name)
        return (After(source=binding.source, statement=binding.statement, line=lines),)

    if scope == "model":
        return at_each(ground, sites, place_model)
    # The lever compiles nothing of a model without blocks.
    return at_each(
        ground,
        [site for site in sites if NO_BLOCKS not in site.traits],
        place_blocks,
        write=lambda site: block_lines("model", classes_of(site), mode),
    )


def block_lines(model: str, classes: Sequence[str], mode: str, *, name: str = "block") -> str:
    """The lines that compile the blocks of a model, whatever holds them."""
    words = ", ".join(f'"{one}"' for one in classes)
    asked = f"== {words}" if len(classes) == 1 else f"in ({words})"
    return (
        f"for {name} in {model}.modules():\n"
        f"    if type({name}).__name__ {asked}:\n"
        f"        {name}.compile({arguments(mode)})"
    )


def classes_of(site: EditSite) -> list[str]:
    """The names of the classes of a model's blocks, by which they are found.

    Raises:
        CannotPlaceError: they are not known, or their names do not find them.
    """
    for word, text in _BY_HAND.items():
        if word in site.traits:
            raise CannotPlaceError(text.format(name=site.name))
    classes = words_of(site, "block")
    if not classes or not all(one.isidentifier() for one in classes):
        raise CannotPlaceError(UNKNOWN_BLOCKS.format(name=site.name))
    return classes
