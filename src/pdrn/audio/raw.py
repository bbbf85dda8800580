"""Raw samples: bytes without a header, as pipes carry them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.files import PCM_BITS
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.system import AudioError
from pdrn.audio.writing import settle

_STORED = {
    "u8": ("PCM_U8", "u1"),
    "s8": ("PCM_S8", "i1"),
    "s16le": ("PCM_16", "<i2"),
    "s16be": ("PCM_16", ">i2"),
    "s24le": ("PCM_24", "<i4"),
    "s32le": ("PCM_32", "<i4"),
    "f32le": ("FLOAT", "<f4"),
    "f64le": ("DOUBLE", "<f8"),
}
_LAWS = {"mulaw": (MuLaw(), "ULAW"), "alaw": (ALaw(), "ALAW")}

ENCODINGS = (*_STORED, *_LAWS)


@final
@dataclass(frozen=True)
class RawFormat:
    """How bytes hold interleaved samples: signed or unsigned, bits, byte order; floats; G.711.

    Examples
    --------
    >>> stereo = RawFormat("s16le", channels=2)
    >>> stereo.decode(bytes([0, 64, 0, 192]))
    array([[ 0.5],
           [-0.5]])
    """

    encoding: str
    channels: int = 1

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise AudioError(f"there is no encoding {self.encoding!r}; choose one of {', '.join(ENCODINGS)}")
        if self.channels < 1:
            raise AudioError(f"raw samples have at least one channel, got {self.channels}")

    @property
    def subtype(self) -> str:
        """What a file of such samples would be called."""
        return _LAWS[self.encoding][1] if self.encoding in _LAWS else _STORED[self.encoding][0]

    @property
    def frame_bytes(self) -> int:
        """How many bytes hold one sample of every channel."""
        widths = {"ULAW": 1, "ALAW": 1, "FLOAT": 4, "DOUBLE": 8}
        return self.channels * (widths.get(self.subtype) or PCM_BITS[self.subtype] // 8)

    def decode(self, content: bytes) -> NDArray[np.float64]:
        """Return the samples of whole frames, shape (channels, frames), full scale [-1, 1].

        NaN, which floats may be, marks missing samples.
        """
        samples = self._decode(content).reshape(-1, self.channels).T
        if np.isinf(samples).any():
            raise AudioError("a raw sample is infinite; check the encoding")
        return samples

    def _decode(self, content: bytes) -> NDArray[np.float64]:
        if self.encoding in _LAWS:
            return np.asarray(_LAWS[self.encoding][0].levels(np.frombuffer(content, "u1")), np.float64)
        subtype, dtype = _STORED[self.encoding]
        if subtype == "PCM_24":
            wide = np.zeros((len(content) // 3, 4), "u1")
            wide[:, 1:] = np.frombuffer(content, "u1").reshape(-1, 3)
            return wide.view(dtype).ravel() / 2.0**31
        values = np.frombuffer(content, dtype).astype(np.float64)
        if subtype not in PCM_BITS:
            return values
        return (values - (128 if subtype == "PCM_U8" else 0)) / 2.0 ** (PCM_BITS[subtype] - 1)

    def encode(self, samples: FloatArray, cells: Cells | None = None) -> bytes:
        """Return the bytes of samples of shape (channels, frames), inside their cells; see `settle`."""
        if self.encoding in _LAWS:
            raise AudioError(f"{self.encoding} output may leave the cells; choose another encoding")
        subtype, dtype = _STORED[self.encoding]
        settled = settle(samples, cells, subtype).T
        if subtype not in PCM_BITS:
            return settled.astype(dtype).tobytes()
        if subtype == "PCM_24":
            wide = np.ascontiguousarray(settled * 2.0**31).astype(dtype)
            return wide.view("u1").reshape(-1, 4)[:, 1:].tobytes()
        codes = settled * 2.0 ** (PCM_BITS[subtype] - 1) + (128 if subtype == "PCM_U8" else 0)
        return codes.astype(dtype).tobytes()
