"""The command ``pdrn serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.errors import MissingDependencyError

EXAMPLES = """\b
For example:
  pdrn serve
  pdrn serve --port 9000 --model mine.safetensors
  pdrn serve --host 0.0.0.0 --allow-host studio.local"""


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but the default lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port (0: any free one).")] = 8000,
    model: Annotated[
        list[Path] | None, typer.Option(help="A network file to offer beside the bundled models.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name of this server, beside localhost.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Requests served at a time, each by its own process.")] = 2,
    waiting: Annotated[int, typer.Option(min=0, help="Requests that may wait; more are refused.")] = 16,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Size limit of an upload.")] = 64,
    max_seconds: Annotated[float, typer.Option(min=1, help="Length limit of a sound.")] = 300,
    time_limit: Annotated[
        float, typer.Option(min=1, help="Seconds for a request, upload and waiting included.")
    ] = 300,
) -> None:
    """Serve a page to hear and see restorations in a browser.

    Nothing leaves this machine and nothing is kept: uploads are in a private temporary folder until they are
    answered. Needs the extra pdrn[serve]. Ctrl-C ends it.
    """
    try:
        import uvicorn

        from pdrn.web.app import application
    except ImportError as error:
        raise MissingDependencyError(f"the page needs {error.name}: pip install 'pdrn[serve]'") from error
    from pdrn.web.app import Server, listening
    from pdrn.web.schemas import Limits, offer_methods
    from pdrn.web.worker_pool import open_pool

    limits = Limits(
        upload_bytes=max_megabytes << 20,
        sound_seconds=max_seconds,
        work_seconds=time_limit,
        jobs=jobs,
        waiting=waiting,
    )
    choices = offer_methods(model or [])
    with listening(host, port) as (socket, address), open_pool(limits) as pool:
        app = application(pool, choices, [host, *(allow_host or [])])
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
