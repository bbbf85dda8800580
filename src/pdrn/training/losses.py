"""The loss (4.2): a mean squared error, absolute or relative, plus a sum of squares of weights.

Beyond the paper, a distance of log spectra can be added. There, unlike in the mean squared error, quiet
frequencies count as much as loud ones, down to a floor well below the quantization error.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdrn.convex import Box
from pdrn.training.config import Loss

MIN_NOISE = 1e-3
"""Smallest divisor of a relative error, in squared steps: silence may be quantized without error."""

LEAST_RATIO = 0.1
"""Added to a relative error before its logarithm is taken: segments that are nearly exact count no more."""

RESOLUTIONS = (256, 512, 1024)
"""Windows of the spectra in samples; the hop is a quarter of each."""

FLOOR = 0.01
"""Floor of the powers compared, relative to the power of the quantization error in a window."""


def squared_errors(estimates: Tensor, signals: Tensor) -> Tensor:
    """Return the mean squared error of each row."""
    return (estimates - signals).square().mean(-1)


def data_losses(loss: Loss, estimates: Tensor, signals: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """Return the first term of (4.2) for each row."""
    losses = squared_errors(estimates, signals)
    if not loss.relative and not loss.spectral:
        return losses
    noise, steps = squared_errors(Box(lo, hi).centre, signals), _steps(lo, hi)
    if loss.relative:
        losses = losses / torch.maximum(noise, MIN_NOISE * steps.square())
    if loss.logarithmic:
        losses = torch.log(losses + LEAST_RATIO)
    if loss.spectral:
        # Clipping is an error beyond the cells' widths: where it dominates, the floor rises with it.
        steps = torch.maximum(steps, torch.where(torch.isinf(hi - lo).any(-1), (12 * noise).sqrt(), 0.0))
        losses = losses + loss.spectral * spectral_distance(estimates, signals, steps)
    return losses


def _steps(lo: Tensor, hi: Tensor) -> Tensor:
    """Return the root mean square width of each row's bounded cells."""
    widths = hi - lo
    bounded = torch.isfinite(widths)
    squares = torch.where(bounded, widths, 0.0).square().sum(-1)
    return (squares / bounded.sum(-1).clamp(min=1)).sqrt()


def is_regularised(loss: Loss, part: Tensor) -> bool:
    """Whether the squares of a tensor count in the second term of (4.2)."""
    return loss.regularised == "all" or part.ndim > 1


@torch.no_grad()
def regularisation(loss: Loss, module: nn.Module) -> float:
    """Return the second term of (4.2)."""
    parts = [part.double().square().sum() for part in module.parameters() if is_regularised(loss, part)]
    return loss.regularisation * float(sum(parts))


def spectral_distance(estimates: Tensor, signals: Tensor, steps: Tensor) -> Tensor:
    """Return the mean distance of log power spectra over all resolutions, for each row.

    Parameters
    ----------
    estimates, signals : Tensor, shape (rows, samples)
        At least as long as the longest window.
    steps : Tensor, shape (rows,)
        Widths of the cells, in the unit of the signals.
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
