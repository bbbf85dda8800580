"""The page behind ``pdrn serve``."""
