"""Object stores: ranges, attempts with pauses and a limit, and secrets that stay secret."""

from __future__ import annotations

import errno
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.data import open_source
from steptime.data.stores.cloud_files import CloudFiles
from steptime.data.stores.hidden_secrets import hide_secrets
from steptime.data.stores.retries import Retries, is_passing
from steptime.errors import DataError, MissingExtraError, UsageError

fsspec = pytest.importorskip("fsspec")

SECRET = "planted/secret+value"


class Clock:
    def __init__(self):
        self.now, self.pauses = 0.0, []

    def sleep(self, seconds):
        self.now += seconds
        self.pauses.append(seconds)


def make_retries(clock, **options):
    return Retries(sleep=clock.sleep, clock=lambda: clock.now, **options)


def failing(*errors, then=b"x"):
    """Return work that raises these errors in turn, and then returns."""
    pending = list(errors)

    def work():
        if pending:
            raise pending.pop(0)
        return then

    return work


def busy():
    return OSError(errno.EBUSY, "Please reduce your request rate.")


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pipe("/samples/a/one.bin", b"0123456789")
    files.pipe("/samples/a/.hidden", b"no")
    files.pipe("/samples/b.bin", b"abc")
    files.pipe("/samples/ümlaut/zwei.bin", b"zwei")
    yield files
    files.store.clear()


def test_a_busy_store_is_asked_again_after_growing_pauses_with_chance():
    clock = Clock()

    assert make_retries(clock).call(failing(*[busy()] * 4)) == b"x"
    assert len(clock.pauses) == 4
    for attempt, pause in enumerate(clock.pauses):
        assert 0.05 * 2**attempt <= pause <= 0.1 * 2**attempt


def test_attempts_have_a_limit():
    clock = Clock()

    with pytest.raises(OSError, match="request rate"):
        make_retries(clock, attempts=3).call(failing(*[busy()] * 9))
    assert len(clock.pauses) == 2


def test_all_attempts_together_have_a_limit_of_time():
    clock = Clock()

    with pytest.raises(OSError, match="request rate"):
        make_retries(clock, attempts=99, limit_s=20.0).call(failing(*[busy()] * 99))
    assert clock.now <= 20.0


def test_no_pause_is_longer_than_the_longest():
    retries = Retries(longest_pause_s=2.0)

    assert all(retries.pause_s(attempt) <= 2.0 for attempt in range(200))


class StatusError(Exception):
    def __init__(self, status):
        super().__init__(f"answer {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        *((error, True) for error in (busy(), TimeoutError(), ConnectionResetError())),
        *((StatusError(status), True) for status in (429, 500, 503)),
        *((StatusError(status), False) for status in (403, 404)),
        (FileNotFoundError("x"), False),
        (PermissionError("x"), False),
        (OSError(errno.EINVAL, "wrong range"), False),
    ],
    ids=repr,
)
def test_what_cannot_pass_is_not_tried_again(error, passes):
    assert is_passing(error) is passes


def test_ranges_and_sizes_of_an_object(memory):
    opened = CloudFiles().open_bytes("memory://samples/a/one.bin")

    assert (opened.size, opened.read_at(3, 4), opened.read_at(8, 9)) == (10, b"3456", b"89")
    assert opened.read_at(10, 5) == b""


def test_names_below_a_prefix_whatever_their_characters(memory):
    found = sorted(CloudFiles().walk("memory://samples"))

    assert found == [(b"a/one.bin", 10), (b"b.bin", 3), ("ümlaut/zwei.bin".encode(), 4)]


def test_what_a_place_is(memory):
    files = CloudFiles()

    assert files.is_folder("memory://samples/a") is True
    assert files.is_folder("memory://samples/b.bin") is False
    assert files.is_folder("memory://samples/nothing") is None
    assert files.path_of("memory://samples/b.bin") is None
    with pytest.raises(DataError, match="is a prefix"):
        files.open_bytes("memory://samples/a")
    with pytest.raises(DataError, match="nothing cannot be read: FileNotFoundError") as raised:
        files.open_bytes("memory://samples/nothing")
    assert isinstance(raised.value, FileNotFoundError)  # readers of formats ask so
    assert raised.value.hint is None


