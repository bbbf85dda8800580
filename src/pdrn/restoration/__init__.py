"""Restoration: sound in, sound out; where cells meet solvers and networks."""

from typing import TYPE_CHECKING

from pdrn.lazy import lazy_exports

if TYPE_CHECKING:
    from pdrn.restoration.methods import ChambollePockMethod, MeanMethod, Method, NetworkMethod
    from pdrn.restoration.registry import Model, read_model
    from pdrn.restoration.restorer import Report, Restorer, restore
    from pdrn.restoration.streaming import BlockRestorer, Stream, restore_bytes

__all__ = [
    "BlockRestorer",
    "ChambollePockMethod",
    "MeanMethod",
    "Method",
    "Model",
    "NetworkMethod",
    "Report",
    "Restorer",
    "Stream",
    "read_model",
    "restore",
    "restore_bytes",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__, ["methods", "registry", "streaming", "restorer"])
