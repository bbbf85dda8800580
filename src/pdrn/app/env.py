"""The command ``pdrn env``."""

from __future__ import annotations

PACKAGES = (
    *("numpy", "scipy", "soundfile", "soxr", "safetensors", "typer", "rich"),
    *("torch", "matplotlib", "pesq", "pystoi", "fastapi", "uvicorn", "websockets", "ray", "optuna"),
    *("onnx", "onnxscript", "onnxruntime"),
)
"""The core, and what extras bring for users."""


def env() -> None:
    """Show versions and the machine, for reports of problems."""
    import os
    import platform
    from importlib import metadata

    import soundfile

    print(f"{'pdrn':12} {metadata.version('pdrn')}")
    print(f"{'python':12} {platform.python_version()}")
    for package in PACKAGES:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{package:12} {version}")
    print(f"{'libsndfile':12} {soundfile.__libsndfile_version__}")
    print(f"{'platform':12} {platform.platform()}")
    print(f"{'cores':12} {os.cpu_count()}")