def test_a_folder_in_a_store_is_recognized(memory):
    source = open_source("memory://samples")

    assert source.name == "folder of files"
    assert source.read([0, 1])["data"] == [b"0123456789", b"abc"]
    assert source.place_of(0) == "memory://samples/a/one.bin"


def test_an_answer_that_broke_off_is_asked_for_again(memory, monkeypatch):
    parts = [b"01", b"0123"]
    monkeypatch.setattr(type(memory), "cat_file", lambda *_, **__: parts.pop(0))
    files = CloudFiles(retries=make_retries(Clock()))

    assert files.read_range("memory://samples/a/one.bin", 0, 4) == b"0123"


def test_files_of_a_store_travel_to_another_process(memory):
    files = CloudFiles({"secret": SECRET})
    files.is_folder("memory://samples")

    again = pickle.loads(pickle.dumps(files))

    assert again.read_range("memory://samples/b.bin", 0, 2) == b"ab"
    assert SECRET not in repr(files) + repr(again.open_bytes("memory://samples/b.bin"))


def test_no_error_shows_a_secret(memory, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(
            f"the key {SECRET} is wrong for http://me:{SECRET}@host/x?sig={SECRET}"
        )

    monkeypatch.setattr(type(memory), "info", refuse)
    files = CloudFiles({"client_kwargs": {"aws_secret_access_key": SECRET}})

    with pytest.raises(DataError, match=r"\*\*\*") as raised:
        files.open_bytes(f"memory://user:{SECRET}@samples/x")
    told = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert SECRET not in told.replace(f'user:{SECRET}@samples/x")', "")  # the line of this test


def test_a_signature_in_a_url_is_used_and_never_shown(memory):
    memory.pipe("/samples/one.npy?sig=" + SECRET, b"no such format")

    with pytest.raises(DataError) as raised:
        open_source("memory://samples/one.npy?sig=" + SECRET)
    assert "samples/one.npy" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_url_with_a_password_in_it_is_refused():
    with pytest.raises(UsageError) as raised:
        open_source(f"https://me:{SECRET}@host/a.npy")
    assert SECRET not in str(raised.value)


@given(st.text(alphabet="abcdefghijklmnop/+=0123456789", min_size=8, max_size=40))
def test_a_secret_is_hidden_wherever_it_stands(secret):
    text = f"before {secret} after https://u:{secret}@h/p?X-Amz-Signature={secret}&a=b"

    hidden = hide_secrets(text, {"token": secret})

    assert secret not in hidden.replace("https://", "").replace("before", "").replace("after", "")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("s3://bucket/name.bin", "s3://bucket/name.bin"),
        ("https://h/a?X-Amz-Signature=1f&b=c", "https://h/a?***"),
        ("ftp://me:word@h/a", "ftp://***@h/a"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=x", "Authorization: ***"),
        ("what? nothing", "what? nothing"),
    ],
)
def test_what_is_hidden_of_urls_and_messages(text, hidden):
    assert hide_secrets(text) == hidden


def test_secrets_of_the_environment_are_hidden(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    assert hide_secrets(f"signed with {SECRET}") == "signed with ***"


@pytest.mark.parametrize(
    ("where", "said"), [("gs://b/x", "Install it: pip install gcsfs"), ("nosuch://b", None)]
)
def test_a_store_without_its_package_says_which_one(where, said):
    if said and "gcsfs" in fsspec.registry:
        pytest.skip("it is there")
    with pytest.raises((MissingExtraError, DataError)) as raised:
        CloudFiles().open_bytes(where)
    assert raised.value.hint == said


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)

    with pytest.raises(MissingExtraError) as raised:
        CloudFiles().open_bytes("s3://bucket/x")
    assert "steptime[cloud]" in str(raised.value.hint)
