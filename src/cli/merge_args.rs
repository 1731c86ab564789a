//! The flags that say how several jobs are counted together.

use clap::{Args, ValueEnum};

use crate::job::merge::How;
use crate::job::slots::Rule;
use crate::job::tally::Options;

/// `--as` and `--rule`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct MergeArgs {
    /// Several jobs are passes over the same slots, or samples that add up; without it the jobs'
    /// own plans decide
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub how: Option<HowArg>,
    /// Which of two scored trials of one slot counts
    #[arg(long, value_enum, default_value_t)]
    pub rule: RuleArg,
}

/// Values of `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HowArg {
    /// A later trial fills only a slot whose earlier one has no valid reward
    Passes,
    /// Nothing is dropped, slots add up
    Samples,
}

/// Values of `--rule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RuleArg {
    /// The earlier one stands
    #[default]
    Earlier,
    /// The later one
    Latest,
    /// The better one; not publishable, since only failures were run again
    Best,
}

impl MergeArgs {
    /// As the count takes them.
    pub fn options(self) -> Options {
        Options {
            how: self.how.map(|how| match how {
                HowArg::Passes => How::Passes,
                HowArg::Samples => How::Samples,
            }),
            rule: match self.rule {
                RuleArg::Earlier => Rule::Earlier,
                RuleArg::Latest => Rule::Latest,
                RuleArg::Best => Rule::Best,
            },
            side_by_side: false,
        }
    }
}
