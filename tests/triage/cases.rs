//! Adversarial trials, both ways: faults of the surroundings in many words, and the same words where they
//! are no such thing.

use crate::labels::classified;
use crate::stage::{At, PYTEST_FAILED, Trial, job};

type Case = (Trial, &'static str, Option<&'static str>);

fn environment(name: &str, message: &str, sub: &'static str) -> Case {
    let message = format!(
        "Docker compose command failed for environment x. Command: docker compose up --detach --wait. Return code: 1. Stdout: {message}\n. Stderr: None. "
    );
    (Trial::new(name).raised(At::Environment, "RuntimeError", &message), "infra", Some(sub))
}

fn setup(name: &str, exit: u32, output: &str, sub: &'static str) -> Case {
    let message =
        format!("Command failed (exit {exit}): set -euo pipefail; install-the-agent\nstdout: \nstderr: {output}");
    let mut trial = Trial::new(name).raised(At::Setup, "NonZeroAgentExitCodeError", &message);
    trial.agent = "mini-swe-agent";
    (trial, "infra", Some(sub))
}

fn verifier(name: &str, stdout: &str, sub: &'static str) -> Case {
    (Trial::new(name).stdout(stdout), "infra", Some(sub))
}

fn failed(name: &str, stdout: &str) -> Case {
    (Trial::new(name).stdout(stdout), "failed", None)
}

fn model(name: &str, kind: &str, message: &str, class: &'static str) -> Case {
    let mut trial = Trial::new(name).raised(At::Agent, kind, message);
    if class == "config" {
        trial = trial.tokens(Some((0, 0)), Some(1));
    }
    (trial, class, (class == "infra").then_some("model-api"))
}

/// The agent's program ended by itself; the tests still ran.
fn exit(name: &str, code: u32, log: &str, class: &'static str, sub: Option<&'static str>) -> Case {
    let message = format!(
        "Command failed (exit {code}): mini-swe-agent --task='Fix the 502 Bad Gateway and the context window exceeded error' 2>&1 | tee /logs/agent/mini-swe-agent.txt\nstdout: This is mini-swe-agent\n"
    );
    let trial = Trial::new(name).raised(At::Verifier, "NonZeroAgentExitCodeError", &message);
    (trial.reward(0.0).mini(log).stdout(PYTEST_FAILED), class, sub)
}

