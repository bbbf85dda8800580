"""Networks for other runtimes: ONNX files that take cells and give restored signals."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import torch

from pdrn.errors import InputError
from pdrn.nets.runtime import Network
from pdrn.nets.torch import as_module
from pdrn.storage import atomic_write

EXAMPLE_LENGTH = 4096
"""How long the signals are with which a network without frames is traced; the file takes any length."""


def export(path: str | os.PathLike[str], network: Network, *, overwrite: bool = False) -> None:
    """Write a network as ONNX, whole or not at all.

    The graph has inputs ``lower`` and ``upper`` and an output ``restored``, of shape ``(batch, samples)`` in
    the type of the weights. The batch may have any size, and so may signals, unless the network takes frames
    of one length.
    """
    frame_length = network.architecture.map.frame_length
    any_size = torch.export.Dim.DYNAMIC
    sizes = {0: any_size} if frame_length else {0: any_size, 1: any_size}
    _write(path, as_module(network), frame_length or EXAMPLE_LENGTH, sizes, overwrite)


def export_block(
    path: str | os.PathLike[str],
    network: Network,
    before: int,
    length: int,
    after: int,
    *,
    overwrite: bool = False,
) -> None:
    """Write the step of a stream as ONNX: a network on the cells of a block and of what is around it.

    The graph is that of `export`, but for its sizes: ``lower`` and ``upper`` have shape ``(batch, before +
    length + after)``, ``restored`` is the middle of what the network makes of them, ``(batch, length)``.
    """
    module = _Middle(as_module(network), slice(before, before + length))
    _write(path, module, before + length + after, {0: torch.export.Dim.DYNAMIC}, overwrite)


class _Middle(torch.nn.Module):
    """A stretch of what another module returns."""

    def __init__(self, module: torch.nn.Module, stretch: slice) -> None:
        super().__init__()
        self.module, self.stretch = module, stretch

    def forward(self, lower: torch.Tensor, upper: torch.Tensor) -> torch.Tensor:
        restored: torch.Tensor = self.module(lower, upper)
        return restored[..., self.stretch]


def _write(
    path: str | os.PathLike[str], module: torch.nn.Module, length: int, sizes: dict[int, Any], overwrite: bool
) -> None:
    """Trace a module with cells of this length, of which some sizes may be any, and write the graph."""
    dtype = next(iter(module.state_dict().values())).dtype
    example = torch.zeros(2, length, dtype=dtype)
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it warns of packages that no network of ours needs
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            program = torch.onnx.export(
                module.eval(),
                (example - 0.5, example + 0.5),
                dynamo=True,
                dynamic_shapes=(sizes, sizes),
                input_names=["lower", "upper"],
                output_names=["restored"],
                verbose=False,
            )
    finally:
        exporter_log.setLevel(level)
    if program is None:
        raise InputError("torch made no ONNX program of this network")
    with atomic_write(path, overwrite) as stream:
        stream.write(program.model_proto.SerializeToString())
