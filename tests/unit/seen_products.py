"""Products of real models, seen as the guest sees them, without a process."""

import json
from functools import partial
from time import perf_counter_ns

import torch

from steptime.core.codec import from_json
from steptime.guest.count.counting_mode import make_mode
from steptime.guest.count.operators.product_book import ProductBook
from steptime.guest.count.tally import Tally
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames
from steptime.plan.values.shape_values import SeenProducts


def seen_of(model, *inputs, loss=None, updates=1):
    """What the book tells of forward and backward of a model: `loss` takes its output."""
    book = ProductBook(torch, Frames(FileOwners(torch)))
    tally = Tally(torch, products=book)
    tally.follow_modules()
    # No frame of this file stands between an operator and its line.
    add = partial(book.add, tally)
    with make_mode(torch, add, perf_counter_ns, decomposes=True):
        output = model(*inputs)
        value = output.float().sum() if loss is None else loss(output)
        value.backward()
    tally.unfollow_modules()
    return from_json(SeenProducts, json.loads(book.line(updates)))


def only(seen, **wanted):
    """The one product with these values."""
    found = [one for one in seen.products if all(getattr(one, k) == v for k, v in wanted.items())]
    assert len(found) == 1, found
    return found[0]
