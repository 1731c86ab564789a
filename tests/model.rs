//! The model client through its public surface, against a scripted server over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilothouse::job::work::Doing;
use pilothouse::model::chat::{Finish, Message, Reply, Role, Usage};
use pilothouse::model::endpoint::Endpoint;
use pilothouse::model::error::{Clock, Kind, ModelError};
use pilothouse::model::{Client, Engine, Key, Meter, Options, Policy, Watch};
use serde_json::json;
use support::model_server::{Answer, Fault, ModelServer, When, Wording};

const KEY: &str = "sk-a-key-that-nobody-shall-see-0123456789";

fn user(text: &str) -> Message {
    Message { role: Role::User, content: text.to_string(), reasoning_content: None }
}

fn options(server: &ModelServer) -> Options {
    let retries =
        Policy { first: Duration::from_millis(10), longest: Duration::from_millis(80), tries: 5, ..Policy::default() };
    Options { retries, key: Key::new(KEY), ..Options::new(&Endpoint::new(&server.base()), "openai/scripted-1") }
}

fn client(server: &ModelServer, change: impl FnOnce(&mut Options)) -> Client {
    let mut options = options(server);
    change(&mut options);
    Client::new(options).unwrap()
}

async fn ask(client: &Client, text: &str) -> Result<Reply, ModelError> {
    client.ask(&[user(text)], &Watch::new(&Meter::default())).await
}

