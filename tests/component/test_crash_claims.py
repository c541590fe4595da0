"""kill -9 before every line that touches state, then a start on what is left: nothing leaks, nothing is forgotten.

The killing is done by `crash_worker`, a process of its own, because it forks.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("scenario", ["prepare", "unprepare", "restore", "rebuild"])
def test_a_kill_at_any_line_is_healed_however_the_world_goes_on(scenario, tmp_path):
    worker = subprocess.run(
        [sys.executable, "-m", "tests.component.crash_worker", scenario, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert worker.returncode == 0, worker.stderr
    found = json.loads(worker.stdout)
    assert found["kills"] > 50
    assert not found["failures"], "\n".join(found["failures"][:3])
