"""Sound and its quantization: cells, quantizers, detection, files, frames, corpora and metrics."""

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import Corpus, speech
from pdrn.audio.detection import Detected, QuantizerOptions, choose_quantizer, detect
from pdrn.audio.files import Sound, blocks, info, read, resample, write, writer
from pdrn.audio.quantizers import (
    ALaw,
    Bounded,
    Clipping,
    Coder,
    Exact,
    Gaps,
    MidRise,
    MidTread,
    MuLaw,
    Quantizer,
    Truncation,
    Uniform,
)

__all__ = [
    "ALaw",
    "Bounded",
    "Cells",
    "Clipping",
    "Coder",
    "Corpus",
    "Detected",
    "Exact",
    "Gaps",
    "MidRise",
    "MidTread",
    "MuLaw",
    "Quantizer",
    "QuantizerOptions",
    "Sound",
    "Truncation",
    "Uniform",
    "blocks",
    "choose_quantizer",
    "detect",
    "info",
    "read",
    "resample",
    "speech",
    "write",
    "writer",
]
