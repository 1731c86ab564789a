//! Shell text around an agent's own. Plain `sh`; values stand in it as quoted words of variables that are
//! not exported, so that nothing has to be escaped in the agent's file and its children inherit nothing.

use crate::agent::installed::spec::{MANAGERS, Need};
use crate::environment::quoted;

/// Longest text that stands in a script: a word of a command line holds 128 KiB, the kernel's limit.
const LONGEST_WORD: usize = 64 * 1024;
/// A failed part of a pipe is a failure, where the shell knows how.
const PIPES: &str = "if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi\n";
/// Variable that marks an agent's processes.
pub const MARK: &str = "PILOTHOUSE_AGENT";

/// Ends the processes of an agent that a run has left: those that it was begun with and what descends
/// from them, not what they have let go (a server that was put into the background). They are asked first,
/// and killed after two seconds. Prints how many. What it is given: the mark.
pub const END: &str = r#"roots=
parent() { read -r stat 2>/dev/null <"/proc/$1/stat" || return 1; stat=${stat##*) }; set -- $stat; parent=$2; }
for dir in /proc/[0-9]*; do
  pid=${dir#/proc/}
  [ "$pid" -gt 1 ] && [ "$pid" != $$ ] && parent "$pid" && [ "$parent" = 0 ] || continue
  case $(cat "$dir/environ" 2>/dev/null) in *"$1"*) roots="$roots $pid" ;; esac
done
descend() {
  grown=1
  while [ $grown = 1 ]; do
    grown=0
    for dir in /proc/[0-9]*; do
      pid=${dir#/proc/}
      case " $all " in *" $pid "*) continue ;; esac
      parent "$pid" || continue
      case " $all " in *" $parent "*) all="$all $pid"; grown=1 ;; esac
    done
  done
}
all=$roots
[ -z "$roots" ] || descend
n=0; for pid in $all; do n=$((n + 1)); done
if [ $n -gt 0 ]; then
  kill -TERM $roots 2>/dev/null
  tries=0
  while [ $tries -lt 20 ]; do
    left=0; for pid in $roots; do [ -d "/proc/$pid" ] && left=1; done
    [ $left = 0 ] && break
    tries=$((tries + 1)); sleep 0.1 2>/dev/null || { sleep 1; tries=$((tries + 9)); }
  done
  kill -STOP $all 2>/dev/null; descend; kill -KILL $all 2>/dev/null
fi
echo "$n"
"#;

/// A script with its variables before it. A text that is too long for that is read from `file`.
pub fn with_variables(variables: &[(String, String)], instruction: Option<(&str, &str)>, script: &str) -> String {
    let mut out = String::from(PIPES);
    for (name, value) in variables {
        out.push_str(&format!("{name}={}\n", quoted(&without_nul(value))));
    }
    if let Some((text, file)) = instruction {
        out.push_str(&format!("instruction_file={}\n", quoted(file)));
        if text.len() <= LONGEST_WORD {
            out.push_str(&format!("instruction={}\n", quoted(&without_nul(text))));
        } else {
            out.push_str("instruction=$(cat \"$instruction_file\")\n");
        }
    }
    out.push_str(script);
    out
}

fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

/// Installs what is missing of the system's programs; None where nothing is needed. Without a package
/// manager that is known it only says so: whether that matters shows later.
pub fn needs(list: &[Need]) -> Option<String> {
    if list.is_empty() {
        return None;
    }
    let mut out = String::from("missing=\n");
    for need in list {
        out.push_str(&format!("command -v {0} >/dev/null 2>&1 || missing=\"$missing {0}\"\n", need.command));
    }
    out.push_str("[ -n \"$missing\" ] || exit 0\necho \"missing:$missing\"\nmanager=\n");
    out.push_str(&format!("for m in {}; do\n", MANAGERS.join(" ")));
    out.push_str("  if command -v \"$m\" >/dev/null 2>&1; then manager=$m; break; fi\ndone\n");
    out.push_str("package() {\n  case $manager:$1 in\n");
    for need in list {
        for manager in MANAGERS.iter().filter(|m| need.package(m) != need.command) {
            out.push_str(&format!("    {manager}:{}) echo {} ;;\n", need.command, need.package(manager)));
        }
    }
    out.push_str("    *) echo \"$1\" ;;\n  esac\n}\npackages=\n");
    out.push_str("for need in $missing; do packages=\"$packages $(package \"$need\")\"; done\n");
    out.push_str(
        "case $manager in\n  apt-get) export DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y $packages ;;\n  \
         dnf | yum) \"$manager\" install -y $packages ;;\n  apk) apk add --no-cache $packages ;;\n  \
         *) echo \"no package manager that is known here; going on without\" ;;\nesac\n",
    );
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn sh(script: &str, path: Option<&std::path::Path>) -> (Option<i32>, String) {
        let mut command = Command::new("/bin/sh");
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let out = command.args(["-c", script]).output().unwrap();
        (out.status.code(), [&*out.stdout, &*out.stderr].map(String::from_utf8_lossy).concat())
    }

    #[test]
    fn values_come_through_whatever_is_in_them() {
        let odd = "a 'b' \"$HOME\" `id` \\ \u{1b}c\nsecond line é \0!";
        let variables = vec![("model".to_string(), odd.to_string())];
        let script = "printf '%s|' \"$model\" \"$instruction\"; sh -c 'printf %s \"$model\"'";
        let (code, text) = sh(&with_variables(&variables, Some((odd, "/x")), script), None);
        let seen = odd.replace('\0', "");
        assert_eq!((code, text), (Some(0), format!("{seen}|{seen}|")));
        // One that is too long for a command line is read from its file.
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("i");
        let long = "x".repeat(200_000);
        std::fs::write(&file, &long).unwrap();
        let script = with_variables(&[], Some((&long, file.to_str().unwrap())), "echo ${#instruction}");
        assert_eq!(sh(&script, None), (Some(0), "200000\n".to_string()));
    }

    #[test]
    fn only_what_is_missing_is_installed() {
        let temp = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = temp.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let need = |command: &str, apk: &str| Need {
            command: command.to_string(),
            packages: BTreeMap::from([("apk".to_string(), apk.to_string())]),
        };
        let script = needs(&[need("there", "x"), need("gone", "gone-dev other"), need("also", "also")]).unwrap();
        put("there", "exit 0");
        let (code, text) = sh(&script, Some(temp.path()));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("missing: gone also") && text.contains("going on without"), "{text}");
        put("apk", "echo \"apk $*\"; exit 7");
        let (code, text) = sh(&script, Some(temp.path()));
        assert!(code == Some(7) && text.contains("apk add --no-cache gone-dev other also"), "{text}");
        put("apt-get", "echo \"apt $*\"");
        let (code, text) = sh(&script, Some(temp.path()));
        assert!(code == Some(0) && text.contains("apt install -y gone also"), "{text}");
        put("gone", "");
        put("also", "");
        assert_eq!(sh(&script, Some(temp.path())), (Some(0), String::new()));
        assert_eq!(needs(&[]), None);
    }
}