/// A watch whose tellings are kept.
fn watched(meter: &Meter) -> (Watch, Arc<Mutex<Vec<Doing>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&told);
    (Watch::new(meter).telling(move |doing| keep.lock().unwrap().push(doing.clone())), told)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_not_set_is_not_sent_and_what_is_added_wins() {
    let server = ModelServer::start();
    let plain = client(&server, |options| options.stream = false);
    ask(&plain, "hello").await.unwrap();
    let sent = &server.chats()[0];
    assert_eq!(sent.body, json!({"model": "scripted-1", "messages": [{"role": "user", "content": "hello"}]}));
    assert_eq!((sent.path.as_str(), sent.key), ("/v1/chat/completions", Some((KEY.len(), true))));

    ask(&client(&server, |_| {}), "hello").await.unwrap();
    let sent = &server.chats()[1];
    assert_eq!((&sent.body["stream"], &sent.body["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    assert_eq!(sent.body.as_object().unwrap().len(), 4, "{}", sent.body);

    let full = client(&server, |options| {
        options.model = "hosted_vllm/openai/gpt".to_string();
        options.key = None;
        options.rids = true;
        let set = &mut options.sampling;
        (set.temperature, set.top_p, set.max_tokens) = (Some(0.5), Some(0.9), Some(77));
        set.reasoning_effort = Some("high".to_string());
        set.extra_body = json!({"top_k": 4, "temperature": 1.0, "session_id": "s1"}).as_object().unwrap().clone();
        set.headers.insert("X-Session-ID".to_string(), "s1".to_string());
    });
    let said = Message { role: Role::Assistant, content: "a".to_string(), reasoning_content: Some("r".to_string()) };
    full.ask(&[user("q"), said, user("w")], &Watch::new(&Meter::default()).named("e1")).await.unwrap();
    let sent = &server.chats()[2];
    let expected = json!({"model": "openai/gpt", "temperature": 1.0, "top_p": 0.9, "max_tokens": 77, "top_k": 4,
        "reasoning_effort": "high", "session_id": "s1", "rid": "e1", "stream": true,
        "stream_options": {"include_usage": true}, "messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"}, {"role": "user", "content": "w"}]});
    assert_eq!(sent.body, expected);
    assert_eq!((sent.headers.get("x-session-id").map(String::as_str), sent.key), (Some("s1"), None));
    assert!(!sent.headers.contains_key("accept-encoding"), "{:?}", sent.headers);
}

#[tokio::test]
async fn answers_are_whole_in_parts_and_in_one_piece() {
    let server = ModelServer::start();
    for field in ["reasoning_content", "reasoning"] {
        for stream in [true, false] {
            let mut answer = Answer::say("the answer ünï").thinking("a thought of some length").finish("length");
            answer.reasoning_field = field;
            server.always(answer);
            let meter = Meter::default();
            let (watch, told) = watched(&meter);
            let reply = client(&server, |options| options.stream = stream).ask(&[user("q")], &watch).await.unwrap();
            assert_eq!(
                (reply.content.as_str(), reply.reasoning.as_deref()),
                ("the answer ünï", Some("a thought of some length"))
            );
            assert_eq!((reply.finish, reply.model.as_deref()), (Finish::Length, Some("scripted-1")));
            assert_eq!(reply.usage, Some(Usage { prompt: 5, cached: Some(0), completion: 10, reasoning: Some(6) }));
            assert_eq!((reply.parts, reply.first.is_some(), reply.tries), (if stream { 10 } else { 0 }, stream, 1));
            let told = told.lock().unwrap();
            let Some(Doing::Model(call)) = told.last() else { panic!("{told:?}") };
            assert_eq!((call.reasoning, call.answer), if stream { (6, 4) } else { (0, 0) });
            let totals = meter.totals();
            assert_eq!((totals.requests, totals.answered, totals.lost.tokens()), (1, 1, 0));
        }
    }
}

#[tokio::test]
async fn fields_that_a_server_does_not_know_are_left_out_from_then_on() {
    let server = ModelServer::start();
    server.set(|face| face.refuses = ["stream_options", "rid"].map(String::from).into());
    let client = client(&server, |options| options.rids = true);
    for _ in 0..2 {
        let reply = client.ask(&[user("q")], &Watch::new(&Meter::default()).named("e1")).await.unwrap();
        assert_eq!((reply.content.as_str(), reply.usage, reply.parts, reply.tries), ("ready", None, 2, 1));
    }
    let asked = server.chats();
    assert_eq!(asked.len(), 4, "{asked:#?}");
    assert_eq!(asked[3].body["stream"], true);
    // Another server may know them.
    client.options().endpoint.move_to(&format!("{}/", server.base()));
    server.set(|face| {
        face.refuses.clear();
        face.no_streams = true;
    });
    let reply = ask(&client, "q").await.unwrap();
    assert!(reply.usage.is_some() && reply.parts == 0, "{reply:?}");
    let asked = server.chats();
    assert_eq!((asked.len(), asked[4].body.get("stream_options").is_some()), (6, true));
    // A failure that only speaks of one is no refusal of it.
    server.set(|face| face.no_streams = false);
    server.on(When::nth(7), Answer::error(500, "error in the stream", "server_error", json!(500)));
    let reply = ask(&self::client(&server, |_| {}), "q").await.unwrap();
    assert!(reply.tries == 2 && reply.parts > 0, "{reply:?}");
    // A field of the operator's own is not left out.
    let own = self::client(&server, |options| {
        options.sampling.extra_body.insert("top_k".to_string(), json!(1));
    });
    server.set(|face| face.refuses.insert("top_k".to_string()).then_some(()).unwrap());
    let error = ask(&own, "q").await.unwrap_err();
    assert_eq!((error.kind, error.tries), (Kind::Unsupported(Some("top_k".to_string())), 1));
}

/// What a fault gives, with how many tries were made of it.
#[tokio::test]
async fn faults_have_their_kinds_and_tokens_are_counted_apart() {
    let (ms, words) = (Duration::from_millis, "one two three four five six seven");
    let said = |fault| Answer::say(words).fault(fault);
    let html = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><title>Welcome</title></html>\n".to_vec();
    let too_long = |wording| Answer::too_long(wording, 40_123, 32_768);
    let context = || Kind::ContextExceeded { limit: Some(32_768) };
    let cases: Vec<(Answer, Kind, u32, u64)> = vec![
        (said(Fault::Reset(3)), Kind::Broken, 2, 6),
        (said(Fault::End(4)), Kind::Broken, 2, 8),
        (said(Fault::HalfJson(2)), Kind::Broken, 2, 4),
        (said(Fault::Stall(2)), Kind::Timeout(Clock::Silence), 2, 4),
        (Answer::silent(), Kind::Timeout(Clock::First), 2, 0),
        (said(Fault::Raw(Vec::new())), Kind::Connect, 2, 0),
        (said(Fault::Raw(b"SSH-2.0-x\r\n".to_vec())), Kind::Malformed, 2, 0),
        (said(Fault::Raw(html)), Kind::Malformed, 2, 0),
        (Answer::gateway_page(), Kind::Overloaded(504), 2, 0),
        (Answer::status(408, ""), Kind::Overloaded(408), 2, 0),
        (Answer::rate_limit(Some("0.02")), Kind::RateLimit(Some(ms(20))), 6, 0),
        (Answer::wrong_key(KEY), Kind::Auth, 1, 0),
        (Answer::no_model("scripted-1"), Kind::ModelNotFound, 1, 0),
        (Answer::status(404, "<html><title>404 Not Found</title></html>"), Kind::Refused(404), 1, 0),
        (Answer::status(302, ""), Kind::Refused(302), 1, 0),
        (too_long(Wording::Sglang), context(), 1, 0),
        (too_long(Wording::Vllm), context(), 1, 0),
        (too_long(Wording::LlamaCpp), context(), 1, 0),
        (too_long(Wording::OpenAi), context(), 1, 0),
        (too_long(Wording::Gateway), context(), 1, 0),
        (Answer::say(words).finish("abort"), Kind::Aborted, 2, 18),
    ];
    for (answer, kind, tries, lost) in cases {
        let server = ModelServer::start();
        server.always(answer.clone());
        // Short where it is what is waited for; a busy machine answers late.
        let patience = |clock| Some(if kind == Kind::Timeout(clock) { ms(150) } else { ms(20_000) });
        let client = client(&server, |options| {
            options.retries.tries = 2;
            (options.clocks.first, options.clocks.silence) = (patience(Clock::First), patience(Clock::Silence));
        });
        let meter = Meter::default();
        let error = client.ask(&[user("q")], &Watch::new(&meter)).await.unwrap_err();
        let about = format!("{answer:?}: {error:?}");
        assert_eq!((&error.kind, error.tries), (&kind, tries), "{about}");
        // A reset may overtake what was sent before it.
        let overtaken = matches!(answer.fault, Some(Fault::Reset(_))) && error.spent.tokens() < lost;
        assert!(error.spent.tokens() == lost || overtaken, "{about}");
        assert_eq!(meter.totals().lost, error.spent, "{about}");
        assert_eq!(server.chats().len(), tries as usize, "{about}");
        assert!(!format!("{error:?}").contains("nobody-shall-see") && !error.detail.contains(['\n', '<']), "{about}");
        assert!(words.starts_with(&error.partial) && (lost > 0 || error.partial.is_empty()), "{about}");
    }
}

#[tokio::test]
async fn nobody_there_is_told_from_no_name() {
    let server = ModelServer::start();
    server.kill();
    let fails = |base: String| {
        let server = &server;
        async move {
            let client = client(server, |options| {
                options.endpoint = Endpoint::new(&base);
                options.retries = Policy::never();
            });
            ask(&client, "q").await.unwrap_err()
        }
    };
    assert_eq!(fails(server.base()).await.kind, Kind::Connect);
    let unknown = fails("http://no-such-host.invalid/v1".to_string()).await;
    assert_eq!(unknown.kind, Kind::Dns, "{unknown}");
    // A port that speaks no TLS.
    server.revive();
    let tls = fails(server.base().replace("http:", "https:")).await;
    assert!(matches!(tls.kind, Kind::Tls | Kind::Connect), "{tls:?}");
    assert!(Client::new(Options::new(&Endpoint::new("localhost:1/v1"), "m")).is_err());
}

#[tokio::test]
async fn what_fails_for_a_while_is_asked_again_and_the_reason_is_told() {
    let server = ModelServer::start();
    server.on(When::nth(1), Answer::gateway_page());
    server.on(When::nth(2), Answer::say("cut short").fault(Fault::Reset(1)));
    server.on(When::nth(3), Answer::rate_limit(Some("Wed, 21 Oct 2015 07:28:00 GMT")));
    let meter = Meter::default();
    let (watch, told) = watched(&meter);
    let reply = client(&server, |options| options.rids = true).ask(&[user("q")], &watch.named("e7")).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.tries), ("ready", 4));
    let rids: Vec<_> = server.chats().iter().map(|asked| asked.body["rid"].as_str().unwrap().to_string()).collect();
    assert_eq!(rids, ["e7", "e7-2", "e7-3", "e7-4"]);
    let totals = meter.totals();
    assert_eq!((totals.requests, totals.answered, totals.retries, totals.lost.parts), (4, 1, 3, 1));
    assert!(totals.waited > Duration::from_millis(10) && totals.away.is_zero(), "{totals:?}");
    let told = told.lock().unwrap();
    let whys: Vec<&str> = told
        .iter()
        .filter_map(|doing| match doing {
            Doing::Retry { why, at: Some(at), since, .. } if at >= since => Some(why.as_str()),
            _ => None,
        })
        .collect();
    assert!(whys.len() == 3 && whys[0].contains("504 Gateway Time-out") && whys[1].contains("broke"), "{whys:?}");
}

