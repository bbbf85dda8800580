"""Who enters the comparisons: neighbours of primal-dual networks, kinds of extrapolation, ways to iterate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdrn.nets import Architecture, ConvolutionalMap, DenseMap, PrimalDual
from pdrn.nets.maps import Map
from pdrn.nets.primal_dual import Learned, Memory
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork, recurrent_proximal
from pdrn.study.comparison import Entrant
from pdrn.study.config import Config, for_bits, from_table
from pdrn.study.tabular import as_table

Table = Mapping[str, Any]


def neighbours(frame_length: int, bits: int) -> tuple[Entrant, ...]:
    """Return primal-dual networks and their neighbours, with as many weights as a PDN of two layers.

    That is four square matrices. A network with fewer has larger ones; those that cannot be matched so come
    as they are: learned primal-dual has few weights by its nature.
    """
    n = frame_length
    square, wide = DenseMap(n), DenseMap(n, 4 * n)
    networks: dict[str, Architecture] = {
        "PDN": PrimalDual(square, 2, "dual"),
        "PDRN": PrimalDual(square, 2, "bias"),
        "PDRN with memory": PrimalDual(square, 2, "gain"),
        "PDN, half-tied": PrimalDual(square, 4, "dual", "half"),
        "PDN, tied": PrimalDual(square, 5, "dual", "tied"),
        "PDN, tied, wide": PrimalDual(wide, 5, "dual", "tied"),
        "recurrent proximal, wide": recurrent_proximal(wide, 5),
        "LISTA": LISTA(DenseMap(n, 4 * n // 3), 5),
        "residual network": ResidualNetwork(square, 1),
        "learned primal-dual": LearnedPrimalDual(square, 5),
        "deep primal-dual": DeepPrimalDual(DenseMap(n, 7 * n // 8), 5, body_depth=1),
    }
    data = {"bits": bits, "length": n, "placing": "random"}
    return tuple(
        Entrant({"network": name, "layers": network.depth}, _modern(network, data))
        for name, network in networks.items()
    )


def extrapolation(frame_length: int, bits: int, depths: Sequence[int], batches: int) -> tuple[Entrant, ...]:
    """Return networks with every kind of extrapolation: dense and convolutional, PDN and PDRN with memory.

    An epoch has so many batches, all of the same number of samples.
    """
    n, frames, segments = frame_length, 128, 8
    shapes: dict[str, tuple[Map, dict[str, Any], Table]] = {
        "dense": (DenseMap(n), {"length": n}, {"batch_size": frames}),
        "convolutional": (
            ConvolutionalMap(n // 4, n, n // 4),
            {"length": n * frames // segments},
            {"batch_size": segments},
        ),
    }
    thetas: dict[str, tuple[float, Learned]] = {
        "0": (0.0, "no"),
        "1": (1.0, "no"),
        "learned": (1.0, "once"),
        "per layer": (1.0, "per layer"),
    }
    memories: dict[str, Memory] = {"PDN": "dual", "PDRN with memory": "gain"}
    common: dict[str, Any] = {"bits": bits, "placing": "random", "batches": batches}
    return tuple(
        Entrant(
            {"map": shape, "network": name, "layers": depth, "theta": theta},
            _modern(
                PrimalDual(map, depth, memory, theta=start, learn_theta=learned),
                common | data,
                optimiser=optimiser,
            ),
        )
        for shape, (map, data, optimiser) in shapes.items()
        for name, memory in memories.items()
        for depth in depths
        for theta, (start, learned) in thetas.items()
    )


def iterating(frame_length: int, bits: int, depths: Sequence[int], batches: int) -> tuple[Entrant, ...]:
    """Return networks to be iterated beyond their training; tied ones by truncated gradients too.

    Chambolle-Pock converges with theta = 1; with theta = 0 it is another method, which need not.
    """
    map, common = DenseMap(frame_length), {"bits": bits, "length": frame_length}
    found = []
    for depth in depths:
        networks = {
            "PDN, tied, theta 1": PrimalDual(map, depth, "dual", "tied", theta=1.0),
            "PDN, tied, theta 0": PrimalDual(map, depth, "dual", "tied"),
            "PDN": PrimalDual(map, depth, "dual"),
            "PDRN": PrimalDual(map, depth, "bias"),
            "PDRN with memory": PrimalDual(map, depth, "gain"),
        }
        for name, network in networks.items():
            data = common | {"placing": "random", "batches": batches}
            for last in (0, 1, 3) if name == "PDN, tied, theta 1" and depth > 3 else (0,):
                config = _modern(network, data, loss={"last_layers": last})
                gradient = f"last {last}" if last else "all"
                found.append(Entrant({"network": name, "layers": depth, "gradient": gradient}, config))
    return tuple(found)


def _modern(network: Architecture, data: Table, **more: Table) -> Config:
    """Return a configuration by the modern recipe; networks of other families start as they do."""
    start = {} if isinstance(network, PrimalDual) else {"start": {"kind": "own"}}
    table = {"recipe": "modern", "architecture": as_table(network), "data": data} | start | more
    return for_bits(from_table(table), data["bits"])
