"""The examples of other problems beat their simple baselines where they say so, in small."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example in small, and see that it draws."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def runner(name, *settings):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        figures = module.main(str(tmp_path / "picture.png"), *settings)
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
        return figures

    return runner


def test_clipped_peaks_come_back(run):
    figures = run("declip", 1.0)
    assert figures["reweighted l1 of a Gabor frame"] > figures["cubic spline over the peaks"] + 1
    assert figures["cubic spline over the peaks"] > figures["clipped"]


def test_gaps_are_filled(run):
    figures = run("gaps", 0.5)
    assert figures["reweighted l1 of a Gabor frame"] > max(figures["silence"], figures["straight lines"]) + 1


def test_telephone_sound_is_expanded(run):
    figures = run("g711", 1.0)
    for case in ("mulaw 8000 Hz", "alaw 8000 Hz", "mulaw 16000 Hz", "alaw 16000 Hz"):
        assert figures[f"{case}, pdrn.restore"] > figures[f"{case}, decoder's centres"]


def test_a_thermometer_is_smoothed(run):
    figures = run("sensor", 8)
    averages = [figure for name, figure in figures.items() if name.startswith("moving average")]
    assert figures["second differences, solved"] < min(averages)


@pytest.mark.parametrize(
    ("name", "count", "epochs"), [("ecg", 200, 3), ("deband", 60, 12)], ids=["ecg", "deband"]
)
def test_networks_beat_the_solver(run, name, count, epochs):
    pytest.importorskip("torch", reason="torch is not installed")
    figures = run(name, count, epochs)
    assert figures["unrolled, 5 layers, trained"] > figures["Chambolle-Pock, 5 iterations"] + 0.5
