"""Another allocator, or a tuned one, which keeps freed memory for the next step.

glibc returns large blocks to the operating system when they are freed. The next step asks for them
again, and each page is cleared and mapped once more. tcmalloc, jemalloc (set to never return
memory: with its defaults it hurt, x0.72 on an LSTM) and glibc with higher thresholds keep them. On
a device the corresponding problem is fragmentation, and expandable segments are the remedy.

Source: https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html ("Switch memory
allocator"), https://jemalloc.net/jemalloc.3.html, mallopt(3),
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management, and our own measurement:
x1.16 on a convnet with 20,000 page faults per step, nothing on an MLP with none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import Facts, Lever, Moment, Preserves, Settings

MIN_FAULTS = 256.0
"""Page faults per step; fewer, 0.5 ms at a measured 1.8 µs each, are start-up and noise."""

MIN_KERNEL_FRACTION = 0.02
"""Of a step in the kernel; a study cannot resolve less."""
TIMES_KERNEL = 2.0
"""Of that, what it saves at most: a cleared page is cold, too (3 to 7% gave a ResNet 1 to 16%)."""

MIB = 1 << 20
NEVER = str(1 << 40)
INSTALL = "apt install libjemalloc2 libtcmalloc-minimal4 (conda: jemalloc, gperftools)"
SYSTEM_VARIABLES = {
    "glibc_tuned": (
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_TOP_PAD_",
        "GLIBC_TUNABLES",
        "LD_PRELOAD",
    ),
    "tcmalloc": ("LD_PRELOAD",),
    "jemalloc": ("LD_PRELOAD", "MALLOC_CONF"),
}
DEVICE_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def applies(facts: Facts) -> str | None:
    """It applies where page faults cost something and no allocator was chosen yet."""
    if space(facts):
        return None
    if facts.device == "cuda":
        return "The device's allocator is already set in the environment."
    if (few := too_few_faults(facts)) is not None:
        return few
    names = {name for names in SYSTEM_VARIABLES.values() for name in names}
    own = sorted(names & set(facts.environment_names))
    if own:
        return f"{', '.join(own)} is set, so the choice of allocator stays yours."
    return f"No other allocator was found here. Install one: {INSTALL}."


def too_few_faults(facts: Facts) -> str | None:
    """Return why another allocator can save nothing; what was not observed is no reason."""
    faults, kernel = facts.minor_faults_per_step, facts.kernel_fraction
    needs = f"(it needs {MIN_FAULTS:.0f} and {MIN_KERNEL_FRACTION:.0%})"
    if faults is not None and faults < MIN_FAULTS:
        time = "" if kernel is None else f", and {kernel:.1%} of a step in the kernel"
        return f"There is little to save: {faults:.0f} page faults per step{time} {needs}."
    if kernel is not None and kernel < MIN_KERNEL_FRACTION:
        pages = "" if faults is None else f"{faults:.0f} page faults per step, and "
        return f"There is little to save: {pages}{kernel:.1%} of a step in the kernel {needs}."
    return None


def saves(facts: Facts) -> float | None:
    """Return the most that another allocator can save of a step."""
    if facts.device != "cpu" or facts.kernel_fraction is None:
        return None
    return min(1.0, TIMES_KERNEL * facts.kernel_fraction)


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return what is installed here and not set by the user, the least intrusive first."""
    kinds = []
    if too_few_faults(facts) is None:
        for kind, names in SYSTEM_VARIABLES.items():
            is_here = kind.removesuffix("_tuned") in facts.libraries
            if is_here and not set(names) & set(facts.environment_names):
                kinds.append(kind)
    if facts.device == "cuda" and not set(DEVICE_VARIABLES) & set(facts.environment_names):
        kinds.append("cuda_expandable")
    return tuple(settings_of(kind, facts.libraries) for kind in kinds)


def settings_of(kind: str, libraries: Mapping[str, str]) -> Settings:
    """Return the settings of one allocator; for glibc with the largest threshold it accepts.

    Older versions refuse a threshold above half a heap (32 MiB) and stay at 128 KiB; 2.36 accepts
    it.
    """
    if kind != "glibc_tuned":
        return {"library": kind}
    numbers = [int(part) for part in libraries["glibc"].split(".") if part.isdigit()]
    return {"library": kind, "mmap_threshold_mib": 1024 if numbers >= [2, 36] else 32}


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of one allocator."""
    kind = settings["library"]
    if kind == "tcmalloc":
        # By default it reports each allocation above 1 GiB on stderr.
        return {"LD_PRELOAD": libraries[kind], "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": NEVER}
    if kind == "jemalloc":
        # A threshold of 1 is no size class: it switches off the arena for large blocks, which
        # returns them at once whatever the decay is.
        keep = "oversize_threshold:1,dirty_decay_ms:-1,muzzy_decay_ms:-1"
        return {"LD_PRELOAD": libraries[kind], "MALLOC_CONF": keep}
    if kind == "cuda_expandable":
        # The newer name PYTORCH_ALLOC_CONF is ignored by torch 2.9 (pytorch issue 183387); this
        # one works up to the newest, with a warning in 2.9 to 2.11.
        return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return {
        "MALLOC_MMAP_THRESHOLD_": str(int(settings["mmap_threshold_mib"]) * MIB),
        "MALLOC_TRIM_THRESHOLD_": NEVER,
        "MALLOC_TOP_PAD_": str(64 * MIB),
    }


def edit(settings: Settings) -> str:
    """Return the launch line, with the library by its usual name."""
    names = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
    settable = variables(settings, names).items()
    return " ".join(f"{name}={value}" for name, value in settable) + " python train.py"


LEVER = Lever(
    name="allocator",
    title="Keep freed memory for the next step with another or a tuned allocator.",
    relieves=("COMPUTE_BOUND", "HOST_BOUND", "MEMORY_CAPACITY_BOUND"),
    phases=("forward", "loss", "forward_and_loss", "backward", "optimizer", "other"),
    preserves=Preserves.EXACT,
    when=f"With at least {MIN_FAULTS:.0f} page faults per step; on a CUDA device always.",
    applies=applies,
    space=space,
    moment=Moment.ENVIRONMENT,
    saves=saves,
    judged_by_cpu_time=True,
    variables=variables,
    edit=edit,
    costs=f"Memory is kept once it was taken. tcmalloc and jemalloc must be installed: {INSTALL}.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
