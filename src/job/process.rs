//! A process of this host as the kernel describes it, parsed; reading the file is for those who may.

/// What is used of `/proc/<pid>/stat` (fields as numbered in proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Field 3: it has ended, and is at most not collected yet.
    pub dead: bool,
    /// Field 5: its process group. 0 where the group belongs to another PID namespace.
    pub group: i32,
    /// Field 6: its session. 0 where the session belongs to another PID namespace.
    pub session: i32,
    /// Field 22: its start, in clock ticks since boot.
    pub started: u64,
}

impl ProcessStat {
    /// Reads the one line of the file; None where it is not such a line.
    ///
    /// ```
    /// use pilothouse::job::process::ProcessStat;
    ///
    /// let line = b"7 (a) b) S 1 7 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
    /// let stat = ProcessStat::parse(line).unwrap();
    /// assert_eq!((stat.dead, stat.group, stat.session, stat.started), (false, 7, 0, 4711));
    /// assert!(ProcessStat::parse(b"7 (sh) S 1 7").is_none());
    /// ```
    pub fn parse(line: &[u8]) -> Option<ProcessStat> {
        let line = String::from_utf8_lossy(line);
        // The command's name, in brackets, may hold spaces and brackets of its own.
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        let mut number = |skipped: usize| fields.nth(skipped);
        Some(ProcessStat {
            dead,
            group: number(1)?.parse().ok()?,
            session: number(0)?.parse().ok()?,
            started: number(15)?.parse().ok()?,
        })
    }
}
