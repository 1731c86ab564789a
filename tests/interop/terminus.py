"""Plays the same tasks with Harbor's Terminus-2 and with pilothouse's, against the same scripted model
server, and compares what the server was asked and what came of the trials.

usage: terminus.py --shared DIR --pilothouse BIN --harbor BIN [--tasks a,b,...] [--work DIR] [--harbor-runs N]
                   [--slots N]

DIR holds data/tools/scripted_llm.py and data/tasks; the engine has the images of these tasks. Harbor is run
twice (--harbor-runs), to find what differs between two runs of its own. Pilothouse takes its prompts from the
same Harbor. With --work the runs that are already there are not run again. Exit code 0: every difference has
a reason in the list below; 1: one has none.
"""

import argparse
import difflib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Tasks whose model answers properly; of these the requests are compared. `long-output` and `llm-context` have
# an answer that is cut, or a conversation that is too long, in them.
PROPER = "hello-file count-errors csv-sum json-merge wrong-answer bad-json two-steps long-output llm-context".split()
# Where an end differs on purpose: why, Harbor's exception type, and ours with the rewards that it must have.
BETTER = {
    "tmux-kill": ("there is no tmux server to kill: the agent works until its time is over, and tests run",
                  "RuntimeError", "AgentTimeoutError", {"reward": 0.0}),
    "ctx-forever": ("the task does not fit, and no call is answered, where Harbor goes on without the task",
                    None, "ContextLengthExceededError", {"reward": 0.0}),
}
MODEL_INFO = {"max_input_tokens": 32768, "max_output_tokens": 8192, "input_cost_per_token": 1e-6,
              "output_cost_per_token": 2e-6}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Recorder(http.server.ThreadingHTTPServer):
    """Hands requests on to a server and keeps what was asked."""

    daemon_threads = True

    def __init__(self, behind, log):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind, self.log, self.lock = behind, open(log, "w"), threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def hand_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=1200)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        status, text = None, b""
        try:
            behind.request(self.command, self.path, body or None, headers)
            answer = behind.getresponse()
            status = answer.status
            self.send_response(status)
            for name, value in answer.getheaders():
                if name.lower() in ("content-type", "retry-after"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            while chunk := answer.read1(65536):
                text += chunk
                self.wfile.write(chunk)
                self.wfile.flush()
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            linger = b"\x01\0\0\0\0\0\0\0"
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        finally:
            behind.close()
            if self.command == "POST":
                with self.server.lock:
                    entry = {"status": status, "body": json.loads(body), "answer": text.decode("utf-8", "replace")}
                    self.server.log.write(json.dumps(entry) + "\n")
                    self.server.log.flush()

    do_GET = do_POST = hand_on


def play(label, command, options, work):
    """Runs a job against a server of its own; gives the job dir and the requests."""
    here = work / label
    job, log = here / "jobs" / "job", here / "requests.jsonl"
    if not (job / "result.json").is_file():
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        port = free_port()
        script = options.shared / "data/tools/scripted_llm.py"
        server = subprocess.Popen([sys.executable, script, "--port", str(port), "--log", here / "server.jsonl"],
                                  stdout=subprocess.DEVNULL)
        recorder = Recorder(port, log)
        try:
            for _ in range(100):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            base = f"http://127.0.0.1:{recorder.server_port}/v1"
            args = [*command, "-p", options.shared / "data/tasks", "-a", "terminus-2", "-m", "openai/scripted-1",
                    "--ak", f"api_base={base}", "--ak", f"model_info={json.dumps(MODEL_INFO)}",
                    "-n", str(options.slots), "--job-name", "job", "--jobs-dir", here / "jobs", "-y"]
            for task in options.tasks:
                args += ["-i", task]
            env = {**os.environ, "OPENAI_API_KEY": "dummy", "PILOTHOUSE_STATE_DIR": str(here / "state"),
                   "PILOTHOUSE_HARBOR_PYTHON": str(options.harbor.with_name("python")),
                   "HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            began = time.time()
            with open(here / "output.txt", "w") as out:
                code = subprocess.run(args, env=env, stdout=out, stderr=subprocess.STDOUT).returncode
            print(f"{label}: exit code {code} after {time.time() - began:.0f} s", flush=True)
        finally:
            server.kill()
            recorder.shutdown()
    if not log.is_file():
        sys.exit(f"{label}: no requests, see {here / 'output.txt'}")
    return job, [json.loads(line) for line in log.read_text().splitlines()]


def texts(entry):
    return [(m["role"], m["content"]) for m in entry["body"]["messages"]]


def by_task(requests):
    out = {}
    for entry in requests:
        found = re.findall(r"\[tb:([a-z0-9-]+)\]", "\n".join(text for _, text in texts(entry)))
        if found:
            out.setdefault(found[-1], []).append(entry)
    return out


def masked(text):
    """Without what is another one in every run, and without what the recorder of Harbor prints."""
    # The first screen: of Harbor's it depends on the moment whether the recorder's banner is still there.
    text = re.sub(r"(Current terminal state:\n)Current Terminal Screen:\n.*\Z", r"\1<first screen>", text, flags=re.S)
    text = re.sub(r"\b(root|agent)@[0-9a-f]{12}\b", r"\1@HOST", text)
    text = re.sub(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d+ +\d\d:\d\d\b", "DATE", text)
    # Whether there was a line before the first prompt depends on the banner, too.
    text = re.sub(r"(New Terminal Output:)\n+", r"\1\n", text)
    # How many blank rows are below the last line depends on the rows that the banner took.
    text = re.sub(r"\n{2,}", "\n\n", text)
    return text.rstrip("\n")


REASONS = [
    ("output that was shortened is shortened once",
     lambda a, b: "interior bytes omitted" in a and "interior bytes omitted" in b
     and ends(a) == ends(b)),
    ("lines of output beyond the 2,000 that Harbor's terminal keeps",
     lambda a, b: a.count("Current Terminal Screen:") == 1 and "New Terminal Output:" in b and "interior bytes" in b),
    ("lines of output beyond those 2,000: Harbor takes the new prompt for the old one, and tells nothing of them",
     lambda a, b: "New Terminal Output:" in a and "earlier lines are not kept" in b and lines(a) <= lines(b)),
    ("the screen in place of what is new: Harbor's recorder drew over the line before it",
     lambda a, b: "Current Terminal Screen:" in a and "New Terminal Output:" in b
     and lines(b) <= lines(a) | {""}),
    ("the last old line is said again with what stood before it: Harbor cuts at the wrong line",
     lambda a, b: "New Terminal Output:" in a and "New Terminal Output:" in b and lines(b) <= lines(a) | {""}),
]


def ends(text):
    head, _, tail = text.partition("\n[... output limited")
    return head[:4000], tail[-4000:]


def lines(text):
    text = text.replace("Current Terminal Screen:", "").replace("New Terminal Output:", "")
    return {line.rstrip() for line in text.splitlines()}


def compare(a, b):
    """Differences between the requests of a task in two runs: (request, message, reason or None, detail)."""
    if len(a) != len(b):
        yield 0, 0, None, f"{len(a)} and {len(b)} requests"
    for n, (x, y) in enumerate(zip(a, b), 1):
        x, y = texts(x), texts(y)
        if [role for role, _ in x] != [role for role, _ in y]:
            yield n, 0, None, f"roles {[r for r, _ in x]} and {[r for r, _ in y]}"
            continue
        # Only the last message is new.
        left, right = masked(x[-1][1]), masked(y[-1][1])
        if left != right:
            reason = next((why for why, fits in REASONS if fits(left, right)), None)
            diff = difflib.unified_diff(left.splitlines(), right.splitlines(), lineterm="", n=1)
            yield n, len(x), reason, "\n".join(list(diff)[2:14])


def ends_of(job):
    out = {}
    for path in job.glob("*/result.json"):
        result = json.loads(path.read_text())
        task = result["task_name"].rsplit("/", 1)[-1]
        agents = [s["agent_result"] for s in result.get("step_results") or []] or [result["agent_result"]]
        agents = [agent or {} for agent in agents]
        total = lambda name: sum(agent.get(name) or 0 for agent in agents)
        out[task] = {
            "rewards": (result.get("verifier_result") or {}).get("rewards"),
            "exception": (result.get("exception_info") or {}).get("exception_type"),
            "episodes": [(agent.get("metadata") or {}).get("n_episodes") for agent in agents],
            "input": total("n_input_tokens"),
            "output": total("n_output_tokens"),
            "agent": result["agent_info"]["name"],
            "apart": [((a.get("metadata") or {}).get("pilothouse") or {}).get("tokens_apart") for a in agents],
        }
    return out


def counted(work, label):
    """What the server counted for each task: input, output of answers that ended; and of those cut."""
    out = {}
    for line in (work / label / "server.jsonl").read_text().splitlines():
        entry = json.loads(line)
        task = entry["task"] or "-"
        # A task of several steps marks each.
        task = re.sub(r"-(first|second)$", "", task)
        sums = out.setdefault(task, {"input": 0, "output": 0, "cut_input": 0, "cut_output": 0})
        if entry["status"] == 200:
            cut = "cut_" if entry["finish"] == "length" else ""
            sums[cut + "input"] += entry["prompt_tokens"]
            sums[cut + "output"] += entry["completion_tokens"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, required=True)
    parser.add_argument("--pilothouse", type=pathlib.Path, required=True)
    parser.add_argument("--harbor", type=pathlib.Path, required=True)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=PROPER)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--harbor-runs", type=int, default=2)
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--recorded", type=pathlib.Path, help="a recorded job dir whose ends are compared as well")
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="terminus-"))
    runs = []
    for n in range(1, options.harbor_runs + 1):
        runs.append((f"harbor-{n}", *play(f"harbor-{n}", [options.harbor, "run"], options, work)))
    ours = [options.pilothouse, "run", "--headless", "--ak", "prompt_templates=harbor", "--ak", "model_retries=3"]
    job, requests = play("pilothouse", ours, options, work)
    unexplained = 0

    own = by_task(requests)
    for pair, (label, theirs) in [(f"{name} and pilothouse", (name, by_task(r))) for name, _, r in runs[:1]]:
        print(f"\n== requests of {pair}")
        for task in [t for t in options.tasks if t in PROPER]:
            names = [name for name in theirs if name == task or name.startswith(task + "-")]
            for name in names:
                found = list(compare(theirs[name], own.get(name, [])))
                print(f"{name}: {len(theirs[name])} requests, {len(found)} differences")
                for request, message, reason, detail in found:
                    unexplained += reason is None
                    print(f"  request {request}, message {message}: {reason or 'WITHOUT A REASON'}")
                    print("    " + detail.replace("\n", "\n    "))
    if len(runs) > 1:
        print("\n== Harbor's own noise")
        first, second = by_task(runs[0][2]), by_task(runs[1][2])
        for task in sorted(first):
            for request, message, reason, detail in compare(first[task], second.get(task, [])):
                print(f"{task}: request {request}, message {message}: {detail[:300]}")

    print("\n== ends")
    ends, sums = ends_of(job), counted(work, "pilothouse")
    others = [(name, ends_of(their_job)) for name, their_job, _ in runs[:1]]
    if options.recorded:
        others.append(("recorded", ends_of(options.recorded)))
    for task in sorted(ends):
        mine = ends[task]
        if task in BETTER:
            why, harbors, exception, rewards = BETTER[task]
            good = (mine["exception"], mine["rewards"]) == (exception, rewards)
            good &= all(theirs[task]["exception"] == harbors for _, theirs in others if task in theirs)
            unexplained += not good
            print(f"{task}: {'as it must be' if good else 'NOT AS IT MUST BE'}: {why}")
        for name, theirs in others:
            for field in ["rewards", "exception", "episodes", "output", "agent"]:
                if task in theirs and theirs[task][field] != mine[field]:
                    reason = BETTER[task][0] if task in BETTER else None
                    unexplained += reason is None
                    print(f"{task}: {field}: {name} {theirs[task][field]}, pilothouse {mine[field]}: "
                          f"{reason or 'WITHOUT A REASON'}")
        server = sums.get(task)
        if server and (server["input"], server["output"]) != (mine["input"], mine["output"]):
            unexplained += 1
            print(f"{task}: tokens: the server counted {server}, pilothouse {mine['input']} and {mine['output']}: "
                  "WITHOUT A REASON")
    print(f"{len(ends)} trials, {unexplained} differences without a reason; everything is in {work}")
    return min(unexplained, 1)


sys.exit(main())
