"""Edits of the calls of models: autocast around them, and images laid out for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from steptime.patch.bindings import find_binding
from steptime.patch.changes import After, CallChange, Change, Lift, Wrap, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground
from steptime.patch.source_file import SourceFile
from steptime.patch.values import CannotPlaceError

_FLOAT, _FLOATS, _MAPPING = "float", "floats", "mapping"
_WIDENED = {_FLOAT: "{}.float()", _FLOATS: "tuple(part.float() for part in {})"}


def compute_in_bf16(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`with torch.autocast(...)` around each call, and its outputs in float32 again."""
    take(settings, "dtype")
    if settings["dtype"] != "bf16":
        raise CannotPlaceError("fp16 needs its loss scaled, in several places of the loop.")

    def place(spot: FoundSite) -> tuple[Change, ...]:
        statement = spot.source.statement_of(spot.call)
        torch, needed = need_torch(spot.source)
        head = f'with {torch}.autocast("{ground.device}", dtype={torch}.bfloat16):'
        outputs = _outputs(spot)
        targets = _plain_targets(spot, statement, outputs)
        if targets is not None:
            after = _widen(targets)
            return (*needed, Wrap(source=spot.source, statement=statement, head=head, after=after))
        if outputs not in ([_FLOAT], [_MAPPING]):
            raise CannotPlaceError(
                f"What the model returns at {spot.where} is not a single tensor, and it is used in "
                "the same statement."
            )
        _check_first(spot, statement)
        name = spot.source.fresh_name("outputs")
        lift = Lift(
            source=spot.source,
            call=spot.call,
            statement=statement,
            head=head,
            name=name,
            instead=f"{name}.float()" if outputs == [_FLOAT] else name,
        )
        return (*needed, lift)

    return at_each(ground, ground.sites("model_call"), place)


def _outputs(spot: FoundSite) -> list[str]:
    """What the model returns, a word for each part.

    Raises:
        CannotPlaceError: it was not seen, or cannot be turned to float32 in a line.
    """
    found = ",".join(spot.words("output")).split(",")
    if found == [""] or "nested" in found:
        raise CannotPlaceError(
            f"The model's outputs at {spot.where} are nested, so it takes more than a line to turn "
            "them to float32 again."
        )
    return found


def _plain_targets(
    spot: FoundSite, statement: cst.SimpleStatementLine, outputs: list[str]
) -> dict[str, str] | None:
    """The names to turn to float32, with what they are, where a statement only assigns the outputs.

    None elsewhere.
    """
    part = statement.body[0]
    if not isinstance(part, cst.Assign) or part.value is not spot.call or len(part.targets) != 1:
        return None
    target = part.targets[0].target
    if outputs == [_MAPPING]:
        return {}  # the model's own loss is float32; the rest of it is rarely used
    if len(outputs) == 1:
        is_plain = isinstance(target, (cst.Name, cst.Attribute))
        kinds = {spot.source.code(target): _FLOAT} if outputs == [_FLOAT] else {}
        return kinds if is_plain and outputs != [_FLOATS] else None
    if not isinstance(target, cst.Tuple) or len(target.elements) != len(outputs):
        return None
    names = [element.value for element in target.elements]
    if not all(isinstance(name, (cst.Name, cst.Attribute)) for name in names):
        return None
    texts = [spot.source.code(name) for name in names]
    return {
        text: kind
        for text, kind in zip(texts, outputs, strict=True)
        if kind in _WIDENED and text.strip("_")
    }


def _widen(kinds: Mapping[str, str]) -> tuple[str, ...]:
    if not kinds:
        return ()
    values = [_WIDENED[kind].format(name) for name, kind in kinds.items()]
    return (f"{', '.join(kinds)} = {', '.join(values)}",)


def _check_first(spot: FoundSite, statement: cst.SimpleStatementLine) -> None:
    """Refuse to move a call before something that its statement computes earlier.

    Raises:
        CannotPlaceError: there is something.
    """
    above: list[cst.CSTNode] = []
    for node in spot.source.ancestors(spot.call):
        above.append(node)
        if node is statement:
            break
    finder = _CallsBefore(spot.source, spot.call, above)
    statement.visit(finder)
    if finder.found is not None:
        raise CannotPlaceError(
            f"{spot.where} computes {spot.source.code(finder.found)[:60]} before it calls the "
            "model."
        )


class _CallsBefore(cst.CSTVisitor):
    """Finds a call that begins before another one and does not contain it."""

    def __init__(self, source: SourceFile, call: cst.Call, above: Sequence[cst.CSTNode]) -> None:
        super().__init__()
        self._source = source
        self._call = call
        self._above = above
        self.found: cst.CSTNode | None = None

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node is self._call:
            return False
        is_outer = any(node is one for one in self._above)
        is_other = isinstance(node, cst.Call) and not is_outer
        if is_other and self._source.is_before(node, self._call):
            self.found = node
        return True


def lay_channels_last(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`model.to(memory_format=...)` once, and the same for the images of each call."""
    take(settings)

    def place(spot: FoundSite) -> tuple[Change, ...]:
        images = spot.words("image")
        if not images:
            raise CannotPlaceError(f"No image was seen among the arguments at {spot.where}.")
        if "inside" in images:
            raise CannotPlaceError(f"The images at {spot.where} are inside another argument.")
        binding = find_binding(ground, spot)
        torch, needed = need_torch(spot.source)
        theirs, also_needed = need_torch(binding.source)
        turned = f".to(memory_format={theirs}.channels_last)"
        return (
            *needed,
            *also_needed,
            After(
                source=binding.source,
                statement=binding.statement,
                line=f"{binding.expression}{turned}",
            ),
            _turn_arguments(spot, images, f"{torch}.channels_last"),
        )

    return at_each(ground, ground.sites("model_call"), place)


def _turn_arguments(spot: FoundSite, names: list[str], layout: str) -> CallChange:
    numbers = {int(name) for name in names if name.isdigit()}
    if any(arg.star for arg in spot.call.args):
        raise CannotPlaceError(f"The arguments at {spot.where} are not written one by one.")

    def act(call: cst.Call) -> cst.Call:
        arguments = []
        for number, arg in enumerate(call.args):
            name = arg.keyword.value if arg.keyword is not None else None
            is_image = name in names if name is not None else number in numbers
            arguments.append(_turn(arg, layout) if is_image else arg)
        return call.with_changes(args=arguments)

    return CallChange(source=spot.source, call=spot.call, act=act)


def _turn(arg: cst.Arg, layout: str) -> cst.Arg:
    simple = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
    value = arg.value
    if not isinstance(value, simple):
        value = value.with_changes(
            lpar=[cst.LeftParen(), *value.lpar], rpar=[*value.rpar, cst.RightParen()]
        )
    moved = cst.Call(
        cst.Attribute(value, cst.Name("to")),
        [
            cst.Arg(
                cst.parse_expression(layout),
                keyword=cst.Name("memory_format"),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            )
        ],
    )
    return arg.with_changes(value=moved)