#[tokio::test]
async fn a_closed_endpoint_is_waited_for_and_a_moved_one_followed_at_no_cost() {
    let (old, new) = (ModelServer::start(), ModelServer::start());
    new.always(Answer::say("from the new one"));
    let client = client(&old, |options| {
        options.retries.tries = 2;
        options.clocks.left = Duration::from_millis(100);
    });
    let endpoint = client.options().endpoint.clone();
    endpoint.close(Some("the server is away"));
    let meter = Meter::default();
    let (watch, told) = watched(&meter);
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.ask(&[user("q")], &watch).await })
    };
    until("it waits", || !told.lock().unwrap().is_empty()).await;
    let Doing::Retry { why, at: None, attempt: 1, .. } = told.lock().unwrap()[0].clone() else { panic!("{told:?}") };
    assert_eq!(why, "the server is away");
    assert!(old.chats().is_empty());
    endpoint.close(None);
    assert_eq!(asking.await.unwrap().unwrap().content, "ready");
    assert!(!meter.totals().away.is_zero());

    // It dies amid an answer; the gate closes; it comes back elsewhere.
    old.always(Answer::say("long enough to be cut").rate(50.0));
    let (watch, told) = watched(&meter);
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.ask(&[user("q")], &watch).await })
    };
    until("it answers", || old.chats().get(1).is_some_and(|asked| asked.generated > 1)).await;
    endpoint.close(Some("the server died"));
    old.kill();
    until("it waits", || told.lock().unwrap().iter().any(|doing| matches!(doing, Doing::Retry { at: None, .. }))).await;
    endpoint.move_to(&new.base());
    let reply = asking.await.unwrap().unwrap();
    assert_eq!((reply.content.as_str(), reply.tries), ("from the new one", 2));
    assert!(meter.totals().lost.parts >= 1);

    // It hangs, and is left.
    old.revive();
    endpoint.move_to(&old.base());
    old.always(Answer::silent());
    let before = old.chats().len();
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, "q").await })
    };
    until("it asks", || old.chats().len() > before).await;
    endpoint.move_to(&new.base());
    assert_eq!(asking.await.unwrap().unwrap().content, "from the new one");

    // It refuses the key at the old address, which was left meanwhile.
    endpoint.move_to(&old.base());
    old.always(Answer::wrong_key(KEY).after(Duration::from_millis(100)));
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, "q").await })
    };
    until("it asks", || old.chats().len() > before + 1).await;
    endpoint.move_to(&new.base());
    assert_eq!(asking.await.unwrap().unwrap().content, "from the new one");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_its_tokens_and_no_connection() {
    let server = ModelServer::start();
    server.always(Answer::say(&"word ".repeat(200)).thinking(&"hm, ".repeat(50)).rate(100.0));
    let client = client(&server, |_| {});
    let meter = Meter::default();
    // Dropped.
    let (watch, told) = watched(&meter);
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.ask(&[user("q")], &watch).await })
    };
    until("it thinks", || matches!(told.lock().unwrap().last(), Some(Doing::Model(call)) if call.reasoning >= 5)).await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    let lost = meter.totals().lost;
    assert!(lost.parts >= 5 && lost.estimated >= lost.parts && lost.usage.is_none(), "{lost:?}");
    until("the connection is closed", || server.chats()[0].gone).await;
    // Cut from outside, when the model has thought enough.
    let cutter: Arc<Mutex<Option<Watch>>> = Arc::default();
    let other = Arc::clone(&cutter);
    let watch = Watch::new(&meter).telling(move |doing| {
        if let Doing::Model(call) = doing
            && call.reasoning >= 8
        {
            other.lock().unwrap().as_ref().unwrap().cut();
        }
    });
    *cutter.lock().unwrap() = Some(watch.clone());
    let error = client.ask(&[user("q")], &watch).await.unwrap_err();
    assert!(error.kind == Kind::Cancelled && error.tries == 1 && error.spent.parts >= 8, "{error:?}");
    assert_eq!(meter.totals().lost.parts, lost.parts + error.spent.parts);
    until("the connection is closed", || server.chats()[1].gone).await;
    // While it waits at a closed endpoint.
    client.options().endpoint.close(Some("away"));
    let watch = Watch::new(&meter);
    let messages = [user("q")];
    let (error, ()) = tokio::join!(client.ask(&messages, &watch), async { watch.cut() });
    assert_eq!(error.unwrap_err().kind, Kind::Cancelled);
}

