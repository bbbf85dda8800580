"""Which files become which."""

import os
from pathlib import Path

import pytest

from pdrn.audio.files import _BYTES
from pdrn.audio.quantizers import LAWS
from pdrn.cli.batch import Job, plan
from pdrn.cli.options import TEMPLATE, Law, Subtype
from pdrn.errors import UsageError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "b.flac", "c.ogg", "notes.txt", "deep/d.wav", "deep/deeper/e.aiff"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return tmp_path


def planned(*inputs, output=None, template=TEMPLATE, recursive=False, subtype=None):
    return {job.source: job.target for job in plan(inputs, output, template, recursive, subtype)}


def test_a_file_goes_beside_itself(tree):
    assert planned("deep/d.wav") == {"deep/d.wav": "deep/d_restored.wav"}


def test_an_output_is_a_file_for_one_file_and_a_folder_for_more(tree):
    assert planned("a.wav", output="x.wav") == {"a.wav": "x.wav"}
    assert planned("a.wav", output="deep") == {"a.wav": "deep/a_restored.wav"}
    assert planned("a.wav", output="new/") == {"a.wav": "new/a_restored.wav"}
    assert planned("a.wav", "b.flac", output="new") == {
        "a.wav": "new/a_restored.wav",
        "b.flac": "new/b_restored.flac",
    }
    assert planned("missing.wav", output="x.wav") == {"missing.wav": "x.wav"}


def test_folders_are_mirrored(tree):
    assert planned(".", output="new") == {
        "a.wav": "new/a_restored.wav",
        "b.flac": "new/b_restored.flac",
        "c.ogg": "new/c_restored.wav",
    }
    assert (
        planned(".", output="new", recursive=True)["deep/deeper/e.aiff"] == "new/deep/deeper/e_restored.aiff"
    )
    assert planned("deep", output="new", recursive=True)["deep/d.wav"] == "new/d_restored.wav"


def test_globs_are_expanded(tree):
    assert list(planned("*.*a*")) == ["a.wav", "b.flac"]
    assert list(planned("**/*.wav", recursive=True)) == ["a.wav", "deep/d.wav"]


def test_a_name_with_magic_in_it_is_a_name_if_it_exists(tree):
    Path("a[1].wav").touch()
    assert list(planned("a[1].wav")) == ["a[1].wav"]


def test_outputs_of_an_earlier_run_are_not_restored_again(tree):
    Path("a_restored.wav").touch()
    assert "a_restored.wav" not in planned(".")


@pytest.mark.parametrize("second", ["a_restored.wav", "./a_restored.wav", "deep/../a_restored.wav"])
def test_an_input_that_was_named_is_not_left_out_as_an_output(tree, second):
    Path("a_restored.wav").touch()
    with pytest.raises(
        UsageError, match=r"is an input, and what a\.wav would become; name a folder for outputs"
    ):
        planned("a.wav", second)
    assert len(planned("a.wav", second, output="new")) == 2


def test_names_come_from_the_template(tree):
    assert planned("a.wav", template="{stem}.new{ext}") == {"a.wav": "a.new.wav"}


def test_flac_gives_way_to_wav_where_it_cannot_hold_the_subtype(tree):
    assert planned("b.flac", subtype="FLOAT") == {"b.flac": "b_restored.wav"}
    assert planned("b.flac", subtype="PCM_16") == {"b.flac": "b_restored.flac"}


def test_pipes(tree):
    assert plan(["-"], None, TEMPLATE, False, None) == [Job("-", "-")]
    assert planned("-", output="x.wav") == {"-": "x.wav"}
    assert planned("a.wav", output="-") == {"a.wav": "-"}


@pytest.mark.parametrize(
    ("inputs", "options", "error", "reason"),
    [
        (["-", "a.wav"], {}, UsageError, "standard input is one sound"),
        (["a.wav", "b.flac"], {"output": "a.wav"}, UsageError, "a.wav is a file; name a folder"),
        (["a.wav", "b.flac"], {"output": "many.wav"}, UsageError, "many.wav is a file; name a folder"),
        (["a.wav"], {"output": "b.mp3"}, UsageError, "does not tell a format"),
        (["-"], {"output": "b.mp3"}, UsageError, "does not tell a format"),
        (["a.wav"], {"template": "{stem}.mp3"}, UsageError, "does not tell a format"),
        (["a.wav"], {"template": "{stem.__class__}{ext}"}, UsageError, "has the fields"),
        (["a.wav", "b.flac"], {"output": "-"}, UsageError, "only one file can go to standard output"),
        (
            ["a.wav", "deep/../a.wav", "b.flac"],
            {"output": "n", "template": "x{ext}"},
            UsageError,
            "would both become",
        ),
        (["a.wav"], {"template": "{name}"}, UsageError, "has the fields {stem} and {ext}"),
        (["a.wav"], {"template": "{stem"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem:{name}}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem:>2000000000}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem!r}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": f"..{os.sep}{{stem}}"}, UsageError, "no folder"),
        (["*.mp3"], {}, UsageError, "matches no file"),
        (["empty"], {}, UsageError, "holds no sound files; --recursive looks into its folders too"),
    ],
)
def test_what_cannot_be_meant_is_refused(tree, inputs, options, error, reason):
    Path("empty").mkdir()
    with pytest.raises(error, match=reason):
        planned(*inputs, **options)


def test_the_options_are_those_of_the_layers_below():
    assert {str(subtype) for subtype in Subtype} == set(_BYTES)
    assert {str(law) for law in Law} == set(LAWS)
