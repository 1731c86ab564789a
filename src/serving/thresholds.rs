//! The thresholds of the diagnoses: those that ship with the program, and an operator's own over them.

use serde::Deserialize;
use toml::Spanned;

/// The thresholds that come with the program.
pub const SHIPPED: &str = include_str!("../../configs/serving.toml");
/// Name of the shipped file in errors.
const SHIPPED_NAME: &str = "serving.toml (shipped)";

/// What is wrong with a file of thresholds.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {what}", line.map_or(String::new(), |n| format!(":{n}")))]
pub struct ThresholdsError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// What is wrong, and what is allowed.
    pub what: String,
}

/// The tables of the file, each number once: as it is used, and as it is read.
macro_rules! tables {
    ($( $(#[$doc:meta])* $table:ident: $Type:ident { $($field:ident)* } )*) => {
        $(
            $(#[$doc])*
            /// The numbers are explained beside their values in `configs/serving.toml`.
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs)]
            pub struct $Type { $( pub $field: f64, )* }
        )*

        /// All thresholds.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Thresholds {
            $( $(#[$doc])* pub $table: $Type, )*
            /// The files that were read, the first over the next; `shipped` is the program's own.
            pub files: Vec<String>,
        }

        mod raw {
            use super::{Deserialize, Spanned};

            $(
                #[derive(Debug, Default, Deserialize)]
                #[serde(deny_unknown_fields, default)]
                pub(super) struct $Type { $( pub(super) $field: Option<Spanned<f64>>, )* }
            )*

            #[derive(Debug, Default, Deserialize)]
            #[serde(deny_unknown_fields, default)]
            pub(super) struct File {
                pub(super) schema_version: Option<Spanned<u32>>,
                $( pub(super) $table: $Type, )*
            }
        }

        impl Thresholds {
            /// Those that nothing reaches.
            fn beyond_reach() -> Thresholds {
                Thresholds {
                    $( $table: $Type { $( $field: f64::INFINITY, )* }, )*
                    files: Vec::new(),
                }
            }

            /// Takes what a file gives; what it has not is handed to `missing`.
            fn set(
                &mut self,
                raw: &raw::File,
                check: &dyn Fn(&str, &Spanned<f64>) -> Result<f64, ThresholdsError>,
                missing: &mut Vec<&'static str>,
            ) -> Result<(), ThresholdsError> {
                $( $(
                    match &raw.$table.$field {
                        Some(value) => self.$table.$field = check(stringify!($field), value)?,
                        None => missing.push(concat!(stringify!($table), ".", stringify!($field))),
                    }
                )* )*
                Ok(())
            }
        }
    };
}

tables! {
    /// What makes samples a condition.
    confirm: Confirm { samples gap_seconds stale_seconds event_seconds }
    /// A full KV pool.
    pool: Pool { full full_seconds high high_seconds fills_within_seconds fit_seconds retraction_seconds plan_share }
    /// Requests thrown out of the pool.
    retraction: Retraction { seconds storm }
    /// Requests that wait.
    queueing: Queueing { seconds slack kv chunks }
    /// State slots of hybrid models.
    mamba: Mamba { usage seconds above_kv }
    /// A generation without end.
    runaway: Runaway { running alone_seconds agree wait_seconds wait_medians unseen_seconds tokens }
    /// A call of one trial of our own that goes on and on.
    thinking: Thinking { seconds medians least_tokens tokens context_share }
    /// Requests without progress.
    hang: Hang { seconds early_seconds gaps snapshot_seconds flat_seconds token_rate compile_seconds }
    /// Requests slower than before.
    collapse: Collapse { share seconds medians after_share after_window after_seconds context_growth accept_fall }
    /// Ranks that do unequal work.
    ranks: RankLoads { seconds difference factor idle_share kv }
    /// A prefix cache that does not help.
    cache: Cache { window share batches }
    /// Speculation that does not pay.
    speculation: Speculation { accept_len seconds }
    /// A server with nothing to do while trials wait.
    idle: IdleServer { seconds }
    /// A server that is not reached.
    reach: Reach { attempts timeout_seconds }
    /// Clients that went away.
    clients: Clients { disconnects window }
    /// A router's log.
    router: RouterLog { probes quiet_seconds }
    /// Memory after the start.
    memory: Memory { free_gb }
}

impl Default for Thresholds {
    /// The shipped ones: zeros would diagnose everything.
    fn default() -> Thresholds {
        Thresholds::shipped()
    }
}

impl Thresholds {
    /// Those that come with the program.
    pub fn shipped() -> Thresholds {
        // A test reads them; were they wrong all the same, nothing would be diagnosed.
        Thresholds::of_texts(&[]).unwrap_or_else(|error| {
            tracing::error!(%error, "the shipped thresholds can not be read");
            Thresholds::beyond_reach()
        })
    }

    /// The shipped ones under texts of the operator's: name of the file and text, the first over the next.
    ///
    /// # Errors
    /// The first that is wrong: unknown names, numbers that are none or negative, another schema.
    pub fn of_texts(own: &[(String, String)]) -> Result<Thresholds, ThresholdsError> {
        let mut out = Thresholds::beyond_reach();
        let mut missing = Vec::new();
        out.take(SHIPPED_NAME, SHIPPED, &mut missing)?;
        if let Some(name) = missing.first() {
            return Err(ThresholdsError { file: SHIPPED_NAME.into(), line: None, what: format!("{name} is missing") });
        }
        for (file, text) in own.iter().rev() {
            out.take(file, text, &mut missing)?;
        }
        out.files = own.iter().map(|(file, _)| file.clone()).chain(["shipped".to_string()]).collect();
        Ok(out)
    }

    fn take(&mut self, file: &str, text: &str, missing: &mut Vec<&'static str>) -> Result<(), ThresholdsError> {
        let wrong = |at: usize, what: String| {
            let before = text.as_bytes().get(..at).unwrap_or_default();
            let line = memchr::memchr_iter(b'\n', before).count() + 1;
            ThresholdsError { file: file.to_string(), line: Some(line), what }
        };
        let raw: raw::File = toml::from_str(text).map_err(|error: toml::de::Error| {
            let what = error.message().trim_end().replace('\n', "; ");
            match error.span() {
                Some(span) => wrong(span.start, what),
                None => ThresholdsError { file: file.to_string(), line: None, what },
            }
        })?;
        if let Some(version) = &raw.schema_version
            && *version.get_ref() != 1
        {
            let what = format!("schema_version {}: only 1 is known", version.get_ref());
            return Err(wrong(version.span().start, what));
        }
        let check = |name: &str, value: &Spanned<f64>| {
            let number = *value.get_ref();
            if number.is_finite() && (0.0..=1e9).contains(&number) {
                Ok(number)
            } else {
                Err(wrong(value.span().start, format!("{name} = {number}: give a number from 0 to 1000000000")))
            }
        };
        self.set(&raw, &check, missing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own(text: &str) -> Result<Thresholds, ThresholdsError> {
        Thresholds::of_texts(&[("own.toml".to_string(), text.to_string())])
    }

    #[test]
    fn shipped_numbers_are_all_there_and_own_ones_go_over_them() {
        let shipped = Thresholds::of_texts(&[]).unwrap();
        assert_eq!((shipped.pool.full, shipped.confirm.samples), (0.95, 3.0));
        let layered = own("[pool]\nfull = 0.9\n[queueing]\nseconds = 5\n").unwrap();
        assert_eq!((layered.pool.full, layered.pool.high, layered.queueing.seconds), (0.9, 0.85, 5.0));
        assert_eq!(layered.files, ["own.toml", "shipped"]);
        let first = |text: &str| ("a".to_string(), text.to_string());
        let two = [first("[pool]\nfull = 0.8"), first("[pool]\nfull = 0.7\nhigh = 0.6")];
        let two = Thresholds::of_texts(&two).unwrap();
        assert_eq!((two.pool.full, two.pool.high), (0.8, 0.6));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, word) in [
            ("[pool]\n\nfill = 1\n", 3, "fill"),
            ("[pools]\nfull = 1\n", 1, "pools"),
            ("[pool]\nfull = \"much\"\n", 2, "string"),
            ("[pool]\nfull = -1\n", 2, "give a number"),
            ("[pool]\nfull = nan\n", 2, "give a number"),
            ("schema_version = 2\n", 1, "only 1"),
        ] {
            let error = own(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text:?}: {error}");
            assert!(error.what.contains(word), "{text:?}: {error}");
            assert!(error.to_string().starts_with(&format!("own.toml:{line}: ")), "{error}");
        }
    }
}
