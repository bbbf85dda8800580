"""Restoring on a Ray cluster: two nodes of this machine, one of which is killed."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.clusters import two_nodes
from tests.cli.running import pdrn, run, started, wait_until
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.files import write
from pdrn.workers import ATTEMPTS, connect_ray, run_jobs

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pdrn[ray]'")
SLOW = ("--bits", 5, "--method", "cp", "--iterations", 8)
"""A third of a second per file, or more."""


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Ten sounds, no two alike, and what becomes of them by the processes of this machine."""
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


def test_all_outputs_are_those_of_this_machine_and_a_bad_file_is_named(folder, cluster):
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


def test_a_driver_that_is_killed_leaves_whole_files_and_the_next_one_goes_on(folder, cluster):
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


def test_an_interrupt_ends_it_in_order(folder, cluster):
    with started(*command(cluster), start_new_session=True) as process:
        wait_until(outputs, 120)
        os.killpg(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output == b""
    assert b"Traceback" not in error
    wait_until(lambda: free_cpus(cluster) == 2, 60)
    assert contents("out").items() <= contents("local").items()


def kills_its_process_if_told(job):
    name, folder, _ = job
    if name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    count = len(os.listdir(folder))
    Path(folder, f"{name}-{count}").touch()
    return name, count


def fits():
    return True


def test_a_job_that_kills_its_workers_is_given_up_and_what_may_pass_is_done_again(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr("pdrn.workers.PAUSE_SECONDS", 0.1)
    jobs = [(name, str(tmp_path), False) for name in ("first", "deadly", "passing", "last")]
    with connect_ray(cluster.address, 1) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        results = dict(
            (job[0], (job[2], result))
            for job, result in run_jobs(
                kills_its_process_if_told,
                jobs,
                1,
                ray=ray,
                check=fits,
                retry=lambda job, result: (
                    (*job[:2], True) if result is None or result[0] == "passing" else None
                ),
            )
        )
    assert results["first"] == (False, ("first", 0))
    assert results["deadly"] == (True, None)
    assert results["passing"][0]
    assert results["last"][1] is not None
    assert sum(name.startswith("passing") for name in os.listdir(tmp_path)) == ATTEMPTS


def differs():
    return False


def test_a_worker_that_would_do_it_otherwise_is_refused(cluster, tmp_path):
    with connect_ray(cluster.address, 1) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        results = run_jobs(fits, [1], 1, ray=ray, check=differs)
        with pytest.raises(ValueError, match="has another pdrn, or other networks; install the same"):
            next(results)


def test_a_node_that_dies_costs_no_file(folder, cluster):
    with started(*command(cluster)) as process:
        wait_until(lambda: len(outputs()) >= 2, 120)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 0
    assert error.endswith(b"\n10 restored\n")
    assert contents("out") == contents("local")


def test_a_ray_of_its_own(folder):
    done = run("restore", "in/0.wav", "in/1.wav", "-o", "out", *SLOW, "--engine", "ray", "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("\n2 restored\n")
    assert contents("out").items() <= contents("local").items()
    assert len(outputs()) == 2


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (
            ("--engine", "ray", "--address", "127.0.0.1:1"),
            1,
            "no Ray answers at 127.0.0.1:1; start one there",
        ),
        (("--engine", "ray", "--address", "nonsense"), 1, "a cluster's address is HOST:PORT, or auto"),
        (("--address", "auto"), 2, "--address is of a Ray cluster; add --engine ray"),
        (("--engine", "ray", "-o", "-"), 2, "--engine is for files, and not for pipes; leave it out"),
        (("--engine", "ray", "--raw", "--rate", 8000), 2, "--engine is for files; leave it or --raw out"),
    ],
)
def test_mistakes_get_one_sentence(folder, options, code, reason):
    done = pdrn("restore", "in/0.wav", *options)
    assert done.returncode == code
    assert reason in " ".join(done.stderr.split())


def test_without_ray_it_says_how_to_get_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = pdrn("restore", "in/0.wav", "--engine", "ray")
    assert (done.returncode, done.stderr) == (1, "pdrn: Ray is not installed: pip install 'pdrn[ray]'\n")
