"""Network files: what goes in comes out, and nothing else is accepted; ONNX computes the same."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.convex.laws import normal
from tests.nets.plans import ALL, DENSE, FAMILY, cells_for, disturbed

from pdrn.errors import PdrnError, StorageError
from pdrn.nets import Network, PrimalDual
from pdrn.nets.files import METADATA_KEY, Provenance, export, load, save

each_plan = pytest.mark.parametrize("plan", ALL.values(), ids=ALL)


PLAN = FAMILY["convolutional, mix, untied"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, disturbed(PLAN, 1, dtype=np.float32), Provenance(seed=3, licence="CC BY 4.0"))
    return path


def parts(path):
    with safetensors.safe_open(path, "numpy") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}, dict(opened.metadata())  # noqa: SIM118


def rewrite(path, tensors, described):
    metadata = {METADATA_KEY: described if isinstance(described, str) else json.dumps(described)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata))


@each_plan
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_comes_back_bit_for_bit(plan, dtype, tmp_path):
    network = disturbed(plan, 1, dtype=dtype)
    provenance = Provenance(
        unit="cell",
        sample_rate_hz=16000,
        data="speech of our own",
        licence="CC BY 4.0",
        corpus_sha256="ab" * 32,
        seed=7,
        training={"epochs": 3, "recipe": "modern", "rates": [1e-3, 1e-4]},
    )
    save(tmp_path / "net", network, provenance)
    back, told = load(tmp_path / "net")
    assert back.architecture == plan
    assert told == provenance
    assert all(np.array_equal(back.weights[name], part) for name, part in network.weights.items())
    cells = cells_for(plan, 1)
    assert np.array_equal(back(*cells), network(*cells))


def test_half_precision_halves_the_file_and_comes_back_as_float32(tmp_path):
    network = disturbed(PLAN, 1, dtype=np.float32)
    save(tmp_path / "whole", network)
    save(tmp_path / "half", network, half=True)
    back, _ = load(tmp_path / "half")
    assert back.weights["W.0"].dtype == np.float32
    assert np.allclose(back.weights["W.0"], network.weights["W.0"], rtol=1e-3)
    tensors = sum(part.nbytes for part in network.weights.values())
    saved = (tmp_path / "whole").stat().st_size - (tmp_path / "half").stat().st_size
    assert saved == pytest.approx(tensors / 2, rel=0.01)


def test_weights_beyond_half_precision_are_not_halved(tmp_path):
    network = Network.started(PLAN)
    network.weights["W.0"][0, 0] = 1e6
    with pytest.raises(ValueError, match=r"\b16\b"):
        save(tmp_path / "net", network, half=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: np.repeat(a, 2, 0)[::2], np.asfortranarray])
def test_arrays_in_any_order_come_back(view, tmp_path):
    plan = PrimalDual(DENSE, 1)
    weights = {name: view(normal(1, 16, 16)) for name in plan.shapes()}
    save(tmp_path / "net", Network(plan, weights))
    assert np.array_equal(load(tmp_path / "net")[0].weights["W.0"], weights["W.0"])


def test_unreadable_provenance_is_not_written(tmp_path):
    network = Network.started(PLAN)
    for training in ({"a": np.float32(1)}, {"a": tmp_path}, {"a": float("nan")}):
        with pytest.raises(ValueError, match="JSON"):
            save(tmp_path / "net", network, Provenance(training=training))
    network.weights["W.0"][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"W\.0"):
        save(tmp_path / "net", network)
    assert not list(tmp_path.iterdir())


def test_refuses_paths_that_are_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ValueError, match=os.path.basename(path)):
            load(path)


def test_existing_file_is_not_overwritten(file):
    before = file.read_bytes()
    with pytest.raises(StorageError, match=file.name):
        save(file, Network.started(PLAN))
    assert file.read_bytes() == before
    save(file, Network.started(PLAN), overwrite=True)
    assert file.read_bytes() != before


def test_loading_needs_no_torch(file):
    code = f"import sys, pdrn.nets.files as c; c.load({str(file)!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_refuses_wrong_tensors(file):
    tensors, metadata = parts(file)
    described = metadata[METADATA_KEY]
    cases = [
        ({name: part for name, part in tensors.items() if name != "M.0"}, r"M\.0"),
        (tensors | {"surprise": np.zeros(3, np.float32)}, "surprise"),
        (tensors | {"b.1": np.zeros(11, np.float32)}, r"b\.1"),
        (tensors | {"b.1": np.full(10, np.nan, np.float32)}, r"b\.1"),
        (tensors | {"b.1": np.full(10, -np.inf, np.float32)}, r"b\.1"),
        (tensors | {"b.1": np.zeros(10, np.int32)}, "I32"),
        (tensors | {"b.1": np.zeros(10, np.float64)}, "float64"),
    ]
    for changed, message in cases:
        rewrite(file, changed, described)
        with pytest.raises(ValueError, match=message):
            load(file)


def changed(described, *path, to):
    copy = json.loads(json.dumps(described))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return copy


def test_refuses_invalid_descriptions(file):
    tensors, metadata = parts(file)
    good = json.loads(metadata[METADATA_KEY])
    cases = [
        ("not json {", file.name),
        ("[1, 2]", file.name),
        ("[" * 100_000, file.name),
        (changed(good, "format", to=99), "99"),
        (changed(good, "format", to="1"), file.name),
        (changed(good, "format", to=0), file.name),
        (changed(good, "provenance", "data", to="\ud800"), file.name),
        (json.dumps(good).replace('"seed": 3', '"seed": NaN'), file.name),
        (changed(good, "architecture", "theta", to=[0.5]), "theta"),
        (changed(good, "architecture", "theta", to=True), "theta"),
        (changed(good, "architecture", to="PrimalDual"), "architecture"),
        (changed(good, "architecture", to=good["architecture"]["map"]), "architecture"),
        (changed(good, "architecture", "kind", to="os.system"), r"os\.system"),
        (changed(good, "architecture", "kind", to=["PrimalDual"]), "PrimalDual"),
        (changed(good, "architecture", "depth", to=10**9), "depth"),
        (changed(good, "architecture", "depth", to="3"), "depth"),
        (changed(good, "architecture", "depth", to=2), r"W\.2"),
        (changed(good, "architecture", "map", to=None), r"\bmap\b"),
        (changed(good, "architecture", "map", to=7), "map"),
        (changed(good, "architecture", "map", "hop", to=0), "hop"),
        (changed(good, "architecture", "theta", to="much"), "theta"),
        (changed(good, "architecture", "memory", to=["mix"]), "memory"),
        (changed(good, "architecture", "spell", to="xyzzy"), "spell"),
        (changed(good, "provenance", to=None), "provenance"),
        (changed(good, "provenance", "unit", to="furlong"), "furlong"),
        (changed(good, "provenance", "seed", to=1.5), "seed"),
        (changed(good, "provenance", "licence", to=3), "licence"),
        (changed(good, "provenance", "training", to=[1]), "training"),
    ]
    for described, message in cases:
        rewrite(file, tensors, described)
        with pytest.raises(ValueError, match=message) as caught:
            load(file)
        assert str(file) in str(caught.value)


def test_missing_field_has_its_default(file):
    tensors, metadata = parts(file)
    older = changed(json.loads(metadata[METADATA_KEY]), "architecture", "weighting", to=None)
    del older["sha256"]
    rewrite(file, tensors, older)
    assert load(file)[0].architecture == PLAN


def test_files_of_other_programs_are_refused(file):
    file.write_bytes(safetensors.numpy.save({"a": np.zeros(3)}))
    with pytest.raises(ValueError, match=file.name):
        load(file)
    file.write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=file.name):
        load(file)
    with pytest.raises(StorageError, match="nowhere"):
        load(file.parent / "nowhere")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_refused_or_harmless(file, data):
    """Any byte changed, or the end cut off: an error with a reason, or a network of finite weights."""
    contents = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(contents[:8], "little")
    if data.draw(st.booleans()):
        contents = contents[: data.draw(st.integers(0, len(contents) - 1))]
    else:
        place = data.draw(st.one_of(st.integers(0, header - 1), st.integers(0, len(contents) - 1)))
        contents[place] ^= data.draw(st.integers(1, 255))
    damaged = file.with_name("damaged")
    damaged.write_bytes(contents)
    try:
        network, _ = load(damaged)
    except ValueError as error:
        assert str(damaged) in str(error)  # noqa: PT017
    else:
        assert all(np.isfinite(part).all() for part in network.weights.values())


def test_a_file_that_claims_much_allocates_little(tmp_path):
    """A header may promise any size; the file has to hold it."""
    header = json.dumps(
        {"W.0": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}
    ).encode()
    bomb = tmp_path / "bomb"
    bomb.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(ValueError, match="bomb"):
        load(bomb)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=r"/net\b"):
        save(tmp_path / "net", Network.started(PrimalDual(PLAN.map, 1)))


def test_files_import_no_sound():
    code = "import sys, pdrn.nets.files; print({'soundfile', 'soxr', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["dense, bias, untied", "convolutional, mix, untied", "LISTA, ConvolutionalMap", "spectral, context"],
)
def test_onnx_runtime_agrees_for_any_batch_and_length(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    plan = ALL[name]
    network = disturbed(plan, 1, scale=0.02, dtype=np.float32)
    path = tmp_path / "net.onnx"
    export(path, network)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    lower, upper = cells_for(plan, 2, np.float32)
    some = slice(None) if plan.frame_length else slice(0, 13)
    for rows, columns in ((slice(0, 3), slice(None)), (slice(0, 1), some)):
        a, b = lower[rows, columns], upper[rows, columns]
        restored = session.run(["restored"], {"lower": a, "upper": b})[0]
        expected = network(a, b)
        inside = (expected > a) & (expected < b)
        assert inside.mean() > 0.1
        assert np.abs(restored - expected).max() <= 1e-5 * np.abs(expected).max()
        assert ((a <= restored) & (restored <= b)).all()


def test_an_existing_onnx_file_is_not_overwritten(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_text("mine")
    with pytest.raises(PdrnError, match=r"net\.onnx"):
        export(path, disturbed(ALL["dense, bias, untied"], 1))
    assert path.read_text() == "mine"