fn infra() -> Vec<Case> {
    vec![
        environment("pools-old", "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network", "docker-network"),
        environment("pools-older", "could not find an available predefined network", "docker-network"),
        environment("pools-overlap", "failed to create network: Error response from daemon: Pool overlaps with other one on this address space", "docker-network"),
        environment("manifest", "Error response from daemon: manifest for lab/x:20251031 not found: manifest unknown: manifest unknown", "image"),
        environment("hub-limit", "Error response from daemon: toomanyrequests: You have reached your pull rate limit. You may increase the limit", "image"),
        environment("registry-dns", "Error response from daemon: Get \"https://registry-1.example/v2/\": dial tcp: lookup registry-1.example on 10.0.0.2:53: server misbehaving", "image"),
        environment("resolve-reference", "failed to resolve reference \"registry.example/lab/x:1\": failed to do request: Head \"https://registry.example/v2/lab/x/manifests/1\": net/http: TLS handshake timeout", "image"),
        environment("no-space", "failed to register layer: write /usr/lib/x.so: no space left on device", "disk"),
        environment("daemon-gone", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "docker"),
        environment("name-taken", "Error response from daemon: Conflict. The container name \"/x-main-1\" is already in use by container \"ab\"", "docker"),
        environment("port-taken", "driver failed programming external connectivity: Bind for 0.0.0.0:8080 failed: port is already allocated", "docker"),
        environment("build-apt", "#8 4.2 E: Unable to fetch some archives\n#8 4.2\nE: Failed to fetch http://deb.mirror.example/debian/pool/x.deb  503  Service Unavailable\nfailed to solve: process \"/bin/sh -c apt-get install -y x\" did not complete successfully: exit code: 100", "package-mirror"),
        environment("unhealthy", "dependency failed to start: container x-main-1 is unhealthy", "docker"),
        (Trial::new("start-timeout").raised(At::Environment, "EnvironmentStartTimeoutError", "Environment start timed out after 600.0 seconds"), "infra", None),
        (Trial::new("health").raised(At::Environment, "HealthcheckError", "Healthcheck failed after 5 tries"), "infra", None),
        (Trial::new("sandbox-ready").raised(At::Environment, "SandboxError", "Sandbox did not become ready within 120s"), "infra", Some("sandbox")),
        (Trial::new("sandbox-idle").raised(At::Agent, "RemoteProtocolError", "peer closed connection without sending complete message body").log("sbx-server: idle for 601917ms, shutting down"), "infra", Some("sandbox")),
        (Trial::new("sandbox-full").raised(At::Environment, "SandboxError", "Could not place sandbox: hosts kept reporting full. Raise max_hosts or sandboxes_per_host."), "infra", Some("sandbox")),
        (Trial::new("sandbox-started-not").raised(At::Environment, "SandboxError", "Sandbox job 66f terminated during startup (status: ERROR, message: image pull failed)."), "infra", Some("sandbox")),
        (Trial::new("sandbox-lost").raised(At::Agent, "SandboxError", "connection lost while running command"), "infra", Some("sandbox")),
        (Trial::new("sandbox-build").raised(At::Environment, "SandboxBuildFailedError", "build failed"), "infra", Some("sandbox")),
        (Trial::new("daytona").raised(At::Agent, "DaytonaError", "Failed to execute command: workspace not found"), "infra", Some("sandbox")),
        (Trial::new("connect").raised(At::Environment, "ConnectTimeout", ""), "infra", Some("network")),
        setup("apk", 1, "ERROR: unable to select packages:\n  tmux (no such package)", "package-mirror"),
        setup("pip-proxy", 1, "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProxyError'\nERROR: Could not find a version that satisfies the requirement mini-swe-agent (from versions: none)", "package-mirror"),
        setup("npm-dns", 1, "npm error code EAI_AGAIN\nnpm error network request to https://npm.mirror.example/x failed, reason: getaddrinfo EAI_AGAIN npm.mirror.example", "package-mirror"),
        setup("uv-fetch", 2, "error: Failed to fetch: `https://index.example/simple/mini-swe-agent/`\n  Caused by: Request failed after 3 retries", "package-mirror"),
        setup("apt-404", 100, "E: Failed to fetch http://deb.mirror.example/debian/pool/c/curl.deb  404  Not Found [IP: 151.101.2.132 80]\nE: Unable to fetch some archives, maybe run apt-get update", "package-mirror"),
        setup("apt-lock", 100, "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812", "package-mirror"),
        setup("cargo", 101, "error: failed to download from `https://crates.example/api/v1/crates/serde/1.0/download`", "package-mirror"),
        setup("curl-dns", 6, "curl: (6) Could not resolve host: astral.sh", "network"),
        setup("curl-tls", 60, "curl: (60) SSL certificate problem: unable to get local issuer certificate", "network"),
        setup("curl-timeout", 28, "curl: (28) Failed to connect to astral.sh port 443 after 130000 ms: Couldn't connect to server", "network"),
        setup("git-lacks", 127, "/bin/sh: 3: git: not found", "image"),
        setup("bash-lacks", 127, "exec: \"bash\": executable file not found in $PATH", "sandbox"),
        setup("killed", 137, "Killed", "oom"),
        setup("full", 1, "tar: write error: No space left on device", "disk"),
        (Trial::new("setup-npm").raised(At::Setup, "AgentSetupTimeoutError", "Agent setup timed out after 360.0 seconds").file("agent/setup/stdout.txt", "npm warn deprecated x\nnpm http fetch GET https://npm.mirror.example/y attempt 2 failed with ETIMEDOUT\n"), "infra", Some("network")),
        (Trial::new("tmux").raised(At::Setup, "RuntimeError", "Failed to start tmux session. Error: tmux: command not found"), "infra", None),
        verifier("pip", "Collecting pytest\nERROR: Could not find a version that satisfies the requirement pytest==8.4.1 (from versions: none)\nERROR: No matching distribution found for pytest==8.4.1\n/tests/test.sh: line 9: pytest: command not found\n", "package-mirror"),
        verifier("npm", "npm ERR! code E503\nnpm ERR! 503 Service Unavailable - GET https://npm.mirror.example/jest\nsh: 1: jest: not found\n", "package-mirror"),
        verifier("uv-index", "error: Failed to fetch: `https://index.example/simple/pytest/`\n  Caused by: error sending request for url\n  Caused by: dns error: failed to lookup address information\n", "package-mirror"),
        verifier("apt-403", "Err:4 http://archive.ubuntu.com/ubuntu noble InRelease\n  403  Forbidden [IP: 10.1.1.1 3128]\nE: The repository 'http://archive.ubuntu.com/ubuntu noble InRelease' is not signed.\n/tests/test.sh: line 22: uvx: command not found\n", "package-mirror"),
        verifier("wget", "wget: unable to resolve host address 'astral.sh'\n/tests/test.sh: 14: .: cannot open /root/.local/bin/env: No such file\n/tests/test.sh: 20: uvx: not found\n", "network"),
        verifier("proxy", "curl: (56) CONNECT tunnel failed, response 502\n/tests/test.sh: line 12: uv: command not found\n", "network"),
        verifier("uvx-only", "/tests/test.sh: line 20: uvx: command not found\n", "package-mirror"),
        (Trial::new("graded-after-504").raised(At::Verifier, "ServiceUnavailableError", "litellm.ServiceUnavailableError: 503 no healthy upstream").reward(0.0).stdout(PYTEST_FAILED), "infra", Some("model-api")),
        (Trial::new("no-reward-net").raised(At::Verifier, "RewardFileNotFoundError", "No reward file found").stdout("curl: (6) Could not resolve host: astral.sh\nuvx: command not found\n"), "infra", Some("network")),
        (Trial::new("verify-pip").raised(At::Verifier, "VerifierTimeoutError", "Verifier execution timed out after 60.0 seconds").stdout("Collecting torch\n  Downloading torch-2.8.0.whl (887.9 MB)\n     ━━━━━━━━ 312.0/887.9 MB 1.1 MB/s eta 0:08:40\n"), "infra", Some("package-mirror")),
        (Trial::new("copy-tests").raised(At::Verifier, "AddTestsDirError", "could not add tests"), "infra", None),
        (Trial::new("container-died").raised(At::Agent, "RuntimeError", "Docker exec failed: Error response from daemon: container 3f2a is not running"), "infra", Some("docker")),
        model("timeout", "Timeout", "litellm.Timeout: APITimeoutError - Request timed out.", "infra"),
        model("api-connection", "APIConnectionError", "litellm.APIConnectionError: OpenAIException - Connection error.", "infra"),
        model("overloaded", "ApiOverloadedError", "API Error: 529 overloaded_error", "infra"),
        model("went-away", "NotFoundError", "litellm.NotFoundError: NotFoundError: OpenAIException - 404 page not found", "infra"),
        exit("exit-500", 1, "step 3\nlitellm.InternalServerError: InternalServerError: OpenAIException - Internal Server Error\n", "infra", Some("model-api")),
        exit("exit-529", 1, "step 3\nAPI Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n", "infra", Some("model-api")),
        exit("exit-refused", 1, "Traceback (most recent call last):\n  File \"/x/site-packages/openai/_base_client.py\", line 1, in request\n    raise err\nhttpx.ConnectError: All connection attempts failed\n", "infra", Some("model-api")),
        exit("exit-137", 137, "step 3\n", "infra", Some("oom")),
        (Trial::new("zero-output").tokens(Some((9_000, 0)), Some(4)).stdout(PYTEST_FAILED), "infra", Some("model-api")),
        (Trial::new("reset").raised(At::Agent, "ReadError", "").log("LLM interaction failed: httpx.ReadError\n"), "infra", Some("model-api")),
    ]
}

