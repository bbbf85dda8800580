"""Restoration: sound in, sound out; where cells meet solvers and networks."""
