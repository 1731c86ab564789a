"""Loads job dirs through the models of the Harbor that is installed for this Python.

usage: python validate.py JOB_DIR...

One line per file: `OK <path>` or `BAD <path>: <why>`; the exit code is 1 when any is bad. With Harbor
0.26 a file must also come out of the model as it went in, so that nothing is missing, unknown or
different, and the job's stats must be those that Harbor computes from the trials.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

os.environ["HARBOR_TELEMETRY"] = "0"

from harbor.metrics.mean import Mean  # noqa: E402
from harbor.models.job.config import JobConfig  # noqa: E402
from harbor.models.job.lock import JobLock, TrialLock  # noqa: E402
from harbor.models.job.result import JobResult, JobStats  # noqa: E402
from harbor.models.trial.config import TrialConfig  # noqa: E402
from harbor.models.trial.result import TrialResult  # noqa: E402
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals  # noqa: E402

VERSION = version("harbor")
SAME = tuple(int(n) for n in VERSION.split(".")[:2]) >= (0, 26)
bad = 0


def number(text):
    """The key of a map by number in one writing: `1` and `1.0` are the same reward."""
    try:
        return str(float(text))
    except ValueError:
        return str(text)


def plain(value):
    """JSON with times in one writing and numbers as floats."""
    if isinstance(value, dict):
        return {number(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and len(value) in (20, 27) and value[10] == "T" and value.endswith("Z"):
        return value[:19] + "Z"
    if isinstance(value, str) and len(value) in (19, 26) and value[10:11] == "T":
        return value[:19]
    return value


def difference(ours, theirs, at=""):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            if key not in ours:
                return f"{at}/{key} is missing"
            if key not in theirs:
                return f"{at}/{key} is unknown to Harbor"
            if found := difference(ours[key], theirs[key], f"{at}/{key}"):
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (one, other) in enumerate(zip(ours, theirs)):
            if found := difference(one, other, f"{at}/{i}"):
                return found
        return None
    return None if ours == theirs else f"{at}: written {ours!r}, Harbor has {theirs!r}"


def load(path, model, extra=None, **dump):
    """The model of a file; says how it went."""
    global bad
    why = loaded = None
    try:
        text = path.read_text()
        loaded = model.model_validate_json(text)
        if SAME:
            again = loaded.model_dump_json(**dump)
            why = difference(plain(json.loads(text)), plain(json.loads(again)))
        if extra is not None and why is None:
            why = extra(loaded)
    except Exception as error:
        why = " ".join(str(error).split())[:400]
    bad += why is not None
    print(f"OK {path}" if why is None else f"BAD {path}: {why}")
    return loaded


def check_stats(trials):
    """Compares a job's stats with those that Harbor makes of its trials, in whichever order."""

    def names(stats):
        out = plain(json.loads(stats.model_dump_json()))
        for key in ("n_running_trials", "n_pending_trials", "n_retries"):
            out.pop(key)
        for group in out["evals"].values():
            group["reward_stats"] = {
                key: {value: sorted(trials) for value, trials in values.items()}
                for key, values in group["reward_stats"].items()
            }
            group["exception_stats"] = {k: sorted(v) for k, v in group["exception_stats"].items()}
        if out["cost_usd"] is not None:
            out["cost_usd"] = round(out["cost_usd"], 9)
        return out

    def check(result):
        if not SAME:
            return None
        expected = JobStats.from_trial_results(trials)
        rewards = {}
        for trial in trials:
            model = trial.agent_info.model_info.name if trial.agent_info.model_info else None
            key = JobStats.format_agent_evals_key(trial.agent_info.name, model, trial.source or "adhoc")
            if trial.reward_valid and trial.verifier_result is not None:
                rewards.setdefault(key, []).append(trial.verifier_result.rewards)
        for key, values in rewards.items():
            expected.evals[key].metrics = [Mean().compute(values)]
        if result.finished_at is not None:
            for key, values in compute_pass_at_k_by_evals(trials).items():
                expected.evals[key].pass_at_k = values
        return difference(names(result.stats), names(expected), "/stats")

    return check


def validate(job):
    load(job / "config.json", JobConfig)
    load(job / "lock.json", JobLock, exclude_none=True)
    trials = []
    for path in sorted(p for p in job.iterdir() if p.is_dir()):
        load(path / "config.json", TrialConfig)
        load(path / "lock.json", TrialLock, exclude_none=True)
        if (path / "result.json").exists():
            trial = load(path / "result.json", TrialResult)
            if trial is not None:
                trials.append(trial)
    load(job / "result.json", JobResult, check_stats(trials), exclude={"trial_results"})


print(f"harbor {VERSION}")
for argument in sys.argv[1:]:
    validate(Path(argument))
sys.exit(1 if bad else 0)
