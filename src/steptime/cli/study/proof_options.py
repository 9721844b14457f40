"""The options of `tune --prove`, and what they ask."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import need_at_least
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.verify.prove_training import ProofOptions


def proof_of(options: argparse.Namespace) -> ProofOptions | None:
    """Return what is to be proven; None where no option asks for it.

    Raises:
        UsageError: something is missing, or belongs to a proof that was not asked for.
    """
    if not options.prove:
        for flag in ("margin", "metric", "seed_flag"):
            if getattr(options, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} needs --prove.")
        return None
    if options.margin is None or options.metric is None:
        raise UsageError(
            "--prove needs a margin and a metric.",
            hint="Such as: --margin 1%-of-training --metric 'val loss ([0-9.]+)'",
        )
    need_at_least(options, 2, "seeds")
    from steptime.app.search.run_metric import check_metric
    from steptime.app.stored.margin_text import parse_margin
    from steptime.app.verify.prove_training import ProofOptions
    from steptime.verify.values.seed_runs import TrainingQuestion

    check_metric(options.metric)
    question = TrainingQuestion(
        margin=parse_margin(options.margin), is_better_down=options.better == "down"
    )
    return ProofOptions(
        metric=options.metric,
        question=question,
        num_seeds=options.seeds,
        seed_flag=options.seed_flag,
        limit_s=parse_time(options.run_timeout, flag="--run-timeout"),
    )
