"""The server takes so much and no more, forgets who leaves, and survives its own processes."""

import io
import os
import signal
import socket
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
import soundfile
from tests.web.serving import framed, serving, tone, wav


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server that takes one request at a time, none waiting, and little of everything."""
    options = {"jobs": 1, "waiting": 0, "max-megabytes": 1, "max-seconds": 2, "time-limit": 3}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    with serving(tmp_path_factory.mktemp("small"), *given) as server:
        eventually(lambda: server.post("restore", wav(tone()), quantize_bits=4).status_code == 200)  # awake
        yield server


def eventually(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def begun(server, content=b"RIFF", length=1000):
    """A request whose body is still on its way."""
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    head = f"POST /api/restore HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def workers_of(server):
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_what_is_too_large_is_refused_before_it_is_read(small):
    answer = small.post("restore", bytes((1 << 20) + 1))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The file is larger than 1 MB; send a shorter stretch of it."


def test_what_does_not_say_how_large_it_is_is_refused_too(small):
    answer = small.post("restore", (bytes(1 << 16) for _ in range(17)))
    assert answer.status_code == 413


def test_many_who_claim_gigabytes_are_refused_at_once(small):
    connections = [begun(small, length=8 << 30) for _ in range(30)]
    for connection in connections:
        with closing(connection):
            connection.settimeout(20)
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    assert small.files() == []


def test_an_hour_of_silence_in_a_small_file_is_refused(small):
    stream = io.BytesIO()
    soundfile.write(stream, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC", subtype="PCM_16")
    assert len(stream.getvalue()) < 1 << 18
    answer = small.post("explore", stream.getvalue())
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The sound is longer than 2 s; send a stretch of it."


def test_what_is_too_long_is_refused(small):
    answer = small.post("explore", wav(np.zeros(2 * 16000 + 1), "PCM_16"))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The sound is longer than 2 s; send a stretch of it."


def test_when_all_places_are_taken_others_are_told_so_until_one_is_free(small):
    with closing(begun(small)):
        eventually(lambda: small.files())
        answer = small.post("restore", wav(tone()))
        assert answer.status_code == 429
        assert answer.json()["detail"] == "The server is busy with others; try again in a moment."
    eventually(lambda: not small.files())
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200


def test_an_upload_that_does_not_end_is_ended(small):
    with closing(begun(small)) as connection:
        connection.settimeout(10)
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
    assert small.files() == []


def test_work_that_takes_too_long_is_stopped(small):
    slow = wav(np.random.default_rng(0).uniform(-1, 1, 2 * 16000))
    answer = small.post("explore", slow, quantize_bits=4, iterations=500, method="cp")
    message = answer.json() if answer.status_code == 503 else framed(answer.content)[0]
    if "detail" in message:  # where this machine is not fast enough
        assert message["detail"].startswith("This took longer than 3 s and was stopped")
    eventually(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_who_leaves_is_forgotten(server):
    slow = wav(np.random.default_rng(0).uniform(-1, 1, (2, 60 * 16000)))
    asked = {"quantize_bits": 4, "iterations": 500, "method": "cp"}
    with requests.post(f"{server.url}/api/explore", slow, params=asked, stream=True, timeout=60) as answer:
        assert b"progress" in next(answer.iter_lines())
    eventually(lambda: not server.files())
    assert server.post("restore", wav(tone()), quantize_bits=4).status_code == 200


def test_a_form_is_refused_with_the_way_to_send_a_sound(small):
    answer = requests.post(f"{small.url}/api/restore", files={"file": wav(tone())}, timeout=60)
    assert answer.status_code == 415
    assert "--data-binary" in answer.json()["detail"]
    assert small.files() == []


def test_a_process_that_is_killed_is_replaced(small):
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    answer = small.post("restore", wav(tone()), quantize_bits=4)
    assert answer.status_code == 503
    assert "was killed" in answer.json()["detail"]
    eventually(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_a_process_that_is_killed_while_it_waits_is_replaced(small):
    assert small.post("restore", wav(tone()), quantize_bits=4).status_code == 200
    for worker in workers_of(small):
        os.kill(worker, signal.SIGKILL)
    eventually(lambda: small.post("restore", wav(tone()), quantize_bits=4).status_code == 200)


def test_a_server_that_is_ended_leaves_nothing(small):
    workers = workers_of(small)
    assert len(workers) == 1
    small.process.send_signal(signal.SIGTERM)
    assert small.process.wait(20) == 128 + signal.SIGTERM
    assert list(small.folder.iterdir()) == []
    eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    assert (small.folder.parent / "errors.log").read_text() == ""
