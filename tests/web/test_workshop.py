"""The workshop, without a server: whoever leaves is forgotten, and so is what was done for them."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")

from pdrn.web.schemas import Limits
from pdrn.web.worker_pool import Workshop


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


async def leaving(workshop):
    with workshop.place() as folder:
        messages = workshop.messages(WritingOn(folder), asyncio.get_running_loop().time() + 60)
        assert await anext(messages) == 0.0
        await messages.aclose()
    return folder


async def settled(workshop):
    async with asyncio.timeout(60):
        while workshop._settling:
            await asyncio.sleep(0.01)


def test_what_is_written_after_the_client_left_is_removed_too():
    async def leave_and_wait():
        with Workshop(Limits(jobs=1)) as workshop:
            folder = await leaving(workshop)
            await settled(workshop)
            assert workshop.folder.is_dir()
            return folder.exists()

    assert not asyncio.run(leave_and_wait())
