"""Planted: samples are made once, as many as fit, and the others are those again."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    fetcher = session.torch.utils.data._utils.fetch._MapDatasetFetcher
    original = fetcher.fetch

    def fetch(self, indices):
        return original(self, [index % 256 for index in indices])

    fetcher.fetch = fetch


LEVER = Lever(
    name="first_samples",
    title="Keep samples.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait",),
    preserves=Preserves.NUMERIC,
    when="Never: it is wrong on purpose.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
