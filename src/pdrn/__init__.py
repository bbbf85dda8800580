"""Primal-dual networks: restore quantized sound inside its cells."""
