"""Which method restores a sound: a shipped network beside Chambolle-Pock where one fits, else that alone.

It is chosen from the sample rate and the step alone, before any sample is restored, and so for the whole of a
sound, and the same for a file and a stream of it.
"""

from __future__ import annotations

from typing import Literal, get_args

from pdrn.restoring import pretrained
from pdrn.restoring.trained import Model

MethodName = Literal["auto", "both", "network", "cp"]

FINEST_STEP = 2 / 2**9
"""Networks have learned from levels about as close as this, and from no closer ones."""

_ROUNDING = 1 + 1e-3  # a step that was detected may be a little off


def check_method(method: str, model: str | None, iterations: int | None, shifts: int | None) -> None:
    """Refuse a method that there is not, and one that contradicts what else is wanted."""
    if method not in get_args(MethodName):
        raise ValueError(f"the methods are {', '.join(get_args(MethodName))}; there is no {method!r}")
    if iterations is not None and method != "both" and (model is not None or method == "network"):
        raise ValueError("a network has its layers, and no iterations; leave one of the two out")
    if model is not None and method == "cp":
        raise ValueError("method cp takes no model; leave one of the two out")
    if shifts is not None and (method == "cp" or not isinstance(shifts, int) or shifts < 1):
        raise ValueError(f"shifts are for networks, one or more, got {shifts} for method {method}")


def automatic(sample_rate_hz: int, step: float | None) -> Model | None:
    """Return the network that restores sound of this rate and step unless told otherwise, if one does."""
    if step is None or step * _ROUNDING < FINEST_STEP:
        return None
    fitting = pretrained.for_rate(sample_rate_hz)
    return pretrained.shipped(fitting[0]) if fitting else None


def network_for(sample_rate_hz: int) -> Model:
    """Return the largest network for sound of this rate."""
    fitting = pretrained.for_rate(sample_rate_hz)
    if not fitting:
        known = [f"{name} ({pretrained.sample_rate_hz(name)} Hz)" for name in pretrained.names()]
        there_is = f"; there are {', '.join(known)}" if known else ""
        raise ValueError(f"no network is for {sample_rate_hz} Hz{there_is}; choose method cp")
    return pretrained.shipped(fitting[0])
