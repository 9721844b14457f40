"""What levers need to know about script and machine, as far as it is visible from inside.

The fields are those of `Facts`, `OptimizerFacts` and `LoaderFacts` in levers/base.py; what was not
observed is None. Only what the script itself does counts, so nothing is noted while a lever is on.
"""

from __future__ import annotations

import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..hooks.module_tree import modules_of, parameters_of
from ..hooks.patching import drop_frame, replace
from ..watchers.inputs import num_cores
from ..watchers.kinship import is_initialized
from .lever_stack import LeverStack
from .looks.attention_look import AttentionLook
from .looks.block_look import BlockLook
from .looks.cell_look import CellLook
from .looks.exchange_book import ExchangeBook
from .looks.gradient_look import GradientLook
from .looks.input_look import InputLook
from .looks.loader_probe import describe_loader, probe_lengths, probe_loader
from .looks.row_padding import PaddingBook
from .looks.script_habits import ScriptHabits
from .trial_plan import lever_tool

MAX_CALLS = 200
"""Calls of models that are examined: whatever a script does to its models, it does early."""

CAPABILITIES = ("amx", "avx", "sve", "bf16", "i8mm", "asimd", "authenticamd", "genuineintel")
"""Prefixes of the CPU's flags that levers ask for, and its makers."""

CPU_INFO = "/proc/cpuinfo"

MAX_LOADERS = 20
"""Some scripts make a loader for each epoch; the first ones are enough."""

PACKAGES = ("simplejpeg", "torchao", "numba", "pytorch_optimizer", "schedulefree", "steptime")
"""Packages that levers need in the script's Python."""

MAX_WATCHED = 4
"""Calls of models around which torch's random state is compared."""


class Loader:
    """What is known about a loader, which may be gone by now."""

    def __init__(self, torch: Any, loader: Any) -> None:
        self.reference = weakref.ref(loader)
        self.facts: dict[str, Any] = describe_loader(torch, loader)
        self.is_probed = False
        self.padding = PaddingBook()


