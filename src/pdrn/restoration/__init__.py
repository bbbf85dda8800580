"""Restoration, sound in and sound out: methods, bundled models, streams and the restorer.

Import from the modules, such as `pdrn.restoration.methods`: the package itself imports nothing.
"""
