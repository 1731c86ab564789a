//! The bundled job: small tasks of our own, with every everyday kind of end. They need nothing but a
//! POSIX shell.

use std::fs;
use std::io;
use std::path::Path;

use super::assets::Asset;

macro_rules! bundle {
    ($($task:literal,)*) => {
        &[$(bundle!(@ $task, "task.toml"), bundle!(@ $task, "instruction.md"), bundle!(@ $task, "environment/Dockerfile"),
            bundle!(@ $task, "solution/solve.sh"), bundle!(@ $task, "solution/keys.json"), bundle!(@ $task, "tests/test.sh"),)*]
    };
    (@ $task:literal, $file:literal) => {
        (concat!($task, "/", $file), include_bytes!(concat!("../../../assets/demo-tasks/", $task, "/", $file)).as_slice())
    };
}

/// Every file of the tasks: its path below the directory of tasks, and its content.
pub const FILES: &[Asset] = bundle![
    "count-words",
    "fix-script",
    "half-the-cases",
    "long-think",
    "no-reward",
    "no-service",
    "slow-tests",
    "wrong-turn",
];

/// Writes the tasks beneath a directory.
///
/// # Errors
/// Of the file system.
pub fn write(below: &Path) -> io::Result<()> {
    for (path, bytes) in FILES {
        let path = below.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
    }
    Ok(())
}
