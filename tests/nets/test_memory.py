"""Freed memory is kept where the system can do that."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from pdrn.nets.torch import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def work():
    gradients = [np.ones(2**20, np.float32) for _ in range(20)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_arrays_of_the_same_size_take_memory_that_is_there():
    assert faults("keep") * 20 < faults("leave")
