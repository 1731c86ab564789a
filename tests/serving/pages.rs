//! The pages that real servers answered with, against figures that are read from the files once more, by
//! other means.

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::serving::page;
use pilothouse::serving::{Circuit, Engine, Load};
use proptest::prelude::*;
use serde_json::Value;

use crate::support::shared;

fn serving() -> Option<PathBuf> {
    Some(shared()?.join("data/serving")).filter(|dir| dir.is_dir())
}

/// The body of an answer that was kept with its head.
fn body(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if !bytes.starts_with(b"HTTP/") {
        return bytes;
    }
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    bytes[at + 4..].to_vec()
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn files(dir: &Path, starts: &str, ends: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).collect();
    all.retain(|p| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(starts) && name.ends_with(ends)
    });
    all.sort();
    assert!(!all.is_empty(), "{}: no {starts}*{ends}", dir.display());
    all
}

/// A sample of a page, found by its text alone.
fn sample(text: &str, name: &str, label: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.starts_with(&format!("{name}{{")) && l.contains(label))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn near(a: Option<f32>, b: f64) {
    let a = f64::from(a.unwrap_or_else(|| panic!("nothing for {b}")));
    assert!((a - b).abs() < 1e-3 * b.abs().max(1.0), "{a} is not {b}");
}

fn only(loads: &[Load]) -> Load {
    assert_eq!(loads.len(), 1);
    loads[0]
}

#[test]
fn loads_of_every_recorded_moment_are_read() {
    let Some(dir) = serving() else { return };
    let mut seen = 0;
    for folder in ["sglang/real-cpu", "sglang/real-cpu2"] {
        for file in files(&dir.join(folder), "v1_loads-", ".json") {
            let bytes = body(&file);
            let want = &value(&bytes)["loads"][0];
            let got = page::loads(&bytes).unwrap();
            assert_eq!(got.version.as_deref(), Some("0.5.23"));
            let load = only(&got.loads);
            let number = |name: &str| want[name].as_f64().unwrap();
            assert_eq!(load.rank, None);
            assert_eq!(load.figures.running.map(f64::from), Some(number("num_running_reqs")));
            assert_eq!(load.figures.queued.map(f64::from), Some(number("num_waiting_reqs")));
            assert_eq!(load.figures.tokens.map(|n| n as f64), Some(number("num_used_tokens")));
            assert_eq!(load.figures.pending_tokens.map(|n| n as f64), Some(number("num_waiting_uncached_tokens")));
            near(load.figures.kv, number("token_usage"));
            near(load.figures.generation, number("gen_throughput"));
            near(load.figures.cache_hit, number("cache_hit_rate"));
            assert_eq!(load.limits.capacity.map(|n| n as f64), Some(number("max_total_num_tokens")));
            assert_eq!(load.limits.max_running.map(f64::from), Some(number("max_running_requests")));
            assert_eq!(load.counters.prefilled, Some(number("total_prefill_uncached_tokens")));
            assert_eq!(load.counters.generated, want["decode_moments"][5].as_f64());
            let age = load.age.unwrap();
            let young = if file.ends_with("v1_loads-hung.json") { 20.3..20.5 } else { 0.0..3.0 };
            assert!(young.contains(&age), "{}: {age}", file.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 14);
    // An idle one holds its last throughput.
    let idle = only(&page::loads(&body(&dir.join("sglang/real-cpu/http_v1_loads.txt"))).unwrap().loads);
    assert_eq!((idle.figures.running, idle.figures.generation), (Some(0), None));
    assert!(page::loads(&body(&dir.join("sglang/real-cpu/http_v1_loads_bad.txt"))).is_err());
    assert!(page::loads(&body(&dir.join("sglang/real-cpu2/http_401.txt"))).is_err());
}

#[test]
fn loads_of_other_versions_and_ranks_are_read() {
    let old = br#"{"timestamp":"2026-02-01T10:00:00.5+00:00","version":"0.5.9","dp_rank_count":2,"loads":[
        {"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_total_reqs":4,"num_used_tokens":900,
         "max_total_num_tokens":1000,"token_usage":0.9,"gen_throughput":88.5,"cache_hit_rate":0.0,"new":{"x":[1]}},
        {"dp_rank":1,"num_running_reqs":null,"num_waiting_reqs":"2","speculative":{"accept_length":2.5},"lora":null}],
        "aggregate":{"total_running_reqs":3,"avg_token_usage":0.45}}"#;
    let got = page::loads(old).unwrap();
    assert_eq!(got.version.as_deref(), Some("0.5.9"));
    let [a, b] = got.loads.as_slice() else { panic!("{got:?}") };
    assert_eq!((a.rank, b.rank), (Some(0), Some(1)));
    assert_eq!((a.figures.running, a.figures.queued, a.figures.tokens), (Some(3), Some(1), Some(900)));
    assert_eq!((a.age, a.figures.cache_hit), (None, None));
    assert_eq!((b.figures.running, b.figures.queued, b.figures.kv), (None, Some(2), None));
    assert_eq!(b.figures.accept_len, Some(2.5));
    // Older than the answer by twenty seconds: a scheduler that hangs.
    let hung = br#"{"timestamp":"2026-11-29T19:52:45.0+00:00","version":"0.5.23","loads":[{"timestamp":1795981944.6,
        "dp_rank":0,"num_running_reqs":1,"max_total_num_tokens":6000,"num_used_tokens":196}]}"#;
    near(only(&page::loads(hung).unwrap().loads).age, 20.4);
    let before = page::get_load(
        br#"[{"dp_rank":0,"num_reqs":7,"num_waiting_reqs":3,"num_tokens":900},
        {"dp_rank":1,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":0,"ts_tic":1.5}]"#,
    )
    .unwrap();
    assert_eq!(
        (before[0].figures.running, before[0].figures.queued, before[0].figures.tokens),
        (Some(4), Some(3), None)
    );
    assert_eq!((before[1].rank, before[1].figures.running), (Some(1), Some(0)));
}