class FactsBook:
    """Gathers facts while the script trains.

    Args:
        torch: the module.
        stack: the levers.
        fail: counts a failure of ours by place.
        is_probing: whether some samples of each loader may be read (`loader_probe`).
    """

    def __init__(
        self,
        torch: Any,
        stack: LeverStack,
        fail: Callable[[str], None],
        *,
        is_probing: bool = False,
    ) -> None:
        self.torch = torch
        self.stack = stack
        self.fail = fail
        self.is_probing = is_probing
        self.exchanges = ExchangeBook(torch)
        self.sets_threads = self.uses_autocast = self.uses_scaler = self.uses_compile = False
        self.is_channels_last = False
        self.num_calls = 0
        self.num_watched = 0
        self.draws_in_calls: bool | None = None
        self.has_frozen_calls = False
        self.attention = AttentionLook(torch, fail)
        self.blocks = BlockLook(torch, fail)
        self.cells = CellLook(torch, fail)
        self.inputs = InputLook(torch)
        self.begun: dict[int, Loader] = {}  # by data set
        self.waiting: dict[int, Loader] = {}
        self.loaders: dict[int, Loader] = {}
        self.habits = ScriptHabits(torch, lambda: self.is_open)
        self.gradients = GradientLook(torch, lambda: self.is_open)

    @property
    def is_open(self) -> bool:
        """Whether what happens now is the script's own doing."""
        return not (self.stack.owners or self.stack.is_acting)

    # -- what the hooks report

    def hook_threads(self) -> None:
        """Note whether the script sets its number of threads."""
        original = self.torch.set_num_threads

        def set_num_threads(number: int) -> Any:
            self.sets_threads = self.sets_threads or self.is_open
            return original(number)

        replace(self.torch, "set_num_threads", set_num_threads)

    def hook_autocast(self) -> None:
        """Note whether the script enters autocast, around its model or inside it."""
        autocast = self.torch.amp.autocast_mode.autocast
        original, is_compiling = autocast.__enter__, self.torch.compiler.is_dynamo_compiling

        def __enter__(entered: Any) -> Any:
            if not is_compiling() and getattr(entered, "_enabled", False) and self.is_open:
                self.uses_autocast = True
            return original(entered)

        replace(autocast, "__enter__", __enter__)

    def hook_loaders(self) -> None:
        """Note the loaders that are iterated: their iterators do not refer back to them."""
        loader_class = self.torch.utils.data.DataLoader
        original = loader_class.__iter__

        def __iter__(loader: Any) -> Any:
            try:
                self.see_loader(loader)
            except BaseException:
                self.fail("facts")
            try:
                return original(loader)
            except BaseException as error:
                drop_frame(error)
                raise

        replace(loader_class, "__iter__", __iter__)

    def see_loader(self, loader: Any) -> None:
        """Note that an epoch of a loader begins."""
        known = self.begun.get(id(loader.dataset))
        if self.is_open and (known is None or known.reference() is not loader):
            if len(self.begun) > MAX_LOADERS:
                self.begun.clear()
            self.begun[id(loader.dataset)] = Loader(self.torch, loader)

    def see_call(self, model: Any, tensor: Any, given: Any = ((), {})) -> None:
        """Note an outermost call of a model with gradients, its first tensor and its arguments."""
        self.exchanges.see_call(model)
        if self.num_calls >= MAX_CALLS or not self.is_open:
            return
        self.num_calls += 1
        if type(model).__name__ == "OptimizedModule" or model._compiled_call_impl is not None:
            self.uses_compile = True
        if tensor is not None and is_channels_last(self.torch, tensor):
            self.is_channels_last = True
        if self.is_probing:
            self.inputs.see(*given)

    def see_plain(self, module: Any) -> None:
        """Note a call without gradients of a module that never trains."""
        if self.has_frozen_calls or getattr(module, "training", True):
            return
        own = [p for _, p in parameters_of(module)]
        self.has_frozen_calls = bool(own) and not any(p.requires_grad for p in own)

    def watch_draws(self) -> Callable[[], None] | None:
        """Keep the random states for one of the first calls; return what compares them after it."""
        if not (self.is_probing and self.num_watched < MAX_WATCHED and self.is_open):
            return None
        self.num_watched += 1
        before = random_states(self.torch)

        def compare() -> None:
            try:
                pairs = zip(before, random_states(self.torch))
                moved = any(not self.torch.equal(old, new) for old, new in pairs)
                self.draws_in_calls = bool(self.draws_in_calls) or moved
            except BaseException:
                self.fail("facts")

        return compare

    def look_into(self, model: Any, call: Callable[[], Any]) -> Any:
        """Make an outermost call of a model; look for attention, cells and blocks in the first."""
        if not (self.is_probing and self.is_open):
            return call()

        def look_within() -> Any:
            return self.attention.run(lambda: self.cells.run(model, call))

        return self.blocks.run(model, look_within)

    def see_scaler(self, scaler: Any) -> None:
        """Note that a gradient scaler lets an optimizer step."""
        if getattr(scaler, "_enabled", False) and self.is_open:
            self.uses_scaler = True

    def see_batch(self, iterator: Any, batch: Any) -> None:
        """Note a loader's batch, whose purpose is not known yet."""
        key = id(iterator._dataset)
        one = self.begun.get(key)
        if one is None:
            return
        if key not in self.loaders and len(self.loaders) < MAX_LOADERS:
            self.waiting[key] = one
        if self.is_probing and self.is_open:
            one.padding.see(self.torch, batch)

    @property
    def has_padding(self) -> bool:
        """Whether batches that were trained on told what of them is padding."""
        return any(one.padding.rows for one in self.loaders.values())

    def see_training(self) -> None:
        """Note that what was fetched is trained on."""
        self.loaders.update(self.waiting)
        self.waiting.clear()

    def drop_batch(self) -> None:
        """Forget the batch: it was for an evaluation."""
        self.waiting.clear()

    # -- what comes of it

    def describe(self, models: list[Any], optimizers: list[Any]) -> dict[str, Any]:
        """Return what the machine, the models and the optimizers are."""
        torch = self.torch
        found: dict[str, Any] = {"torch_version": str(torch.__version__), "num_cores": num_cores()}
        self._add(
            found,
            lambda: {"num_threads": torch.get_num_threads(), "world_size": world_size(torch)},
            lambda: describe_device(torch, models),
            lambda: {f"has_{name}": has_package(name) for name in PACKAGES},
            lambda: {"matmul_precision": torch.get_float32_matmul_precision()},
            lambda: describe_models(torch, models),
            lambda: self.exchanges.describe(models),
            lambda: {"num_repeated_blocks": count_blocks(torch, models)},
            lambda: self._describe_gelus(models),
            lambda: {"optimizers": [describe_optimizer(torch, one) for one in optimizers]},
        )
        return found

    def doings(self, num_updates: int = 0) -> dict[str, Any]:
        """Return what the script was seen to do so far, in so many updates."""
        if self.is_open and not self.stack.was_used and count_graphs()[0]:
            self.uses_compile = True
        found: dict[str, Any] = {
            "sets_threads": self.sets_threads,
            "uses_autocast": self.uses_autocast,
            "uses_scaler": self.uses_scaler,
            "uses_compile": self.uses_compile,
            "draws_in_calls": self.draws_in_calls,
            "has_frozen_calls": self.has_frozen_calls,
            "backwards_per_update": self.exchanges.backwards_per_update,
        }
        found |= self.attention.describe() | self.cells.describe() | self.inputs.describe()
        self._add(found, self.blocks.describe, self.gradients.describe)
        if self.is_channels_last:
            found["is_channels_last"] = True
        self._add(
            found,
            lambda: {"loaders": self._describe_loaders()},
            lambda: self.habits.describe(num_updates),
        )
        return found

    def _add(self, found: dict[str, Any], *parts: Callable[[], dict[str, Any]]) -> None:
        """Add what each part returns; one that fails is left out and counted."""
        for part in parts:
            try:
                found |= part()
            except BaseException:
                self.fail("facts")

    def _describe_gelus(self, models: list[Any]) -> dict[str, Any]:
        """Return the classes that write GELU out: modules are called with numbers of ours."""
        if not (models and self.is_probing and self.is_open):
            return {}
        written = lever_tool("kernels/gelu_classes").find_written
        found = written(self.torch, models).items()
        pairs = {f"{one.__name__} {form}" for one, forms in found for form in forms.values()}
        return {"written_gelus": sorted(pairs)}

    def trained_loaders(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return the loaders that fed training and still exist, with what is known of each."""
        found = [(one.reference(), one.facts) for one in self.loaders.values()]
        return [(loader, facts) for loader, facts in found if loader is not None]

    def _describe_loaders(self) -> list[dict[str, Any]]:
        found = []
        for one in self.loaders.values():
            loader = one.reference()
            if self.is_probing and not one.is_probed and loader is not None and self.is_open:
                one.is_probed = True
                try:
                    one.facts.update(probe_loader(self.torch, loader))
                    one.facts.update(probe_lengths(self.torch, loader))
                except BaseException:
                    self.fail("probe")
            found.append(one.facts | {"padding": one.padding.describe()})
        return found


def count_graphs() -> tuple[int, int]:
    """Return torch.compile's graphs so far, and the frames given up at the recompile limit."""
    books: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(books, "counters", None)
    if counters is None:
        return 0, 0
    graphs = counters.get("stats", {}).get("unique_graphs", 0)
    fallbacks = 0
    for category in ("unimplemented", "graph_break"):
        for reason, times in list(counters.get(category, {}).items()):
            # torch up to 2.5 calls it the cache size limit
            words = str(reason).replace("_", " ")
            if "recompile limit" in words or "cache size limit" in words:
                fallbacks += times
    return int(graphs), int(fallbacks)


def random_states(torch: Any) -> list[Any]:
    """Return the states of torch's generators: of the CPU, and of devices that are in use."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def has_package(name: str) -> bool:
    """Return whether the script's Python finds a package; it is not imported."""
    return importlib.util.find_spec(name) is not None


def world_size(torch: Any) -> int:
    """Return the number of ranks of the training."""
    return int(torch.distributed.get_world_size()) if is_initialized(torch) else 1


def describe_device(torch: Any, models: list[Any]) -> dict[str, Any]:
    """Return where the models' parameters are, and what that device can do."""
    kinds = {p.device.type for model in models for _, p in parameters_of(model)}
    others = sorted(kinds - {"cpu", "meta"})
    kind = others[0] if others else "cpu"
    if kind == "cuda":  # untested on a device
        major, minor = torch.cuda.get_device_capability()
        return {
            "device": kind,
            "device_name": torch.cuda.get_device_name(),
            "capabilities": [f"sm_{major}{minor}"],
            "free_device_bytes": torch.cuda.mem_get_info()[0],
            "uses_cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        }
    return {"device": kind, "device_name": None, "capabilities": cpu_capabilities(torch)}


def cpu_capabilities(torch: Any, path: str = CPU_INFO) -> list[str]:
    """Return in lower case what the CPU can do, according to Linux and to torch."""
    words: set[str] = set()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name = line.lower()
                if name.startswith(("vendor_id", "flags", "features")):
                    words.update(line.partition(":")[2].split())
                if name.startswith(("flags", "features")):
                    break
    except OSError:
        pass
    ask = getattr(torch.cpu, "get_capabilities", None)
    if ask is not None:
        words.update(name for name, value in ask().items() if value is True)
    level = str(torch.backends.cpu.get_cpu_capability()).lower()
    return sorted({w.lower() for w in words if w.lower().startswith(CAPABILITIES)} | {level})


def is_channels_last(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor of images is channels-last, and not also contiguous."""
    return (
        tensor.dim() == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )


def describe_models(torch: Any, models: list[Any]) -> dict[str, Any]:
    """Return the kinds of layers that levers ask for, and the parameters."""
    if not models:  # of what the script calls instead, nothing more is known
        return {"has_convolution": False}
    modules = {id(m): m for model in models for _, m in modules_of(model)}.values()
    parameters = {id(p): p for model in models for _, p in parameters_of(model)}.values()
    nn = torch.nn.modules
    layers = [m for m in modules if isinstance(m, nn.conv._ConvNd)]
    convolutions = [layer for layer in layers if layer.weight.dim() == 4]
    along_rows = [layer for layer in layers if layer.weight.dim() == 3]
    return {
        "has_convolution": bool(convolutions),
        "is_channels_last": any(is_channels_last(torch, m.weight) for m in convolutions),
        "has_batch_statistics": any(isinstance(m, nn.batchnorm._BatchNorm) for m in modules),
        "has_sequence_convolution": any(max(one.kernel_size) > 1 for one in along_rows),
        "widest_kernel": max([0, *(c.kernel_size[1] for c in convolutions if c.in_channels == 1)]),
        "graph_widths": lever_tool("kernels/graph_convolutions").widths_in(models),
        "num_parameters": sum(p.numel() for p in parameters),
        "parameter_dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
    }


def count_blocks(torch: Any, models: list[Any]) -> int:
    """Return how many blocks the models repeat, as the lever that compiles them counts."""
    find_blocks = lever_tool("tools/blocks").find_blocks
    return sum(len(blocks) for model in models for blocks in find_blocks(torch, model))


def describe_optimizer(torch: Any, optimizer: Any) -> dict[str, Any]:
    """Return an `OptimizerFacts`; the inner optimizer of a wrapper steps too and has its own."""
    groups = optimizer.param_groups
    parameters = [p for group in groups for p in group["params"]]
    foreach = {group.get("foreach") for group in groups}
    return {
        "name": type(optimizer).__name__,
        "is_fused": any(bool(group.get("fused")) for group in groups),
        "is_foreach": foreach.pop() if len(foreach) == 1 else None,
        "can_fuse": can_fuse(torch, optimizer, parameters),
        "num_parameters": sum(p.numel() for p in parameters),
    }


def can_fuse(torch: Any, optimizer: Any, parameters: Iterable[Any]) -> bool:
    """Return whether torch's own step of its class would accept `fused` for each parameter."""
    step = next((c for c in type(optimizer).__mro__ if "step" in vars(c)), object)
    if not step.__module__.startswith("torch.optim."):
        return False
    if "fused" not in optimizer.defaults:
        return False
    try:
        from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

        devices = set(_get_fused_kernels_supported_devices())
    except ImportError:
        devices = {"cuda"}
    return not any(group.get("differentiable") for group in optimizer.param_groups) and all(
        p.device.type in devices and p.is_floating_point() for p in parameters
    )
