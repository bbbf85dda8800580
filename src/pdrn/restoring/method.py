"""What a way to restore has to offer, whether it solves a problem or runs a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from pdrn.audio.cells import Cells, FloatArray

RestoreBlock: TypeAlias = Callable[[Cells], FloatArray]
"""Restores the middle of a stretch of one channel; see `Method.restore`."""


class Method(Protocol):
    """A local way to restore: what becomes of a sample depends only on the cells around it.

    Locality is what lets files of any length, streams and arrays share one code path: see `Blockwise`.
    """

    @property
    def name(self) -> str:
        """What users call it: network, cp, both."""
        ...

    @property
    def model(self) -> str | None:
        """The name of the network; None where nothing is learned, which is Chambolle-Pock."""
        ...

    @property
    def before(self) -> int:
        """How many cells before a block it looks at."""
        ...

    @property
    def after(self) -> int:
        """How many cells after a block it looks at."""
        ...

    @property
    def stream_block(self) -> int:
        """Length of the blocks of a stream: short, so that samples come out soon."""
        ...

    @property
    def offline_block(self) -> int:
        """Length of the blocks of what is there already: long, so that little is computed twice."""
        ...

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel.

        Parameters
        ----------
        cells : Cells, shape (before + length + after,)
            The length is that of a block. Before the start and after the end of the signal there is silence:
            cells that hold zero alone.

        Returns
        -------
        array, shape (length,)
            Close to the cells; whoever calls projects onto them.
        """
        ...

    def follow(self) -> RestoreBlock | None:
        """Return what does the same for the blocks of a stream, one channel, each next to the one before.

        It remembers the past, and one that is new may begin anywhere. None: blocks are better off alone.
        """
        ...


def in_words(name: str, model: str | None) -> str:
    """Say what restores a sound.

    >>> in_words("both", "speech-large")
    'speech-large and Chambolle-Pock'
    """
    return " and ".join(filter(None, (model, "Chambolle-Pock" if name in ("cp", "both") else None)))
