"""Any problem unrolled is the solver, until it learns; then it is still a network like the others."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convex.laws import FUNCTIONALS, OPERATORS, SIZE, cells, normal, seeds

from pdrn.convex import (
    DCT,
    DCT2D,
    L1,
    ChambollePock,
    Convolution,
    Dense,
    GaborFrame,
    Operator,
    Problem,
    RestartedHalpern,
    SquaredL2,
    dequantization,
    solve,
)
from pdrn.nets import Network, unroll
from pdrn.nets.files import Provenance, load, save
from pdrn.nets.torch import NetworkModule
from pdrn.nets.unrolling import Unrolling

each_functional = pytest.mark.parametrize("name", FUNCTIONALS)
each_operator = pytest.mark.parametrize("K", OPERATORS.values(), ids=OPERATORS)
MATRIX = Dense(np.random.default_rng(3).standard_normal((SIZE, SIZE)))
LEARNED = ["no", "once", "per layer"]


def denoising(K, seed, batch=(2,)):
    noisy = normal(seed, *batch, K.shape[1])
    return Problem(0.3 * L1(), SquaredL2().shifted(-noisy), K, noisy, weight=0.7)


def iterates(problem, depth, algorithm=None):
    return [solve(problem, algorithm, iterations=layer + 1).x for layer in range(depth)]


def assert_same(layers, expected):
    for layer, iterate in zip(layers, expected, strict=True):
        found = layer.detach().numpy() if torch.is_tensor(layer) else layer
        assert np.allclose(found, iterate, atol=1e-12, rtol=1e-12)


@each_functional
@pytest.mark.parametrize("role", ["F", "G"])
@settings(max_examples=4)
@given(seeds, st.sampled_from([0.0, 0.4, 1.0]), st.integers(1, 6))
def test_before_it_learns_every_layer_is_an_iterate_of_the_solver(name, role, seed, theta, depth):
    pair = {"F": L1(), "G": SquaredL2()} | {role: FUNCTIONALS[name]}
    problem = Problem(**pair, K=MATRIX, start=normal(seed, 2, SIZE), weight=0.5)
    algorithm = ChambollePock(theta=theta)
    net = unroll(problem, depth, algorithm)
    expected = iterates(problem, depth, algorithm)
    assert_same(net.by_layer(problem), expected)
    assert_same([net(problem)], expected[-1:])
    assert_same(net.network().by_layer(problem), expected)


@each_operator
@pytest.mark.parametrize("kernel", [None, "matrix", "gains"])
@pytest.mark.parametrize("tying", ["untied", "half", "tied"])
def test_every_kernel_starts_at_the_operator(K, kernel, tying):
    problem = denoising(K, 1)
    net = unroll(problem, 3, kernel=kernel, tying=tying, memory="gain", learn_theta="once")
    assert_same(net.by_layer(problem), iterates(problem, 3))


@pytest.mark.parametrize("memory", ["dual", "gain", "mix"])
@pytest.mark.parametrize("learn_steps", LEARNED)
@pytest.mark.parametrize("learn_theta", LEARNED)
def test_steps_theta_and_memory_start_at_the_algorithm(memory, learn_steps, learn_theta):
    problem, algorithm = denoising(MATRIX, 2), ChambollePock(sigma=0.1, tau=0.3, theta=0.6)
    options = {"memory": memory, "learn_steps": learn_steps, "learn_theta": learn_theta}
    net = unroll(problem, 3, algorithm, **options)
    assert_same(net.by_layer(problem), iterates(problem, 3, algorithm))


def test_a_bias_forgets_the_dual_variable():
    problem, algorithm = denoising(MATRIX, 3), ChambollePock(theta=0.0)
    first, second = unroll(problem, 2, algorithm, memory="bias").by_layer(problem)
    again = dataclasses.replace(problem, start=first.detach().numpy())
    assert_same([second], iterates(again, 1))


def test_steps_follow_every_problem_of_a_batch():
    lower, upper = cells(4, 3, 16)
    width = np.array([[1.0], [4.0], [0.5]])
    problem = dequantization(lower * width, upper * width, DCT(16))
    assert problem.weight.shape == (3, 1)
    assert_same(unroll(problem, 4).by_layer(problem), iterates(problem, 4))


def test_every_call_brings_its_data():
    K = DCT(16)
    net = unroll(denoising(K, 5, ()), 3)
    other = denoising(K, 6, (4, 2))
    assert_same(net.by_layer(other), iterates(other, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda count: Convolution(normal(7, 5, 6), hop=2, count=count),
        lambda count: GaborFrame(4 * count, window_length=8, hop=4),
    ],
    ids=["filters", "frame"],
)
@pytest.mark.parametrize("memory", ["gain", "mix"])
def test_takes_signals_of_any_length(make, memory):
    net = unroll(denoising(make(3), 5), 2, kernel=None if make(3).channels == 5 else "gains", memory=memory)
    longer = denoising(make(9), 6)
    assert_same(net.by_layer(longer), iterates(longer, 2))


@pytest.mark.parametrize(
    ("K", "kernel", "shapes"),
    [
        (MATRIX, "own", ((SIZE, SIZE),)),
        (Convolution(normal(7, 5, 6), hop=2, count=3), "own", ((5, 6),)),
        (MATRIX @ (2.0 * MATRIX), "own", ((SIZE, SIZE), (SIZE, SIZE))),
        (DCT(512), "matrix", ((512, 512),)),
        (DCT(513), "gains", ((513,),)),
        (DCT2D(64, 64), "gains", ((4096,),)),
        (GaborFrame(2000, window_length=16, hop=4), "gains", ((18,),)),
    ],
)
def test_default_kernel(K, kernel, shapes):
    plan = unroll(denoising(K, 1, ()), 1).architecture
    assert (plan.kernel, plan.kernel_shapes) == (kernel, shapes)


def disturbed(problem, seed=0, **options):
    net = unroll(problem, 3, learn_theta="per layer", **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in net.parameters():
            part += 0.1 * torch.randn(part.shape, generator=generator, dtype=part.dtype)
    return net


@each_functional
@pytest.mark.parametrize("role", ["F", "G"])
def test_gradients_are_right(name, role):
    pair = {"F": L1(), "G": SquaredL2()} | {role: FUNCTIONALS[name]}
    problem = Problem(**pair, K=MATRIX, start=normal(8, 2, SIZE))
    net = disturbed(problem, memory="gain")
    names = [name for name, _ in net.named_parameters()]

    def run(*parameters):
        weights = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(net, weights, (problem,))

    assert torch.autograd.gradcheck(run, tuple(net.parameters()), fast_mode=True)


@each_operator
@pytest.mark.parametrize("kernel", [None, "gains"])
def test_every_weight_learns(K, kernel):
    problem = denoising(K, 9)
    problem = dataclasses.replace(problem, F=SquaredL2())
    net = disturbed(problem, memory="mix", kernel=kernel)
    (net(problem) ** 2).sum().backward()
    theta = net.theta.grad
    assert theta[:-1].all()  # the last extrapolation has no layer to go to
    net.theta.grad = torch.ones_like(theta)
    assert [name for name, part in net.named_parameters() if not part.grad.any()] == []


def test_training_beats_the_solver_at_the_same_depth():
    K, generator = DCT(16), np.random.default_rng(1)
    clean = np.cos(generator.uniform(0.1, 0.6, (200, 1)) * np.arange(16))
    noisy = clean + generator.normal(0, 0.3, clean.shape)
    problem = Problem(0.3 * L1(), SquaredL2().shifted(-noisy), K, noisy)
    net = unroll(problem, 3)
    target = torch.tensor(clean)
    start = ((net(problem) - target) ** 2).mean().item()
    for _ in range(30):
        loss = ((net(problem) - target) ** 2).mean()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for part in net.parameters():
                part -= 5 * part.grad
    assert loss.item() < 0.7 * start


@given(seeds)
@settings(max_examples=10)
def test_results_stay_in_their_cells_in_another_precision_too(seed):
    lower, upper = cells(seed, 3, 16)
    problem = dequantization(lower / 3, upper / 3, DCT(16))
    net = disturbed(problem, seed).float()
    for restored in (net(problem).detach().numpy(), net.network()(problem)):
        assert restored.dtype == np.float64
        assert problem.G.value(restored).max() == 0
        assert ((lower / 3 <= restored) & (restored <= upper / 3)).all()


@each_operator
def test_file_round_trip(K, tmp_path):
    problem = denoising(K, 10)
    net = disturbed(problem, memory="gain")
    save(tmp_path / "net.safetensors", net.network(), Provenance(seed=3))
    network, provenance = load(tmp_path / "net.safetensors")
    assert provenance.seed == 3
    assert network.architecture == net.architecture
    assert np.allclose(network(problem), net(problem).detach(), atol=1e-12)
    assert torch.equal(NetworkModule.of(network)(problem), net(problem))


def test_using_a_network_imports_no_torch(tmp_path):
    save(tmp_path / "net.safetensors", unroll(denoising(DCT(8), 1), 2).network())
    code = f"""
