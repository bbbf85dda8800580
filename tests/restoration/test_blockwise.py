"""Any method gives the same result however the signal arrives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.restoration.streaming import Blockwise


class Average:
    """A method that can be checked by hand: each sample is the mean of the centres around it."""

    model = None
    before, after = 4, 2

    def restore(self, cells):
        return np.convolve(cells.centre, np.ones(7) / 7, "valid")


def cells_of(samples):
    return Cells(samples - 1, samples + 1)


def fed(blocks, cells, lengths):
    pieces, start = [], 0
    for length in lengths:
        pieces.append(blocks.feed(cells[:, start : start + length]))
        start += length
    pieces += [blocks.feed(cells[:, start:]), blocks.flush()]
    pieces = [piece for piece in pieces if piece.samples.size]
    return tuple(
        np.concatenate([part(piece) for piece in pieces], axis=-1)
        for part in (lambda p: p.samples, lambda p: p.cells.lo, lambda p: p.cells.hi)
    )


@given(
    length=st.integers(1, 60),
    channels=st.integers(1, 3),
    block=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 20), max_size=8),
    threads=st.integers(1, 2),
)
def test_every_sample_comes_out_once_with_its_cell_and_what_is_around_it(
    length, channels, block, lengths, threads
):
    samples = np.random.default_rng(length).standard_normal((channels, length))
    cells = cells_of(samples)
    restored, lo, hi = fed(Blockwise(Average(), block, threads=threads), cells, lengths)
    padded = np.pad(cells.centre, [(0, 0), (4, 2)])
    expected = [np.convolve(row, np.ones(7) / 7, "valid") for row in padded]
    np.testing.assert_allclose(restored, cells.settle(np.array(expected)))
    np.testing.assert_array_equal(lo, cells.lo)
    np.testing.assert_array_equal(hi, cells.hi)


@given(length=st.integers(1, 60), block=st.integers(1, 12))
def test_the_output_is_never_behind_by_more_than_the_latency(length, block):
    blocks = Blockwise(Average(), block)
    assert blocks.latency == block + 2 - 1
    out = 0
    for fed_so_far in range(1, length + 1):
        due = blocks.is_due(1)
        now = blocks.feed(cells_of(np.zeros((1, 1)))).samples.shape[-1]
        assert due == (now > 0)
        out += now
        assert fed_so_far - out <= blocks.latency
    assert out + blocks.flush().samples.shape[-1] == length


def test_what_waits_does_not_grow_with_the_signal():
    blocks = Blockwise(Average(), 4)
    for _ in range(100):
        blocks.feed(cells_of(np.zeros((1, 5))))
        assert sum(piece.shape[-1] for piece in blocks._waiting) <= blocks.latency + Average.before + 1


@given(mix=st.floats(0, 1))
def test_the_mix_leads_from_the_centres_to_the_restoration(mix):
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    (mixed, *_), (full, *_) = (fed(Blockwise(Average(), 4, mix=share), cells, []) for share in (mix, 1))
    np.testing.assert_allclose(mixed, (1 - mix) * cells.centre + mix * full, atol=1e-12)
    assert cells.violation(mixed) == 0


def test_no_mix_is_exactly_the_centres_and_a_full_one_exactly_the_restoration():
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    none, *_ = fed(Blockwise(Average(), 4, mix=0), cells, [])
    np.testing.assert_array_equal(none, cells.centre)


def test_a_method_that_leaves_the_cells_is_brought_back():
    class Wild(Average):
        def restore(self, cells):
            return np.full(cells.shape[-1] - 6, 1e6)

    cells = cells_of(np.zeros((1, 9)))
    restored, *_ = fed(Blockwise(Wild(), 4), cells, [])
    np.testing.assert_array_equal(restored, cells.settle(cells.hi))


def test_a_flush_begins_anew():
    blocks = Blockwise(Average(), 4)
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    first, *_ = fed(blocks, cells, [3])
    second, *_ = fed(blocks, cells, [8])
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("mix", [-0.1, 1.1, np.nan])
def test_an_impossible_mix_is_refused(mix):
    with pytest.raises(ValueError, match="mix"):
        Blockwise(Average(), 4, mix=mix)
