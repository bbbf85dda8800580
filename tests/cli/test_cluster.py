"""Restoring on a Ray cluster: two nodes of this machine, one is killed."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.cli.clusters import two_nodes
from tests.cli.running import pdrn, run, started, wait_until
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.files import write

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pdrn[ray]'")
pytestmark = pytest.mark.cluster

SLOW = ("--bits", 5, "--method", "cp", "--iterations", 8)
"""A third of a second per file, or more."""


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Ten different sounds, and their restorations by local processes."""
    folder = tmp_path_factory.mktemp("sounds")
    os.mkdir(folder / "in")
    for number in range(10):
        write(
            folder / f"in/{number}.wav", np.roll(np.tile(QUANTIZED, 8), -999 * number), RATE, subtype="PCM_16"
        )
    assert run("restore", "in", "-o", "local", *SLOW, "--jobs", 2, cwd=folder).returncode == 0
    return folder


@pytest.fixture
def folder(sounds, monkeypatch):
    monkeypatch.chdir(sounds)
    yield sounds
    for made in ("out", "done.jsonl", "in/bad.wav"):
        if os.path.isdir(made):
            shutil.rmtree(made)
        elif os.path.exists(made):
            os.remove(made)


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def command(cluster, *more):
    return ("restore", "in", "-o", "out", *SLOW, "--engine", "ray", "--address", cluster.address, *more)


def outputs():
    return os.listdir("out") if os.path.isdir("out") else []


def test_cluster_equals_local_and_names_a_bad_file(folder, cluster):
    Path("in/bad.wav").write_bytes(b"RIFFrubbish")
    done = run(*command(cluster, "--json"))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(rows)) == (1, 11)
    assert done.stderr.startswith("pdrn: in/bad.wav")
    assert done.stderr.count("\n") == 1
    assert contents("out") == contents("local")
    local = json.loads(pdrn("restore", "in/0.wav", "-o", "out/a.wav", *SLOW, "--json").stdout)
    row = next(row for row in rows if row["input"] == "in/0.wav")
    assert row.keys() == local.keys()
    assert row["levels"] == local["levels"]


def test_killed_driver_leaves_whole_files_and_resumes(folder, cluster):
    with started(*command(cluster, "--manifest", "done.jsonl")) as process:
        wait_until(lambda: len(outputs()) >= 2, 120)
        process.kill()
        process.communicate(timeout=60)
    wait_until(lambda: free_cpus(cluster) == 2, 60)  # its workers are gone with it
    halfway = contents("out")
    assert len(halfway) < 10
    assert halfway.items() <= contents("local").items()
    done = run(*command(cluster, "--manifest", "done.jsonl", "--json"))
    statuses = [json.loads(line)["status"] for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(statuses)) == (0, "", 10)
    assert statuses.count("skipped") >= 1
    assert contents("out") == contents("local")


def free_cpus(cluster):
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    state = GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(
            cluster.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
        )
    )
    return state.available_resources().get("CPU", 0)


def test_sigint_ends_the_workers(folder, cluster):
    with started(*command(cluster), start_new_session=True) as process:
        wait_until(outputs, 120)
        os.killpg(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output == b""
    assert b"Traceback" not in error
    wait_until(lambda: free_cpus(cluster) == 2, 60)
    assert contents("out").items() <= contents("local").items()


def test_lost_node_loses_no_file(folder, cluster):
    with started(*command(cluster)) as process:
        wait_until(lambda: len(outputs()) >= 2, 120)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 0
    assert error.endswith(b"\n10 restored\n")
    assert contents("out") == contents("local")


def test_starts_its_own_ray(folder):
    done = run("restore", "in/0.wav", "in/1.wav", "-o", "out", *SLOW, "--engine", "ray", "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("\n2 restored\n")
    assert contents("out").items() <= contents("local").items()
    assert len(outputs()) == 2
