"""Jobs run by workers: each is yielded once, a killed worker loses its own job, retries are bounded."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.clusters import two_nodes

from pdrn import workers
from pdrn.errors import InputError
from pdrn.workers import ATTEMPTS, connect_ray, run_jobs


def double(number):
    return 2 * number


@settings(max_examples=5)
@given(numbers=st.lists(st.integers(), max_size=12, unique=True), processes=st.integers(1, 3))
def test_each_job_is_yielded_once_with_its_result(numbers, processes):
    results = list(run_jobs(double, iter(numbers), processes))
    assert sorted(results) == sorted((number, 2 * number) for number in numbers)


def perform(job):
    """Act by the name of a job; leave a file for each attempt."""
    name, folder = job[:2]
    Path(folder, f"{name}-{len(os.listdir(folder))}").touch()
    if name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "buggy":
        raise ZeroDivisionError("a bug")
    if name == "endless":
        time.sleep(600)
    return name


def attempts(folder, name):
    return sum(path.startswith(name) for path in os.listdir(folder))


def test_killed_worker_loses_its_own_job_only(tmp_path):
    jobs = [(name, str(tmp_path)) for name in ("first", "deadly", "second", "third")]
    results = dict(run_jobs(perform, jobs, 2))
    assert {job[0]: result for job, result in results.items()} == {
        "first": "first",
        "deadly": None,
        "second": "second",
        "third": "third",
    }


def test_exception_is_raised_with_its_traceback(tmp_path):
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        list(run_jobs(perform, [("buggy", str(tmp_path))], 1))


def test_retries_are_bounded_and_run_the_replacement(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "PAUSE_SECONDS", 0.0)
    jobs = [(name, str(tmp_path), 0) for name in ("plain", "deadly")]

    def retry(job, result):
        return (*job[:2], job[2] + 1) if result is None else None

    results = list(run_jobs(perform, jobs, 1, retry=retry))
    assert sorted(results, key=str) == [
        (("deadly", str(tmp_path), ATTEMPTS - 1), None),
        (("plain", str(tmp_path), 0), "plain"),
    ]
    assert attempts(tmp_path, "deadly") == ATTEMPTS


def test_closing_ends_the_workers(tmp_path):
    jobs = [(name, str(tmp_path)) for name in ("first", "endless")]
    results = run_jobs(perform, jobs, 2)
    assert next(results)[1] == "first"
    (process,) = [child for child in workers.multiprocessing.active_children() if child.is_alive()][:1]
    results.close()
    assert not process.is_alive()
    assert not workers.multiprocessing.active_children()


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pdrn[ray]'")
    with two_nodes() as cluster, connect_ray(cluster.address, 1) as module:
        module.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield module


@pytest.mark.cluster
def test_cluster_retries_are_bounded(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "PAUSE_SECONDS", 0.1)
    jobs = [(name, str(tmp_path), False) for name in ("first", "deadly", "passing", "last")]

    def retry(job, result):
        return (*job[:2], True) if result in (None, "passing") else None

    results = {job[0]: (job[2], result) for job, result in run_jobs(perform, jobs, 1, ray=ray, retry=retry)}
    assert results == {
        "first": (False, "first"),
        "deadly": (True, None),
        "passing": (True, "passing"),
        "last": (False, "last"),
    }
    assert attempts(tmp_path, "passing") == attempts(tmp_path, "deadly") == ATTEMPTS


def process_id():
    return os.getpid()


@pytest.mark.cluster
def test_refuses_cluster_worker_with_another_fingerprint(ray):
    with pytest.raises(InputError, match="machines"):
        next(run_jobs(double, [1], 1, ray=ray, fingerprint=process_id))


class Unreadable:
    """A job of another version, which a worker cannot unpickle."""

    def __reduce__(self):
        return __import__, ("pdrn.of_another_version",)


@pytest.mark.cluster
def test_names_cluster_worker_that_cannot_start(ray):
    with pytest.raises(InputError, match="worker"):
        next(run_jobs(double, [Unreadable()], 1, ray=ray))


@pytest.mark.cluster
def test_refuses_more_cpus_than_any_machine_has(ray):
    with pytest.raises(InputError, match="64 CPUs"):
        next(run_jobs(double, [1], 1, ray=ray, cpus=64))
