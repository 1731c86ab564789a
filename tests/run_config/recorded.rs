//! Every recorded config, and the config of a published run.

use std::fs;

use pilothouse::harbor::run_config::{Format, HarborVersion, RunConfig, read_config, unsupported};

use crate::{no_env, resolve_with, support};

fn read(text: &str, name: &str, version: HarborVersion) -> RunConfig {
    read_config(text.as_bytes(), name, version).unwrap_or_else(|e| panic!("{e}"))
}

/// Recorded configs: file, text, version.
fn recorded() -> Vec<(String, String, HarborVersion)> {
    let Some(shared) = support::shared() else { return Vec::new() };
    let mut out = Vec::new();
    for entry in fs::read_dir(shared.join("data/jobs")).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("config.json")) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        let version = if name.ends_with("0.26.0") { HarborVersion::V0_26 } else { HarborVersion::V0_21 };
        out.push((format!("{name}/config.json"), text, version));
    }
    assert!(out.len() >= 15, "{} recorded configs", out.len());
    out
}

#[test]
fn full_dumps_come_back_as_they_are() {
    let mut n = 0;
    for (name, text, version) in recorded() {
        if version == HarborVersion::V0_26 {
            let config = read(&text, &name, version);
            let original: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(config.to_json(&no_env), original, "{name}");
            // Not only the same values: the same keys in the same order.
            let keys = |text: &str| -> Vec<String> {
                text.lines().filter_map(|l| l.trim().split_once("\":").map(|(k, _)| k.to_string())).collect()
            };
            assert_eq!(keys(&config.print_config(Format::Json, &no_env).text), keys(&text), "{name}");
            n += 1;
        }
    }
    assert!(n == 0 || n >= 4, "{n} full dumps");
}

#[test]
fn sparse_and_full_forms_mean_the_same() {
    for (name, text, version) in recorded() {
        let config = read(&text, &name, version);
        assert!(!config.job_name.is_empty(), "{name}");
        for format in [Format::Json, Format::Yaml] {
            let printed = config.print_config(format, &no_env);
            assert_eq!(printed.masked, Vec::<String>::new(), "{name}");
            let file = if format == Format::Json { "full.json" } else { "full.yaml" };
            // Every default is written out, so the reader's version no longer matters.
            for reader in [HarborVersion::V0_21, HarborVersion::V0_26] {
                assert_eq!(read(&printed.text, file, reader), config, "{name} as {file}\n{}", printed.text);
            }
        }
    }
}

#[test]
fn sparse_defaults_are_those_of_their_version() {
    for (name, text, version) in recorded() {
        let excludes = read(&text, &name, version).retry.exclude_exceptions.unwrap();
        match version {
            HarborVersion::V0_21 => {
                assert_eq!(excludes.len(), 9, "{name}");
                assert!(excludes.contains(&"ApiUsageLimitError".to_string()), "{name}");
            }
            HarborVersion::V0_26 => {
                assert_eq!(excludes.len(), 30, "{name}");
                assert!(!excludes.contains(&"ApiUsageLimitError".to_string()), "{name}");
            }
        }
    }
}

#[test]
fn a_published_run_resolves_to_its_settings() {
    let Some(shared) = support::shared() else { return };
    let text = fs::read_to_string(shared.join("data/configs/full-run-A.yaml")).unwrap();
    let args = ["-c", "full-run-A.yaml", "--job-name", "full-run-a"];
    let resolved = resolve_with(&args, &[("full-run-A.yaml", &text)]).unwrap();
    let config = &resolved.config;
    assert_eq!(config.n_concurrent_trials, 25);
    assert_eq!(config.agent_timeout_multiplier, Some(6.0));
    assert_eq!(config.agent_setup_timeout_multiplier, Some(5.0));
    assert_eq!((config.timeout_multiplier, config.verifier_timeout_multiplier), (1.0, None));
    let agent = &config.agents[0];
    assert_eq!(agent.name.as_deref(), Some("terminus-2"));
    assert_eq!(agent.model_name.as_deref(), Some("openai/Qwen/Qwen3.8-27B"));
    assert_eq!(agent.n_concurrent, Some(20));
    assert_eq!(agent.kwarg("record_terminal_session").and_then(|n| n.as_bool()), Some(true));
    let top_p = agent.kwarg("llm_call_kwargs").and_then(|n| n.get("top_p")).map(|n| n.value.to_json());
    assert_eq!(top_p, Some(serde_json::json!(0.95)));
    assert_eq!(config.datasets[0].path.as_deref(), Some(std::path::Path::new("tasks")));
    let missing: Vec<String> = unsupported(config).into_iter().map(|u| u.what).collect();
    assert!(missing.is_empty(), "{missing:?}");
    insta::assert_snapshot!("full_run_a_yaml", config.print_config(Format::Yaml, &no_env).text);
    insta::assert_snapshot!("full_run_a_json", config.print_config(Format::Json, &no_env).text);
}
