"""The mathematics of min F(Kx) + G(x). Knows arrays, nothing of sound."""
