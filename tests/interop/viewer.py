"""Serves a jobs directory by the viewer of the Harbor that is installed for this Python, and compares
what its API says with what was written.

usage: python viewer.py JOBS_DIR < EXPECTED

Standard input has a JSON object: of each job's name `total`, `completed`, `errored` (trials), `finished`
and `trials`: of each trial's name `task`, `done`, `rewards` (a map, or null), `valid` (whether they
count), `error` and `step_errors` (exception types, or null). One `BAD <what>` line for each difference;
the exit code is 1 when there is any.
"""

import json
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

os.environ["HARBOR_TELEMETRY"] = "0"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
warnings.simplefilter("ignore")

from starlette.testclient import TestClient  # noqa: E402

from harbor.viewer.server import create_app  # noqa: E402

VERSION = version("harbor")
NEWER = tuple(int(n) for n in VERSION.split(".")[:2]) >= (0, 26)
bad = served = 0


def same(what, got, expected):
    global bad
    if got != expected:
        bad += 1
        print(f"BAD {what}: {got!r} instead of {expected!r}")


def get(path, raw=False):
    """The answer to a GET; anything but 200 is a difference."""
    global served
    answer = client.get("/api/" + quote(path, safe="/?=&"))
    served += 1
    same(f"status of {path}", answer.status_code, 200)
    if answer.status_code != 200:
        return b"" if raw else {}
    return answer.content if raw else answer.json()


def check_job(name, job, listed):
    for where, facts in (("in the list", listed), ("alone", get(f"jobs/{name}"))):
        stats = facts.get("stats", facts)
        same(f"{name} {where}: trials", facts.get("n_total_trials"), job["total"])
        same(f"{name} {where}: completed", stats.get("n_completed_trials"), job["completed"])
        same(f"{name} {where}: errored", stats.get("n_errored_trials"), job["errored"])
        same(f"{name} {where}: finished", facts.get("finished_at") is not None, job["finished"])
    same(f"{name}: name in its config", get(f"jobs/{name}/config").get("job_name"), name)
    trials = job["trials"]
    tasks = get(f"jobs/{name}/tasks").get("items", [])
    same(f"{name}: tasks", sorted(t["task_name"] for t in tasks), sorted({t["task"] for t in trials.values()}))
    same(f"{name}: trials of its tasks", sum(t["n_trials"] for t in tasks), len(trials))
    page = get(f"jobs/{name}/trials?page_size=100")
    same(f"{name}: number of trials", page.get("total"), len(trials))
    rows = {row["name"]: row for row in page.get("items", [])}
    same(f"{name}: names of trials", sorted(rows), sorted(trials))
    for trial, facts in trials.items():
        check_trial(f"{name}/{trial}", f"jobs/{name}/trials/{trial}", facts, rows.get(trial, {}))


def check_trial(what, path, facts, row):
    rewards = facts["rewards"] or {}
    if NEWER:
        # Rewards of an attempt that its exceptions make worthless are not shown.
        rewards = rewards if facts["valid"] else {}
        shown = {k: v for e in row.get("evals", {}).values() for m in e["metrics"] for k, v in m.items()}
        same(f"{what}: rewards", shown, rewards)
    error = facts["error"] or (facts["step_errors"] or [None])[0] if NEWER else facts["error"]
    same(f"{what}: task", row.get("task_name"), facts["task"])
    same(f"{what}: reward", row.get("reward"), rewards.get("reward"))
    same(f"{what}: error", row.get("error_type"), error)
    same(f"{what}: ended", row.get("finished_at") is not None, facts["done"])
    whole = get(path)
    same(f"{what}: its own name", whole.get("trial_name"), what.split("/")[1])
    verdict = whole.get("verifier_result") or {}
    same(f"{what}: rewards of its result", verdict.get("rewards"), facts["rewards"])
    for part in ("verifier-output", "agent-logs", "artifacts", "trajectory"):
        get(f"{path}/{part}")
    check_files(what, path)


def check_files(what, path):
    root = folder / what
    listed = get(f"{path}/files")
    names = sorted(f["path"] for f in listed if not f["is_dir"])
    same(f"{what}: files", names, sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()))
    for name in names:
        same(f"{what}: content of {name}", get(f"{path}/files/{name}", raw=True), (root / name).read_bytes())


print(f"harbor {VERSION}")
folder = Path(sys.argv[1]).resolve()
expected = json.load(sys.stdin)
client = TestClient(create_app(folder))
same("health", get("health"), {"status": "ok"})
jobs = {job["name"]: job for job in get("jobs").get("items", [])}
same("jobs", sorted(jobs), sorted(expected))
for name, job in expected.items():
    check_job(name, job, jobs.get(name, {}))
print(f"{served} answers compared")
sys.exit(1 if bad else 0)
