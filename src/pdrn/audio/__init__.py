"""Sound as cells: quantizers, files, frames, corpora and metrics. Knows nothing of optimisation.

- `cells`: the box of intervals; `quantizers`, `g711`, `damage`: samples to codes to cells; `detection` (with
  `evidence`): cells from samples alone.
- `files` (with `containers`): sound and its cells in; `writing` (with `placing`): sound out, whole and inside
  its cells.
- `frames`: cut, split, join; `corpus`: folder to split to signals, frames and segments; `metrics`; `sample`.
"""
