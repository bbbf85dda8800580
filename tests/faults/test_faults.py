"""A few of the faults that `make faults` injects by the hundred."""

import random
import signal

import pytest
from tests.faults import corruptions
from tests.faults.kills import hospital, kill_and_finish, measured, prepared
from tests.faults.run import BAD


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("victims")
    works = {work.name: work for work in prepared(folder)}
    with hospital(folder) as opened:
        yield folder, works, opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hits"),
    [
        ("train", {signal.SIGKILL: 2, signal.SIGINT: 1}),
        ("restore", {signal.SIGKILL: 3, signal.SIGTERM: 1}),
    ],
)
def test_whatever_ends_a_command_nothing_is_lost(clinic, name, hits):
    folder, works, opened = clinic
    measured(works[name], opened, folder)
    for sign, count in hits.items():
        counts = kill_and_finish(works[name], opened, folder, count, random.Random(f"{name} {sign}"), sign)
        assert counts["injected"] == count
        assert not any(counts[word] for word in BAD), counts


@pytest.mark.slow
def test_damaged_files_are_refused_or_harmless(tmp_path, capfd):
    (tmp_path / "pristine").mkdir()
    corruptions.prepare(tmp_path / "pristine")
    counts = corruptions.corrupt(tmp_path, corruptions.TARGETS, 4)
    assert counts["refused"] + counts["harmless"] == counts["injected"], capfd.readouterr().err
    assert counts["refused"] > 4 * len(corruptions.TARGETS) // 2
