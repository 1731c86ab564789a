#!/usr/bin/env python3
"""Trials of Terminus against a real vLLM on this machine's processor: is what they report what the server counted?

    tests/serving/real_usage.py --dir DIR [--port N] [--program pilothouse]

Not part of the test suite: the engine is that of `real_vllm.py` beside this file (5 GB in DIR, kept). Its model is
random weights, so that no answer makes sense: an agent of at most five turns has answers that can not be read. One
job each of: streamed and not, answers that end at a stop word and answers that are cut at their longest length.
The tokens in the trial's result, those of cut and failed calls included, are compared with how far the server's
own counters went up, which they must equal to the token. Wants no Docker: the trial is a local one.

Exit code 0 when all were equal, 1 when not.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from real_vllm import MODEL, engine, find_program, install, say  # noqa: E402

COUNTERS = {"input": "vllm:prompt_tokens_total", "output": "vllm:generation_tokens_total",
            "requests": "vllm:request_success_total"}
TASK = {
    "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 900.0\n',
    "instruction.md": "Write the word done into the file answer.txt.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
    "tests/test.sh": '#!/bin/bash\necho 0 > "$LOGS_DIR/verifier/reward.txt"\n',
}


def counted(url):
    text = urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode()

    def total(name):
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+]+)$", text, re.M)
        return round(sum(float(value) for value in found))

    return {what: total(name) for what, name in COUNTERS.items()}


def reported(job):
    """Tokens and requests of the job's only trial."""
    result = json.loads(next(job.glob("*/result.json")).read_text())
    agent = result["agent_result"]
    own = agent["metadata"]["pilothouse"]
    apart = own["tokens_apart"]
    return {
        "input": agent["n_input_tokens"] + apart["truncated"]["input_tokens"] + (apart["failed"]["input_tokens"] or 0),
        "output": agent["n_output_tokens"] + apart["truncated"]["output_tokens"] + apart["failed"]["output_tokens_at_least"],
        "requests": own["requests"],
    }, agent["metadata"]["n_episodes"], result.get("exception_info")


def play(program, url, name, options):
    with tempfile.TemporaryDirectory(prefix="real-usage-") as temp:
        here = Path(temp)
        for path, text in TASK.items():
            file = here / "tasks/answer" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        before = counted(url)
        command = [program, "run", "-p", "tasks", "-e", "local", "-a", "terminus-2", "-m", f"openai/{MODEL}",
                   "--ak", f"api_base={url}/v1", "--ak", "max_turns=5", "-o", "jobs", "--job-name", name, "-y",
                   "--headless", "--no-preflight"]
        for option in options:
            command += ["--ak", option]
        env = {**os.environ, "OPENAI_API_KEY": "none", "PILOTHOUSE_STATE_DIR": str(here / "state")}
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, timeout=900)
        results = list((here / "jobs" / name).glob("*/result.json"))
        if len(results) != 1:
            sys.exit(f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        ours, episodes, exception = reported(here / "jobs" / name)
        after = counted(url)
        theirs = {what: after[what] - before[what] for what in COUNTERS}
        # An agent whose answers are cut again and again may give up before its turns are over.
        good = ours == theirs and 1 <= episodes <= 5
        say(f"{'ok   ' if good else 'WRONG'} {name}: {episodes} episodes, reported {ours}, counted {theirs}"
            + (f", {exception['exception_type']}" if exception else ""))
        return good


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dir", required=True, type=Path)
    options.add_argument("--port", type=int, default=32118)
    options.add_argument("--program", type=Path)
    asked = options.parse_args()
    program, root = find_program(asked.program), asked.dir.resolve()
    venv, url = install(root), f"http://127.0.0.1:{asked.port}"
    stop, cut = {"stop": ["a", "e", "t"], "max_tokens": 2000}, {"max_tokens": 120}
    jobs = [
        ("streamed-stopped", [f"llm_call_kwargs={json.dumps(stop)}"]),
        ("streamed-cut", [f"llm_call_kwargs={json.dumps(cut)}"]),
        ("whole-stopped", [f"llm_call_kwargs={json.dumps(stop)}", "stream=false"]),
        ("whole-cut", [f"llm_call_kwargs={json.dumps(cut)}", "stream=false"]),
    ]
    with engine(root, venv, asked.port, "--max-model-len", "32768"):
        good = [play(program, url, name, extra) for name, extra in jobs]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
