"""Resolves many command lines of `harbor run` in one process, with the Harbor of this Python.

usage: python print_config.py < LINES

Standard input has a JSON list of arguments a line (what follows `harbor run`); standard output gets a
JSON object a line: `code`, `out` and `err`, as the program would have given them.
"""

import contextlib
import io
import json
import os
import sys
import traceback

os.environ["HARBOR_TELEMETRY"] = "0"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from typer.main import get_command  # noqa: E402

from harbor.cli.main import app  # noqa: E402

# Built once: Harbor has so many commands that this is what takes the time.
COMMAND = get_command(app)


def run(args):
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            COMMAND.main(["run", *args], prog_name="harbor")
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


for line in sys.stdin.read().splitlines():
    print(json.dumps(run(json.loads(line))))
