//! The full form of a config, as Harbor 0.26 dumps it: every field, in its order, secrets taken out.

use std::path::{Path, PathBuf};

use super::emit::emit;
use super::layers::Format;
use super::node::{Entry, Node, Place, Value};
use super::secrets;
use super::types::*;
use crate::job::policy::ErrorPolicyOverride;

/// A config in its full form.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// The document.
    pub text: String,
    /// Where a secret was masked, so that the document no longer says it: `agents[0].env.API_KEY`.
    pub masked: Vec<String>,
}

/// Looks a variable up in the surroundings.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

impl RunConfig {
    /// The resolved config in full: what real Harbor 0.26 (and 0.21, which skips the fields that it does
    /// not know) reads with the same meaning. Values of `env` that are secrets become `${NAME}` where the
    /// surroundings hold them, else they are masked; so are keys in `kwargs` and passwords in URLs.
    pub fn print_config(&self, format: Format, env: Env<'_>) -> Printed {
        let (value, masked) = self.written(env);
        Printed { text: emit(&value, format), masked }
    }

    /// The same as JSON for other code, such as the writer of a job's `config.json`.
    pub fn to_json(&self, env: Env<'_>) -> serde_json::Value {
        self.written(env).0.to_json()
    }

    fn written(&self, env: Env<'_>) -> (Value, Vec<String>) {
        let mut writer = Writer { env, masked: Vec::new(), path: String::new(), place: Place::whole("resolved") };
        let value = Value::Map(writer.job(self));
        (value, writer.masked)
    }
}

struct Writer<'e> {
    env: Env<'e>,
    masked: Vec<String>,
    path: String,
    place: Place,
}

/// Anything that has a form in a config.
trait Form {
    fn form(&self) -> Value;
}

impl Form for str {
    fn form(&self) -> Value {
        Value::Str(self.to_string())
    }
}
impl Form for String {
    fn form(&self) -> Value {
        Value::Str(self.clone())
    }
}
impl Form for bool {
    fn form(&self) -> Value {
        Value::Bool(*self)
    }
}
impl Form for u32 {
    fn form(&self) -> Value {
        Value::Int(i128::from(*self))
    }
}
impl Form for f64 {
    fn form(&self) -> Value {
        Value::Float(*self)
    }
}
impl Form for Path {
    fn form(&self) -> Value {
        Value::Str(self.to_string_lossy().into_owned())
    }
}
impl Form for PathBuf {
    fn form(&self) -> Value {
        self.as_path().form()
    }
}
impl<T: Form> Form for Option<T> {
    fn form(&self) -> Value {
        self.as_ref().map_or(Value::Null, Form::form)
    }
}
impl<T: Form> Form for Vec<T> {
    fn form(&self) -> Value {
        let place = Place::whole("resolved");
        Value::List(self.iter().map(|item| Node::new(&place, item.form())).collect())
    }
}

