"""Networks that go on: the last block again and again, beyond the depth that was trained."""

from __future__ import annotations

import dataclasses

import numpy as np

from pdrn.nets.network import Network
from pdrn.nets.primal_dual import PrimalDual


def repeated(network: Network, depth: int) -> Network:
    """Return a primal-dual network of ``depth`` layers that repeats the last block of another.

    What no layer used when it was learned, the extrapolation after the last one, is that of the layer before.

    >>> from pdrn.nets import DenseMap, Network, PrimalDual
    >>> shallow = Network.started(PrimalDual(DenseMap(8), depth=2))
    >>> sorted(repeated(shallow, 3).weights)
    ['V.0', 'V.1', 'V.2', 'W.0', 'W.1', 'W.2']
    """
    plan = network.architecture
    if not isinstance(plan, PrimalDual):
        raise ValueError(f"only primal-dual networks have blocks to repeat, not a {type(plan).__name__}")
    if plan.stages > 1:
        raise ValueError("stages see the signal anew; a network with several has no block to repeat")
    if depth < plan.depth:
        raise ValueError(f"a network of {plan.depth} layers cannot go on to {depth}")
    if plan.depth == 1 and (plan.memory in ("gain", "mix") or plan.learn_theta == "per layer"):
        raise ValueError("a single layer has not learned what to remember; train two or more")
    longer = dataclasses.replace(plan, depth=depth)
    weights = {}
    for name, shape in longer.shapes().items():
        kind, _, layer = name.partition(".")
        if name == "theta" and plan.learn_theta == "per layer":
            learned = network.weights[name][:-1]
            weights[name] = np.pad(learned, (0, depth - len(learned)), "edge")
        elif name in network.weights:
            part = network.weights[name]
            weights[name] = part if part.shape == shape else np.pad(part, (0, depth - len(part)), "edge")
        else:
            last = plan.depth - (2 if kind == "M" else 1)
            weights[name] = network.weights[f"{kind}.{min(int(layer), last)}"]
    return Network(longer, weights, network.threads)
