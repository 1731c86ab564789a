//! A cast of many events, the same each time: 59 MiB for a million of them.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// What the last event prints.
pub const LAST: &str = "the very last line";

/// Writes an asciicast v2 of so many events and one more; gives its bytes.
///
/// Output as a busy terminal has it: prompts, coloured lines, progress bars, now and then a full redraw.
pub fn generate(path: &Path, events: u64) -> u64 {
    let mut out = BufWriter::new(File::create(path).unwrap());
    writeln!(out, "{{\"version\": 2, \"width\": 160, \"height\": 40, \"timestamp\": 1795982525}}").unwrap();
    let mut dice = Dice(3);
    for n in 0..events {
        let time = n as f64 * 0.003_7;
        let a = dice.below(100_000);
        let data = match dice.below(40) {
            0 => format!("\\u001b[2J\\u001b[H\\u001b[1mtop\\u001b[0m {a}\\r\\n"),
            1..=4 => format!("\\r\\u001b[K{:3} % |#########           | {a} of 100000", a % 100),
            5..=12 => format!("\\u001b[3{}mwarning\\u001b[0m: {a}\\r\\n", a % 8),
            13..=20 => format!("root@box:/app# make -j {a}\\r\\n"),
            21..=25 => format!("\\u001b[{};{}H{a}", a % 40, a % 160),
            _ => format!("  CC  src/module_{a}/file_{}.c -o build/{a}.o\\r\\n", a % 977),
        };
        writeln!(out, "[{time:.6}, \"o\", \"{data}\"]").unwrap();
    }
    writeln!(out, "[{:.6}, \"o\", \"\\r\\n{LAST}\"]", events as f64 * 0.003_7).unwrap();
    out.flush().unwrap();
    fs::metadata(path).unwrap().len()
}

/// Numbers that look like chance and are the same each time.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
