"""Reproduction: the paper's tables and figures, evaluation, and studies beyond them."""
