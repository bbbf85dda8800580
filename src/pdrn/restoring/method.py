"""What a way to restore has to offer, whether it solves a problem or runs a network."""

from __future__ import annotations

from typing import Protocol

from pdrn.audio.cells import Cells, FloatArray


class Method(Protocol):
    """A local way to restore: what becomes of a sample depends only on the cells around it.

    Locality is what lets files of any length, streams and arrays share one code path: see `Blockwise`.
    """

    @property
    def frame_length(self) -> int:
        """Blocks start and end at multiples of this many samples, counted from the signal's start."""
        ...

    @property
    def context(self) -> int:
        """How many cells before and after a block it looks at."""
        ...

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel.

        Parameters
        ----------
        cells : Cells, shape (context + length + context,)
            The length is a multiple of the frame length. Before the start and after the end of the signal
            there is silence: cells that hold zero alone.

        Returns
        -------
        array, shape (length,)
            Close to the cells; whoever calls projects onto them.
        """
        ...
