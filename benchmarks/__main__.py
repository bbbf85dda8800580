"""Run every benchmark, or those named: ``python -m benchmarks [speed] [convergence] [audio] [networks]``."""

import sys

from benchmarks import audio, convergence, networks, speed

ALL = {"speed": speed.main, "convergence": convergence.main, "audio": audio.main, "networks": networks.main}

names = sys.argv[1:] or list(ALL)
if unknown := set(names) - set(ALL):
    sys.exit(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
for name in names:
    ALL[name]()
