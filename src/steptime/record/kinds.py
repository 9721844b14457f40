"""Lists the kinds of lines: the values of `k`, by the file that holds them.

Lines of the same file never share a word; lines of different files may.
"""

from __future__ import annotations

HEAD = "head"
"""First line of every file but processes.jsonl: who wrote it, and the order of the numbers."""

# processes.jsonl
START = "start"
OLD_PYTHON = "old"
TORCH = "torch"
MEMORY_HELD = "mem"
EXIT = "exit"
CELLS = "cells"

# rank-N.jsonl: updates
UPDATES = "u"
PROGRESS = "p"
BLOCK = "b"
RESTED = "r"
DEVICE_TIMES = "d"
MARKERS = "e"
COST = "o"
END = "end"

# rank-N.jsonl: beside the updates
MEMORY = "m"
SITES = "s"
SPANS = "a"
SPENT = "sl"
AGAIN = "ag"
OPERATORS = "ops"
COUNT = "count"
COUNTED = "counted"
PRODUCTS = "pr"
COMPILED = "c"
COMPILINGS = "ce"
PAUSES = "gc"
START_UP = "su"
CHECKPOINTS = "cp"
LOGGING = "lg"
SAID = "sd"
SEARCH = "du"
OPTIMIZERS = "op"
LOSSES = "v"
BATCHES = "l"
LONGEST = "lb"
NON_FINITE = "nf"
BRACKET = "br"
LOOK_COST = "hc"
LAYERS = "lw"
LAYER_NORMS = "ln"
GRAPHS_KEPT = "ga"
WEIGHTS = "wt"
SENSE = "se"
REPLICAS = "rp"
RANK_INPUTS = "ri"
EVALUATIONS = "ev"
SWITCHES = "q"
LOADERS = "i"
AWAITED = "pw"
SHAPES = "x"
ATTENTION = "at"
WINDOW = "profile"
ASKED = "asked"

# rank-N.jsonl: of a trial, or of a run with a recipe
TAGS = "t"
LEVER = "lever"
FACTS = "facts"
LEVER_COUNTS = "counts"
EXPERIMENT = "experiment"

# bench.jsonl
BENCH_BEGUN = "begun"
BENCH_LOOP = "loop"
BENCH_LOADER = "loader"
BENCH_PASS = "pass"
BENCH_WORKERS = "workers"
BENCH_ENDED = "ended"
BENCH_FAILED = "failed"
BENCH_DONE = "done"
"""The last line: nothing more is to come."""

# worker-PPID-NUMBER.jsonl
WORKER = "w"
WORKER_SENSE = "ws"

# host.jsonl
HOST_SAMPLE = "h"
GUESTLESS = "g"
DEVICE_FACTS = "dh"
DEVICE_SAMPLE = "d"
DEVICES_MISSING = "dm"
CHANGED = "changed"

# stalls.jsonl
STALL = "stall"
STALL_OVER = "over"
DESYNC = "desync"

# quality-N.jsonl; `head` and `end` are as above
QUALITY_UPDATE = "q"
QUALITY_TABLE = "table"
QUALITY_NORMS = "norms"
QUALITY_FIRST = "first"

# checksums-N.jsonl
CHECKSUMS = "k"

# tfdata-PID.jsonl
PIPELINE = "pipeline"
PIPELINE_MODEL = "model"
UNREAD = "unread"
ENOUGH = "enough"

# forecast.jsonl
FORECAST = "forecast"
