"""Levers of the process: threads, how they wait, who hands out memory."""

from types import SimpleNamespace

import pytest

from steptime.levers.base import Facts
from steptime.levers.host import allocator, num_threads, wait_policy

LIBRARIES = {"jemalloc": "/x/libjemalloc.so.2", "tcmalloc": "/x/libtcmalloc.so", "glibc": "2.36"}
FAULTS = {"minor_faults_per_step": 20_000.0, "kernel_fraction": 0.11}


def make_facts(**fields):
    base = {"torch_version": "2.13.0", "num_cores": 8, "num_threads": 8}
    return Facts(**(base | fields))


def counts(facts):
    return [settings["num_threads"] for settings in num_threads.LEVER.space(facts)]


# --- num_threads ------------------------------------------------------------------------


def test_one_half_and_all_cores_are_tried_but_not_what_is_in_use():
    assert counts(make_facts(num_threads=8)) == [1, 4]
    assert counts(make_facts(num_threads=3)) == [1, 4, 8]


def test_one_thread_a_physical_core_is_tried_where_cores_are_shared():
    facts = make_facts(num_cores=12, num_physical_cores=8, num_threads=12)

    assert counts(facts) == [1, 6, 8]


def test_the_ranks_of_a_machine_share_its_cores():
    assert counts(make_facts(num_cores=8, world_size=2, num_threads=1)) == [2, 4]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"device": "cuda"}, "device"),
        ({"sets_threads": True}, "The script sets"),
        ({"environment_names": ("OMP_NUM_THREADS",)}, "OMP_NUM_THREADS is set"),
        ({"environment_names": ("MKL_NUM_THREADS",)}, "MKL_NUM_THREADS is set"),
        ({"num_cores": 1, "num_threads": 1}, "one core"),
    ],
)
def test_threads_are_not_offered_and_the_reason_is_said(fields, words):
    assert words in num_threads.LEVER.applies(make_facts(**fields))


@pytest.mark.parametrize("number", [8, None])
def test_threads_are_offered_where_torch_chose_them_known_or_not(number):
    assert num_threads.LEVER.applies(make_facts(num_threads=number)) is None
    assert counts(make_facts(num_threads=None)) == [1, 4, 8]


def test_the_number_of_threads_is_set_and_taken_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    undo = num_threads.LEVER.apply({"num_threads": before + 1}, SimpleNamespace(torch=torch))

    assert torch.get_num_threads() == before + 1
    undo()
    assert torch.get_num_threads() == before


# --- wait_policy ------------------------------------------------------------------------


def test_threads_of_each_openmp_are_told_to_sleep():
    variables = wait_policy.LEVER.variables({}, {})

    assert variables == {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "KMP_BLOCKTIME": "0",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_threads": 1}, "waits for no other"),
        ({"device": "cuda"}, "device"),
        ({"environment_names": ("KMP_BLOCKTIME",)}, "KMP_BLOCKTIME is set"),
    ],
)
def test_waiting_is_left_alone_and_the_reason_is_said(fields, words):
    assert words in wait_policy.LEVER.applies(make_facts(**fields))


@pytest.mark.parametrize("number", [2, None])
def test_waiting_is_offered_with_more_than_one_thread_or_an_unknown_number(number):
    assert wait_policy.LEVER.applies(make_facts(num_threads=number)) is None


# --- allocator --------------------------------------------------------------------------


def kinds(facts):
    return [settings["library"] for settings in allocator.LEVER.space(facts)]


def test_each_allocator_that_is_here_is_tried_the_least_intrusive_first():
    facts = make_facts(libraries=LIBRARIES, **FAULTS)

    assert kinds(facts) == ["glibc_tuned", "tcmalloc", "jemalloc"]
    assert allocator.LEVER.applies(facts) is None


def test_hardly_any_faults_are_the_reason_with_the_numbers():
    facts = make_facts(libraries=LIBRARIES, minor_faults_per_step=12.0, kernel_fraction=0.004)

    reason = allocator.LEVER.applies(facts)
    assert "12 page faults" in reason
    assert "0.4%" in reason


