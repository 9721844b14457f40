"""Which reads of a script's source may give their number later."""

import textwrap

import pytest

from steptime.levers._late_reads import Use, find_use, has_own_meaning


def use_of(tmp_path, body):
    """What becomes of the first read in a function that trains."""
    text = "def train(loader, n):\n    total = 0.0\n    for loss in loader:\n"
    text += textwrap.indent(body, "    ")
    file = tmp_path / f"train{abs(hash(text))}.py"
    file.write_text(text)
    at = next(i for i, one in enumerate(text.splitlines(), 1) if ".item()" in one)
    return find_use(str(file), 1, "train", at)


@pytest.mark.parametrize(
    "body",
    [
        "    total += loss.item()\nprint(total)",
        "    total += loss.detach().item() * len(loss)\nreturn total / n",
        "    total += loss.item()\n    if n:\n        print(f'{total / n:.3f}')\n        total = 0",
        "    total += loss.item()\nprint('mean', round(100 * total, 2))",
        "    total += (loss > 0).sum().item()\nmean = total / n\nreturn mean",
        "    total += loss.item()\ntotal, k = 0.0, 0\nreturn total / 2",
        "    total += loss.size(0) * loss.item()\nreturn total / n",
        "    total += loss.shape[0] * loss.item()\nreturn total / n",
        "    total += 0.5 * loss.item()\nreturn total / n",
        "    total += loss.item() / n\nprint(total)",
        "    total = total + loss.item() * n\nprint(total)",
        "    total += loss.item()\n    total += len(loss)\nprint(total)",
        "    total += loss.item()\n    total /= 2\nprint(total)",
        "    total += (\n        loss.item()\n    )\nprint(total)",
        "    sums['a'] += loss.item()\nsums = {'a': 0.0, 'n': 0}\nprint(sums['a'] / n)",
        "    sums['a'] += loss.item()\n    sums['n'] += len(loss)\nsums = {'a': 0, 'n': 0}",
        "    sums['a'] += loss.item()\nsums = {'a': 0, 'n': 0}\nprint(sums['a'] / sums['n'])",
        "    sums[0] += loss.item() * 2\nsums = [0.0, 0]\nprint(f'{sums[0]:.2f} {sums}')",
    ],
)
def test_a_sum_that_is_only_computed_with_or_printed_may_be_late(tmp_path, body):
    assert use_of(tmp_path, body) is Use.ADDED


@pytest.mark.parametrize(
    "body",
    [
        "    last = loss.item()\n    if n:\n        print(f'{last:.4f}')",
        "    last = loss.item()\nprint('loss', last)",
        "    last = 0\n    last = loss.item()\nreturn last / n",
        "    sums['last'] = loss.item()\nsums = {'last': 0}\nprint(sums)",
    ],
)
def test_a_number_that_is_kept_to_be_printed_may_be_late(tmp_path, body):
    assert use_of(tmp_path, body) is Use.KEPT


@pytest.mark.parametrize(
    "body",
    [
        "    last = loss.item() * n\n    if n:\n        print(f'{last:.4f}')",
        "    last = 2 * loss.item()\nprint(last)",
        "    last = loss.item() / 2\nprint(last)",
    ],
)
def test_so_may_its_product_or_quotient(tmp_path, body):
    assert use_of(tmp_path, body) is Use.COMPUTED


