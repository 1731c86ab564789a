"""Loads trajectories through the model of the Harbor that is installed for this Python.

usage: python trajectory.py FILE...

One line per file: `OK <path>` or `BAD <path>: <why>`; the exit code is 1 when any is bad. A file must also
come out of the model, in Harbor's own writing, as it went in: byte for byte but for how characters that
are not ASCII are written.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

os.environ["HARBOR_TELEMETRY"] = "0"

from harbor.models.trajectories import Trajectory  # noqa: E402
from harbor.utils.trajectory_utils import format_trajectory_json  # noqa: E402

bad = 0
print(f"harbor {version('harbor')}")
for argument in sys.argv[1:]:
    why = None
    try:
        text = Path(argument).read_text(encoding="utf-8")
        loaded = Trajectory.model_validate_json(text)
        theirs = format_trajectory_json(loaded.to_json_dict())
        if json.loads(text) != json.loads(theirs):
            why = "it does not come out as it went in"
        elif text.isascii() and text != theirs:
            pairs = zip(text.splitlines(), theirs.splitlines())
            why = next((f"{a!r} is {b!r} with Harbor" for a, b in pairs if a != b), "one is longer")
    except Exception as error:
        why = " ".join(str(error).split())[:600]
    bad += why is not None
    print(f"OK {argument}" if why is None else f"BAD {argument}: {why}")
sys.exit(1 if bad else 0)
