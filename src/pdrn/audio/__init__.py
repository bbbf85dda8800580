"""Sound as cells: quantizers, files, frames, corpora and metrics. Knows nothing of optimisation."""