SEEN_BY_OTHERS = [
    "    total += loss.item()\nreturn total",
    "    total += loss.item()\n    losses.append(total)",
    "    total += loss.item()\n    log(loss=total)",
    "    total += n * loss.item()",
    "    total += loss.item() + n.item()",
    "    total += loss.item() * n.item()",
    "    total += loss.item()\n    total += loss",
    "    total += loss.item()\ntotal = loss",
    "    total += loss.item()\nother = total",
    "    total += loss.item()\nprint(loss * total)",
    "    total += loss.item()\nprint('%d' % total)",
    "    total += loss.item()\nprint(f(total))",
    "    total += loss.item(); n += loss.item()",
    "    total += loss.item()\nprint(locals())",
    "    total += loss.item()\nglobal total",
    "    total += loss.item()\nshow = lambda: total",
    "    total += loss.item()\nprint([total for _ in n])",
    "    total -= loss.item()\n    n += 1",
    "    n += loss.item()\nprint(n / 2)",
    "    self.total += loss.item()",
    "    total += loss.item()\ndel total",
    "    total += loss.item()\nfor total in n:\n    pass",
    "    total += loss.item()\n(total := 3)",
    "    total += float(loss)  # .item()",
    "    total += loss.item()\nprint(total & 1)",
    "    total += loss.item()\nif total > n:\n    stop()",
    "    total += loss.item()\n    assert total",
    "    total = loss.item() + total\nprint(total)",
    "    total = total - loss.item()\nprint(total)",
    "    total += loss.size(0, 1) * loss.item()",
]
SEEN_BESIDE = [
    "    total += loss.item(); log(n.item())\nprint(total)",
    "    total += f(n.item()).item()\nprint(total)",
    "    total += loss.item() * f(\n        n.item())\nprint(total)",
    "    total += loss.item() * f(map(methodcaller('item'), n))\nprint(total)",
    "    total += loss.item()\nprint = log",
    "    total += loss.item()\nfrom rich import print",
    "    total += loss.item()\ndef round(x):\n    return x",
    "    total += loss.item()\ntry:\n    pass\nexcept E as total:\n    pass",
]
SEEN_IN_OTHERS = [
    "    sums['a'] += loss.item()\nsums = make()",
    "    sums['a'] += loss.item()",
    "    sums['a'] += loss.item()\nsums = {'a': loss}",
    "    sums['a'] += loss.item()\nsums = {**n}",
    "    sums[n] += loss.item()\nsums = [0]",
    "    sums['a'] += loss.item()\nsums = {'a': 0}\nreturn sums",
    "    sums['a'] += loss.item()\nsums = {'a': 0}\nlog(sums)",
    "    sums['a'] += loss.item()\nsums = {'a': 0}\nlog(**sums)",
    "    sums['a'] += loss.item()\nsums = {'a': 0}\nif sums['a'] > 1:\n    stop()",
    "    sums['a'] += loss.item()\nsums = {'a': 0}\nfor k, v in sums.items():\n    print(v)",
    "    sums['a'] += loss.item()\nsums = other = {'a': 0}",
    "    sums[0] += loss.item()\nsums = [0]\nprint(sums * 2)",
    "    sums[0] += loss.item()\nsums = [0]\nsums *= 2",
    "    sums[0] += loss.item()\nsums = [0]\nprint(n / sums[0])",
    "    sums[0] += loss.item()\nsums = [0]\nprint(2 * sums)",
]
KEPT_BY_OTHERS = [
    "    last = loss.item()\n    if last > 10:\n        raise ValueError",
    "    last = loss.item()\n    if not math.isfinite(last):\n        stop()",
    "    last = loss.item()\n    scheduler.step(last)",
    "    last = loss.item()\n    best = min(best, last)",
    "    last = loss.item()\n    losses.append(last)",
    "    last = loss.item()\nreturn last",
    "    last = loss.item()\n    bar.set_postfix(loss=last)",
    "    last = loss.item()\n    logging.info('%f', last)",
    "    last = loss.item()\n    writer.add_scalar('loss', last, n)",
    "    last = loss.item() + 1\nprint(last)",
    "    last = other = loss.item()\nprint(last)",
    "    last, other = loss.item(), 1\nprint(last)",
    "    last: float = loss.item()\nprint(last)",
    "    self.last = loss.item()",
    "    losses.append(loss.item())\nprint(losses)",
    "    print(loss.item())",
    "    print(f'{loss.item():.3f}')",
    "    while loss.item() > 1:\n        pass",
]


@pytest.mark.parametrize("body", [*SEEN_BY_OTHERS, *SEEN_BESIDE, *SEEN_IN_OTHERS, *KEPT_BY_OTHERS])
def test_a_number_that_could_be_seen_by_others_is_read_at_once(tmp_path, body):
    assert use_of(tmp_path, body) is Use.NOW


def test_a_parameter_is_no_variable_of_a_function_alone(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("def train(total):\n    total += x.item()\n    print(total)\n")

    assert find_use(str(file), 1, "train", 2) is Use.NOW


def test_a_script_without_functions_may_sum_too(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("total = 0\nfor x in y:\n    total += x.item()\nprint(total / 3)\n")

    assert find_use(str(file), 1, "<module>", 3) is Use.ADDED
    file = tmp_path / "seen.py"
    file.write_text("total = 0\ntotal += x.item()\ndef f():\n    return total\n")
    assert find_use(str(file), 1, "<module>", 2) is Use.NOW


def test_source_that_is_not_there_or_broken_is_no_reason_to_wait_less(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def train(:\n")

    assert find_use("<stdin>", 1, "train", 1) is Use.NOW
    assert find_use(str(broken), 1, "train", 1) is Use.NOW


def test_another_round_than_pythons_might_look_at_types():
    assert has_own_meaning({"loss": 1})
    assert not has_own_meaning({"round": pow})
