"""Run every benchmark, or those named, such as ``python -m benchmarks speed audio``; ALL lists them."""

import sys

from benchmarks import audio, convergence, networks, speed, startup

ALL = {
    "speed": speed.main,
    "convergence": convergence.main,
    "audio": audio.main,
    "networks": networks.main,
    "startup": startup.main,
}

names = sys.argv[1:] or list(ALL)
if unknown := set(names) - set(ALL):
    sys.exit(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
for name in names:
    ALL[name]()
