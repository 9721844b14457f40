"""What libraries say is heard without a frame of ours, counted, and known by its text."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from steptime.diagnose.ailments.said.library_warnings import (
    AILMENTS,
    MESSAGES,
    find_said,
    find_unused_search,
    without_said_twice,
)
from steptime.diagnose.values.finding import Severity
from steptime.guest.hooks.patching import PATCHES
from steptime.guest.said.hear import hear_libraries
from steptime.guest.said.said_watcher import MAX_TEXTS
from steptime.guest.sites.file_owners import LIBRARYS, USERS
from steptime.measure.said.read_output import read_output
from steptime.measure.values.said import LibraryMessage, UnusedSearch
from steptime.record.rows import MisshapenError, said
from unit.builders import make_end, make_measurement, make_update, measure_lines

LIBRARY = """
import logging, warnings
def warn(text="an old way", level=1):
    warnings.warn(text, UserWarning, stacklevel=level)
def log(level, text, *args):
    logging.getLogger("library").log(level, text, *args)
"""


@pytest.fixture
def heard(monkeypatch):
    """Hooks in place, a library that speaks, and the watcher; this file is the script."""
    monkeypatch.setattr(sys, "modules", {"warnings": warnings})  # nothing is remembered
    owner = lambda file: USERS if file == __file__ else LIBRARYS  # noqa: E731
    journal = SimpleNamespace(num_updates=7, resting=None, has_stepped=False)
    watchers: list[Any] = []
    failures: list[Any] = []

    def guarded(place, act, *args):
        try:
            act(*args)
        except Exception as error:  # pragma: no cover
            failures.append(error)

    context = SimpleNamespace(
        frames=SimpleNamespace(places=SimpleNamespace(owner=owner)),
        first_journal=journal,
        recorder=SimpleNamespace(watchers=watchers, num_by_hand=2),
        guarded=guarded,
    )
    space: dict[str, Any] = {"__name__": "library"}
    exec(compile(LIBRARY, "/lib/library.py", "exec"), space)
    num_before = len(PATCHES)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *args, **kwargs: None
        hear_libraries(context)
        yield SimpleNamespace(watcher=watchers[0], journal=journal, **space)
    while len(PATCHES) > num_before:
        owner_, name, before, _ = PATCHES.pop()
        setattr(owner_, name, before)
    assert not failures


def rows(heard):
    return list(heard.watcher.rows.values())


def test_a_warning_is_noted_with_the_line_of_the_script_and_its_updates(heard):
    for heard.journal.num_updates in (7, 12):
        heard.warn("size 3 differs from 4")
    heard.warn("size 5 differs from 6")

    ((channel, who, text, origin, file, line, num, first, last),) = rows(heard)
    assert (channel, who, text) == ("warning", "UserWarning", "size 3 differs from 4")
    assert (origin, file, num, first, last) == ("/lib/library.py", __file__, 3, 7, 12)
    assert isinstance(line, int)


def test_backward_calls_before_the_first_step_are_no_updates(heard):
    heard.journal.has_stepped = True
    heard.warn("size 3 differs from 4")

    ((*_, first, last),) = rows(heard)
    assert (first, last) == (5, 5)


def test_a_warning_names_the_same_line_and_no_frame_of_ours_is_seen_when_it_is_shown(heard):
    seen: list[Any] = []

    def show(message, category, filename, lineno, file=None, line=None):
        seen.append((filename, lineno, traceback.extract_stack()))

    warnings.showwarning = show
    heard.warn(level=2)

    ((file, line, stack),) = seen
    assert (file, line) == (__file__, heard_line())
    assert not [one for one in stack if "steptime/guest" in one.filename]
    assert [one.name for one in stack[-3:]] == ["warn", "_showwarnmsg", "show"]


def heard_line() -> int:
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    return source.index("    heard.warn(level=2)") + 1


def test_what_is_recorded_or_only_formatted_or_the_scripts_own_is_not_noted(heard):
    with warnings.catch_warnings(record=True):
        heard.warn()
    with torch._logging.hide_warnings(lambda *args, **kwargs: False):  # as dynamo does
        heard.warn()
    warnings.formatwarning("put into words", UserWarning, "a.py", 1)
    warnings.warn("the script's own", UserWarning, stacklevel=1)

    assert rows(heard) == []


def test_records_at_warning_and_above_are_noted_of_libraries_alone(heard):
    heard.log(logging.INFO, "all is well")
    heard.log(logging.WARNING, "%s is slow", "disk")
    logging.getLogger("mine").warning("the script's own")

    ((channel, who, text, *_),) = rows(heard)
    assert (channel, who, text) == ("log", "library", "disk is slow")


def test_many_texts_are_bounded_and_counted(heard):
    for letters in range(MAX_TEXTS + 9):
        heard.warn("x" * (letters + 1))

    assert len(rows(heard)) == MAX_TEXTS
    assert heard.watcher.num_more == 9


def test_a_text_in_each_step_is_written_less_and_less_often(heard):
    clock = iter(range(0, 700_000_000_000, 1_000_000_000))
    heard.watcher.clock = lambda: next(clock)
    written = 0
    for _ in range(600):
        heard.warn()
        written += bool(heard.watcher.poll(0, is_last=False))
    assert 10 < written < 20
    assert '"sd"' in heard.watcher.poll(0, is_last=True)
    assert heard.watcher.poll(0, is_last=True) == ""


def test_the_hooks_leave_records_and_messages_as_they_are(heard):
    record = logging.LogRecord("a", logging.ERROR, "b.py", 3, "text %d", (4,), None)
    assert (record.getMessage(), record.lineno) == ("text 4", 3)
    with pytest.raises(TypeError) as caught:
        logging.LogRecord("a")
    assert all(
        "guest" not in one.filename for one in traceback.extract_tb(caught.value.__traceback__)
    )


TALK = """
import logging, sys, traceback, warnings
import numpy, torch
logging.basicConfig(format="%(levelname)s %(name)s %(filename)s:%(lineno)d %(message)s")
def show(message, category, filename, lineno, file=None, line=None):
    traceback.print_stack(file=sys.stderr)
    print("shown", category.__name__, filename, lineno, file=sys.stderr)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(30):
    if step == 3:
        warnings.showwarning = show
    if step == 10:
        logging.captureWarnings(True)
    if step == 20:
        logging.captureWarnings(False)
        warnings.simplefilter("always")
    loss = torch.nn.functional.mse_loss(model(torch.randn(8, 4)), torch.zeros(8))
    loss.backward()
    optimizer.step()
    numpy.log(numpy.zeros(1))
    logging.getLogger("mine").warning("mine %d", step)
    warnings.warn("the script's own")
    print(step, loss.item())