fn config() -> Vec<Case> {
    vec![
        model(
            "no-key",
            "AuthenticationError",
            "litellm.AuthenticationError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"invalid x-api-key\"}}",
            "config",
        ),
        model(
            "forbidden",
            "PermissionDeniedError",
            "Error code: 403 - {'error': 'You do not have access to this model'}",
            "config",
        ),
        model(
            "no-model",
            "NotFoundError",
            "litellm.NotFoundError: OpenAIException - The model `qwen9` does not exist.",
            "config",
        ),
        model(
            "provider",
            "BadRequestError",
            "litellm.BadRequestError: LLM Provider NOT provided. Pass in the LLM provider you are trying to call. You passed model=qwen",
            "config",
        ),
        model(
            "kwarg",
            "UnsupportedParamsError",
            "litellm.UnsupportedParamsError: openai does not support parameters: ['reasoning_effort']",
            "config",
        ),
        model(
            "spent",
            "RateLimitError",
            "litellm.RateLimitError: You exceeded your current quota, please check your plan and billing details.",
            "config",
        ),
        exit(
            "exit-key",
            1,
            "step 1\nlitellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: sk-none\n",
            "config",
            None,
        ),
        exit("exit-login", 1, "Invalid API key · Please run /login\n", "config", None),
        (
            Trial::new("swallowed-key")
                .tokens(Some((0, 0)), Some(3))
                .log("Unknown Error in LLM interaction: litellm.AuthenticationError: invalid api key\n")
                .stdout(PYTEST_FAILED),
            "config",
            None,
        ),
        (
            Trial::new("sandbox-token").raised(
                At::Environment,
                "SandboxError",
                "Sandbox API error (401): Unauthorized",
            ),
            "config",
            None,
        ),
        (Trial::new("extra").raised(At::Environment, "MissingExtraError", "install harbor[daytona]"), "config", None),
    ]
}