#[test]
fn metrics_of_sglang_are_read_at_every_recorded_moment() {
    let Some(dir) = serving() else { return };
    let mut seen = 0;
    for folder in ["sglang/real-cpu", "sglang/real-cpu2"] {
        for file in files(&dir.join(folder), "metrics-", ".prom") {
            let bytes = body(&file);
            let text = String::from_utf8(bytes.clone()).unwrap();
            let of = |name: &str, label: &str| sample(&text, &format!("sglang:{name}"), label);
            let got = page::metrics(&bytes).unwrap();
            assert_eq!((got.engine, got.model.as_deref()), (Some(Engine::Sglang), Some("tiny-llama")));
            let load = only(&got.loads);
            assert_eq!(load.rank, None, "{}", file.display());
            assert_eq!(load.figures.running.map(f64::from), of("num_running_reqs", ""));
            assert_eq!(load.figures.queued.map(f64::from), of("num_queue_reqs", ""));
            assert_eq!(load.figures.tokens.map(|n| n as f64), of("kv_used_tokens", ""));
            if let Some(usage) = of("full_token_usage", "") {
                near(load.figures.kv, usage);
            }
            // Pools that this model has not.
            assert_eq!((load.figures.swa, load.figures.mamba, load.figures.mamba_slots), (None, None, None));
            assert_eq!(load.figures.accept_len, None);
            let throughput = of("gen_throughput", "").filter(|_| load.figures.running != Some(0));
            assert_eq!(load.figures.generation.is_some(), throughput.is_some());
            assert_eq!(load.limits.capacity.map(|n| n as f64), of("max_total_num_tokens", ""));
            assert_eq!(load.limits.context, Some(4096));
            assert_eq!(load.counters.generated, of("realtime_tokens_total", "mode=\"decode\""));
            assert_eq!(load.counters.prefilled, of("realtime_tokens_total", "mode=\"prefill_compute\""));
            assert_eq!(load.counters.cached, of("realtime_tokens_total", "mode=\"prefill_cache\""));
            let began = load.counters.generated.map(|_| 0.0);
            assert_eq!(load.counters.retracted, of("num_retracted_requests_total", "").or(began));
            assert_eq!(load.counters.aborted, of("num_aborted_requests_total", ""));
            seen += 1;
        }
    }
    assert_eq!(seen, 16);
    let after = page::metrics(&body(&dir.join("sglang/real-cpu2/metrics-after.prom"))).unwrap();
    assert_eq!(only(&after.loads).counters.retracted, Some(2.0));
}