#[tokio::test]
async fn the_server_tells_its_context_and_a_probe_what_it_does() {
    let server = ModelServer::start();
    server.set(|face| face.engine = "sglang".to_string());
    server.set(|face| {
        face.server_info = Some(json!({"context_length": 32_768, "max_total_num_tokens": 9000, "api_key": KEY}))
    });
    server.always(Answer::say("ready").thinking("they want one word"));
    let client = client(&server, |options| options.key = Key::new(KEY));
    let served = client.served().await;
    assert_eq!((served.context, served.engine, served.listed), (Some(9000), Some(Engine::Sglang), Some(true)));
    assert!(!format!("{served:?} {client:?}").contains(KEY));
    let probe = client.probe(Duration::from_secs(5)).await.unwrap();
    assert!(probe.reasoning && !probe.thinks_aloud && probe.first.is_some(), "{probe:?}");
    server.always(Answer::silent());
    let error = client.probe(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!((error.kind, error.tries), (Kind::Timeout(Clock::Call), 1));
    server.kill();
    assert_eq!(client.served().await, pilothouse::model::Served::default());
}

/// What 25 answers at 50 tokens a second cost: `PILOTHOUSE_MODEL_LOAD=1`, with a release build.
#[test]
fn many_streams_are_cheap() {
    if std::env::var_os("PILOTHOUSE_MODEL_LOAD").is_none() {
        return support::skipped("the load of 25 streams (set PILOTHOUSE_MODEL_LOAD=1)");
    }
    let server = ModelServer::start();
    server.always(Answer::say(&"word".repeat(500)).rate(50.0));
    let client = client(&server, |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = |t: rustix::time::Timespec| t.tv_sec as f64 + t.tv_nsec as f64 / 1e9;
    let before = cpu();
    let work: Arc<Mutex<Doing>> = Arc::default();
    let replies = runtime.block_on(async {
        let calls = (0..25).map(|_| {
            let (client, work) = (client.clone(), Arc::clone(&work));
            async move {
                let watch = Watch::new(&Meter::default()).telling(move |doing| *work.lock().unwrap() = doing.clone());
                client.ask(&[user("q")], &watch).await.unwrap().parts
            }
        });
        futures_util::future::join_all(calls).await
    });
    let spent = seconds(cpu()) - seconds(before);
    let parts: u64 = replies.iter().sum();
    let each = spent * 1e6 / parts as f64;
    eprintln!("{parts} parts, {spent:.3} s of CPU, {each:.1} µs for each");
    assert!(each < 200.0, "{each} µs of CPU for a part");
}
