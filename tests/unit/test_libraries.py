"""The finder of allocators, in folders made up for it."""

import shutil
import sys
from pathlib import Path

import pytest

from steptime.tune.trials.facts.libraries import find_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads ELF files")


def put_library(path, *, word_size=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytearray(Path(sys.executable).read_bytes()[:20])
    if word_size is not None:
        head[4] = word_size
    path.write_bytes(head)
    return str(path)


def find(root, environment=None, command=()):
    return find_libraries(command, environment or {}, root=root)


def test_nothing_is_found_on_a_machine_with_no_allocator(tmp_path):
    assert set(find(tmp_path)) <= {"glibc"}


def test_the_systems_library_is_found_where_the_linkers_configuration_says(tmp_path):
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (tmp_path / "etc/ld.so.conf.d/a.conf").write_text("# a comment\n/odd/place\n")
    path = put_library(tmp_path / "odd/place/libjemalloc.so.2")

    assert find(tmp_path)["jemalloc"] == path


def test_the_environments_own_library_comes_before_the_systems(tmp_path):
    put_library(tmp_path / "usr/lib/libtcmalloc.so.4")
    own = put_library(tmp_path / "conda/lib/libtcmalloc_minimal.so.4")

    assert find(tmp_path, {"CONDA_PREFIX": str(tmp_path / "conda")})["tcmalloc"] == own


def test_the_folder_of_the_commands_interpreter_counts_as_its_environment(tmp_path):
    program = tmp_path / "env/bin/python"
    program.parent.mkdir(parents=True)
    shutil.copy(shutil.which("true"), program)
    own = put_library(tmp_path / "env/lib/libjemalloc.so.2")

    assert find(tmp_path, command=(str(program), "train.py"))["jemalloc"] == own


def test_the_users_own_search_path_counts(tmp_path):
    own = put_library(tmp_path / "mine/libjemalloc.so")

    assert find(tmp_path, {"LD_LIBRARY_PATH": f":{tmp_path / 'mine'}"})["jemalloc"] == own


def test_a_library_of_another_word_size_is_passed_over(tmp_path):
    put_library(tmp_path / "usr/local/lib/libjemalloc.so.2", word_size=1)
    right = put_library(tmp_path / "usr/lib/libjemalloc.so.2")

    assert find(tmp_path)["jemalloc"] == right


def test_a_script_of_the_linker_is_no_library(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libjemalloc.so").write_text("INPUT(libjemalloc.so.2)")

    assert "jemalloc" not in find(tmp_path)