import sys, numpy as np
from pdrn.convex import DCT, L1, Problem, SquaredL2
from pdrn.nets.files import load
noisy = np.ones(8)
network, _ = load({str(tmp_path / "net.safetensors")!r})
network(Problem(L1(), SquaredL2().shifted(-noisy), DCT(8), noisy))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "depth"),
        ({"kernel": "none"}, "kernel"),
        ({"kernel_shapes": ()}, "kernel"),
        ({"kernel_shapes": ((0, 8),)}, "kernel"),
        ({"memory": "long"}, "memory"),
        ({"learn_steps": True}, "learn_steps"),
        ({"theta": 2.0}, "theta"),
        ({"sigma": -1.0}, "sigma"),
    ],
)
def test_refuses_invalid_architectures(change, message):
    fields = dataclasses.asdict(unroll(denoising(DCT(8), 1), 2).architecture)
    assert Unrolling(**json.loads(json.dumps(fields))) == Unrolling(**fields)
    with pytest.raises(ValueError, match=message):
        Unrolling(**(fields | change))


@dataclasses.dataclass(frozen=True, eq=False)
class Picked(Operator):
    """Some of the samples, weighted: indices are given, weights may be learned."""

    weights: np.ndarray
    index: np.ndarray
    size: int

    @property
    def shape(self):
        return len(self.index), self.size

    def apply(self, x):
        return self.weights * x[..., self.index]

    def adjoint(self, y):
        full = y.new_zeros if torch.is_tensor(y) else np.zeros
        x = full((*y.shape[:-1], self.size))
        x[..., self.index] = self.weights * y
        return x


