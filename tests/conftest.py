"""Hypothesis: examples that do not change from run to run, and no deadline on a busy machine."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("steady")
