import subprocess
import sys
from pathlib import Path


def test_damaged_files_are_read_or_refused_but_never_crash_hang_or_leave_anything():
    script = Path(__file__).with_name("fuzz_files.py")
    done = subprocess.run([sys.executable, script, "400"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("400 damaged files: ")
