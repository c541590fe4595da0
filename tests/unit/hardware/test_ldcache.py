"""The loader's cache is read as ldconfig writes it, in both layouts; a damaged one is said to be damaged."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_dra.hardware import ldcache
from hack.testbed.elf_stub import architecture, shared_object


def cache(tmp_path, layout):
    """A root whose ldconfig cache lists two libraries of one unusual directory."""
    directory = tmp_path / "opt/driver/lib"
    directory.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/opt/driver/lib\n")
    for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (directory / f"{soname}.580.142").write_bytes(shared_object(soname, architecture(os.uname().machine)))
    subprocess.run(["/sbin/ldconfig", "-r", tmp_path, "-c", layout], check=True)
    return (tmp_path / "etc/ld.so.cache").read_bytes()


@pytest.mark.parametrize("layout", ["new", "compat"])
def test_a_cache_of_ldconfig_gives_names_and_places(tmp_path, layout):
    """`compat` holds the old table first, as ldconfig before glibc 2.32 wrote it by default."""
    entries = ldcache.parse(cache(tmp_path, layout))
    assert {entry.soname: entry.path for entry in entries} == {
        "libcuda.so.1": "/opt/driver/lib/libcuda.so.1",
        "libnvidia-ml.so.1": "/opt/driver/lib/libnvidia-ml.so.1",
    }


def test_a_cache_of_the_old_layout_alone_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(ldcache.DamagedLoaderCache, match="run ldconfig"):
        ldcache.parse(cache(tmp_path, "old"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return cache(tmp_path_factory.mktemp("root"), "compat")


@settings(deadline=None)
@given(data=st.data())
def test_a_damaged_cache_never_ends_in_another_error(whole, data):
    content = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if content:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ldcache.DamagedLoaderCache):
        assert isinstance(ldcache.parse(bytes(content)), tuple)
