"""What a run costs: the price that a user gives, and the energy that its devices drew."""

from dataclasses import replace

import pytest

from report_cases import healthy
from steptime.app.run.describe_run import describe_run
from steptime.core.devices.given_price import parse_price
from steptime.errors import UsageError
from steptime.measure.fold.run_fold import measure
from steptime.measure.wall.device_energy import EnergyMeter
from steptime.report.blocks.run.wall_blocks import wall_blocks
from steptime.report.text.paint_text import print_blocks
from steptime.report.text.plain_text import plain_text
from unit.builders import make_end, make_head, make_update, read


def test_a_price_is_that_of_an_hour():
    assert parse_price("2.49/h") == 2.49
    assert parse_price(" 12 / h ") == 12.0
    assert parse_price("2.49") == 2.49
    assert parse_price(None) is None


@pytest.mark.parametrize(
    "text", ["", "free", "0", "-1/h", "nan/h", "inf", "$2/h", "2/min", "2/", "1e9/h", "2/h/h"]
)
def test_what_is_no_price_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError) as caught:
        parse_price(text)

    assert f"got `{text}`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "2.49" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


def sample(t, device="GPU-1", **values):
    return {"k": "d", "t_unix_s": t, "device": device, **values}


def drawn(*lines):
    meter = EnergyMeter()
    for line in lines:
        meter.add(line)
    return meter.total_j()


def test_a_counter_says_what_a_device_drew():
    assert drawn(sample(0, energy_j=100.0), sample(1, energy_j=350.5)) == 250.5


def test_power_is_summed_up_where_energy_is_not_counted():
    lines = [sample(0, power_w=300), sample(1, power_w=100), sample(3, power_w=200)]
    assert drawn(*lines) == 100 + 400


def test_the_devices_of_the_command_count_alone_where_they_are_known():
    other = [sample(t, "GPU-2", energy_j=1000.0 * t) for t in range(3)]
    own = [sample(t, "GPU-1", energy_j=10.0 * t, job=t > 0) for t in range(3)]
    assert drawn(*other, *own) == 20.0
    assert drawn(*other, *own[:1]) is None  # nobody is known to use either; one says nothing


def test_heat_counts_and_a_cap_of_power_that_a_healthy_device_reaches_does_not():
    meter = EnergyMeter()
    assert meter.throttled_fraction() is None
    for t, reasons in enumerate((["power_cap"], ["thermal"], ["hardware", "power_cap"], None, 7)):
        meter.add(sample(t, job=True, throttle=reasons))
        meter.add(sample(t, "GPU-2", throttle=["thermal"]))
    assert meter.throttled_fraction() == 2 / 5


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [sample(0, energy_j=100.0)],
        [sample(0), sample(1)],
        [sample(0, energy_j="much"), sample(1, energy_j=True)],
        [sample(0, energy_j=1e300), sample(1, energy_j=2e300)],
        [{"k": "d", "device": 3, "t_unix_s": None}],
    ],
)
def test_absent_is_not_zero(lines):
    assert drawn(*lines) is None


def cost_of(price, **files):
    lines = [make_head(t_unix_s=1005.0), *(make_update(n) for n in range(100)), make_end(100)]
    records = read({"rank-0.jsonl": lines, **files}, price_per_h=price)
    m = measure(records)
    return m, describe_run(m, None).run


def test_the_cost_is_that_of_the_whole_time():
    _, sums = cost_of(36.0)

    assert sums.cost == pytest.approx(0.6)  # 60 s
    assert sums.cost_beside == pytest.approx(0.6 * 59 / 60)
    assert sums.price_per_h == 36.0


def test_without_a_price_there_is_no_cost():
    _, sums = cost_of(None)
    assert (sums.cost, sums.cost_beside, sums.energy_j) == (None, None, None)


def test_the_energy_of_the_devices_is_told():
    host = [{"k": "head", "schema": 1, "num_cores": 2}]
    host += [sample(1000.0 + t, energy_j=5000.0 * t, job=True) for t in range(3)]
    _, sums = cost_of(None, **{"host.jsonl": host})

    assert sums.energy_j == 10_000.0


def test_the_report_says_what_the_run_cost():
    wall = healthy().wall_time
    m = replace(healthy(), price_per_h=36.0, wall_time=replace(wall, energy_j=2.31e6))
    document = describe_run(m, None)
    text = plain_text(
        lambda console: print_blocks(wall_blocks(document), console=console), width=100
    )

    expected = (
        "0.64 at 36.00 per hour · 0.084 of it for no step that trained · the devices drew 2.31 MJ"
    )
    assert expected in " ".join(text.split())
