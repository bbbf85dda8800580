"""The worker pool: a client that leaves ends its job, a killed worker is replaced, nothing is left."""

import asyncio
import os
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import requests
from tests.cli.running import wait_until
from tests.web.serving import begun, serving, tone, wav

pytest.importorskip("fastapi", reason="fastapi is not installed")

from pdrn.errors import AudioError, InputError, StorageError
from pdrn.web.schemas import Limits, Refusal
from pdrn.web.worker_pool import open_pool


def write_on(folder, report):
    """Run until the folder is removed, and then leave a file there."""
    report(0.0)
    while folder.exists():
        time.sleep(0.01)
    folder.mkdir()
    (folder / "late").touch()
    while True:
        report(0.5)
        time.sleep(0.01)


async def leave(pool):
    with pool.reserve() as folder:
        messages = pool.run(write_on, folder, asyncio.get_running_loop().time() + 60)
        assert await anext(messages) == 0.0
        await messages.aclose()
    return folder


async def reclaimed(pool):
    async with asyncio.timeout(60):
        while pool._reclaiming:
            await asyncio.sleep(0.01)


def test_files_written_after_the_client_left_are_removed():
    async def leave_and_wait():
        with open_pool(Limits(jobs=1)) as pool:
            folder = await leave(pool)
            await reclaimed(pool)
            assert pool.folder.is_dir()
            return folder.exists()

    assert not asyncio.run(leave_and_wait())


def workers_of(server):
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_refuses_requests_beyond_the_queue(small):
    with closing(begun(small)):
        wait_until(lambda: small.files())
        answer = small.post("restore", wav(tone()))
        assert answer.status_code == 429
        assert answer.json()["detail"] == "The server is busy; try again shortly."
    wait_until(lambda: not small.files())
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200


def run_forever(folder, report):
    while True:
        report(0.0)


def fail(folder, report, error):
    raise error


async def refusal(pool, job, seconds=60.0):
    deadline = asyncio.get_running_loop().time() + seconds
    with pytest.raises(Refusal) as caught, pool.reserve() as folder:
        async for _ in pool.run(job, folder, deadline):
            pass
    return caught.value


def test_worker_of_a_timed_out_job_is_free_again():
    async def stop_and_fail():
        with open_pool(Limits(jobs=1)) as pool:
            stopped = await refusal(pool, run_forever, 0.2)
            failed = await refusal(pool, partial(fail, error=InputError("no")))
            return stopped.status, failed.status

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
    async def run():
        with open_pool(Limits(jobs=1)) as pool:
            return await refusal(pool, partial(fail, error=error))

    refused = asyncio.run(run())
    assert refused.status == status
    assert refused.sentence.endswith(".")
    assert "/private" not in refused.sentence
    assert ("Traceback" in capfd.readouterr().err) == (status in (500, 503))


def test_client_that_leaves_ends_its_job(server):
    slow = wav(np.random.default_rng(0).uniform(-1, 1, (2, 60 * 16000)))
    asked = {"quantize_bits": 4, "iterations": 500, "method": "cp"}
    with requests.post(f"{server.url}/api/explore", slow, params=asked, stream=True, timeout=60) as answer:
        assert b"progress" in next(answer.iter_lines())
    wait_until(lambda: not server.files())
    assert server.post("restore", wav(tone()), quantize_bits=4).status_code == 200


def test_killed_worker_is_replaced(small):
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    answer = small.post("restore", wav(tone()), quantize_bits=4)
    assert answer.status_code == 503
    assert "was killed" in answer.json()["detail"]
    wait_until(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_killed_idle_worker_is_replaced(small):
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_sigterm_leaves_nothing(tmp_path):
    with serving(tmp_path, "--jobs", 1) as server:
        workers = workers_of(server)
        assert len(workers) == 1
        assert server.post("restore", wav(tone()), quantize_bits=4).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 128 + signal.SIGTERM
        assert list(server.folder.iterdir()) == []
        wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        assert (tmp_path / "errors.log").read_text() == ""
