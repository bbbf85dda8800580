"""Sound, and what is known of it: cells, quantizers, detection, files, frames, corpora and metrics."""

from typing import TYPE_CHECKING

from pdrn.lazy import lazy_exports

if TYPE_CHECKING:
    from pdrn.audio.cells import Cells
    from pdrn.audio.corpus import Corpus, speech
    from pdrn.audio.detection import Detected, QuantizerOptions, choose_quantizer, detect
    from pdrn.audio.files import (
        RawFormat,
        Sound,
        blocks,
        info,
        read,
        resample,
        write,
        writer,
    )
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
    "RawFormat",
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

_MODULES = ("cells", "quantizers", "detection", "files", "corpus")

__getattr__, __dir__ = lazy_exports(__name__, __all__, _MODULES)
