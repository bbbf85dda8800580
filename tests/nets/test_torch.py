"""The torch modules behave as torch users expect, and as the NumPy networks."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.convex.laws import cells, normal, seeds
from tests.nets.plans import ALL, CONVOLUTIONAL, DENSE, FAMILY, RELATED, cells_for, disturbed

from pdrn.convex import (
    L1,
    Box,
    ChambollePock,
    Dense,
    Problem,
    SquaredL2,
    solve,
)
from pdrn.nets import ConvolutionalMap, DenseMap, PrimalDual
from pdrn.nets.related import ResidualNetwork
from pdrn.nets.torch import PDN, PDRN, NetworkModule, PDRNBlock, PrimalDualBlock, State

each_plan = pytest.mark.parametrize("plan", ALL.values(), ids=ALL)


@pytest.mark.parametrize("map", [DENSE, CONVOLUTIONAL])
def test_training_stays_in_the_cells(map):
    """Trained to go as far away as they can, networks reach the bounds and no further."""
    module = NetworkModule(PrimalDual(map, 3, "mix"))
    lower, upper = (torch.tensor(bound) for bound in cells_for(module.architecture, 5, np.float32))
    optimizer = torch.optim.SGD(module.parameters(), lr=100.0)
    for _ in range(20):
        optimizer.zero_grad()
        (-((module(lower, upper) - (lower + upper) / 2) ** 2).sum()).backward()
        optimizer.step()
    restored = module(lower, upper).detach()
    at_a_bound = (restored == lower) | (restored == upper)
    assert ((lower <= restored) & (restored <= upper)).all()
    assert at_a_bound.float().mean() > 0.9


@each_plan
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@settings(max_examples=5)
@given(seeds)
def test_numpy_and_torch_agree(plan, dtype, tolerance, seed):
    numpy_network = disturbed(plan, seed, dtype=dtype)
    lower, upper = cells_for(plan, seed, dtype)
    module = NetworkModule.of(numpy_network)
    tensors = module.by_layer(torch.tensor(lower), torch.tensor(upper))
    for array, tensor in zip(numpy_network.by_layer(lower, upper), tensors, strict=True):
        assert array.dtype == dtype
        scale = np.abs(array).max()
        assert np.abs(array - tensor.detach().numpy()).max() <= tolerance * scale


def tensors_for(plan, seed=1, dtype=np.float64):
    return tuple(torch.tensor(bound) for bound in cells_for(plan, seed, dtype))


@each_plan
def test_gradients_are_right_for_every_weight(plan):
    module = NetworkModule.of(disturbed(plan, 2))
    lower, upper = tensors_for(plan, 2)
    names = [name for name, _ in module.named_parameters()]

    def run(*parameters):
        # Before the last projection, which hides most gradients.
        weights = dict(module.named_buffers()) | dict(zip(names, parameters, strict=True))
        wide = 100 * (upper - lower)
        return torch.func.functional_call(module, weights, (lower - wide, upper + wide))

    assert torch.autograd.gradcheck(run, tuple(module.parameters()), fast_mode=True)


@each_plan
def test_every_weight_learns(plan):
    """Quiet signals in wide cells keep away from the clips, where gradients end."""
    module = NetworkModule.of(disturbed(plan, 3, scale=0.01))
    lower, upper = (0.03 * bound for bound in tensors_for(plan, 3))
    ((module(lower - 5, upper + 5) - upper) ** 2).sum().backward()
    assert [name for name, part in module.named_parameters() if not part.grad.any()] == []


@each_plan
def test_names_and_shapes_are_those_of_the_architecture(plan):
    state = NetworkModule(plan).state_dict()
    assert {name: tuple(part.shape) for name, part in state.items()} == plan.shapes()


def test_state_dict_round_trip():
    source = NetworkModule.of(disturbed(FAMILY["dense, mix, half"], 1))
    target = NetworkModule(source.architecture, dtype=torch.float64)
    buffer = io.BytesIO()
    torch.save(source.state_dict(), buffer)
    buffer.seek(0)
    target.load_state_dict(torch.load(buffer, weights_only=True))
    cells = tensors_for(source.architecture)
    assert torch.equal(source(*cells), target(*cells))


def test_module_network_round_trip():
    network = disturbed(RELATED["LearnedPrimalDual, DenseMap"], 1, dtype=np.float32)
    back = NetworkModule.of(network).network()
    assert back.architecture == network.architecture
    assert all(np.array_equal(back.weights[name], part) for name, part in network.weights.items())


def test_double_makes_it_compute_in_double_precision():
    module = NetworkModule(PrimalDual(DENSE, 2)).double()
    assert module.network().weights["W.0"].dtype == np.float64
    assert module(*tensors_for(module.architecture)).dtype == torch.float64


def test_fixed_tensors_are_not_learned():
    module = NetworkModule(RELATED["LearnedPrimalDual, DenseMap"])
    assert "K" not in dict(module.named_parameters())
    assert "K" in module.state_dict()
    assert module.architecture.parameter_count == sum(part.numel() for part in module.parameters())


def test_pdn_and_pdrn_have_the_memory_of_the_paper():
    assert PDN(16, 3).architecture == PrimalDual(DenseMap(16), 3, "dual")
    assert PDRN(16, 3).architecture == PrimalDual(DenseMap(16), 3, "bias")
    map = ConvolutionalMap(8, 8, 4)
    assert PDRN(map, 3, tying="half", theta=0.5).architecture == PrimalDual(map, 3, "bias", "half", 0.5)
    assert "1,536 parameters" in repr(PDN(16, 3))


def test_layers_can_share_a_weight():
    module = PDN(16, 2)
    module.W[1] = module.W[0]
    lower, upper = (bound.float() for bound in tensors_for(module.architecture))
    ((module(lower, upper) - upper) ** 2).sum().backward()
    assert module.W[0] is module.W[1]
    assert module.W[0].grad.any()


def test_a_weight_can_be_parametrized():
    module = NetworkModule(PrimalDual(DENSE, 2, tying="tied"))
    torch.nn.utils.parametrize.register_parametrization(module, "sigma", torch.nn.Softplus())
    lower, upper = (bound.float() for bound in tensors_for(module.architecture))
    assert module(lower, upper).shape == (3, 16)


def test_refuses_other_dtypes():
    with pytest.raises(ValueError, match=r"torch\.float16"):
        PDN(16, 2, dtype=torch.float16)
    module = PDN(16, 2)
    lower, upper = (bound.float() for bound in tensors_for(module.architecture))
    with pytest.raises(ValueError, match="bfloat16"):
        module.bfloat16()(lower, upper)


def test_shapes_can_be_traced_on_the_meta_device():
    module = NetworkModule(PrimalDual(DENSE, 2)).to("meta")
    assert module(torch.empty(3, 16, device="meta"), torch.empty(3, 16, device="meta")).shape == (3, 16)


def test_a_module_is_part_of_a_larger_one():
    model = torch.nn.ModuleDict({"net": PDRN(16, 2), "other": torch.nn.Linear(2, 2)})
    assert "net.W.0" in model.state_dict()
    assert len(list(model.parameters())) == 2 * 3 + 2


@pytest.mark.parametrize("name", ["dense, mix, tied", "convolutional, mix, untied"])
def test_it_compiles_without_a_break(name):
    torch.compiler.reset()
    module = NetworkModule.of(disturbed(FAMILY[name], 1))
    cells = tensors_for(module.architecture)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(*cells), module(*cells), atol=1e-12)


@pytest.mark.parametrize(
    "name", ["dense, dual, untied", "convolutional, mix, half", "LISTA, ConvolutionalMap"]
)
def test_it_exports_for_any_batch_and_length(name):
    module = NetworkModule.of(disturbed(ALL[name], 1))
    lower, upper = tensors_for(module.architecture)
    any_size = torch.export.Dim.DYNAMIC
    sizes = {0: any_size} if module.architecture.map.frame_length else {0: any_size, 1: any_size}
    program = torch.export.export(module, (lower, upper), dynamic_shapes=(sizes, sizes)).module()
    fewer = slice(None) if module.architecture.map.frame_length else slice(0, 21)
    smaller = lower[:2, fewer].contiguous(), upper[:2, fewer].contiguous()
    assert torch.allclose(program(*smaller), module(*smaller), atol=1e-12)


def test_training_lowers_the_error():
    generator = torch.Generator().manual_seed(0)
    t = torch.arange(64) / 64
    frequency, phase = torch.rand(256, 1, generator=generator), torch.rand(256, 1, generator=generator)
    s = torch.sin(2 * torch.pi * ((2 + 6 * frequency) * t + phase))
    lower = torch.floor(8 * s) / 8
    module = PDRN(64, 3)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    errors = []
    for _ in range(60):
        optimizer.zero_grad()
        error = ((module(lower, lower + 1 / 8) - s) ** 2).mean()
        error.backward()
        optimizer.step()
        errors.append(float(error.detach()))
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.parametrize("block", [PrimalDualBlock, PDRNBlock])
@settings(max_examples=10)
@given(seeds)
def test_stacked_blocks_keep_signals_in_their_cells(block, seed):
    lo, hi = (torch.tensor(bound, dtype=torch.float32) for bound in cells(seed, 3, 16))
    torch.manual_seed(seed)
    net = torch.nn.Sequential(block(16, 24), block(16, 24), block(16, 24, theta=0.5))
    state = net(State.at((lo + hi) / 2, L1(), Box(lo, hi)))
    assert ((lo <= state.x) & (state.x <= hi)).all()
    assert state.y.shape == (3, 24)
    state.y.square().sum().backward()
    assert net[0].W.grad.any()


@pytest.mark.parametrize("block", [PrimalDualBlock, PDRNBlock])
def test_blocks_follow_the_seed_of_torch(block):
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        starts.append(block(8).W)
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


@given(seeds)
def test_a_block_with_the_matrices_of_the_algorithm_is_one_iteration(seed):
    K, start = normal(seed, 12, 16), normal(seed + 1, 3, 16)
    problem = Problem(L1(), SquaredL2(), Dense(K), start)
    sigma, tau = ChambollePock().steps(problem)
    block = PrimalDualBlock(16, 12, theta=1.0, sigma=sigma, tau=tau).double()
    with torch.no_grad():
        block.W.copy_(torch.tensor(sigma * K))
        block.V.copy_(torch.tensor(-tau * K.T))
    state = State.at(torch.tensor(start), L1(), SquaredL2())
    for iterations in (1, 2, 3):
        state = block(state)
        expected = solve(problem, iterations=iterations).x
        assert np.allclose(state.x.detach(), expected, atol=1e-12)


def test_gradients_of_the_last_layers_alone_are_those_of_their_blocks():
    plan = PrimalDual(DENSE, 3, tying="tied", theta=1.0)
    whole, truncated = (NetworkModule(plan, dtype=torch.float64, last_layers=last) for last in (0, 1))
    lo, hi = tensors_for(plan)
    assert torch.equal(whole(lo, hi), truncated(lo, hi))
    truncated(lo, hi).square().sum().backward()
    weights = {name: part.detach().clone().requires_grad_() for name, part in whole.named_parameters()}
    box = Box(lo, hi)
    *_, before, _ = plan.states(weights, box)
    detached = State(before.x.detach(), before.y.detach(), before.x_bar.detach(), L1(), box)
    plan.block(2, weights, plan.map)(detached).x.square().sum().backward()
    for name, part in truncated.named_parameters():
        torch.testing.assert_close(part.grad, weights[name].grad)


def test_a_random_start_follows_the_seed_of_torch():
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        starts.append(NetworkModule(ResidualNetwork(DENSE, 1)).A)
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