impl Writer<'_> {
    fn entry(&self, key: &str, value: Value) -> Entry {
        Entry { key: key.to_string(), node: Node::new(&self.place, value) }
    }

    fn put(&self, out: &mut Vec<Entry>, key: &str, value: &(impl Form + ?Sized)) {
        out.push(self.entry(key, value.form()));
    }

    /// Lists that Harbor leaves out when they are empty.
    fn put_list(&self, out: &mut Vec<Entry>, key: &str, list: &Vec<String>) {
        if !list.is_empty() {
            self.put(out, key, list);
        }
    }

    fn within<T>(&mut self, part: &str, write: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.path.len();
        if !(self.path.is_empty() || part.starts_with('[')) {
            self.path.push('.');
        }
        self.path.push_str(part);
        let out = write(self);
        self.path.truncate(before);
        out
    }

    fn section(&mut self, out: &mut Vec<Entry>, key: &str, write: impl FnOnce(&mut Self) -> Vec<Entry>) {
        let entries = self.within(key, write);
        out.push(self.entry(key, Value::Map(entries)));
    }

    fn each<T>(&mut self, out: &mut Vec<Entry>, key: &str, items: &[T], write: impl Fn(&mut Self, &T) -> Value) {
        let place = self.place.clone();
        let values = self.within(key, |w| {
            let one = |(i, item): (usize, &T)| w.within(&format!("[{i}]"), |w| write(w, item));
            items.iter().enumerate().map(one).map(|value| Node::new(&place, value)).collect()
        });
        out.push(self.entry(key, Value::List(values)));
    }

    fn env(&mut self, out: &mut Vec<Entry>, key: &str, env: &[(String, String)], sensitive: Option<&str>) {
        if env.is_empty() {
            return;
        }
        self.section(out, key, |w| {
            let mut entries = Vec::new();
            for (name, value) in env {
                let (value, masked) = secrets::written(name, value, sensitive, w.env);
                if masked {
                    w.within(name, |w| w.masked.push(w.path.clone()));
                }
                w.put(&mut entries, name, &value);
            }
            entries
        });
    }

    fn kwargs(&mut self, out: &mut Vec<Entry>, kwargs: &[Entry]) {
        self.section(out, "kwargs", |w| w.free(kwargs));
    }

    /// A map of anything: texts under sensitive names and passwords in URLs are masked.
    fn free(&mut self, entries: &[Entry]) -> Vec<Entry> {
        let one = |w: &mut Self, entry: &Entry| {
            let value = w.within(&entry.key, |w| w.free_value(&entry.key, &entry.node.value));
            w.entry(&entry.key, value)
        };
        entries.iter().map(|entry| one(self, entry)).collect()
    }

    fn free_value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Str(text) if secrets::template_name(text).is_some() || secrets::is_placeholder(text) => {
                Value::Str(text.clone())
            }
            Value::Str(text) if secrets::is_sensitive_name(key) => {
                self.masked.push(self.path.clone());
                Value::Str(secrets::redact(text))
            }
            Value::Str(text) => self.url(text).form(),
            Value::Map(entries) => Value::Map(self.free(entries)),
            Value::List(items) => {
                let one = |w: &mut Self, i: usize, item: &Node| {
                    Node::new(&item.place, w.within(&format!("[{i}]"), |w| w.free_value(key, &item.value)))
                };
                Value::List(items.iter().enumerate().map(|(i, item)| one(self, i, item)).collect())
            }
            other => other.clone(),
        }
    }

    /// A text that may be a URL with a password.
    fn url(&mut self, text: &str) -> String {
        match secrets::looks_secret(text) {
            Some(masked) => {
                self.masked.push(self.path.clone());
                masked
            }
            None => text.to_string(),
        }
    }

    fn put_url(&mut self, out: &mut Vec<Entry>, key: &str, url: &Option<String>) {
        let value = self.within(key, |w| url.as_deref().map(|u| w.url(u)));
        self.put(out, key, &value);
    }

    fn job(&mut self, c: &RunConfig) -> Vec<Entry> {
        let mut out = vec![self.entry("schema_version", Value::Int(1))];
        let o = &mut out;
        self.put(o, "job_name", &c.job_name);
        self.put(o, "jobs_dir", &c.jobs_dir);
        self.put(o, "n_attempts", &c.n_attempts);
        self.put(o, "install_only", &c.install_only);
        self.put(o, "skip_credential_checks", &c.skip_credential_checks);
        self.put(o, "timeout_multiplier", &c.timeout_multiplier);
        self.put(o, "agent_timeout_multiplier", &c.agent_timeout_multiplier);
        self.put(o, "verifier_timeout_multiplier", &c.verifier_timeout_multiplier);
        self.put(o, "agent_setup_timeout_multiplier", &c.agent_setup_timeout_multiplier);
        self.put(o, "environment_build_timeout_multiplier", &c.environment_build_timeout_multiplier);
        self.put(o, "debug", &c.debug);
        self.put(o, "n_concurrent_trials", &c.n_concurrent_trials);
        self.put(o, "quiet", &c.quiet);
        self.section(o, "retry", |w| w.retry(&c.retry));
        self.section(o, "override_error_policy", |w| w.policies(&c.override_error_policy));
        self.section(o, "environment", |w| w.environment(&c.environment));
        self.section(o, "verifier", |w| w.verifier(&c.verifier));
        self.each(o, "metrics", &c.metrics, |w, m| {
            let mut out = Vec::new();
            w.put(&mut out, "type", &m.kind);
            w.kwargs(&mut out, &m.kwargs);
            Value::Map(out)
        });
        self.each(o, "agents", &c.agents, |w, a| Value::Map(w.agent(a)));
        match &c.user_agent {
            Some(user) => self.section(o, "user_agent", |w| w.user_agent(user)),
            None => o.push(self.entry("user_agent", Value::Null)),
        }
        self.each(o, "datasets", &c.datasets, |w, d| Value::Map(w.dataset(d)));
        self.each(o, "tasks", &c.tasks, |w, t| Value::Map(w.task(t)));
        self.each(o, "artifacts", &c.artifacts, |w, a| w.artifact(a));
        self.put(o, "extra_instruction_paths", &c.extra_instruction_paths);
        self.put(o, "extra_instructions", &c.extra_instructions);
        self.each(o, "source_jobs", &c.source_jobs, |w, s| {
            let mut out = Vec::new();
            w.put(&mut out, "action", &s.action);
            w.put(&mut out, "type", &s.kind);
            w.put(&mut out, "job_id", &s.job_id);
            w.put(&mut out, "path", &s.path);
            Value::Map(out)
        });
        out
    }

    fn retry(&mut self, r: &RetryConfig) -> Vec<Entry> {
        let mut o = Vec::new();
        self.put(&mut o, "max_retries", &r.max_retries);
        self.put(&mut o, "include_exceptions", &r.include_exceptions);
        self.put(&mut o, "exclude_exceptions", &r.exclude_exceptions);
        self.put(&mut o, "wait_multiplier", &r.wait_multiplier);
        self.put(&mut o, "min_wait_sec", &r.min_wait_sec);
        self.put(&mut o, "max_wait_sec", &r.max_wait_sec);
        o
    }

    fn policies(&mut self, policies: &[(String, ErrorPolicyOverride)]) -> Vec<Entry> {
        let mut out = Vec::new();
        for (name, policy) in policies {
            self.section(&mut out, name, |w| {
                let mut o = Vec::new();
                w.put(&mut o, "should_retry", &policy.should_retry);
                w.put(&mut o, "should_grade", &policy.should_grade);
                w.put(&mut o, "has_valid_reward", &policy.has_valid_reward);
                o
            });
        }
        out
    }

    fn environment(&mut self, e: &EnvironmentConfig) -> Vec<Entry> {
        let mut out = Vec::new();
        let o = &mut out;
        self.put(o, "type", &e.kind);
        self.put(o, "import_path", &e.import_path);
        self.put(o, "force_build", &e.force_build);
        self.put(o, "delete", &e.delete);
        self.put(o, "stream", &e.stream);
        self.put(o, "cpu_enforcement_policy", e.cpu_enforcement_policy.word());
        self.put(o, "memory_enforcement_policy", e.memory_enforcement_policy.word());
        // Whole numbers without a point, which 0.21 would refuse.
        let cpus = e.override_cpus.map_or(Value::Null, |n| match n.fract() == 0.0 && n < 1e15 {
            true => Value::Int(n as i128),
            false => Value::Float(n),
        });
        o.push(self.entry("override_cpus", cpus));
        self.put(o, "override_memory_mb", &e.override_memory_mb);
        self.put(o, "override_storage_mb", &e.override_storage_mb);
        self.put(o, "override_gpus", &e.override_gpus);
        match &e.override_tpu {
            Some(tpu) => self.section(o, "override_tpu", |w| {
                vec![w.entry("type", tpu.kind.form()), w.entry("topology", tpu.topology.form())]
            }),
            None => o.push(self.entry("override_tpu", Value::Null)),
        }
        match &e.mounts {
            Some(mounts) => self.each(o, "mounts", mounts, |w, m| Value::Map(w.mount(m))),
            None => o.push(self.entry("mounts", Value::Null)),
        }
        self.put(o, "extra_docker_compose", &e.extra_docker_compose);
        self.env(o, "env", &e.env, None);
        self.kwargs(o, &e.kwargs);
        self.put(o, "extra_allowed_hosts", &e.extra_allowed_hosts);
        out
    }

    fn mount(&mut self, m: &Mount) -> Vec<Entry> {
        let mut o = Vec::new();
        self.put(&mut o, "type", &m.kind);
        self.put(&mut o, "source", &m.source);
        self.put(&mut o, "target", &m.target);
        // Harbor knows only `true` here.
        if m.read_only {
            self.put(&mut o, "read_only", &true);
        }
        o.extend(m.options.iter().cloned());
        o
    }

    fn verifier(&mut self, v: &VerifierConfig) -> Vec<Entry> {
        let mut out = Vec::new();
        let o = &mut out;
        self.put(o, "override_timeout_sec", &v.override_timeout_sec);
        self.put(o, "max_timeout_sec", &v.max_timeout_sec);
        self.put_list(o, "include_logs", &v.include_logs);
        self.put_list(o, "exclude_logs", &v.exclude_logs);
        self.env(o, "env", &v.env, None);
        if v.import_path.is_some() {
            self.put(o, "import_path", &v.import_path);
        }
        if !v.kwargs.is_empty() {
            self.kwargs(o, &v.kwargs);
        }
        self.put(o, "disable", &v.disable);
        self.put_list(o, "extra_allowed_hosts", &v.extra_allowed_hosts);
        out
    }

    fn agent(&mut self, a: &AgentConfig) -> Vec<Entry> {
        let mut out = Vec::new();
        let o = &mut out;
        self.put(o, "name", &a.name);
        self.put(o, "import_path", &a.import_path);
        self.put(o, "model_name", &a.model_name);
        self.put_url(o, "base_url", &a.base_url);
        self.put(o, "model_api_key_name", &a.model_api_key_name);
        self.put(o, "model_api_format", &a.model_api_format);
        self.put(o, "skip_model_parsing", &a.skip_model_parsing);
        self.put(o, "n_concurrent", &a.n_concurrent);
        self.put(o, "concurrency_group", &a.concurrency_group);
        self.put(o, "skills", &a.skills);
        self.put(o, "override_timeout_sec", &a.override_timeout_sec);
        self.put(o, "override_setup_timeout_sec", &a.override_setup_timeout_sec);
        self.put(o, "max_timeout_sec", &a.max_timeout_sec);
        self.put(o, "resume_trajectory", &a.resume_trajectory);
        self.put(o, "load_trajectory", &a.load_trajectory);
        self.put(o, "extra_allowed_hosts", &a.extra_allowed_hosts);
        self.put_list(o, "include_logs", &a.include_logs);
        self.put_list(o, "exclude_logs", &a.exclude_logs);
        self.kwargs(o, &a.kwargs);
        self.env(o, "env", &a.env, a.model_api_key_name.as_deref());
        self.each(o, "mcp_servers", &a.mcp_servers, |w, m| {
            let mut out = Vec::new();
            let o = &mut out;
            w.put(o, "name", &m.name);
            w.put(o, "transport", &m.transport);
            w.put_url(o, "url", &m.url);
            w.put(o, "command", &m.command);
            w.put(o, "args", &m.args);
            w.env(o, "headers", &m.headers, None);
            Value::Map(out)
        });
        out
    }

    fn user_agent(&mut self, u: &UserAgentConfig) -> Vec<Entry> {
        let mut out = self.agent(&u.agent);
        let o = &mut out;
        self.put(o, "user_persona_path", &u.user_persona_path);
        self.put(o, "user_prompt_template_path", &u.user_prompt_template_path);
        self.section(o, "bridge", |w| {
            let mut o = Vec::new();
            w.put(&mut o, "kind", &u.bridge_kind);
            w.put(&mut o, "prompt_path", &u.bridge_prompt_path);
            w.kwargs(&mut o, &u.bridge_kwargs);
            o
        });
        out
    }

    fn dataset(&mut self, d: &DatasetConfig) -> Vec<Entry> {
        let mut out = Vec::new();
        let o = &mut out;
        self.put(o, "path", &d.path);
        self.put(o, "name", &d.name);
        self.put(o, "version", &d.version);
        self.put(o, "ref", &d.reference);
        self.put_url(o, "registry_url", &d.registry_url);
        self.put(o, "registry_path", &d.registry_path);
        self.put_url(o, "repo", &d.repo);
        self.put(o, "overwrite", &d.overwrite);
        self.put(o, "download_dir", &d.download_dir);
        self.put(o, "task_names", &d.task_names);
        self.put(o, "exclude_task_names", &d.exclude_task_names);
        self.put(o, "n_tasks", &d.n_tasks);
        out
    }

    fn task(&mut self, t: &TaskRef) -> Vec<Entry> {
        let mut out = Vec::new();
        let o = &mut out;
        self.put(o, "path", &t.path);
        self.put_url(o, "git_url", &t.git_url);
        self.put(o, "git_commit_id", &t.git_commit_id);
        self.put(o, "name", &t.name);
        self.put(o, "ref", &t.reference);
        self.put(o, "overwrite", &t.overwrite);
        self.put(o, "download_dir", &t.download_dir);
        self.put(o, "source", &t.source);
        out
    }

    fn artifact(&mut self, artifact: &Artifact) -> Value {
        match artifact {
            Artifact::Path(path) => path.form(),
            Artifact::Full { source, destination, exclude, service } => {
                let mut o = Vec::new();
                self.put(&mut o, "source", source);
                self.put(&mut o, "destination", destination);
                self.put(&mut o, "exclude", exclude);
                self.put(&mut o, "service", service);
                Value::Map(o)
            }
        }
    }
}
