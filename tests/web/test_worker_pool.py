"""The worker pool: whoever leaves is forgotten, a worker that is killed is replaced, nothing is left."""

import asyncio
import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests
from tests.cli.running import wait_until
from tests.web.serving import begun, serving, tone, wav

pytest.importorskip("fastapi", reason="fastapi is not installed")

from pdrn.errors import AudioError, InputError, StorageError
from pdrn.web.schemas import Limits, Refusal
from pdrn.web.worker_pool import WorkerPool


@dataclass(frozen=True)
class WritingOn:
    """Goes on until its folder is removed, and then leaves something there once more."""

    folder: Path

    def run(self, report):
        report(0.0)
        while self.folder.exists():
            time.sleep(0.01)
        self.folder.mkdir()
        (self.folder / "late").touch()
        while True:
            report(0.5)
            time.sleep(0.01)


async def leaving(pool):
    with pool.reserve() as folder:
        messages = pool.run(WritingOn(folder), asyncio.get_running_loop().time() + 60)
        assert await anext(messages) == 0.0
        await messages.aclose()
    return folder


async def reclaimed(pool):
    async with asyncio.timeout(60):
        while pool._reclaiming:
            await asyncio.sleep(0.01)


def test_what_is_written_after_the_client_left_is_removed_too():
    async def leave_and_wait():
        with WorkerPool(Limits(jobs=1)) as pool:
            folder = await leaving(pool)
            await reclaimed(pool)
            assert pool.folder.is_dir()
            return folder.exists()

    assert not asyncio.run(leave_and_wait())


def workers_of(server):
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_when_all_places_are_taken_others_are_told_so_until_one_is_free(small):
    with closing(begun(small)):
        wait_until(lambda: small.files())
        answer = small.post("restore", wav(tone()))
        assert answer.status_code == 429
        assert answer.json()["detail"] == "The server is busy; try again shortly."
    wait_until(lambda: not small.files())
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200


@dataclass(frozen=True)
class Endless:
    folder: Path

    def run(self, report):
        while True:
            report(0.0)


@dataclass(frozen=True)
class Failing:
    folder: Path
    error: Exception

    def run(self, report):
        raise self.error


async def messages_of(pool, make_job, seconds=60.0):
    with pool.reserve() as folder:
        deadline = asyncio.get_running_loop().time() + seconds
        return [message async for message in pool.run(make_job(folder), deadline)]


async def refusal(pool, make_job, seconds=60.0):
    with pytest.raises(Refusal) as caught:
        await messages_of(pool, make_job, seconds)
    return caught.value


def test_a_job_that_takes_too_long_is_stopped_and_its_worker_is_free_again():
    async def stop_and_fail():
        with WorkerPool(Limits(jobs=1)) as pool:
            stopped = await refusal(pool, Endless, 0.2)
            return stopped.status, (
                await refusal(pool, lambda folder: Failing(folder, InputError("no")))
            ).status

    assert asyncio.run(stop_and_fail()) == (503, 422)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AudioError("it is no sound; send one"), 422),
        (StorageError("/private/path cannot be written"), 503),
        (MemoryError(), 413),
        (ZeroDivisionError("a bug"), 500),
    ],
)
def test_errors_become_a_status_and_a_sentence_without_paths(error, status, capfd):
    async def fail():
        with WorkerPool(Limits(jobs=1)) as pool:
            return await refusal(pool, lambda folder: Failing(folder, error))

    refused = asyncio.run(fail())
    assert refused.status == status
    assert refused.sentence.endswith(".")
    assert "/private" not in refused.sentence
    assert ("Traceback" in capfd.readouterr().err) == (status in (500, 503))


def test_who_leaves_is_forgotten(server):
    slow = wav(np.random.default_rng(0).uniform(-1, 1, (2, 60 * 16000)))
    asked = {"quantize_bits": 4, "iterations": 500, "method": "cp"}
    with requests.post(f"{server.url}/api/explore", slow, params=asked, stream=True, timeout=60) as answer:
        assert b"progress" in next(answer.iter_lines())
    wait_until(lambda: not server.files())
    assert server.post("restore", wav(tone()), quantize_bits=4).status_code == 200


def test_a_process_that_is_killed_is_replaced(small):
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    answer = small.post("restore", wav(tone()), quantize_bits=4)
    assert answer.status_code == 503
    assert "was killed" in answer.json()["detail"]
    wait_until(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_a_process_that_is_killed_while_it_waits_is_replaced(small):
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_a_server_that_is_ended_leaves_nothing(tmp_path):
    with serving(tmp_path, "--jobs", 1) as server:
        workers = workers_of(server)
        assert len(workers) == 1
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 128 + signal.SIGTERM
        assert list(server.folder.iterdir()) == []
        wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        assert (tmp_path / "errors.log").read_text() == ""
