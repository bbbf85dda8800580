"""Restoration: sound in, sound out; where cells meet solvers and networks."""

from pdrn.restoration.methods import ChambollePockMethod, MeanMethod, Method, NetworkMethod, SpectralMethod
from pdrn.restoration.registry import Model, read_model
from pdrn.restoration.restorer import Report, Restorer, restore
from pdrn.restoration.streaming import BlockRestorer, Stream

__all__ = [
    "BlockRestorer",
    "ChambollePockMethod",
    "MeanMethod",
    "Method",
    "Model",
    "NetworkMethod",
    "Report",
    "Restorer",
    "SpectralMethod",
    "Stream",
    "read_model",
    "restore",
]