#[test]
fn metrics_follow_the_rules_of_their_versions() {
    let read = |text: &str| page::metrics(text.as_bytes()).unwrap().loads;
    // 0.5.3: one pool, the rate is set back by each decode report, no counters that are live.
    let old = only(&read(
        "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\",pp_rank=\"0\"} 4\nsglang:token_usage{model_name=\"m\",\
         tp_rank=\"0\",pp_rank=\"0\"} 0.75\nsglang:cache_hit_rate{model_name=\"m\",tp_rank=\"0\"} 0.0\n\
         sglang:generation_tokens_total{model_name=\"m\"} 5000\nsglang:num_queue_reqs{model_name=\"m\"} 2",
    ));
    assert_eq!((old.figures.running, old.figures.queued, old.figures.kv), (Some(4), Some(2), Some(0.75)));
    assert_eq!((old.figures.cache_hit, old.counters.generated, old.counters.retracted), (None, None, None));
    // 0.5.15, hybrid: `token_usage` is the largest of the pools.
    let hybrid = only(&read(
        "sglang:token_usage{tp_rank=\"0\"} 0.8\nsglang:full_token_usage{tp_rank=\"0\"} 0.42\nsglang:mamba_usage{tp_rank=\"0\"} \
         0.8\nsglang:mamba_used_tokens{tp_rank=\"0\"} 160\nsglang:mamba_available_tokens{tp_rank=\"0\"} 40\n\
         sglang:mamba_evictable_tokens{tp_rank=\"0\"} 0",
    ));
    assert_eq!((hybrid.figures.kv, hybrid.figures.mamba), (Some(0.42), Some(0.8)));
    assert_eq!((hybrid.figures.mamba_slots, hybrid.limits.mamba_slots), (Some(160), Some(200)));
    // Every scheduler exports: two DP ranks of two TP ranks each, which say the same twice.
    let mut text = String::new();
    for (dp, tp, running) in [(0, 1, 5), (0, 0, 5), (1, 2, 7), (1, 3, 7)] {
        for (mode, n) in [("decode", 100), ("prefill_compute", 10)] {
            text.push_str(&format!(
                "sglang:realtime_tokens_total{{dp_rank=\"{dp}\",mode=\"{mode}\",tp_rank=\"{tp}\"}} {n}\n"
            ));
        }
        text.push_str(&format!(
            "sglang:num_running_reqs{{dp_rank=\"{dp}\",pp_rank=\"0\",tp_rank=\"{tp}\"}} {running}\n"
        ));
    }
    text.push_str("sglang:num_aborted_requests_total{model_name=\"m\"} 3\n");
    let ranks = read(&text);
    let got: Vec<_> = ranks.iter().map(|l| (l.rank, l.figures.running, l.counters.generated)).collect();
    assert_eq!(got, [(Some(0), Some(5), Some(100.0)), (Some(1), Some(7), Some(100.0))]);
    assert_eq!(ranks[0].counters.aborted, None, "it is nobody's among ranks");
    // Priorities stand beside their sum.
    let sorted = only(&read(
        "sglang:num_queue_reqs{priority=\"\",tp_rank=\"0\"} 5\nsglang:num_queue_reqs{priority=\"1\",tp_rank=\"0\"} 2\n\
         sglang:num_queue_reqs{priority=\"2\",tp_rank=\"0\"} 3\n",
    ));
    assert_eq!(sorted.figures.queued, Some(5));
    // A merged page, the colons gone.
    let merged = page::workers_metrics(
        b"sglang_num_running_reqs{tp_rank=\"0\",worker_addr=\"http://b:1\"} 2\nsglang_num_running_reqs{tp_rank=\"0\",\
          worker_addr=\"http://a:1\"} 1\nvllm_num_requests_running{engine=\"0\",worker_addr=\"http://c:1\"} 9\n",
    );
    let got: Vec<_> = merged.iter().map(|(w, m)| (&**w, m.engine, only(&m.loads).figures.running)).collect();
    let (sglang, vllm) = (Some(Engine::Sglang), Some(Engine::Vllm));
    assert_eq!(got, [("http://a:1", sglang, Some(1)), ("http://b:1", sglang, Some(2)), ("http://c:1", vllm, Some(9))]);
    // The same figures in the text form of the loads are no metrics of a scheduler, but are read as such.
    assert!(page::metrics(b"# HELP x y\npython_info{version=\"3\"} 1\n").is_err());
    assert!(page::metrics(b"<html><body>502 Bad Gateway</body></html>").is_err());
}

