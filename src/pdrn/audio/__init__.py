"""Sound and its quantization: cells, quantizers, detection, files, frames, corpora and metrics.

Import from the modules, such as `pdrn.audio.quantizers`: the package itself imports nothing.
"""
