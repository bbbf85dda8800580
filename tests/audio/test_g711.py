"""G.711 against libsndfile's tables and against the algorithm in integers."""

import io

import numpy as np
import pytest
import soundfile

from pdrn.audio.quantizers import ALaw, MuLaw

ALL_BYTES = np.arange(256, dtype=np.uint8)
ALL_LINEAR = np.arange(-32768, 32768)


def expansion_by_libsndfile(subtype):
    raw = io.BytesIO(ALL_BYTES.tobytes())
    samples, _ = soundfile.read(
        raw, dtype="int16", format="RAW", subtype=subtype, channels=1, samplerate=8000
    )
    return samples


def mu_law_byte(linear):
    """The mu-law byte of a 16-bit sample, by shifting bits."""
    negative = linear < 0
    magnitude = min(((~linear if negative else linear) >> 2) + 33, 0x1FFF)
    segment = magnitude.bit_length() - 6
    code = segment << 4 | (magnitude >> (segment + 1)) & 15
    return code ^ (0x7F if negative else 0xFF)


def a_law_byte(linear):
    """The A-law byte of a 16-bit sample, by shifting bits."""
    negative = linear < 0
    magnitude = (~linear if negative else linear) >> 4
    segment = max(magnitude.bit_length() - 4, 0)
    code = segment << 4 | (magnitude >> max(segment - 1, 0)) & 15
    return code ^ (0x55 if negative else 0xD5)


@pytest.mark.parametrize(("law", "subtype"), [(MuLaw(), "ULAW"), (ALaw(), "ALAW")])
def test_levels_are_libsndfile_s_expansion_bit_by_bit(law, subtype):
    np.testing.assert_array_equal(law.levels(ALL_BYTES) * 32768, expansion_by_libsndfile(subtype))


@pytest.mark.parametrize(("law", "reference"), [(MuLaw(signed_zero=True), mu_law_byte), (ALaw(), a_law_byte)])
def test_encoding_all_16_bit_samples_is_bit_exact(law, reference):
    expected = [reference(int(linear)) for linear in ALL_LINEAR]
    np.testing.assert_array_equal(law.encode(ALL_LINEAR / 32768), expected)


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_a_byte_survives_decoding_and_encoding(law):
    kept = law.encode(law.levels(ALL_BYTES)) == ALL_BYTES
    lost = ALL_BYTES[~kept].tolist()
    assert lost == ([0x7F] if isinstance(law, MuLaw) else [])  # mu-law decodes -0 to 0, which is +0


def test_the_decision_values_are_those_of_the_recommendation():
    mu = MuLaw(full_scale=True).cells(ALL_BYTES[128:])
    a = ALaw(full_scale=True).cells(ALL_BYTES[128:])
    assert sorted(mu.hi * 8192)[:3] == [1, 3, 5]
    assert sorted(mu.hi * 8192)[-3:] == [7647, 7903, 8159]
    assert sorted(a.hi * 4096)[:3] == [2, 4, 6]
    assert sorted(a.hi * 4096)[-3:] == [3840, 3968, 4096]


def test_without_signed_zero_both_zeros_share_a_cell():
    cells = MuLaw().cells(np.array([0x7F, 0xFF]))
    assert (cells.lo * 8192).tolist() == [-1, -1]
    assert (cells.hi * 8192).tolist() == [1, 1]
    assert MuLaw().encode([-1e-5]).tolist() == [0xFF]
    assert MuLaw(signed_zero=True).encode([-1e-5]).tolist() == [0x7F]


def test_a_decoded_zero_may_have_had_either_sign():
    truth = np.array([-1e-5, 1e-5])
    stored = MuLaw(signed_zero=True).quantize(truth)
    assert MuLaw().cells(MuLaw().codes_of(stored)).violation(truth) == 0.0


@pytest.mark.parametrize(("law", "subtype"), [(MuLaw, "ULAW"), (ALaw, "ALAW")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_cells_for_any_encoder_hold_what_libsndfile_encodes(law, subtype, dtype):
    truth = np.linspace(-0.9999, 0.9999, 400_001) if dtype != np.int16 else ALL_LINEAR / 32768
    samples = (truth * 32768).astype(np.int16) if dtype == np.int16 else truth.astype(dtype)
    raw = io.BytesIO()
    soundfile.write(raw, samples, 8000, format="RAW", subtype=subtype)
    codes = np.frombuffer(raw.getvalue(), np.uint8)
    assert law(any_encoder=True).cells(codes).violation(truth) == 0.0
    exact, wide = law(full_scale=True).cells(ALL_BYTES), law(True, any_encoder=True).cells(ALL_BYTES)
    assert (wide.lo <= exact.lo).all()
    assert (exact.hi <= wide.hi).all()
    between_segments = wide.radius > exact.radius + 1 / 2048
    assert between_segments.sum() < 30


@pytest.mark.parametrize("law", [MuLaw, ALaw])
def test_cells_for_any_encoder_hold_what_is_nearest_to_each_output(law):
    truth = np.linspace(-0.99, 0.99, 100_001)
    outputs = np.unique(law().levels(ALL_BYTES))
    nearest = outputs[np.searchsorted((outputs[1:] + outputs[:-1]) / 2, truth)]
    wide = law(any_encoder=True)
    assert wide.cells(wide.codes_of(nearest)).violation(truth) == 0.0


def test_other_values_are_no_levels():
    with pytest.raises(ValueError, match="MuLaw"):
        MuLaw().codes_of([0.1])
