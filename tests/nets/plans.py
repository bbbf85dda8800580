"""What the tests of the networks share: every kind of architecture, cells, disturbed weights."""

import numpy as np
from tests.convex.laws import cells, normal

from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, SpectralPrimalDual
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork, recurrent_proximal

DENSE = DenseMap(16)
WIDE = DenseMap(16, 24)
CONVOLUTIONAL = ConvolutionalMap(channels=10, window=8, hop=4)
SHAPES = {DENSE: (3, 16), WIDE: (3, 16), CONVOLUTIONAL: (3, 27)}

FAMILY = {
    f"{name}, {memory}, {tying}": PrimalDual(map, 3, memory, tying, theta=0.3, learn_theta="per layer")
    for name, map in (("dense", DENSE), ("convolutional", CONVOLUTIONAL))
    for memory in ("dual", "bias", "gain", "mix")
    for tying in ("untied", "half", "tied")
}
FAMILY |= {
    f"{name}, weighted": PrimalDual(map, 3, "mix", weighting="spectrum")
    for name, map in (("dense", DENSE), ("convolutional", CONVOLUTIONAL))
}
FAMILY |= {
    f"convolutional, {'past' if causal else 'context'}": PrimalDual(
        CONVOLUTIONAL, 4, "gain", theta=0.3, weighting="context", stages=2, context=2, causal=causal
    )
    for causal in (False, True)
}
RELATED = {
    f"{type(plan).__name__}, {type(map).__name__}": plan
    for map in (DENSE, CONVOLUTIONAL)
    for plan in (
        LISTA(map, 3),
        ResidualNetwork(map, 2),
        LearnedPrimalDual(map, 2, memory=2, width=4),
        DeepPrimalDual(map, 3, body_depth=1),
        recurrent_proximal(map, 4),
    )
}
SPECTRAL = {
    f"spectral, {'past' if causal else 'context'}": SpectralPrimalDual(
        windows=(0.008, 0.004), steps=2, channels=4, blocks=2, hidden=3, causal=causal, sample_rate_hz=8000
    )
    for causal in (False, True)
}
ALL = FAMILY | RELATED | SPECTRAL


def disturbed(plan, seed, scale=0.1, dtype=np.float64):
    """A network a little away from its start, where clips are active and where they are not."""
    start = plan.start(np.random.default_rng(seed))
    names = enumerate(start.items())
    weights = {name: part + normal(seed + i, *part.shape, scale=scale) for i, (name, part) in names}
    return Network(plan, {name: part.astype(dtype) for name, part in weights.items()})


def cells_for(plan, seed, dtype=np.float64):
    """Cells of the shape that a network takes."""
    shape = (3, 150) if isinstance(plan, SpectralPrimalDual) else SHAPES[plan.map]
    return tuple(bound.astype(dtype) for bound in cells(seed, *shape))