def test_indices_are_not_learned():
    index = np.array([0, 3, 5])
    K = Picked(np.array([1.0, 2.0, 3.0]), index, 8)
    problem = denoising(K, 1)
    net = unroll(problem, 3)
    assert net.architecture.kernel_shapes == ((3,),)
    assert_same([net(problem)], [solve(problem, iterations=3).x])
    net(problem).square().sum().backward()
    assert all(part.grad is not None for name, part in net.named_parameters() if name.startswith("W"))


def test_refuses_kernel_own_without_arrays():
    with pytest.raises(ValueError, match="DCT"):
        unroll(denoising(DCT(8), 1), 2, kernel="own")


@pytest.mark.parametrize("kernel", [None, "matrix", "gains"])
def test_problems_with_another_operator_are_refused(kernel):
    net = unroll(denoising(MATRIX, 1), 2, kernel=kernel)
    with pytest.raises(ValueError, match="Dense"):
        net(denoising(Dense(normal(1, 9, 8)), 1))


def test_refuses_missing_weights():
    network = unroll(denoising(DCT(8), 1), 2).network()
    with pytest.raises(ValueError, match=r"V\.1"):
        Network(network.architecture, {k: v for k, v in network.weights.items() if k != "V.1"})


def test_refuses_other_inputs_and_algorithms():
    lower, upper = cells(0, SIZE)
    problem = dequantization(lower, upper, DCT(lower.shape[-1]))
    network = unroll(problem, 2)
    for net in (network, network.network()):
        with pytest.raises(ValueError, match="ndarray"):
            net(lower)
    with pytest.raises(ValueError, match="RestartedHalpern"):
        unroll(problem, 2, RestartedHalpern())


def test_refuses_to_save_a_module(tmp_path):
    lower, upper = cells(0, SIZE)
    network = unroll(dequantization(lower, upper, DCT(lower.shape[-1])), np.int64(2))
    with pytest.raises(ValueError, match="NetworkModule"):
        save(tmp_path / "a.safetensors", network)
    save(tmp_path / "a.safetensors", network.network())
    assert load(tmp_path / "a.safetensors")[0].architecture == network.architecture
