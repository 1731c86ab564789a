//! A log as a model server writes it, in the words of SGLang 0.5.23 and vLLM 0.32.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

/// A log that grows.
pub struct ServerLog {
    path: PathBuf,
    file: File,
    /// Hours by which the server's clock is east of UTC; its stamps have no zone.
    hours: i64,
    rotations: u32,
}

impl ServerLog {
    /// Begins a log whose server has its clock on UTC.
    pub fn new(path: &Path) -> ServerLog {
        ServerLog::east(path, 0)
    }

    /// Begins a log whose server has its clock that many hours east of UTC.
    pub fn east(path: &Path, hours: i64) -> ServerLog {
        ServerLog { path: path.to_path_buf(), file: append(path), hours, rotations: 0 }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).unwrap();
    }

    /// Writes a line of SGLang with its stamp. `tags` such as ` DP1 TP3`, or none.
    pub fn line(&mut self, tags: &str, text: &str) {
        let local = Timestamp::now() + SignedDuration::from_hours(self.hours);
        let line = format!("[{}{tags}] {text}\n", local.strftime("%Y-%m-%d %H:%M:%S"));
        self.raw(line.as_bytes());
    }

    /// SGLang decodes.
    pub fn decode(&mut self, running: u32, tokens: u64, capacity: u64, generation: f64, queued: u32) {
        let usage = tokens as f64 / capacity as f64;
        self.line(
            "",
            &format!(
                "Decode batch, #running-req: {running}, #token: {tokens}, token usage: {usage:.2}, cuda graph: True, \
             gen throughput (token/s): {generation:.2}, #queue-req: {queued}"
            ),
        );
    }

    /// SGLang prefills.
    pub fn prefill(&mut self, new: u64, cached: u64, running: u32, queued: u32) {
        self.line(
            "",
            &format!(
                "Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {cached}, token usage: 0.10, \
             #running-req: {running}, #queue-req: {queued}, #pending-token: 0, cuda graph: False, \
             input throughput (token/s): 900.00"
            ),
        );
    }

    /// SGLang starts and is ready.
    pub fn start(&mut self, capacity: u64, max_running: u32, context: u64) {
        self.line("", "server_args={'model_path': '/models/tiny', 'api_key': 'KEY-IN-THE-LOG', 'admin_api_key': None}");
        self.line("", "Load weight begin. avail mem=78.09 GB");
        self.line(
            "",
            &format!(
                "max_total_num_tokens={capacity}, chunked_prefill_size=4096, max_prefill_tokens=16384, \
             max_running_requests={max_running}, context_len={context}, available_gpu_mem=20.11 GB"
            ),
        );
        self.line("", "The server is fired up and ready to roll!");
    }

    /// SGLang throws requests out of the pool.
    pub fn retract(&mut self, requests: u32) {
        self.line(
            "",
            &format!(
                "KV cache pool is full. Retract requests. #retracted_reqs: {requests}, #new_tokens_gained: 429, \
             #new_token_ratio: 0.0054 -> 0.7497"
            ),
        );
    }

    /// SGLang's scheduler is killed.
    pub fn crash(&mut self) {
        self.line(
            "",
            "Subprocess scheduler_0 (pid=14121) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        );
        self.line("", "SIGQUIT received. signum=None, frame=None. It usually means one child failed.");
    }

    /// vLLM's periodic line. `usage` is 0-1.
    pub fn vllm(&mut self, running: u32, waiting: u32, usage: f64, generation: f64) {
        let local = Timestamp::now() + SignedDuration::from_hours(self.hours);
        let line = format!(
            "(APIServer pid=23959) INFO {} [loggers.py:335] Engine 000: Avg prompt throughput: 87.8 tokens/s, \
             Avg generation throughput: {generation:.1} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, \
             GPU KV cache usage: {:.1}%, Prefix cache hit rate: 72.8%\n",
            local.strftime("%m-%d %H:%M:%S"),
            usage * 100.0
        );
        self.raw(line.as_bytes());
    }

    /// Puts the log aside under another name and begins a new one, as logrotate does.
    pub fn rotate(&mut self) {
        self.rotations += 1;
        std::fs::rename(&self.path, self.path.with_extension(format!("log.{}", self.rotations))).unwrap();
        self.file = append(&self.path);
    }

    /// Cuts it to nothing and goes on in the same file, as logrotate's `copytruncate` does.
    pub fn truncate(&mut self) {
        self.file.set_len(0).unwrap();
    }
}

fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}
