#!/usr/bin/env python3
"""Many trials of Terminus at a time against a scripted server that streams so many tokens a second to each: what
the harness costs for an episode, whether its memory stays flat, and how both compare with Harbor's Terminus-2.

    tests/bench/model_agents.py                                        # pilothouse alone: 25 trials, 1,000 episodes
    PILOTHOUSE_HARBOR=/path/to/harbor tests/bench/model_agents.py --beside    # and 4 trials of 6 episodes of both

Wants a Docker engine with an image that has bash and tmux (`--image`, tb-base:1), Python 3.9; the program is
`PILOTHOUSE_BIN`, else the one in `target/release` or `target/quick`. A debug build says little.

The server is a process of its own: its time counts for nobody, nor does the engine's. Every answer is so many
tokens (`--tokens`), half of them reasoning, at `--rate` a second; the last one of a trial says that the task is
done, twice, as the agent wants it. Processor time of an episode is the difference between a run of few and a
run of many, by the episodes that the results count: what a trial costs at its beginning and end is in neither.
Memory is the allocated part of the proportional set size, looked at ten times a second while all trials are
at work; flat is: the last quarter of that time has at most a tenth, or 2 MiB, more than the second one. Exit
code 1 when a trial did not end with a reward of 1, or an aim was missed.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from beside_harbor import descendants, memory_of, program  # noqa: E402

# Milliseconds of CPU for an episode, and its ratio to Harbor's.
CPU_MS = 5.0
CPU_RATIO = 0.05
FEW = 2


def answer(asked, episodes):
    """What the model says in its n-th answer, from 0."""
    done = asked >= episodes - 2
    commands = [] if done else [{"keystrokes": f"echo step {asked}\n", "duration": 0.1}]
    said = {"analysis": f"After {asked} steps.", "plan": "The next one.", "commands": commands, "task_complete": done}
    return json.dumps(said)


class Server:
    def __init__(self, tokens, rate, episodes):
        self.tokens, self.rate, self.episodes = tokens, rate, episodes

    async def talk(self, reader, writer):
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if not head:
            return False
        lines = head.decode("latin-1").split("\r\n")
        length = next((int(v) for k, _, v in (line.partition(":") for line in lines) if k.lower() == "content-length"), 0)
        body = await reader.readexactly(length)
        path = lines[0].split(" ")[1]
        if lines[0].startswith("GET"):
            models = {"object": "list", "data": [{"id": "load", "owned_by": "local", "max_model_len": 1000000}]}
            self.whole(writer, json.dumps(models).encode() if path.endswith("/models") else b"", path.endswith("/models"))
        else:
            await self.chat(writer, json.loads(body))
        await writer.drain()
        return True

    @staticmethod
    def whole(writer, body, found=True):
        status = b"200 OK" if found else b"404 Not Found"
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    async def chat(self, writer, asked):
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        said = answer(turn, self.episodes)
        thought = self.tokens // 2
        parts = max(1, self.tokens - thought)
        size = -(-len(said) // parts)
        usage = {"prompt_tokens": 1000 + 50 * turn, "completion_tokens": self.tokens,
                 "total_tokens": 1000 + 50 * turn + self.tokens}
        whole = {"id": "load", "object": "chat.completion", "created": 0, "model": "load", "usage": usage}
        if not asked.get("stream"):
            await asyncio.sleep(self.tokens / self.rate)
            message = {"role": "assistant", "content": said, "reasoning_content": "hm " * thought}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self.whole(writer, json.dumps({**whole, "choices": [choice]}).encode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        def send(event):
            text = b"data: " + event + b"\n\n"
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))

        def part(delta, reason=None):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            head = {"id": "load", "object": "chat.completion.chunk", "created": 0, "model": "load"}
            send(json.dumps({**head, "choices": [choice]}).encode())

        begin = time.monotonic()
        deltas = [{"reasoning_content": "hm "}] * thought
        deltas += [{"content": said[at : at + size]} for at in range(0, len(said), size)]
        for sent, delta in enumerate(deltas, 1):
            part(delta)
            await asyncio.sleep(max(0.0, begin + sent / self.rate - time.monotonic()))
        part({}, "stop")
        if (asked.get("stream_options") or {}).get("include_usage"):
            send(json.dumps({**whole, "object": "chat.completion.chunk", "choices": []}).encode())
        send(b"[DONE]")
        writer.write(b"0\r\n\r\n")


def serve(port, tokens, rate, episodes):
    async def run():
        server = await asyncio.start_server(Server(tokens, rate, episodes).talk, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def tasks(root, trials, image):
    for n in range(trials):
        task = root / f"load-{n:02}"
        for sub in ("environment", "tests", "solution"):
            (task / sub).mkdir(parents=True)
        limits = "[verifier]\ntimeout_sec = 300.0\n[agent]\ntimeout_sec = 3000.0\n"
        (task / "task.toml").write_text(f'version = "1.0"\n{limits}[environment]\ndocker_image = "{image}"\n')
        (task / "instruction.md").write_text("Count the steps.\n")
        (task / "environment/Dockerfile").write_text(f"FROM {image}\n")
        (task / "solution/solve.sh").write_text("#!/bin/bash\ntrue\n")
        (task / "tests/test.sh").write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")


def measure(command, cwd):
    """Wall and processor seconds; allocated MiB over time."""
    looks, over = [], threading.Event()
    begin = time.monotonic()
    with open(cwd / "said", "wb") as said:
        child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)

    def watch():
        while not over.wait(0.1):
            looks.append((time.monotonic() - begin, sum(memory_of(pid)[1] for pid in descendants(child.pid)) / 1024))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    over.set()
    watcher.join()
    if child.returncode != 0:
        sys.exit(f"{command[0]} ended with {child.returncode}:\n{(cwd / 'said').read_text(errors='replace')[-3000:]}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "looks": looks}


def results(job, trials):
    """Episodes of all trials, each of which has a reward of 1."""
    episodes, rewards = 0, []
    for result in job.glob("*/result.json"):
        document = json.loads(result.read_text())
        rewards.append(((document.get("verifier_result") or {}).get("rewards") or {}).get("reward"))
        episodes += ((document.get("agent_result") or {}).get("metadata") or {}).get("n_episodes") or 0
    if len(rewards) != trials or any(reward != 1 for reward in rewards):
        sys.exit(f"{job}: not {trials} rewards of 1: {rewards}")
    return episodes


def run(name, binary, extra, asked, trials, episodes):
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there, asked.tokens, asked.rate, episodes), daemon=True)
    server.start()
    port = here.recv()
    try:
        with tempfile.TemporaryDirectory(prefix="model-agents-") as temp:
            cwd = Path(temp)
            tasks(cwd / "tasks", trials, asked.image)
            args = ["run", "-p", "tasks", "-a", "terminus-2", "-m", "openai/load", "-n", str(trials), "-o", "jobs",
                    "--job-name", name, "-y", "--ak", f"api_base=http://127.0.0.1:{port}/v1"]
            figures = measure([str(binary), *args, *extra], cwd)
            figures["episodes"] = results(cwd / "jobs" / name, trials)
    finally:
        server.terminate()
    print(f"{name:<11} {trials} trials, {figures['episodes']:5} episodes  {figures['wall']:8.2f} s wall  "
          f"{figures['cpu']:8.3f} s CPU  at most {max((mib for _, mib in figures['looks']), default=0):.1f} MiB allocated",
          flush=True)
    return figures


def per_episode(few, many):
    """Milliseconds of CPU for one more episode."""
    return 1000 * (many["cpu"] - few["cpu"]) / max(1, many["episodes"] - few["episodes"])


def flat(looks, wall):
    """Mean of the second and the last quarter of the time at work: MiB."""
    def mean(begin, end):
        part = [mib for at, mib in looks if begin * wall <= at <= end * wall]
        return sum(part) / max(1, len(part))

    return mean(0.25, 0.5), mean(0.7, 0.9)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--trials", type=int, default=25)
    ask.add_argument("--episodes", type=int, default=40, help="of a trial, in the run of many")
    ask.add_argument("--tokens", type=int, default=50, help="of an answer")
    ask.add_argument("--rate", type=float, default=50.0, help="tokens a second")
    ask.add_argument("--image", default="tb-base:1")
    ask.add_argument("--beside", action="store_true", help="Harbor, too, at 4 trials of 6 episodes")
    asked = ask.parse_args()
    os.environ.setdefault("HARBOR_TELEMETRY", "0")
    os.environ.setdefault("OPENAI_API_KEY", "none")
    load = os.getloadavg()[0]
    if load > 1:
        print(f"the machine is not quiet: load {load:.1f}")
    ours, missed = (program(), ["--headless", "-q"]), False

    def judge(what, value, aim, unit=""):
        nonlocal missed
        missed |= value > aim
        print(f"{what:<32} {value:.3g}{unit}, aim {aim:g}{unit}: {'reached' if value <= aim else 'MISSED'}", flush=True)

    few = run("pilothouse", *ours, asked, asked.trials, FEW)
    many = run("pilothouse", *ours, asked, asked.trials, asked.episodes)
    judge("CPU of an episode", per_episode(few, many), CPU_MS, " ms")
    early, late = flat(many["looks"], many["wall"])
    judge(f"memory {early:.1f} -> {late:.1f} MiB", late - early, max(2.0, early / 10), " MiB more")
    if asked.beside:
        harbor = os.environ.get("PILOTHOUSE_HARBOR") or sys.exit("set PILOTHOUSE_HARBOR to Harbor's program")
        both = {}
        for name, (binary, extra) in {"pilothouse": ours, "harbor": (harbor, [])}.items():
            both[name] = [run(name, binary, extra, asked, 4, episodes) for episodes in (FEW, 6)]
        per = {name: per_episode(*runs) for name, runs in both.items()}
        print(f"CPU of an episode: {per['pilothouse']:.1f} ms beside {per['harbor']:.1f} ms")
        judge("CPU, ratio", per["pilothouse"] / max(per["harbor"], 0.001), CPU_RATIO)
        walls = {name: runs[1]["wall"] for name, runs in both.items()}
        print(f"wall, ratio {walls['pilothouse'] / walls['harbor']:.3f}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
