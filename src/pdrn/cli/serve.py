"""The command ``pdrn serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.errors import InputError

EXAMPLES = """\b
For example:
  pdrn serve
  pdrn serve --port 9000 --model mine.safetensors
  pdrn serve --host 0.0.0.0 --allow-host studio.local"""


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than this machine's own let others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 stands for any that is free.")] = 8000,
    model: Annotated[
        list[Path] | None, typer.Option(help="A network, as pdrn train writes it, to offer too.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that this server is known by, beyond localhost.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Sounds restored at once, each in a process.")] = 2,
    waiting: Annotated[int, typer.Option(min=0, help="Requests that may wait; others are refused.")] = 16,
    most_megabytes: Annotated[int, typer.Option(min=1, help="How large an upload may be.")] = 64,
    most_seconds: Annotated[float, typer.Option(min=1, help="How long a sound may be.")] = 300,
    time_limit: Annotated[
        float, typer.Option(min=1, help="Seconds for a request, uploading and waiting included.")
    ] = 300,
) -> None:
    """Serve a page where people hear and see it, to browsers on this machine.

    Nothing leaves the machine, and nothing stays: uploads are in a private temporary folder until they are
    answered. Wants the extra pdrn[serve]. Ctrl-C ends it.
    """
    try:
        import uvicorn

        from pdrn.web.app import application
    except ImportError as error:
        raise InputError(f"the page needs {error.name}: pip install 'pdrn[serve]'") from error
    from pdrn.web.app import Server, listening
    from pdrn.web.schemas import Limits, choices
    from pdrn.web.worker_pool import Workshop

    limits = Limits(
        upload_bytes=most_megabytes << 20,
        sound_seconds=most_seconds,
        work_seconds=time_limit,
        jobs=jobs,
        waiting=waiting,
    )
    offered = choices(model or [])
    with listening(host, port) as (socket, address), Workshop(limits) as workshop:
        app = application(workshop, offered, [host, *(allow_host or [])])
        print(f"Open {address} in a browser. Ctrl-C ends.", flush=True)
        config = uvicorn.Config(
            app,
            log_level="warning",
            server_header=False,
            limit_concurrency=256,
            ws_max_size=1 << 20,
            timeout_graceful_shutdown=3,
        )
        Server(config).run(sockets=[socket])