def test_many_faults_in_little_kernel_time_are_left_alone():
    facts = make_facts(libraries=LIBRARIES, minor_faults_per_step=9e3, kernel_fraction=0.005)

    assert allocator.LEVER.applies(facts) is not None


def test_faults_that_were_not_observed_are_not_zero():
    facts = make_facts(libraries=LIBRARIES)

    assert allocator.LEVER.applies(facts) is None
    assert len(allocator.LEVER.space(facts)) == 3
    assert allocator.LEVER.saves(facts) is None


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"minor_faults_per_step": 12.0}, "12 page faults per step (it needs 256 and 2%)"),
        ({"kernel_fraction": 0.004}, "to save: 0.4% of a step in the kernel (it needs"),
    ],
)
def test_one_fact_alone_may_refuse_and_the_other_is_not_mentioned(known, words):
    assert words in allocator.LEVER.applies(make_facts(libraries=LIBRARIES, **known))


def test_another_allocator_saves_at_most_twice_the_time_in_the_kernel():
    assert allocator.LEVER.saves(make_facts(libraries=LIBRARIES, **FAULTS)) == 0.22


def test_without_any_allocator_the_reason_has_the_line_that_installs_one():
    reason = allocator.LEVER.applies(make_facts(**FAULTS))

    assert "apt install libjemalloc2 libtcmalloc-minimal4" in reason


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("LD_PRELOAD", []),
        ("MALLOC_CONF", ["glibc_tuned", "tcmalloc"]),
        ("MALLOC_TRIM_THRESHOLD_", ["tcmalloc", "jemalloc"]),
    ],
)
def test_what_the_user_chose_is_not_overruled(name, left):
    facts = make_facts(libraries=LIBRARIES, environment_names=(name,), **FAULTS)

    assert kinds(facts) == left


def test_an_allocator_of_the_users_own_is_named_in_the_reason():
    facts = make_facts(libraries=LIBRARIES, environment_names=("LD_PRELOAD",), **FAULTS)

    assert "LD_PRELOAD is set" in allocator.LEVER.applies(facts)


def test_an_older_glibc_is_asked_for_no_more_than_it_takes():
    old, new = (
        allocator.LEVER.space(make_facts(libraries={"glibc": version}, **FAULTS))[0]
        for version in ("2.31", "2.36")
    )

    assert allocator.LEVER.variables(old, {})["MALLOC_MMAP_THRESHOLD_"] == str(32 * 2**20)
    assert allocator.LEVER.variables(new, {})["MALLOC_MMAP_THRESHOLD_"] == str(2**30)


def test_jemalloc_is_told_to_keep_large_blocks_too():
    variables = allocator.LEVER.variables({"library": "jemalloc"}, LIBRARIES)

    assert variables["LD_PRELOAD"] == "/x/libjemalloc.so.2"
    assert "oversize_threshold:1" in variables["MALLOC_CONF"]
    assert "dirty_decay_ms:-1" in variables["MALLOC_CONF"]


def test_tcmalloc_says_nothing_on_stderr_of_large_blocks():
    variables = allocator.LEVER.variables({"library": "tcmalloc"}, LIBRARIES)

    assert int(variables["TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD"]) > 2**39


def test_on_a_device_its_own_allocator_is_offered_unless_the_user_set_it():
    facts = make_facts(device="cuda")

    assert kinds(facts) == ["cuda_expandable"]
    assert allocator.LEVER.applies(facts) is None
    own = make_facts(device="cuda", environment_names=("PYTORCH_ALLOC_CONF",))
    assert "set in the environment" in allocator.LEVER.applies(own)


def test_the_launch_line_holds_all_variables_and_the_usual_name_of_the_library():
    line = allocator.LEVER.edit({"library": "jemalloc"})

    assert line.startswith("LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=")
    assert line.endswith(" python train.py")
