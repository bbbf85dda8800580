"""What strangers may send: it is refused before it costs memory or time, and nothing of it is executed."""

import ast
import json
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.running import pdrn

import pdrn as package
from pdrn.errors import ModelError
from pdrn.nets import ConvolutionalMap, Network, PrimalDual
from pdrn.nets.files import METADATA_KEY, Provenance, load, save
from pdrn.restoration.registry import read_model

EXECUTING = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "runpy",
    "code",
}
PLAN = PrimalDual(ConvolutionalMap(channels=4, window=8, hop=4), 2)


def executing(tree):
    """Yield what in a module's source could execute what a file says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part.name for part in node.names if part.name.split(".")[0] in EXECUTING)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in EXECUTING:
            yield node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "eval",
            "exec",
            "torch.load",
            "compile",
        ):
            yield ast.unparse(node.func)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def test_no_module_could_execute_what_a_file_says():
    files = sorted(Path(package.__file__).parent.rglob("*.py"))
    found = {file.name: list(executing(ast.parse(file.read_text()))) for file in files}
    assert len(found) > 50
    assert {name: what for name, what in found.items() if what} == {}
    assert list(executing(ast.parse("import pickle\neval('1')\nnumpy.load(f, allow_pickle=True)")))[2:]


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_a_pickle_is_refused_and_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    soundfile.write("a.wav", np.zeros(100), 16000)
    Path("net.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelError):
        load("net.safetensors")
    result = pdrn("restore", "a.wav", "--bits", 5, "--model", "net.safetensors")
    assert result.returncode == 2
    assert not Path("sprung").exists()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The description of a network, as its file has it."""
    path = tmp_path_factory.mktemp("good") / "net"
    save(path, Network.started(PLAN), Provenance(unit="cell", sample_rate_hz=16000))
    with safetensors.safe_open(path, "numpy") as file:
        return file.metadata()[METADATA_KEY]


def described(path, text, tensors=None):
    """Write a network with this description."""
    parts = Network.started(PLAN).weights | (tensors or {})
    path.write_bytes(safetensors.numpy.save(parts, {METADATA_KEY: text}))


def refusal(path):
    with pytest.raises(ModelError) as caught:
        load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 20_000
    return message


def test_a_long_header_is_refused_unread(tmp_path):
    path = tmp_path / "net"
    with path.open("wb") as stream:
        stream.write((99 << 20).to_bytes(8, "little"))
        stream.truncate(100 << 20)
    tracemalloc.start()
    assert "its header claims" in refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("depth", [10, 900, 100_000])
def test_a_description_of_endless_depth_is_refused(tmp_path, depth):
    nested = '{"kind": "PrimalDual", "depth": 1, "map":' * depth + "1" + "}" * depth
    described(tmp_path / "net", f'{{"format": 1, "architecture": {nested}, "provenance": {{}}}}')
    refusal(tmp_path / "net")


def test_what_would_steer_a_terminal_is_written_out(tmp_path, text):
    evil = "\x1b]0;title\x07\r\n\x9b31m"
    described(tmp_path / "net", json.dumps({**json.loads(text), "architecture": {"kind": evil}}))
    refusal(tmp_path / "net")
    described(tmp_path / "net", text.replace('"depth"', json.dumps(evil)))
    assert "\\x1b]0;title" in refusal(tmp_path / "net")
    described(tmp_path / "net", text, {evil: np.zeros(1, np.float32)})
    assert "\\x1b]0;title" in refusal(tmp_path / "net")


def test_one_thing_said_twice_is_refused(tmp_path, text):
    described(tmp_path / "net", text.replace('"depth": 2', '"depth": 1, "depth": 2'))
    assert "its description is damaged" in refusal(tmp_path / "net")


def test_endless_words_make_no_endless_error(tmp_path, text):
    described(tmp_path / "net", text.replace('"PrimalDual"', json.dumps(3_000_000 * "A")))
    refusal(tmp_path / "net")


@pytest.mark.parametrize(
    ("map", "depth"),
    [
        (ConvolutionalMap(channels=1, window=2**16, hop=1), 1000),  # looks at 65 million samples on each side
        (ConvolutionalMap(channels=1, window=2**18, hop=2**18), 1),  # a hundred hops at once
        (ConvolutionalMap(channels=1, window=2**14, hop=1), 1),  # a view of 16384 samples for every sample
    ],
)
def test_small_files_cannot_ask_for_endless_work(tmp_path, map, depth):
    plan = PrimalDual(map, depth, "dual", "tied")
    weights = {name: np.zeros(shape, np.float32) for name, shape in plan.shapes().items()}
    save(tmp_path / "net", Network(plan, weights), Provenance(unit="cell", sample_rate_hz=16000))
    assert (tmp_path / "net").stat().st_size < 2 << 20
    with pytest.raises(ValueError, match="beyond reason; choose a smaller one"):
        read_model(tmp_path / "net")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "map", "depth"]) | st.text(), inner)
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(["format", "architecture", "provenance", "sha256"]), value=ANYTHING)
def test_any_description_is_refused_or_makes_a_network(tmp_path, text, key, value):
    described(tmp_path / "net", json.dumps({**json.loads(text), key: value}))
    try:
        load(tmp_path / "net")
    except ValueError as error:
        message = str(error)
        assert message.isprintable()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


TONE = np.round(15 * np.sin(np.arange(800) / 7)) / 16


def test_names_of_files_do_not_steer_the_terminal(folder):
    name = "\x1b[31mred\nline\udcff.wav"
    soundfile.write(os.fsencode(name), TONE, 16000)
    quick = ("--bits", 5, "--method", "cp", "--iterations", 1)
    for result in (pdrn("restore", name, *quick), pdrn("restore", name, *quick), pdrn("inspect", name)):
        said = result.stdout + result.stderr
        assert "\\x1b[31mred\\nline" in said
        assert said.replace("\n", "").isprintable()
    assert sorted(os.listdir(folder)) == sorted([name, name.replace(".wav", "_restored.wav")])


def test_links_in_folders_lead_nowhere_else(folder):
    (folder / "in").mkdir()
    (folder / "outside").mkdir()
    soundfile.write("in/a.wav", TONE, 16000)
    soundfile.write("outside/b.wav", TONE, 16000)
    (folder / "in" / "loop").symlink_to("..")
    (folder / "in" / "away").symlink_to(folder / "outside")
    quick = ("--bits", 5, "--method", "cp", "--iterations", 1, "--recursive", "-o", "out")
    assert pdrn("restore", "in", *quick).returncode == 0
    assert [path.name for path in (folder / "out").rglob("*")] == ["a_restored.wav"]


def test_long_silence_in_a_small_file_take_little_memory(folder):
    with soundfile.SoundFile("silence.flac", "w", 8000, 1, "PCM_16") as file:
        for _ in range(15):
            file.write(np.zeros(8000 * 120, np.int16))
    assert (folder / "silence.flac").stat().st_size < 1 << 19
    tracemalloc.start()
    result = pdrn("inspect", "silence.flac", "--json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert json.loads(result.stdout)["frames"] == 15 * 8000 * 120  # half an hour
    assert peak < 64 << 20  # of 115 MB of samples
