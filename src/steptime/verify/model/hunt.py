"""Looks for slices in which a candidate is worse, and confirms them on rows held out.

One half of the rows proposes slices of one to three columns, the other half judges them, with the
number of proposals taken into account: whatever the search looked at, a slice without a loss is
confirmed in 5 % of searches at most.

Sources: Sagadeeva, Boehm, SIGMOD 2021, by sliceline; Holm, 1979, and Benjamini, Hochberg, 1995, by
statsmodels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steptime.errors import UsageError
from steptime.verify.model.signed_gains import discordant_of, gain_of
from steptime.verify.model.two_arms import Arms
from steptime.verify.values.found_slice import Condition, FoundSlice, Hunt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steptime.verify.model.two_arms import Codes, Floats

LEVEL = 0.05
_MOST_PROPOSED = 10
_MOST_COLUMNS = 3
_MOST_ROWS = 50_000
"""Rows that propose: more find the same slices."""

_LEAST_SHARE, _LEAST_ROWS = 0.005, 20
"""A proposed slice has this share of the rows, and this many."""

_WEIGHT = 0.99
"""Of the mean loss in a slice against its size, in sliceline's score."""

_FEW_TESTS = 20
_SEED = 20260103


def hunt(arms: Arms, columns: Mapping[str, Sequence[str]], *, sign: float, margin: float) -> Hunt:
    """Return the slices that were proposed, with what the other rows say of them.

    Args:
        arms: both arms, in pairs, with the codes of the columns.
        columns: by column, the value of each code.
        sign: -1 where less of the metric is better.
        margin: the loss beyond which a slice counts.

    Raises:
        UsageError: the rows are no pairs, or the metric is no mean of rows.
    """
    import numpy as np

    if not arms.is_paired or arms.reference.rescored is not None:
        raise UsageError(
            "--hunt needs rows that both models were scored on, and a metric of each row.",
            hint="Score both on the same ids, or name the slices with --slice.",
        )
    first = _half(arms)
    gains = sign * (arms.candidate.scores - arms.reference.scores).mean(axis=0)
    codes = np.column_stack([arms.reference.slices[name] for name in columns])
    proposing, judging = np.flatnonzero(first), np.flatnonzero(~first)
    found = []
    for chosen in _proposed(codes[proposing[:_MOST_ROWS]], -gains[proposing[:_MOST_ROWS]]):
        inside = _inside(codes, chosen)
        judged = judging[inside[judging]]
        if len(judged):
            loss = float(gains[proposing[inside[proposing]]].mean())
            found.append((chosen, judged, loss))
    p = [_p_worse(_part(arms, rows), sign=sign, margin=margin) for _, rows, _ in found]
    adjusted, method = adjust(p)
    slices = [
        FoundSlice(
            conditions=tuple(
                Condition(name, columns[name][code])
                for name, code in zip(columns, chosen, strict=True)
                if code is not None
            ),
            num=len(rows),
            gain_proposed=loss,
            gain=gain_of(_part(arms, rows), sign=sign).interval(),
            p=corrected,
            is_confirmed=corrected < LEVEL,
        )
        for (chosen, rows, loss), corrected in zip(found, adjusted, strict=True)
    ]
    return Hunt(
        columns=tuple(columns),
        num_proposing=len(proposing),
        num_judging=len(judging),
        margin=margin,
        method=method,
        slices=tuple(sorted(slices, key=lambda one: (one.p, one.gain.estimate, one.conditions))),
    )


def adjust(p: Sequence[float]) -> tuple[list[float], str]:
    """Return probabilities corrected for their number, and how: `holm` up to 20, else `bh`."""
    from statsmodels.stats.multitest import multipletests

    method = "holm" if len(p) <= _FEW_TESTS else "bh"
    if not p:
        return [], method
    corrected = multipletests(p, method="holm" if method == "holm" else "fdr_bh")[1]
    return [float(one) for one in corrected], method


def _half(arms: Arms) -> NDArray[Any]:
    """Return which rows propose (num_rows,): every other one by chance, whole groups together."""
    import numpy as np

    chance = np.random.default_rng(_SEED)
    groups = arms.reference.groups
    if groups is None:
        return np.asarray(chance.permutation(arms.reference.num) % 2 == 0)
    found, of_row = np.unique(groups, return_inverse=True)
    return np.asarray((chance.permutation(len(found)) % 2 == 0)[of_row.reshape(-1)])


def _proposed(codes: Codes, losses: Floats) -> list[tuple[int | None, ...]]:
    """Return slices with large losses, as the code of each column or None."""
    import numpy as np
    from sliceline.slicefinder import Slicefinder

    if not bool((losses > 0).any()):
        return []
    logging.getLogger("sliceline").setLevel(logging.ERROR)
    finder = Slicefinder(
        alpha=_WEIGHT,
        k=_MOST_PROPOSED,
        max_l=min(_MOST_COLUMNS, codes.shape[1]),
        min_sup=max(_LEAST_ROWS, int(_LEAST_SHARE * len(losses))),
        verbose=False,
    )
    finder.fit(codes, np.maximum(losses, 0.0))
    found = [
        tuple(None if code is None else int(code) for code in chosen)
        for chosen in finder.top_slices_
    ]
    return found[:_MOST_PROPOSED]  # of equal scores it returns all


def _inside(codes: Codes, chosen: Sequence[int | None]) -> NDArray[Any]:
    import numpy as np

    inside = np.ones(len(codes), dtype=bool)
    for i, code in enumerate(chosen):
        if code is not None:
            inside &= codes[:, i] == code
    return inside


def _part(arms: Arms, rows: Codes) -> Arms:
    return Arms(arms.reference.chosen(rows), arms.candidate.chosen(rows), is_paired=True)


def _p_worse(part: Arms, *, sign: float, margin: float) -> float:
    """Return the probability of such a loss, were there none beyond the margin."""
    from scipy.stats import binomtest

    pairs = discordant_of(part, sign=sign)
    if margin == 0 and pairs is not None and part.reference.groups is None:
        num = pairs.num_broken + pairs.num_fixed
        return float(binomtest(pairs.num_broken, num, alternative="greater").pvalue) if num else 1.0
    return gain_of(part, sign=sign).p_worse(margin)
