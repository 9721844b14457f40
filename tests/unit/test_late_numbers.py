"""Numbers that are still on their way: what they give is what plain numbers give."""

import math
import pickle

import pytest

from steptime.levers._late_numbers import (
    MAX_WAITING,
    LateOperand,
    LateSum,
    LateTerm,
    LateValue,
)
from unit.counted_copies import CountedCopies

NUMBERS = (0.1, 0.7, 1e16, -0.3, 1 / 3)


@pytest.fixture
def device():
    return CountedCopies()


def late_sum(device, numbers=NUMBERS, start=0):
    total = start
    for number in numbers:
        total += LateTerm(device.copy(number))
    return total


def test_a_sum_waits_for_nothing_until_it_is_printed(device):
    total = late_sum(device, start=0.0)

    assert type(total) is LateSum
    assert device.num_waits == 0
    expected = 0.0
    for number in NUMBERS:
        expected += number
    assert f"{total / 5:.17g} {total}" == f"{expected / 5:.17g} {expected}"
    assert device.num_waits == len(NUMBERS)
    assert type(total / 5) is float


def test_terms_that_have_arrived_are_added_at_once_and_only_so_many_wait(device):
    total = late_sum(device, range(MAX_WAITING + 3))
    assert device.num_waits == 3
    device.is_done = True
    total += LateTerm(device.copy(1))

    assert not total.terms
    assert total == sum(range(MAX_WAITING + 3)) + 1


def test_a_term_times_numbers_stays_late(device):
    total = 0.0
    total += LateTerm(device.copy(0.1)) * 32 * 0.5

    assert device.num_waits == 0
    assert float(total) == 0.1 * 32 * 0.5


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda x: 32 * x, 32 * 0.1),
        (lambda x: x / 3, 0.1 / 3),
        (lambda x: x * 7 / 3, 0.1 * 7 / 3),
    ],
)
def test_a_term_stays_late_in_the_order_of_its_operations(device, compute, expected):
    total = 0.5
    total += compute(LateTerm(device.copy(0.1)))

    assert type(total) is LateSum
    assert device.num_waits == 0
    assert float(total) == 0.5 + expected


def test_what_would_raise_raises_in_its_line(device):
    with pytest.raises(ZeroDivisionError):
        LateTerm(device.copy(0.1)) / 0


def test_a_sum_that_is_written_out_is_the_same_sum(device):
    total = 0.0
    for number in NUMBERS:
        total = total + LateTerm(device.copy(number))

    assert device.num_waits == 0
    assert total + 1 == sum_in_order(NUMBERS) + 1


def sum_in_order(numbers):
    total = 0.0
    for number in numbers:
        total += number  # sum() of Python 3.12 corrects its rounding
    return total


def test_a_kept_number_that_is_set_again_is_never_waited_for(device):
    for number in NUMBERS:
        last = LateValue(device.copy(number))

    assert device.num_waits == 0
    assert f"{last}" == f"{NUMBERS[-1]}"
    assert device.num_waits == 1


@pytest.mark.parametrize("compute", [lambda x: x * 4, lambda x: 4 * x, lambda x: x / 4])
def test_a_kept_number_is_late_after_one_operation_and_plain_after_two(device, compute):
    last = compute(LateOperand(device.copy(0.1)))

    assert type(last) is LateValue
    assert device.num_waits == 0
    assert last * 2 == compute(0.1) * 2
    assert type(last * 2) is float
    assert type(last / 2) is float
    assert type(2 * last) is float
    assert type(0.5 + last) is float


def test_a_sum_is_added_to_in_the_order_of_the_script(device):
    total = late_sum(device, [1e16, 1.0], start=0.0)
    total += 1.0

    assert total == ((0.0 + 1e16) + 1.0) + 1.0
    assert type(total) is float


@pytest.mark.parametrize(
    "use",
    [
        *(str, repr, int, bool, abs, round, hash, math.floor, math.sqrt),
        lambda x: pickle.loads(pickle.dumps(x)),
        *(lambda x: -x, lambda x: x + 1, lambda x: 1 + x, lambda x: x - 1, lambda x: 1 - x),
        *(lambda x: x * 2, lambda x: 2 * x, lambda x: 1 / x, lambda x: x // 1, lambda x: x % 2),
        *(lambda x: x**2, lambda x: 2**x, lambda x: x < 3, lambda x: x <= 3, lambda x: x == 2.5),
        *(lambda x: f"{x:>9.3e}", lambda x: x.is_integer(), lambda x: x + x, "{:.2f}".format),
    ],
)
@pytest.mark.parametrize("start", [0, 0.25])
def test_all_else_gives_what_the_number_gives(device, use, start):
    number = start + 2.25
    kept = LateValue(device.copy(number))
    for late in (late_sum(device, [2.25], start), kept):
        found, expected = use(late), use(number)

        assert found == expected
        assert type(found) is type(expected)
