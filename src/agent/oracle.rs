//! The agent that knows the solution: it runs the task's own, as Harbor's does.

use std::sync::Arc;

use super::{Agent, Stage, Work, of_environment};
use crate::environment::{Command, Ended, OutputFile, Upload, quoted};
use crate::harbor::task::{host_variable, resolve_all};
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;

const DURING: &str = "the oracle's run";

/// Runs `solution/solve.sh`.
#[derive(Debug, Clone, Copy)]
pub struct Oracle;

impl Agent for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn version(&self) -> &str {
        "1.0.0"
    }

    fn setup<'a>(&'a self, _: &'a Stage<'a>) -> Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult> {
        Box::pin(solve(stage))
    }
}

async fn solve(stage: &Stage<'_>) -> Result<AgentResult, Raised> {
    let Stage { environment, task, step, .. } = *stage;
    let (Some(solution), Some(script)) = (&step.solution, &step.solve_script) else {
        return Err(Raised::new("FileNotFoundError", "the task has no solution/solve.sh", DURING));
    };
    let failed = |e| of_environment(&e, DURING);
    let name = script.rsplit('/').next().unwrap_or(script);
    let scripts = Upload::Scripts(task.dir.join(solution), name.to_string());
    let packed = environment.upload(scripts, "/solution").await.map_err(failed)?;
    let script = quoted(&environment.locate(&format!("/solution/{name}")));
    if !packed.program {
        // Scripts come with any mode; whether this worked shows when it runs.
        let chmod = Command { user: Some("root".to_string()), ..Command::new(&format!("chmod +x {script}")) };
        environment.exec(&chmod).await.map_err(failed)?;
    }
    let missing = |e: crate::harbor::task::MissingVariable| Raised::new("ValueError", &e.to_string(), DURING);
    let own = resolve_all(&task.config.solution_env, host_variable).map_err(missing)?;
    let mut env = vec![("DEBIAN_FRONTEND".to_string(), "noninteractive".to_string())];
    env.extend(stage.env.clone());
    // The task's own have the last word, or it would be another solution (Harbor 0.26).
    env.extend(own);
    let command = Command {
        user: task.config.agent_user(task.spec(step)).map(ToString::to_string),
        workdir: task.config.environment.workdir.clone(),
        env,
        output: Some(OutputFile { path: "/logs/agent/oracle.txt".to_string(), cap: stage.output_cap }),
        ..Command::new(&format!("({script})"))
    };
    let end = environment.exec(&command).await.map_err(failed)?;
    let noted = stage.ledger.note(&**environment, "solution", step.name.as_deref(), &end).await;
    match end.ended {
        Ended::Exited(0) => {}
        // It is only noted: the verifier has the say.
        Ended::Exited(code) => {
            let logs = Arc::clone(stage.logs);
            let write = move || logs.replace("exit-code.txt", code.to_string().as_bytes());
            let wrote = tokio::task::spawn_blocking(write).await;
            let wrote = wrote.map_err(|e| e.to_string()).and_then(|w| w.map_err(|e| e.to_string()));
            wrote.map_err(|e| Raised::new("OSError", &e, DURING))?;
        }
        Ended::TimedOut => return Err(Raised::new("RuntimeError", "the solution's time was over", DURING)),
    }
    // A kill by the memory limit is the solution's end, and not the environment's fault.
    let metadata = noted.remark().map(|remark| {
        let mut map = serde_json::Map::new();
        map.insert("remark".to_string(), remark.into());
        map.insert("exit_code".to_string(), noted.exit_code.into());
        map.insert("oom_kills".to_string(), noted.oom_kills.into());
        map.insert("oom_kill_count".to_string(), noted.oom_kill_count.into());
        map
    });
    Ok(AgentResult { metadata, ..AgentResult::default() })
}
