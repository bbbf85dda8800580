"""Sound, and what is known of it: cells, quantizers, detection, files, frames, corpora and metrics."""