fn merits() -> Vec<Case> {
    let agent_log = "step 3\n$ curl https://example.com/x\ncurl: (6) Could not resolve host: example.com\n$ pip install x\nERROR: Could not find a version that satisfies the requirement x\nstep 4\n";
    vec![
        failed("name-dns", "============================= test session starts ==============================\ncollected 1 item\n\ntest_outputs.py F\nFAILED test_outputs.py::test_could_not_resolve_host - AssertionError: 502 Bad Gateway\n1 failed in 0.1s\n"),
        failed("assertion-words", "============================= test session starts ==============================\ncollected 1 item\nE       AssertionError: curl: (6) Could not resolve host: mirror.lan\nE       E: Failed to fetch http://mirror.lan\nFAILED test_outputs.py::test_x - AssertionError\n1 failed in 0.1s\n"),
        failed("retry-then-ran", "W: Failed to fetch http://x/InRelease  Temporary failure resolving 'x'\nWARNING: Retrying (Retry(total=4)) after connection broken\nErr:1 http://x InRelease\nE: Failed to fetch http://x\nRan 3 tests in 0.01s\nFAILED (failures=1)\n"),
        failed("own-server", "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server\nexpected hello\n"),
        failed("own-server-502", "<html><head><title>502 Bad Gateway</title></head></html>\nexpected hello, got an error page\n"),
        failed("own-certificate", "curl: (60) SSL certificate problem: self-signed certificate\nexpected ok\n"),
        failed("own-index", "Looking in indexes: http://localhost:8080/simple\nERROR: Could not find a version that satisfies the requirement vectorops (from versions: none)\nERROR: No matching distribution found for vectorops\n"),
        failed("own-host", "curl: (6) Could not resolve host: server\nno page\n"),
        failed("apt-noise", "Ign:1 http://deb.mirror.example/debian bookworm InRelease\nHit:2 http://deb.mirror.example/debian bookworm InRelease\nW: Failed to fetch http://x/y  Temporary failure resolving 'x'\nwrong answer: 3\n"),
        failed("shell", "FAIL: the server did not answer: connection refused\n"),
        failed("cargo", "running 2 tests\ntest net::connection_reset ... FAILED\ntest result: FAILED. 1 passed; 1 failed\n"),
        failed("tap", "1..2\nok 1 starts\nnot ok 2 resolves mirror.lan\n"),
        failed("go", "--- FAIL: TestDNS (0.00s)\n    dial tcp: lookup x: no such host\nFAIL\n"),
        failed("json", "{\"reward\": 0, \"file_exists\": 0}\n"),
        failed("silent-grader", "got 41, expected 42\n"),
        failed("collection", "============================= test session starts ==============================\ncollected 0 items / 1 error\nERROR test_outputs.py - ModuleNotFoundError: No module named 'solution'\n1 error in 0.10s\n"),
        (Trial::new("agent-met").file("agent/terminus_2.pane", "curl: (28) Operation timed out\nE: Failed to fetch http://x  502 Bad Gateway\nno space left on device\n").stdout(PYTEST_FAILED), "failed", None),
        (Trial::new("agent-steps").file("agent/trajectory.json", "{\"steps\": [{\"source\": \"agent\", \"message\": \"toomanyrequests, 504 Gateway Time-out, Incorrect API key provided\"}]}").stdout(PYTEST_FAILED), "failed", None),
        (Trial::new("one-hiccup").log("Unknown Error in LLM interaction: litellm.InternalServerError: Connection error.\nTrajectory dumped to x\nTrajectory dumped to x\n").stdout(PYTEST_FAILED), "failed", None),
        (Trial::new("summarised").log("Context length exceeded. Using fallback summarization.\nSUMMARIZATION: Full summary succeeded\n").stdout(PYTEST_FAILED), "failed", None),
        (Trial::new("dns-timeout-502").stdout(PYTEST_FAILED).log("Running dns-timeout-502: pull rate limit\n"), "failed", None),
        (Trial::new("mini-met").mini(agent_log).stdout(PYTEST_FAILED), "failed", None),
        exit("met-and-left", 1, agent_log, "unclassified", None),
        exit("met-refused", 1, "step 3\nrequests.exceptions.ConnectionError: HTTPConnectionPool(host='db', port=5432): Max retries exceeded (Connection refused)\nstep 4\n", "unclassified", None),
        exit("nothing", 1, "step 12\nstep 13\n", "unclassified", None),
        exit("crash", 1, "step 3\nTraceback (most recent call last):\n  File \"/agent/run.py\", line 3, in go\n    x[0]\nIndexError: list index out of range\n", "agent_error", None),
        exit("context-vllm", 1, "step 9\nopenai.BadRequestError: Error code: 400 - This model's maximum context length is 32768 tokens. However, you requested 40000 tokens\n", "context_exceeded", None),
        exit("context-sglang", 1, "step 9\nBadRequestError: The input (262911 tokens) is longer than the model's context length (262144 tokens).\n", "context_exceeded", None),
        exit("context-anthropic", 1, "step 9\nprompt is too long: 210000 tokens > 200000 maximum\n", "context_exceeded", None),
        exit("limit", 124, "running: make -j\n", "agent_timeout", None),
        exit("limit-words", 1, "running: make -j\nTerminated: exec time limit reached\n", "agent_timeout", None),
        (Trial::new("context-llama").raised(At::Agent, "BadRequestError", "litellm.BadRequestError: the request exceeds the available context size. try increasing the context size"), "context_exceeded", None),
        (Trial::new("context-tgi").raised(At::Agent, "BadRequestError", "litellm.BadRequestError: Input length 262145 exceeds the maximum allowed length 262144"), "context_exceeded", None),
        (Trial::new("unknown-runtime").raised(At::Agent, "RuntimeError", "something went wrong"), "unclassified", None),
        (Trial::new("bad-request").raised(At::Agent, "BadRequestError", "litellm.BadRequestError: invalid message at index 3"), "unclassified", None),
        (Trial::new("tmux-gone").raised(At::Agent, "RuntimeError", "failed to send non-blocking keys: return_code=1, stdout='no server running on /tmp/tmux-0/default\\n' command=\"tmux send-keys 'curl: (6) Could not resolve host'\""), "agent_error", None),
        (Trial::new("silent-zero"), "unclassified", None),
        (Trial::new("silent-timeout").raised(At::Verifier, "VerifierTimeoutError", "Verifier execution timed out after 60.0 seconds"), "verifier_timeout", None),
        (Trial::new("test-hangs").raised(At::Verifier, "VerifierTimeoutError", "Verifier execution timed out after 60.0 seconds").stdout("Downloading pytest-8.whl (1.2 MB)\n============ test session starts ============\ncollected 4 items\n\ntest_outputs.py ..\n"), "verifier_timeout", None),
        (Trial::new("no-reward").raised(At::Verifier, "RewardFileEmptyError", "Reward file is empty").stdout("done\n"), "verifier_error", None),
        (Trial::new("timeout-hiccup").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1200.0 seconds").reward(0.0).log("LLM interaction: litellm.InternalServerError: Connection error.\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\nTrajectory dumped to a\n").stdout(PYTEST_FAILED), "agent_timeout", None),
        (Trial::new("timeout-no-tokens").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1200.0 seconds").reward(0.0).tokens(None, None).stdout(PYTEST_FAILED), "agent_timeout", None),
        (Trial::new("partial-one").reward(0.5).stdout(PYTEST_FAILED), "partial", None),
        (Trial::new("solved-with-error").raised(At::Agent, "RuntimeError", "no space left on device").reward(1.0).stdout(PYTEST_FAILED), "passed", None),
        (Trial::new("uncounted").stdout(PYTEST_FAILED).tokens(None, Some(3)), "failed", None),
    ]
}

fn hold(cases: Vec<Case>) {
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = cases.iter().map(|(trial, ..)| trial.clone()).collect();
    let fleet = classified(&job(temp.path(), "cases", &trials));
    let job = &fleet.jobs()[0];
    assert_eq!(job.trials.len(), trials.len(), "two cases of one name");
    let mut wrong = Vec::new();
    for (staged, class, sub) in &cases {
        let trial = &job.trials[staged.name.as_str()];
        let said = job.class_of(trial).unwrap();
        let fits = said.class.word() == *class && (sub.is_none() || said.sub.as_deref() == *sub);
        if !fits {
            wrong.push(format!(
                "{}: {class}/{sub:?}, said {}/{:?} by {}: {:?}",
                staged.name,
                said.class.word(),
                said.sub,
                said.rule,
                said.evidence.first().map(|e| format!("{}: {}", e.place(), e.text))
            ));
        }
        assert!(!said.evidence.is_empty() && !said.why.is_empty(), "{}", staged.name);
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn faults_of_the_surroundings_are_seen_in_many_words() {
    hold(infra());
}

#[test]
fn the_operators_own_mistakes_are_seen() {
    hold(config());
}

#[test]
fn the_same_words_elsewhere_are_no_fault() {
    let cases = merits();
    assert!(cases.len() + infra().len() >= 40);
    hold(cases);
}
