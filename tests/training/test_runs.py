"""Run folders: what is written is read back, and damage is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.folders import reopen

from pdrn.errors import InputError, LockedError, StorageError
from pdrn.training.config import from_table, run_name
from pdrn.training.loop import train
from pdrn.training.runs import (
    Run,
    load_json,
    load_tensors,
    run_for,
    runs_in,
    save_json,
    save_tensors,
)

CONFIG = from_table(
    {
        "architecture": {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 32}},
        "data": {"length": 32},
        "budget": {"epochs": 2},
    }
)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run that is done; not to be changed."""
    return train(CONFIG, corpus, tmp_path_factory.mktemp("runs"), threads=1)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of that run."""
    return Run(shutil.copytree(finished.folder, tmp_path / finished.folder.name))


def shapes(run):
    tensors, _ = load_tensors(run.folder / "state.safetensors")
    return {name: part.shape for name, part in tensors.items()}


def test_run_for_finds_a_run(finished, corpus):
    assert run_for(CONFIG, corpus.checksum, finished.folder.parent) == finished
    assert runs_in(finished.folder.parent) == [finished]
    assert finished.is_done
    assert finished.config() == CONFIG
    assert finished.best().architecture == CONFIG.architecture
    assert [entry["epoch"] for entry in finished.complete_log()] == [1, 2]


def test_new_run_has_no_record(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "nowhere", tmp_path, tmp_path / "file"):
        run = Run(folder)
        assert run.record() is None
        assert not run.is_done
        assert run.log() == []


def test_renamed_folder_keeps_run_name(run):
    moved = Run(run.folder.rename(run.folder.parent / "moved"))
    assert moved.name == run.folder.name
    assert moved.load_state(shapes(moved)) is not None


def test_record_round_trip(run):
    record = run.record()
    run.save_record(record)
    assert run.record() == record


def test_checkpoint_round_trip(run):
    tensors, facts = run.load_state(shapes(run))
    run.save_state(tensors, {name: facts[name] for name in ("step", "epoch", "seconds", "best")})
    again, same = run.load_state(shapes(run))
    assert same == facts
    assert {name: part.tobytes() for name, part in again.items()} == {
        name: part.tobytes() for name, part in tensors.items()
    }


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    ).filter(lambda table: "sha256" not in table)
)
def test_json_round_trip(tmp_path_factory, table):
    path = tmp_path_factory.getbasetemp() / "table.json"
    save_json(path, table)
    assert load_json(path) == table


def test_tensors_round_trip(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([np.inf, -0.0])}
    save_tensors(tmp_path / "a", tensors, {"epoch": 3})
    again, facts = load_tensors(tmp_path / "a")
    assert facts["epoch"] == 3
    assert all(np.array_equal(part, again[name]) for name, part in tensors.items())


def test_published_runs_have_their_names():
    published = runs_in(Path(__file__).parents[2] / "results/reproduced")
    assert len(published) == 40
    for run in published:
        assert run.name == run_name(run.config(), run.record().corpus_sha256)


@given(st.binary(max_size=99) | st.integers(0, 10**9))
def test_refuses_damaged_record(finished, tmp_path_factory, damage):
    """Other contents, or one bit of it flipped."""
    contents = (finished.folder / "run.json").read_bytes()
    if isinstance(damage, int):
        flipped = bytearray(contents)
        flipped[damage % len(flipped)] ^= 1 << damage % 7
        damage = bytes(flipped)
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "run.json").write_bytes(damage)
    try:
        same = Run(folder).record() == finished.record()
    except InputError as error:
        same = str(folder) in str(error)
    assert same  # a bit of white space may change


@pytest.mark.parametrize("missing", ["name", "config", "threads", "sha256"])
def test_refuses_record_without_a_field(run, missing):
    path = run.folder / "run.json"
    table = {name: value for name, value in load_json(path).items() if name != missing}
    if missing == "sha256":
        path.write_text(json.dumps(table))
    else:
        save_json(path, table)
    with pytest.raises(InputError, match="is damaged"):
        run.record()


@pytest.mark.parametrize("finished_as", [{}, 1, {"epochs": "many", "log_sha256": ""}, {"epochs": 1}])
def test_refuses_record_without_log_length(run, finished_as):
    path = run.folder / "run.json"
    save_json(path, load_json(path) | {"finished": finished_as})
    with pytest.raises(InputError, match="is damaged"):
        run.record()


def test_unreadable_record_is_a_storage_error(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(StorageError, match=tmp_path.name):
        Run(tmp_path).record()


@pytest.mark.parametrize("log", ["", '{"epoch": 1}\n', "5\n", '{"epoch": 1', "[" * 100_000, "\x80"])
def test_refuses_incomplete_log(run, log):
    run.log_path.write_text(log, encoding="latin1")
    assert run.log() == []
    with pytest.raises(InputError, match="0 of 2 epochs"):
        run.complete_log()


def test_refuses_changed_log(run):
    run.log_path.write_text(run.log_path.read_text().replace('"step": ', '"step": 1'))
    with pytest.raises(InputError, match="changed"):
        run.complete_log()
    with pytest.raises(InputError, match="changed"):
        run.load_state(shapes(run))


def test_truncated_line_ends_the_log(run):
    run.log_path.write_bytes(run.log_path.read_bytes()[:-9])
    assert [entry["epoch"] for entry in run.log()] == [1]
    with pytest.raises(InputError, match="1 epochs"):
        run.truncate_log(2)
    run.truncate_log(1)
    run.append(run.log()[0] | {"epoch": 2})
    assert [entry["epoch"] for entry in run.log()] == [1, 2]


@pytest.mark.parametrize("contents", [b"", b"nothing", b"\xff" * 99])
def test_refuses_damaged_checkpoint(run, contents):
    wanted = shapes(run)
    path = run.folder / "state.safetensors"
    whole = path.read_bytes()
    for damaged in (contents, whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"):
            run.load_state(wanted)
    path.unlink()
    assert run.load_state(wanted) is None


def test_refuses_checkpoint_of_another_network_or_run(run):
    wanted = shapes(run)
    with pytest.raises(InputError, match="another network"):
        run.load_state(wanted | {"more": (1,)})
    run.save_record(replace(run.record(), name="other"))
    with pytest.raises(InputError, match=run.folder.name):
        run.load_state(wanted)
    run.save_record(replace(run.record(), resumed_from=run.folder.name))
    assert run.load_state(wanted) is not None


def test_copy_log_leaves_networks_out(run, tmp_path):
    run.copy_log(tmp_path / "copy")
    copy = Run(tmp_path / "copy")
    assert copy.is_done
    assert copy.complete_log() == run.complete_log()
    assert {path.name for path in copy.folder.iterdir()} == {"run.json", "log.jsonl"}
    with pytest.raises(InputError, match="is missing"):
        copy.best()
    with pytest.raises(InputError, match="has networks"):
        copy.copy_log(run.folder)


def test_reopened_run_ends_as_before(run, corpus):
    log = run.complete_log()
    reopen(run)
    assert not run.is_done
    assert train(CONFIG, corpus, run.folder.parent, threads=1).complete_log() == log


def test_refuses_locked_run(run):
    with run.locked(), pytest.raises(LockedError), run.locked():
        pass
