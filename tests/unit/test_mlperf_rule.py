"""The worked examples of MLPerf's rules on convergence, by our arithmetic, and what ours asks.

Source: MLCommons, training_rules.adoc, "Appendix: RCP Examples" (version of May 2026). Its limit is
the reference's mean less what chance allows, so it rejects what ends too early; ours rejects what
ends worse.
"""

from __future__ import annotations

import math

import pytest

from steptime.verify.convergence.statistics import LEVEL, MeanGain, mean, variance

pytest.importorskip("scipy")

BATCH_128 = [16, 14, 16, 17, 16, 16, 15, 16, 15, 16]
BATCH_256 = [20, 21, 21, 20, 22, 22, 21, 21, 20, 20]
NUM_RUNS = 5


def trimmed(epochs):
    """Without the best and the worst run, as the rules want both arms."""
    return sorted(epochs)[1:-1]


def of_all(epochs):
    """The standard deviation as the rules have it: divided by the number of runs."""
    return math.sqrt(variance(epochs) * (len(epochs) - 1) / len(epochs))


def limit(middle, deviation):
    """The least mean of a submission: the end of our interval, with MLPerf's pooled error."""
    num, ours = len(BATCH_128) - 2, NUM_RUNS - 2
    error = deviation * math.sqrt(1 / num + 1 / ours)
    return MeanGain(middle, error, num + ours - 2).ends(LEVEL)[0]


def limit_of(epochs, *, is_trimmed=True):
    deviation = of_all(trimmed(epochs) if is_trimmed else epochs)
    return limit(mean(trimmed(epochs)), deviation)


@pytest.mark.parametrize(
    ("epochs", "middle", "deviation", "least", "allowed"),
    [(BATCH_128, 15.75, 0.43, 15.21, 0.0353), (BATCH_256, 20.75, 0.66, 19.93, 0.0412)],
)
def test_the_limits_are_those_of_the_rules(epochs, middle, deviation, least, allowed):
    assert mean(trimmed(epochs)) == middle
    assert of_all(trimmed(epochs)) == pytest.approx(deviation, abs=0.005)
    assert limit_of(epochs) == pytest.approx(least, abs=0.005)
    assert middle / limit_of(epochs) - 1 == pytest.approx(allowed, abs=2e-4)


def test_with_the_deviation_of_all_runs_as_the_checker_takes_it_the_limit_is_lower():
    found = limit_of(BATCH_128, is_trimmed=False)

    assert of_all(BATCH_128) == pytest.approx(0.78, abs=0.005)
    assert found == pytest.approx(14.78, abs=0.005)
    assert 15.75 / found - 1 == pytest.approx(0.0656, abs=1e-4)


def test_the_three_submissions_are_judged_as_the_rules_judge_them():
    s1, s2, s3 = ([15, 15, 15, 16, 16], [19, 19, 19, 20, 21], [17, 18, 18, 18, 20])
    assert mean(trimmed(s1)) > limit_of(BATCH_128)
    assert mean(trimmed(s2)) < limit_of(BATCH_256)
    middle, deviation = (
        mean([of(trimmed(BATCH_128)), of(trimmed(BATCH_256))]) for of in (mean, of_all)
    )
    assert (middle, deviation) == (18.25, pytest.approx(0.547, abs=5e-4))
    assert mean(trimmed(s3)) > limit(middle, deviation)
    # The text has 3.68 %; by its own formula it is 3.86 %.
    assert middle / limit(middle, deviation) - 1 == pytest.approx(0.0386, abs=1e-4)
