"""Atomic writes, checksums, tensors and locks: a file is whole, unchanged and held by one process."""

import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pdrn.errors import InputError, LockedError, StorageError
from pdrn.storage import (
    MAX_HEADER_BYTES,
    atomic_write,
    content_sha256,
    exclusive_lock,
    file_sha256,
    make_folder,
    open_file,
    open_tensors,
    refuse_same,
    temporary_folder,
    verify_checksum,
)


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def placing(request, monkeypatch):
    """With and without nameless temporary files (O_TMPFILE)."""
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE")


@pytest.mark.usefixtures("placing")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(old=st.none() | st.binary(), new=st.binary(), fails=st.booleans(), overwrite=st.booleans())
def test_atomic_write_leaves_the_old_or_the_new_file(old, new, fails, overwrite):
    with temporary_folder() as folder:
        target = os.path.join(folder, "file")
        if old is not None:
            with open(target, "wb") as file:
                file.write(old)
        try:
            with atomic_write(target, overwrite) as stream:
                stream.write(new)
                if fails:
                    raise RuntimeError
            written = True
        except (RuntimeError, StorageError):
            written = False
        assert written == (not fails and (old is None or overwrite))
        expected = new if written else old
        assert os.listdir(folder) == ([] if expected is None else ["file"])
        if expected is not None:
            with open_file(target) as file:
                assert file.read() == expected


@pytest.mark.usefixtures("placing")
def test_replacing_keeps_the_permissions(tmp_path):
    target = tmp_path / "file"
    target.touch(0o640)
    with atomic_write(target, overwrite=True) as stream:
        stream.write(b"new")
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["absent/file", "file/below", "a\0b", "n" * 300, "."])
def test_unwritable_file_is_a_storage_error(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError), atomic_write(tmp_path / name, overwrite=True):
        pass
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["absent", "file/below", "a\0b", "."])
def test_unreadable_file_is_a_storage_error(tmp_path, name):
    (tmp_path / "file").touch()
    for read in (open_file, file_sha256):
        with pytest.raises(StorageError, match="check its name"):
            read(tmp_path / name)


def test_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").touch()
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    with pytest.raises(StorageError, match="cannot be made"):
        make_folder(tmp_path / "file" / "b")


def test_refuses_output_that_is_the_input(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    refuse_same(tmp_path / "file", tmp_path / "other")
    with pytest.raises(StorageError, match="is the input"):
        refuse_same(tmp_path / "file", tmp_path / "link")


TENSORS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    arrays.arrays(
        np.float32, arrays.array_shapes(max_dims=2, max_side=4), elements=st.floats(-1, 1, width=32)
    ),
    min_size=1,
    max_size=3,
)


@given(tensors=TENSORS, fact=st.text())
def test_refuses_changed_content(tensors, fact):
    described = {"fact": fact}
    described["sha256"] = content_sha256(described, tensors)
    verify_checksum(described, tensors, always=True)
    name = next(iter(tensors))
    changed = tensors | {name: np.nextafter(tensors[name], np.float32(2))}
    for other in ((described | {"fact": fact + "x"}, tensors), (described, changed), (described, {})):
        with pytest.raises(InputError, match="bits have changed"):
            verify_checksum(*other)


def test_missing_checksum_is_accepted_unless_required():
    verify_checksum({"fact": 1})
    with pytest.raises(InputError, match="missing"):
        verify_checksum({"fact": 1}, always=True)


def test_tensors_round_trip_and_damage_is_refused(tmp_path):
    path = tmp_path / "tensors"
    path.write_bytes(safetensors.numpy.save({"a": np.arange(3.0)}))
    with open_tensors(path) as file:
        assert file.get_tensor("a").tolist() == [0, 1, 2]
    for content in (b"", b"rubbish", (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(InputError), open_tensors(path):
            pass
    with pytest.raises(InputError, match="not a file"), open_tensors(tmp_path):
        pass
    with pytest.raises(StorageError), open_tensors(tmp_path / "absent"):
        pass


def test_lock_is_exclusive_and_released_at_exit(tmp_path):
    path = tmp_path / "folder" / "lock"
    holder = (
        "import sys\nfrom pathlib import Path\nfrom pdrn.storage import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1]), 'taken'):\n"
        "    print('held', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(LockedError, match="busy"), exclusive_lock(path, "busy"):
            pass
        process.kill()
    with exclusive_lock(path, "busy"):
        pass