#[test]
fn metrics_of_vllm_are_read_in_all_generations() {
    let read = |text: &str| page::metrics(text.as_bytes()).unwrap();
    let v0 = only(
        &read(
            "vllm:num_requests_running{model_name=\"m\"} 3.0\nvllm:num_requests_swapped{model_name=\"m\"} 2.0\n\
         vllm:num_requests_waiting{model_name=\"m\"} 1.0\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n\
         vllm:cpu_cache_usage_perc{model_name=\"m\"} 0.1\nvllm:prompt_tokens_total{model_name=\"m\"} 100\n\
         vllm:generation_tokens_total{model_name=\"m\"} 50\nvllm:gpu_prefix_cache_hit_rate{model_name=\"m\"} -1.0\n\
         vllm:avg_generation_throughput_toks_per_s{model_name=\"m\"} 33.5\n\
         vllm:time_per_output_token_seconds_bucket{le=\"0.1\",model_name=\"m\"} 9",
        )
        .loads,
    );
    assert_eq!((v0.figures.running, v0.figures.queued, v0.figures.kv), (Some(3), Some(3), Some(0.5)));
    assert_eq!((v0.figures.generation, v0.figures.cache_hit, v0.counters.prefilled), (Some(33.5), None, None));
    assert_eq!((v0.counters.generated, v0.rank), (Some(50.0), None));
    let v10 = only(
        &read(
            "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
         vllm:prompt_tokens_total{engine=\"0\"} 100\nvllm:prefix_cache_hits_total{engine=\"0\"} 60\n\
         vllm:gpu_prefix_cache_hits_total{engine=\"0\"} 60\nvllm:generation_tokens_created{engine=\"0\"} 1.7e9",
        )
        .loads,
    );
    assert_eq!((v10.figures.kv, v10.counters.prefilled, v10.counters.cached), (Some(0.25), Some(40.0), Some(60.0)));
    assert_eq!(v10.counters.started, Some(1.7e9));
    let two = read(
        "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\n\
        vllm:spec_decode_num_drafts_total{engine=\"0\"} 10\nvllm:spec_decode_num_drafts_total{engine=\"1\"} 10\n\
        vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} 15\nvllm:spec_decode_num_accepted_tokens_total{engine=\"1\"} 5",
    );
    assert_eq!(two.loads.iter().map(|l| l.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(two.drafts, Some((20.0, 20.0)));

    let Some(dir) = serving() else { return };
    let mut preempted = Vec::new();
    for file in files(&dir.join("vllm/real-cpu"), "metrics-", ".prom") {
        let bytes = body(&file);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let of = |name: &str, label: &str| sample(&text, &format!("vllm:{name}"), label);
        let got = page::metrics(&bytes).unwrap();
        assert_eq!((got.engine, got.model.as_deref()), (Some(Engine::Vllm), Some("tiny-llama")));
        let load = only(&got.loads);
        assert_eq!(load.figures.running.map(f64::from), of("num_requests_running", ""));
        assert_eq!(load.figures.queued.map(f64::from), of("num_requests_waiting", ""));
        near(load.figures.kv, of("kv_cache_usage_perc", "").unwrap());
        assert_eq!(load.limits.capacity, Some(40 * 128));
        assert_eq!(load.counters.generated, of("generation_tokens_total", ""));
        assert_eq!(load.counters.retracted, of("num_preemptions_total", ""));
        assert_eq!(load.counters.aborted, of("request_success_total", "finished_reason=\"abort\""));
        assert_eq!(load.counters.prefilled, of("prompt_tokens_by_source_total", "source=\"local_compute\""));
        assert_eq!(load.counters.cached, of("prompt_tokens_cached_total", ""));
        assert_eq!(load.counters.started, Some(1_795_980_949.68));
        preempted.push(load.counters.retracted.unwrap());
    }
    assert_eq!(preempted.iter().copied().fold(0.0, f64::max), 20.0);
}

#[test]
fn server_info_tells_limits_and_no_keys() {
    let Some(dir) = serving() else { return };
    for name in ["http_server_info.txt", "http_get_server_info.txt"] {
        let bytes = body(&dir.join("sglang/real-cpu").join(name));
        let want = value(&bytes);
        assert!(want.as_object().unwrap().len() > 500);
        let info = page::server_info(&bytes).unwrap();
        assert_eq!((info.engine, info.version.as_deref()), (Some(Engine::Sglang), Some("0.5.23")));
        assert_eq!((info.model.as_deref(), info.dp_size), (Some("tiny-llama"), Some(1)));
        let limits = info.limits;
        assert_eq!((limits.max_running, limits.context, limits.capacity), (Some(8), Some(4096), Some(6000)));
        assert_eq!((limits.chunk, limits.watchdog, limits.mamba_slots), (Some(4096), Some(300.0), None));
        let get = |name: &str| info.settings.iter().find(|(n, _)| &**n == name).map(|(_, v)| v.to_string());
        assert_eq!(get("decode_log_interval").as_deref(), Some("10"));
        assert_eq!(info.settings[0], ("tp_size".into(), "1".into()));
        // All scalars that are set are kept, unless something secret is near.
        let set = want.as_object().unwrap().values().filter(|v| v.is_boolean() || v.is_number() || v.is_string());
        assert!(info.settings.len() * 10 > set.count() * 8, "{}", info.settings.len());
        for (name, _) in &info.settings {
            assert!(
                !["key", "token", "password", "secret", "launch_command"].iter().any(|w| name.contains(w)),
                "{name}"
            );
        }
    }
    for name in ["get_server_info.txt", "dp_get_server_info.txt"] {
        assert!(page::server_info(&body(&dir.join("router/http").join(name))).is_err(), "a router is no engine");
    }
}

#[test]
fn keys_never_come_out_of_server_info() {
    let text =
        br#"{"model_path":"/m","served_model_name":null,"context_length":null,"api_key":"KEY-USER","admin_api_key":
        "KEY-ADMIN","launch_command":"--api-key KEY-USER","note":"started with KEY-ADMIN","hf_token":"abcd",
        "url":"https://u:hunter22@h/","ssl_keyfile_password":"pw12","MY_SECRET":"s3cr","other":"--hf-token abcdefg",
        "dp_size":2,"max_running_requests":64,"max_total_num_tokens":1000,"chunked_prefill_size":-1,"version":"0.5.9",
        "internal_states":[{"api_key":"KEY-USER","memory_usage":{"graph":{"decode":1.0},"token_capacity":900},
        "effective_max_running_requests_per_dp":32},{"memory_usage":{"graph":2.5}}]}"#;
    let info = page::server_info(text).unwrap();
    let all = format!("{info:?}");
    for secret in ["KEY-USER", "KEY-ADMIN", "abcd", "hunter22", "pw12", "s3cr"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    assert_eq!((info.model.as_deref(), info.dp_size), (Some("/m"), Some(2)));
    assert_eq!((info.limits.max_running, info.limits.context, info.limits.chunk), (Some(32), None, None));
    let numbered = br#"{"version":"0.5.20","model_path":"m","internal_states":[{"memory_usage":{"graph":2.5,"token_capacity":77}}]}"#;
    assert_eq!(page::server_info(numbered).unwrap().limits.capacity, Some(77));
}

#[test]
fn models_and_versions_tell_the_engine() {
    let Some(dir) = serving() else { return };
    let read = |name: &str| page::models(&body(&dir.join(name))).unwrap();
    let sglang = read("sglang/real-cpu/http_v1_models.txt");
    assert_eq!((sglang.engine, sglang.context), (Some(Engine::Sglang), Some(4096)));
    let vllm = read("vllm/real-cpu/http_v1_models.txt");
    assert_eq!(
        (vllm.engine, vllm.context, vllm.model.as_deref()),
        (Some(Engine::Vllm), Some(8192), Some("tiny-llama"))
    );
    let router = read("router/http/v1_models.txt");
    assert_eq!((router.engine, router.context), (Some(Engine::Router), None));
    assert_eq!(page::version(&body(&dir.join("vllm/real-cpu/http_version.txt"))).unwrap().as_ref(), "0.32.0");
    assert!(page::version(&body(&dir.join("sglang/real-cpu/http_version.txt"))).is_err());
    for name in ["sglang/real-cpu/http_model_info.txt", "sglang/real-cpu/http_get_model_info.txt"] {
        assert_eq!(page::model_info(&body(&dir.join(name))).unwrap().as_ref(), "tiny-llama");
    }
}

#[test]
fn a_router_shows_its_workers_through_death_and_return() {
    let Some(dir) = serving() else { return };
    let http = dir.join("router/http");
    let healthy = |name: &str| {
        let workers = page::workers(&body(&http.join(name))).unwrap();
        workers.iter().map(|w| (w.url.to_string(), w.healthy.unwrap())).collect::<Vec<_>>()
    };
    let (one, two) = ("http://127.0.0.1:31001".to_string(), "http://127.0.0.1:31002".to_string());
    assert_eq!(healthy("A_workers.txt"), [(one.clone(), true), (two.clone(), true)]);
    assert_eq!(healthy("B_workers_later.txt"), [(one.clone(), false), (two.clone(), true)]);
    assert_eq!(healthy("C_workers.txt"), [(one.clone(), false), (two.clone(), false)]);
    assert_eq!(healthy("D_workers.txt"), [(one, true), (two, false)]);
    let aware = page::workers(&body(&http.join("dp_workers_auth.txt"))).unwrap();
    let places: Vec<_> = aware.iter().map(|w| (w.url.rsplit(':').next().unwrap().to_string(), w.rank)).collect();
    let want = [("31001", 0), ("31001", 1), ("31002", 0), ("31002", 1)];
    assert_eq!(places, want.map(|(port, rank)| (port.to_string(), Some(rank))));
    assert!(page::workers(&body(&http.join("dp_workers.txt"))).is_err(), "the body of a 401 is empty");
    assert_eq!(page::readiness(&body(&http.join("A_readiness.txt"))), Ok((2, Some(2))));
    assert_eq!(page::readiness(&body(&http.join("C_readiness.txt"))), Ok((0, None)));
    assert_eq!(page::readiness(&body(&http.join("dp_readiness.txt"))), Ok((4, Some(4))));
    assert!(page::readiness(br#"{"detail":"Not Found"}"#).is_err());
    let loads = page::get_loads(&body(&http.join("B_get_loads.txt"))).unwrap();
    assert_eq!(loads.iter().map(|l| l.2).collect::<Vec<_>>(), [None, Some(0)], "-1 is unknown");
    let loads = page::get_loads(&body(&http.join("dp_get_loads_auth.txt"))).unwrap();
    assert!(loads.iter().all(|l| l.1.is_some() && l.2.is_none()));
    let merged = page::workers_metrics(&body(&http.join("engine_metrics.txt")));
    let got: Vec<_> = merged.iter().map(|(w, m)| (&**w, only(&m.loads).figures.running)).collect();
    assert_eq!(got, [("http://127.0.0.1:31001", Some(0)), ("http://127.0.0.1:31002", Some(0))]);
    let old = page::list_workers(br#"{"urls":["http://h:1","http://h:2"]}"#).unwrap();
    assert_eq!(old.len(), 2);
    assert_eq!(page::list_workers(br#"["http://h:1/"]"#).unwrap()[0].url.as_ref(), "http://h:1");
}

#[test]
fn circuits_are_the_metrics_word_alone() {
    let Some(dir) = serving() else { return };
    for file in files(&dir.join("router"), "metrics-", ".prom") {
        let bytes = body(&file);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let workers = page::circuits(&bytes).unwrap();
        let dp = file.to_string_lossy().contains("dp-aware");
        assert_eq!(workers.len(), if dp { 4 } else { 2 });
        for worker in workers {
            let called = match worker.rank {
                Some(rank) => format!("worker=\"{}@{rank}\"", worker.url),
                None => format!("worker=\"{}\"", worker.url),
            };
            let state = match worker.circuit.unwrap() {
                Circuit::Closed => 0.0,
                Circuit::Open => 1.0,
                Circuit::HalfOpen => 2.0,
            };
            assert_eq!(sample(&text, "smg_worker_cb_state", &called), Some(state), "{}", file.display());
            assert_eq!(sample(&text, "smg_worker_health", &called).map(|h| h == 1.0), worker.healthy);
        }
        let all = page::metrics(&bytes).unwrap();
        assert_eq!((all.engine, all.loads.len()), (Some(Engine::Router), 0));
    }
    let old = page::circuits(
        b"sgl_router_cb_state{worker=\"http://h:1\"} 1\nsgl_router_worker_health{worker=\"http://h:1\"} 0",
    );
    assert_eq!(old.unwrap()[0].circuit, Some(Circuit::Open));
    let (url, rank) = page::worker_url("http://me:secret@host:1@3");
    assert_eq!((url.as_ref(), rank), ("http://host:1", Some(3)));
}

fn all(bytes: &[u8]) {
    let _ = page::loads(bytes);
    let _ = page::get_load(bytes);
    let _ = page::server_info(bytes);
    let _ = page::models(bytes);
    let _ = page::model_info(bytes);
    let _ = page::version(bytes);
    let _ = page::readiness(bytes);
    let _ = page::workers(bytes);
    let _ = page::list_workers(bytes);
    let _ = page::get_loads(bytes);
    let _ = page::circuits(bytes);
    let _ = page::metrics(bytes);
    for (_, metrics) in page::workers_metrics(bytes) {
        for load in metrics.loads {
            let shares = [load.figures.kv, load.figures.swa, load.figures.mamba, load.figures.cache_hit];
            assert!(shares.into_iter().flatten().all(|s| (0.0..=1.5).contains(&s)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_softly(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        all(&bytes);
    }

    #[test]
    fn pages_with_a_piece_changed_are_read_softly(
        which in 0usize..6, at in any::<prop::sample::Index>(), with in proptest::collection::vec(any::<u8>(), 0..12),
    ) {
        let pages: [&[u8]; 6] = [
            br#"{"timestamp":"2026-11-29T19:52:45.0+00:00","loads":[{"timestamp":1.5e9,"dp_rank":0,"decode_moments":[1,2]}]}"#,
            br#"{"model_path":"/m","api_key":"k","internal_states":[{"memory_usage":{"graph":{"a":1}}}],"version":"1"}"#,
            br#"{"workers":[{"url":"http://h:1@2","is_healthy":true,"load":-1}],"status":"ready","healthy_workers":1}"#,
            b"sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\",x=\"a\\\"b\"} 3 1395066363000\nsglang:token_usage 0.5\n",
            b"vllm:cache_config_info{num_gpu_blocks=\"40\",block_size=\"128\",engine=\"0\"} 1.0\n",
            b"smg_worker_cb_state{worker=\"http://h:1\"} 2\nsmg_worker_health{worker=\"http://h:1\"} 0\n",
        ];
        let mut page = pages[which].to_vec();
        let at = at.index(page.len());
        let until = (at + with.len() / 2).min(page.len());
        page.splice(at..until, with);
        all(&page);
    }
}

#[test]
fn pages_without_end_or_bottom_cost_little() {
    let deep = [b"{\"loads\":".as_slice(), &b"[".repeat(100_000)].concat();
    all(&deep);
    let wide = [b"{\"loads\":[".as_slice(), &b"{\"dp_rank\":1},".repeat(200_000), b"{}]}"].concat();
    assert_eq!(page::loads(&wide).unwrap().loads.len(), page::MOST);
    let mut ranks = String::new();
    for n in 0..60_000 {
        ranks.push_str(&format!("sglang:num_running_reqs{{dp_rank=\"{n}\"}} 1\n"));
    }
    assert_eq!(page::metrics(ranks.as_bytes()).unwrap().loads.len(), page::MOST);
    let long = [b"{\"version\":\"".as_slice(), &b"x".repeat(1_000_000), b"\"}"].concat();
    assert!(page::version(&long).unwrap().len() <= 256);
    assert!(page::loads(&vec![b' '; page::LONGEST + 1]).is_err());
}
