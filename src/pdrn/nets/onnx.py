"""Networks for other runtimes: ONNX files that take cells and give restored signals."""

from __future__ import annotations

import logging
import os
import warnings

import torch

from pdrn.audio.placing import whole_or_gone
from pdrn.nets.modules import NetworkModule
from pdrn.nets.network import Network

EXAMPLE_LENGTH = 4096
"""How long the signals are with which a network without frames is traced; the file takes any length."""


def export(path: str | os.PathLike[str], network: Network, *, overwrite: bool = False) -> None:
    """Write a network as ONNX, whole or not at all.

    The graph has inputs ``lower`` and ``upper`` and an output ``restored``, of shape ``(batch, samples)`` in
    the type of the weights. The batch may have any size, and so may signals, unless the network takes frames
    of one length.
    """
    module = NetworkModule.of(network).eval()
    frame_length = network.architecture.map.frame_length
    dtype = next(iter(module.state_dict().values())).dtype
    example = torch.zeros(2, frame_length or EXAMPLE_LENGTH, dtype=dtype)
    any_size = torch.export.Dim.DYNAMIC
    sizes = {0: any_size} if frame_length else {0: any_size, 1: any_size}
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it warns of packages that no network of ours needs
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            program = torch.onnx.export(
                module,
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
        raise ValueError("torch made no ONNX program of this network")
    with whole_or_gone(path, overwrite) as stream:
        stream.write(program.model_proto.SerializeToString())