with warnings.catch_warnings(record=True) as caught:
    warnings.warn("quiet")
    print([(str(one.message), one.filename, one.lineno) for one in caught])
"""


@pytest.mark.slow("runs two trainings")
def test_the_training_prints_the_same_and_what_libraries_say_is_in_the_document(tmp_path):
    (tmp_path / "train.py").write_text(TALK)

    def run(*words):
        return subprocess.run(
            [*words, sys.executable, "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )

    bare = run()
    ours = (sys.executable, "-m", "steptime", "run", "--quiet", "--json", "out.json", "--")
    seen = run(*ours)
    assert (seen.stdout, seen.stderr) == (bare.stdout, bare.stderr)
    found = json.loads((tmp_path / "out.json").read_text())["data"]
    texts = {one["text"][:12]: one for one in found["measurement"]["said"]}
    assert set(texts) == {"Using a targ", "divide by ze"}
    assert texts["Using a targ"]["where"] == "train.py:19"
    assert {"broadcast_loss", "said_zero_logarithm"} <= {
        one["cause"] for one in found["diagnosis"]["findings"]
    }


# -- the parent


ROW = ["warning", "UserWarning", "text 3", "/lib/a.py", "/w/train.py", 3, 2, 0, 9]


def test_rows_become_messages_and_ranks_that_say_the_same_one():
    line = {"k": "sd", "rows": [ROW], "more": 0}
    found = measure_lines(*[make_update(n) for n in range(40)], line, make_end(40))

    (one,) = found.said
    assert (one.text, one.num, one.first_update, one.last_update) == ("text 3", 2, 0, 9)
    assert one.where is not None
    assert one.where.endswith("train.py:3")


def test_loggers_of_one_rank_that_say_the_same_are_no_ranks():
    said_by = [["log", who, "the end", "/lib/a.py", "/w/train.py", 3, 1, 9, 9] for who in "ab"]
    line = {"k": "sd", "rows": said_by, "more": 0}

    (one,) = measure_lines(*[make_update(n) for n in range(40)], line, make_end(40)).said
    assert (one.who, one.num, one.num_ranks) == ("a, b", 2, 1)


@pytest.mark.parametrize("row", [ROW[:-1], [*ROW[:6], "2", 0, 9], [1, *ROW[1:]]])
def test_a_row_of_another_shape_is_refused(row):
    with pytest.raises(MisshapenError):
        said({"k": "sd", "rows": [row]})


def test_torchs_own_lines_are_read_in_kept_output(tmp_path):
    file = tmp_path / "output.txt"
    file.write_text(
        "loss 1\n[rank0]:[W1129 12:44:28.84 reducer.cpp:1529] Warning: find it\n[W] no\n"
    )

    (one,) = read_output(file)
    assert (one.channel, one.who, one.text) == ("stderr", "reducer.cpp", "find it")
    assert read_output(tmp_path / "none") == ()


def test_an_idle_search_of_ddp_is_found_with_its_cost():
    found = find_unused_search(
        make_measurement(unused_search=UnusedSearch(iterations=57, with_unused=0, s_per_step=0.05))
    )
    assert found is not None
    assert (found.cause, found.severity) == ("unused_search", Severity.WARNING)
    for search in (
        None,
        UnusedSearch(iterations=57, with_unused=1),
        UnusedSearch(iterations=19, with_unused=0),
    ):
        assert find_unused_search(make_measurement(unused_search=search)) is None


# -- the table


def find(text: str) -> list[Any]:
    measurement = make_measurement(said=(LibraryMessage(channel="warning", who="x", text=text),))
    found = (find_said(measurement, message=one) for one in MESSAGES)
    return [one for one in found if one is not None]


QUOTED = {
    "said_gathered_scalars": "Was asked to gather along dimension 0, but all input tensors were "
    "scalars; will instead unsqueeze and return a vector.",
    "said_scattered_weights": "RNN module weights are not part of single contiguous chunk of "
    "memory.",
    "said_cudnn_plan": "Plan failed with a cudnnException: CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR",
    "said_architecture": "NVIDIA A100-SXM4-40GB with CUDA capability sm_80 is not compatible with "
    "the current PyTorch installation.",
    "said_unused_search": "find_unused_parameters=True was specified in DDP constructor, but did "
    "not find any unused parameters in the forward pass.",
    "said_gradient_strides": "Grad strides do not match bucket view strides. This may indicate",
    "said_recompile_limit": "torch._dynamo hit config.recompile_limit (8) function: "
    "'orthogonalize' (a.py:6) last reason: 0/7: tensor 'gradient' size mismatch",
    "said_few_multiprocessors": "Not enough SMs to use max_autotune_gemm mode",
    "said_new_weights": "Some weights of BertForSequenceClassification were not initialized from "
    "the model checkpoint at bert-base-uncased and are newly initialized: ['classifier.bias']",
    "said_long_sequence": "Token indices sequence length is longer than the specified maximum "
    "sequence length for this model (812 > 512). Running this sequence through the model will",
    "said_pad_token": "Setting `pad_token_id` to `eos_token_id`:50256 for open-end generation.",
    "said_right_padding": "A decoder-only architecture is being used, but right-padding was "
    "detected! For correct generation results, please set `padding_side='left'`",
    "said_pad_apart": "You're using a BertTokenizerFast tokenizer. Please note that with a fast "
    "tokenizer, using the `__call__` method is faster than using a method to encode the text",
    "said_flash_type": "You are attempting to use Flash Attention 2 without specifying a dtype.",
    "said_forked_tokenizer": "huggingface/tokenizers: The current process just got forked, after "
    "parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "said_iterable_with_length": "Your `IterableDataset` has `__len__` defined. In combination",
    "said_metric_buffer": "Metric `AUROC` will save all targets and predictions in buffer.",
    "said_ragged_array": "Creating an ndarray from ragged nested sequences (which is a",
    "said_set_on_copy": "A value is trying to be set on a copy of a slice from a DataFrame.",
    "said_filled_objects": "Downcasting object dtype arrays on .fillna, .ffill, .bfill is "
    "deprecated and will change in a future version.",
    "said_empty_frames": "The behavior of DataFrame concatenation with empty or all-NA entries is",
    "said_fork_with_threads": "This process (pid=4242) is multi-threaded, use of fork() may lead "
    "to deadlocks in the child.",
}
"""Texts of libraries that are not here, or that need a device or several ranks."""


def _torch_target_size(torch):
    torch.nn.functional.mse_loss(torch.zeros(4, 1), torch.zeros(4))


def _torch_scheduler_first(torch):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.step()
    scheduler.step()


def _torch_list_of_arrays(torch):
    numpy = pytest.importorskip("numpy")
    torch.tensor([numpy.zeros(2)] * 2)


def _torch_copy_of_tensor(torch):
    torch.tensor(torch.zeros(1))


def _torch_inner_gradient(torch):
    (torch.zeros(1, requires_grad=True) * 2).grad  # noqa: B018


def _torch_checkpoint_without_gradient(torch):
    torch.utils.checkpoint.checkpoint(torch.sin, torch.zeros(1), use_reentrant=True)


def _torch_softmax_dimension(torch):
    torch.nn.functional.softmax(torch.zeros(2, 2))


def _torch_meshgrid(torch):
    torch.meshgrid(torch.zeros(2), torch.zeros(2))


def _torch_length_of_iterable(torch):
    class Whole(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(6))

        def __len__(self):
            return 3

    loader = torch.utils.data.DataLoader(Whole())
    len(loader)
    list(loader)


def _numpy_empty_mean(numpy):
    numpy.mean(numpy.zeros(0))


def _numpy_invalid_value(numpy):
    numpy.zeros(1) / numpy.zeros(1)


def _numpy_overflow(numpy):
    numpy.exp(numpy.full(1, 1e4))


def _numpy_zero_logarithm(numpy):
    numpy.log(numpy.zeros(1))


def _pillow_large_picture(image):
    image._decompression_bomb_check((20_000, 5_000))


def _pandas_mixed_types(pandas):
    import io

    text = "a,b\n" + "\n".join(["1,1"] * 300_000 + ["x,1"] * 300_000)
    pandas.read_csv(io.StringIO(text))


def _pandas_fragmented_frame(pandas):
    frame = pandas.DataFrame({"a": [1]})
    for number in range(120):
        frame[f"b{number}"] = 1


def _pandas_python_parser(pandas):
    import io

    pandas.read_csv(io.StringIO("a;;b\n1;;2\n"), sep=";;")


def _pandas_mask_of_other_index(pandas):
    frame = pandas.DataFrame({"a": [1, 2]})
    frame[pandas.Series([True, False], index=[1, 0])]


def _pandas_unsorted_index(pandas):
    index = pandas.MultiIndex.from_tuples([(2, 1, 0), (1, 2, 0), (2, 0, 0), (1, 2, 1)])
    pandas.DataFrame({"a": range(4)}, index=index).loc[(1, 2)]


def _sklearn_no_predictions(sklearn):
    from sklearn.metrics import precision_score

    precision_score([0, 1], [0, 0])


def _sklearn_column_target(sklearn):
    from sklearn.ensemble import RandomForestRegressor

    RandomForestRegressor(n_estimators=1).fit([[0.0], [1.0]], [[0.0], [1.0]])


def _sklearn_feature_names(sklearn):
    pandas = pytest.importorskip("pandas")
    from sklearn.preprocessing import StandardScaler

    StandardScaler().fit(pandas.DataFrame({"a": [0.0, 1.0]})).transform([[0.0]])


def _sklearn_not_converged(sklearn):
    from sklearn.linear_model import LogisticRegression

    LogisticRegression(max_iter=1).fit([[0.0], [1.0], [50.0]], [0, 1, 1])


SAYS = {
    f"said_{name.split('_', 2)[2]}": (name.split("_", 2)[1], act)
    for name, act in list(globals().items())
    if re.match(r"_(torch|numpy|pillow|pandas|sklearn)_", name)
}
PACKAGES = {"pillow": "PIL.Image"}


def test_the_table_is_large_and_each_row_has_a_thread_and_a_text():
    assert len(MESSAGES) >= 40
    assert len({one.cause for one in MESSAGES}) == len(MESSAGES)
    assert all(re.match(r"https://\S+\d+$|https://\S+/\d+$", one.thread) for one in MESSAGES)
    assert {*QUOTED, *SAYS} == {one.cause for one in MESSAGES}
    known = {row.cause for row in AILMENTS}
    assert all(one.cause in known for one in MESSAGES)


@pytest.mark.parametrize("cause", QUOTED)
def test_a_quoted_text_is_known(cause):
    assert [one.cause for one in find(QUOTED[cause])] == [cause]


@pytest.mark.parametrize("cause", SAYS)
def test_the_library_says_what_the_table_knows(cause):
    package, act = SAYS[cause]
    module = pytest.importorskip(PACKAGES.get(package, package))
    once = getattr(module, "set_warn_always", None)  # torch says some of them once in a process
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if once is not None:
            once(True)
        act(module)
        if once is not None:
            once(False)
    texts = [" ".join(str(one.message).split()) for one in caught]

    assert cause in [one.cause for text in texts for one in find(text)], texts


def test_a_finding_with_numbers_wins_over_a_message_and_others_stay():
    messages = find(QUOTED["said_unused_search"]) + find(QUOTED["said_flash_type"])
    other = messages[1]
    search = replace(messages[0], cause="unused_search")
    assert without_said_twice([*messages, search]) == [other, search]
    assert without_said_twice(messages) == messages
