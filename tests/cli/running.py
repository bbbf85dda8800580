"""Run the command line: in this process, or as a user does."""

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest import mock

from pdrn.cli.main import main

COMMAND = [sys.executable, "-c", "from pdrn.cli.main import main; main()"]


def pdrn(*arguments: object, stdin: bytes = b"") -> SimpleNamespace:
    """Run a command in this process, which is faster than starting one."""
    output, error = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    handlers = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(sys, "argv", ["pdrn", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        redirect_stdout(output),
        redirect_stderr(error),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            for sign, handler in handlers.items():
                signal.signal(sign, handler)
        output.flush()
    content = output.buffer.getvalue()
    return SimpleNamespace(
        returncode=code, content=content, stdout=content.decode(errors="replace"), stderr=error.getvalue()
    )


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess:
    settings = {"capture_output": True, "text": True, "check": False} | options
    return subprocess.run([*COMMAND, *map(str, arguments)], **settings)


def started(*arguments: object, **options: object) -> subprocess.Popen:
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **settings)


def wait_until(condition, seconds=60, what=lambda: ""):
    """Wait for a condition; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)
