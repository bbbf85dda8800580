"""How far two sounds are apart to the ear, roughly: by the logarithms of their spectra, which MSE is deaf to.

What is quiet counts as much as what is loud, down to a floor well below the quantization error.
"""

from __future__ import annotations

import torch
from torch import Tensor

RESOLUTIONS = (256, 512, 1024)
"""Samples of the windows; a quarter of each is the hop."""

FLOOR = 0.01
"""Powers are compared above this share of the power that quantization error has in a window."""


def spectral_distance(estimates: Tensor, signals: Tensor, steps: Tensor) -> Tensor:
    """Return the mean distance of logarithmic power spectra over all resolutions, for each row.

    Parameters
    ----------
    estimates, signals : Tensor, shape (rows, samples)
        At least as long as the longest window.
    steps : Tensor, shape (rows,)
        How wide the cells are, in the unit of the signals.
    """
    distances = []
    for length in RESOLUTIONS:
        window = torch.hann_window(length, dtype=signals.dtype)
        floor = FLOOR * steps.square()[:, None, None] / 12 * window.square().sum()
        ours, theirs = (torch.log(_powers(x, window) + floor) for x in (estimates, signals))
        distances.append((ours - theirs).abs().mean((1, 2)))
    return torch.stack(distances).mean(0)


def _powers(signals: Tensor, window: Tensor) -> Tensor:
    hop = len(window) // 4
    views = torch.stft(signals, len(window), hop, window=window, center=False, return_complex=True)
    return torch.view_as_real(views).square().sum(-1)
