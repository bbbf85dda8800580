import re
import subprocess
import sys
from pathlib import Path


def test_damaged_files_are_read_or_refused_but_never_crash_hang_or_leave_anything():
    script = Path(__file__).with_name("fuzz_files.py")
    done = subprocess.run([sys.executable, script, "400"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    tried, read, refused, on_input, detected, failed = map(int, re.findall(r"\d+", done.stdout))
    assert (tried, failed, on_input) == (400, 0, 40)
    assert min(read, refused) > 50
    assert detected > 10
