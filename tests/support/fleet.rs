//! Hand-built fleets: jobs and trials in a few words.

use std::sync::Arc;

use pilothouse::job::{
    Evidence, Exception, FileFact, Fleet, JobEvent, JobFacts, JobKey, JobSummary, Limits, Liveness, Planned,
    RewardValue, Rewards, Stamp, Tokens, Trial, TrialResult,
};

/// Seconds after an arbitrary beginning.
pub fn at(seconds: i64) -> Stamp {
    Stamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// The clock of all tests here: long after everything.
pub fn now() -> Stamp {
    at(1_000_000)
}

/// A trial called `task__suffix`.
#[derive(Clone, Debug)]
pub struct T(pub Trial);

impl T {
    /// A directory without result whose agent is at work.
    pub fn open(task: &str, suffix: &str, began: i64) -> T {
        let fact = FileFact { size: 1, modified: at(began) };
        let evidence =
            Evidence { began: Some(at(began)), config: Some(fact), newest: Some(at(began)), ..Evidence::default() };
        T(Trial {
            name: format!("{task}__{suffix}").into(),
            task: task.into(),
            agent: Some("terminus-2".into()),
            model: Some("lab/m".into()),
            result: None,
            evidence: Some(Box::new(evidence)),
            limits: Limits::default(),
            problems: Vec::new(),
            unreadable: false,
            regrades: Vec::new(),
        })
    }

    /// A finished trial; `reward` None leaves a phantom.
    pub fn done(task: &str, suffix: &str, start: i64, end: i64, reward: Option<f64>) -> T {
        let mut t = T::open(task, suffix, start);
        t.0.evidence = None;
        t.0.result = Some(Box::new(TrialResult {
            id: Some(format!("id-{task}-{suffix}").into()),
            task_name: format!("org/{task}").into(),
            rewards: match reward {
                Some(r) => Rewards::Keys(vec![("reward".into(), RewardValue::Number(r))]),
                None => Rewards::None,
            },
            reward_valid: None,
            exception: None,
            step_exceptions: Vec::new(),
            tokens: Tokens { input: Some(100), cache: None, output: Some(10) },
            cost_usd: None,
            n_episodes: Some(3),
            started: Some(at(start)),
            finished: Some(at(end)),
            spans: Default::default(),
            verifier_disabled: false,
            install_only: false,
            task_checksum: Some("00".into()),
            agent: None,
            tests: None,
        }));
        t
    }

    /// With an exception.
    pub fn err(mut self, kind: &str) -> T {
        self.result().exception = Some(Exception { kind: kind.into(), message: "".into() });
        self
    }

    /// By this agent, by the result's own word.
    pub fn agent(mut self, name: &str) -> T {
        self.result().agent = Some(name.into());
        self
    }

    /// With another result id, or none.
    pub fn id(mut self, id: Option<&str>) -> T {
        self.result().id = id.map(Arc::from);
        self
    }

    /// With these rewards.
    pub fn rewards(mut self, rewards: &[(&str, f64)]) -> T {
        let keys = rewards.iter().map(|(k, v)| (Arc::from(*k), RewardValue::Number(*v))).collect();
        self.result().rewards = Rewards::Keys(keys);
        self
    }

    /// By this agent and model.
    pub fn by(mut self, agent: &str, model: &str) -> T {
        self.0.agent = Some(agent.into());
        self.0.model = Some(model.into());
        self
    }

    /// With limits for agent and verifier.
    pub fn limits(mut self, agent: f64, verifier: f64) -> T {
        self.0.limits.agent = Some(agent);
        self.0.limits.verifier = Some(verifier);
        self
    }

    pub fn result(&mut self) -> &mut TrialResult {
        self.0.result.as_mut().unwrap()
    }
}

/// A job in `/jobs/<dir>`.
#[derive(Clone, Debug)]
pub struct J {
    pub facts: JobFacts,
    pub trials: Vec<T>,
    pub liveness: Liveness,
}

impl J {
    /// A job with this id and plan (`(task, n)`), not finished, silent for long.
    pub fn new(dir: &str, id: &str, plan: &[(&str, u32)]) -> J {
        let plan = plan.iter().map(|(task, n)| Planned {
            task: Arc::from(*task),
            agent: Some("terminus-2".into()),
            model: Some("lab/m".into()),
            digest: Some(format!("sha256:{task}").into()),
            n: *n,
        });
        let facts = JobFacts {
            dir: format!("/jobs/{dir}").into(),
            name: dir.into(),
            id: Some(id.into()),
            harbor_version: Some("0.21.0".into()),
            agents: vec!["terminus-2".into()],
            models: vec!["lab/m".into()],
            planned: Some(plan.collect()),
            created: Some(at(0)),
            ..JobFacts::default()
        };
        let liveness = Liveness { owner_search_conclusive: true, last_write: Some(at(0)), ..Liveness::default() };
        J { facts, trials: Vec::new(), liveness }
    }

    /// With trials.
    pub fn with(mut self, trials: impl IntoIterator<Item = T>) -> J {
        self.trials.extend(trials);
        self
    }

    /// Finished at this time.
    pub fn finished(mut self, end: i64) -> J {
        let summary = self.facts.summary.get_or_insert_with(JobSummary::default);
        summary.finished = Some(at(end));
        summary.updated = Some(at(end));
        self
    }

    /// With somebody working on it.
    pub fn alive(mut self) -> J {
        self.liveness.owner = Some((42, "harbor".into()));
        self
    }

    /// Started then.
    pub fn created(mut self, then: i64) -> J {
        self.facts.created = Some(at(then));
        self
    }

    /// Without a lock file; `n_total` as given.
    pub fn no_lock(mut self, n_total: Option<u64>) -> J {
        self.facts.planned = None;
        self.facts.summary.get_or_insert_with(JobSummary::default).n_total = n_total;
        self
    }
}

/// The fleet of these jobs, in this order.
pub fn fleet(jobs: &[J]) -> Fleet {
    let mut fleet = Fleet::default();
    for (i, job) in jobs.iter().enumerate() {
        let key = JobKey(u32::try_from(i).unwrap());
        fleet.apply(JobEvent::Job(key, Box::new(job.facts.clone())));
        for trial in &job.trials {
            fleet.apply(JobEvent::Trial(key, Box::new(trial.0.clone())));
        }
        fleet.apply(JobEvent::Liveness(key, job.liveness.clone()));
        fleet.apply(JobEvent::Settled(key));
    }
    fleet
}
