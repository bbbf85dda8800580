"""A server as a user starts it, with its own temporary folder."""

import io
import json
import os
import re
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from urllib.parse import urlsplit

import numpy as np
import requests
import soundfile
from tests.cli.running import started

RATE = 16000


@dataclass
class Server:
    url: str
    process: Popen
    folder: Path
    """Where temporary files go."""

    def post(self, path, body, **settings):
        return requests.post(f"{self.url}/api/{path}", data=body, params=settings, timeout=60)

    def files(self):
        """Return the files in the folder, without the sample that the server offers."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name != "sample.wav"]


@contextmanager
def serving(folder, *options):
    with (folder / "errors.log").open("w") as errors:
        temporary = folder / "tmp"
        temporary.mkdir()
        environment = os.environ | {"TMPDIR": str(temporary)}
        process = started("serve", "--port", 0, *options, env=environment, stdin=DEVNULL, stderr=errors)
        try:
            url = re.match(rb"Open (http://\S+) in a browser", process.stdout.readline()).group(1).decode()
            yield Server(url, process, temporary)
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def tone(seconds=0.5, channels=1):
    time = np.arange(int(seconds * RATE)) / RATE
    rows = [
        0.6 * np.sin(2 * np.pi * (220 + 110 * row) * time) * np.hanning(len(time)) for row in range(channels)
    ]
    return np.array(rows) if channels > 1 else rows[0]


def wav(samples, subtype="DOUBLE"):
    content = io.BytesIO()
    soundfile.write(content, samples.T, RATE, format="WAV", subtype=subtype)
    return content.getvalue()


def samples_of(content):
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float64")
    assert rate == RATE
    return samples.T


def framed(content):
    """Return the last line of JSON, and the parts that follow it."""
    while True:
        line, content = content.split(b"\n", 1)
        message = json.loads(line)
        if "progress" not in message:
            break
    parts, place = {}, 0
    for part in message.get("result", {}).get("parts", ()):
        parts[part["name"]] = content[place : place + part["bytes"]]
        place += part["bytes"]
    assert place == len(content)
    return message, parts


def floats(part, *shape):
    return np.frombuffer(part, "<f4").astype(np.float64).reshape(*shape, -1)


def begun(server, content=b"RIFF", length=1000):
    """Send the beginning of a request; return its connection."""
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    head = f"POST /api/restore HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection
