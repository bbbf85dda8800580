"""Runs the command line in a new process for every line that it reads: a victim that starts at once.

    python tests/faults/victims.py

A line is a JSON list: the arguments, a file for standard error, a file for standard output. The process is a
fork of this one, which has imported everything: so a random moment is one of the work itself, and a hundred
of them take a minute. It prints the victim's id, and when that has ended its exit code and the seconds of
processor time that it took. Training states are written after every epoch, not every minute, so that there
is something to go on from.
"""

import importlib
import json
import os
import signal
import sys
import traceback

from pdrn.cli.main import main
from pdrn.training.loop import train

BEFOREHAND = (
    "pdrn.cli.batch",
    "pdrn.cli.progress",
    "pdrn.restoration.registry",
    "pdrn.reproduction.report",
    "pdrn.reproduction.figures",
    "pdrn.reproduction.grid",
)


def serve() -> None:
    """Start victims until there are no more lines."""
    train.__kwdefaults__["seconds_between_states"] = 0.0
    for name in BEFOREHAND:
        importlib.import_module(name)
    for line in sys.stdin:
        arguments, error, output = json.loads(line)
        child = os.fork()
        if child == 0:
            be_a_command(arguments, error, output)
        print(child, flush=True)
        _, status, usage = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, flush=True)


def be_a_command(arguments: list[str], error: str, output: str) -> None:
    """Do what the interpreter would for the command, and end this process."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, (name, mode) in enumerate(((os.devnull, os.O_RDONLY), (output, WRITING), (error, WRITING))):
        os.dup2(os.open(name, mode), number)
    sys.argv = ["pdrn", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

if __name__ == "__main__":
    serve()
