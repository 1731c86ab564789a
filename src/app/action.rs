//! Everything a key can do, in one registry: the key tables, the help, the palette and the footer
//! are all made from it.

use super::key::Key;

/// Where an action means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Context {
    /// Everywhere.
    Global,
    /// A list: trials, errors, log.
    List,
    /// One trial.
    Trial,
    /// A cast being replayed.
    Replay,
    /// A stop and its audit.
    Stop,
    /// Triage.
    Triage,
    /// The plan of a requeue.
    Requeue,
    /// What a resume by Harbor would do.
    Preview,
    /// Runs beside each other.
    Compare,
    /// The model servers.
    Serving,
    /// All jobs.
    Jobs,
}

impl Context {
    /// Heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Context::Global => "everywhere",
            Context::List => "lists",
            Context::Trial => "one trial",
            Context::Replay => "replay",
            Context::Stop => "a stop and its audit",
            Context::Triage => "triage",
            Context::Requeue => "the plan of a requeue",
            Context::Preview => "the preview of a resume",
            Context::Compare => "runs compared",
            Context::Serving => "serving",
            Context::Jobs => "all jobs",
        }
    }
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the registry below says what each is
pub enum Action {
    Quit,
    Back,
    Help,
    Palette,
    Redraw,
    Suspend,
    ViewTrials,
    ViewServing,
    ViewErrors,
    ViewTriage,
    ViewLog,
    ViewJobs,
    ViewCompare,
    NextAttention,
    Copy,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    Open,
    NextPane,
    Zoom,
    Filter,
    FilterMenu,
    ClearFilter,
    SortMenu,
    InvertSort,
    Acts,
    Live,
    Pause,
    First,
    TakeHelm,
    Endpoint,
    Detach,
    SlotsMore,
    SlotsLess,
    CancelTrial,
    Verdict,
    Note,
    Undo,
    Bulk,
    Similar,
    NextOpen,
    ShowVerifier,
    ShowException,
    ShowLog,
    Mark,
    Requeue,
    RequeueInfra,
    Regrade,
    ResumePreview,
    Outage,
    Stop,
    MendAll,
    AbortRequest,
    Refresh,
    OpenReplay,
    Terminal,
    NextTab,
    PrevTab,
    NextTrial,
    PrevTrial,
    Search,
    NextMatch,
    PrevMatch,
    Fold,
    PlayPause,
    SeekBack,
    SeekForward,
    StepBack,
    StepForward,
    PrevEpisode,
    NextEpisode,
    Slower,
    Faster,
    IdleCap,
    SeekPercent(u8),
    SeekEnd,
    OpenMarked,
    AddRoot,
    ForgetRoot,
}

/// One entry of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The action.
    pub action: Action,
    /// Stable name, for the palette.
    pub id: &'static str,
    /// What it does, in the operator's words.
    pub title: &'static str,
    /// Default keys; the first is the one shown.
    pub keys: &'static [Key],
    /// Where it applies.
    pub context: Context,
    /// Short word for the footer; empty keeps it out of there.
    pub footer: &'static str,
}

macro_rules! spec {
    ($context:ident, $action:expr, $id:literal, $title:literal, [$($key:expr),* $(,)?], $footer:literal) => {
        Spec { action: $action, id: $id, title: $title, keys: &[$($key),*], context: Context::$context, footer: $footer }
    };
}

use Action as A;
use Key::{Char, Ctrl};

/// The registry. Order is that of the help.
pub const ACTIONS: &[Spec] = &[
    spec!(Global, A::Help, "help", "this help", [Char('?')], "help"),
    spec!(Global, A::Palette, "commands", "find and run any command", [Char(':')], "commands"),
    spec!(Global, A::Back, "back", "one step back; at home: quit", [Char('q'), Key::Esc, Char('h')], "back"),
    spec!(Global, A::Quit, "quit", "quit; asks first where this screen runs the job", [Ctrl('c')], ""),
    spec!(Global, A::NextAttention, "attention", "go to the next thing that needs you", [Char('!')], "attention"),
    spec!(Global, A::ViewTrials, "view.trials", "trials (home)", [Char('1')], ""),
    spec!(Global, A::ViewServing, "view.serving", "serving: the model servers beside the trials", [Char('2')], ""),
    spec!(Global, A::ViewErrors, "view.errors", "errors by exception type", [Char('3')], ""),
    spec!(
        Global,
        A::ViewTriage,
        "view.triage",
        "triage: all that is not a clean pass, worst first",
        [Char('4'), Char('t')],
        ""
    ),
    spec!(Global, A::ViewLog, "view.log", "warnings: all that is odd in these job dirs", [Char('5')], ""),
    spec!(Global, A::ViewJobs, "view.jobs", "all jobs: these, and every one below what is remembered", [Char('6')], ""),
    spec!(Global, A::ViewCompare, "view.compare", "runs compared, task by task", [Char('7')], ""),
    spec!(Global, A::Copy, "copy", "copy the path of what is selected", [Char('y')], ""),
    spec!(Global, A::Redraw, "redraw", "draw everything anew", [Ctrl('l')], ""),
    spec!(Global, A::Detach, "detach", "a job run here: leave the screen, the run goes on without it", [Char('d')], ""),
    spec!(Global, A::Suspend, "suspend", "suspend to the shell (fg returns)", [Ctrl('z')], ""),
    spec!(List, A::Down, "down", "next row", [Char('j'), Key::Down], ""),
    spec!(List, A::Up, "up", "previous row", [Char('k'), Key::Up], ""),
    spec!(List, A::PageDown, "page.down", "a page down", [Ctrl('d'), Key::PageDown], ""),
    spec!(List, A::PageUp, "page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(List, A::Top, "top", "first row", [Char('g'), Key::Home], ""),
    spec!(List, A::Bottom, "bottom", "last row", [Char('G'), Key::End], ""),
    spec!(List, A::Open, "open", "open what is selected", [Key::Enter, Char('l')], "open"),
    spec!(
        List,
        A::Filter,
        "filter",
        "filter: words, field:value, !not (phase, outcome, exception, task, job, class, sub, verdict, flag, overlaps)",
        [Char('/')],
        "filter"
    ),
    spec!(
        List,
        A::FilterMenu,
        "filter.menu",
        "filter by outcome, phase or exception type, with counts",
        [Char('f')],
        ""
    ),
    spec!(List, A::ClearFilter, "filter.clear", "show all again", [Char('F')], ""),
    spec!(List, A::SortMenu, "sort", "sort by a column", [Char('o')], "order"),
    spec!(List, A::InvertSort, "sort.invert", "turn the order round", [Char('O')], ""),
    spec!(List, A::OpenReplay, "replay", "replay the terminal recording", [Char('c')], "replay"),
    spec!(List, A::NextPane, "pane", "next pane", [Key::Tab], ""),
    spec!(List, A::Zoom, "zoom", "this pane alone, or both", [Char('z')], ""),
    spec!(List, A::Live, "live", "live output of the running step: agent, then tests", [Char('w')], "watch"),
    spec!(List, A::SlotsMore, "slots.more", "a job of pilothouse: one trial slot more (-n)", [Char('+')], ""),
    spec!(List, A::SlotsLess, "slots.less", "a job of pilothouse: one slot less; what runs runs on", [Char('-')], ""),
    spec!(List, A::Pause, "pause", "a job of pilothouse: begin nothing more, or go on again", [Char('p')], ""),
    spec!(List, A::First, "first", "a job of pilothouse: begin the marked ones, or this one, first", [Char('u')], ""),
    spec!(
        List,
        A::CancelTrial,
        "trial.cancel",
        "a job of pilothouse: cancel the marked that run, or this one (asks)",
        [Char('X')],
        ""
    ),
    spec!(List, A::TakeHelm, "helm", "a job of pilothouse: steer it from this screen", [Char('H')], ""),
    spec!(
        List,
        A::Endpoint,
        "endpoint",
        "a job of pilothouse: call its model at another address (probes it, asks)",
        [Char('E')],
        ""
    ),
    spec!(List, A::Verdict, "verdict", "say what this trial is: a verdict, by its letter", [Char('v')], ""),
    spec!(List, A::Mark, "mark", "mark this row, or take the mark away", [Char(' ')], ""),
    spec!(
        List,
        A::Requeue,
        "requeue",
        "run the marked trials again, or this one: shows the plan",
        [Char('r')],
        "requeue"
    ),
    spec!(
        List,
        A::RequeueInfra,
        "requeue.infra",
        "run all again that failed for their surroundings: shows the plan",
        [Char('R')],
        ""
    ),
    spec!(List, A::Regrade, "regrade", "run this trial's verifier again in its held container (asks)", [Char('V')], ""),
    spec!(
        List,
        A::ResumePreview,
        "resume.preview",
        "what harbor job resume would do to this job (changes nothing)",
        [Char('P')],
        ""
    ),
    spec!(List, A::Stop, "stop", "stop the job (asks); audit what a stop left", [Char('s')], "stop"),
    spec!(List, A::Acts, "acts", "what can be done with this", [Char('x')], ""),
    spec!(Trial, A::NextTab, "tab.next", "next tab", [Key::Tab, Char('l'), Key::Right], "tab"),
    spec!(Trial, A::PrevTab, "tab.prev", "previous tab", [Key::BackTab, Char('L'), Key::Left], ""),
    spec!(Trial, A::Terminal, "trial.terminal", "the terminal, live while the trial runs", [Char('T')], "term"),
    spec!(Trial, A::Down, "line.down", "down: next line, episode or file", [Char('j'), Key::Down], ""),
    spec!(Trial, A::Up, "line.up", "up", [Char('k'), Key::Up], ""),
    spec!(Trial, A::PageDown, "trial.page.down", "a page down", [Ctrl('d'), Key::PageDown, Char(' ')], ""),
    spec!(Trial, A::PageUp, "trial.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Trial, A::Top, "trial.top", "to the top", [Char('g'), Key::Home], ""),
    spec!(Trial, A::Bottom, "trial.bottom", "to the end, and stay there while it grows", [Char('G'), Key::End], "end"),
    spec!(Trial, A::Open, "trial.open", "open: episode, file, folded text", [Key::Enter], "open"),
    spec!(Trial, A::Fold, "trial.fold", "fold or unfold reasoning and traceback", [Char('e')], "fold"),
    spec!(Trial, A::PrevEpisode, "episode.prev", "previous episode", [Char('[')], ""),
    spec!(Trial, A::NextEpisode, "episode.next", "next episode", [Char(']')], "episode"),
    spec!(Trial, A::PrevTrial, "trial.prev", "previous trial of the list", [Char('p')], ""),
    spec!(Trial, A::NextTrial, "trial.next", "next trial of the list", [Char('n')], "next trial"),
    spec!(Trial, A::Search, "trial.search", "search in this tab", [Char('/')], "search"),
    spec!(Trial, A::NextMatch, "match.next", "next match", [Char('.')], ""),
    spec!(Trial, A::PrevMatch, "match.prev", "previous match", [Char(',')], ""),
    spec!(Trial, A::OpenReplay, "trial.replay", "replay the terminal recording at this episode", [Char('c')], "replay"),
    spec!(Trial, A::Live, "trial.live", "live output of the running step: agent, then tests", [Char('w')], "watch"),
    spec!(Trial, A::Verdict, "trial.verdict", "say what this trial is: a verdict, by its letter", [Char('v')], ""),
    spec!(Trial, A::Regrade, "trial.regrade", "run its verifier again in its held container (asks)", [Char('V')], ""),
    spec!(Trial, A::CancelTrial, "trial.cancel.this", "a job of pilothouse: cancel this trial (asks)", [Char('X')], ""),
    spec!(Trial, A::Stop, "trial.stop", "stop the job (asks); audit what a stop left", [Char('s')], ""),
    spec!(Replay, A::PlayPause, "play", "play or pause", [Char(' '), Char('p')], "play"),
    spec!(Replay, A::SeekBack, "seek.back", "5 seconds back", [Key::Left, Char('j')], "-5 s"),
    spec!(Replay, A::SeekForward, "seek.forward", "5 seconds on", [Key::Right, Char('k'), Char('l')], "+5 s"),
    spec!(Replay, A::StepBack, "step.back", "one event back", [Char(',')], ""),
    spec!(Replay, A::StepForward, "step.forward", "one event on", [Char('.')], ""),
    spec!(Replay, A::PrevEpisode, "replay.episode.prev", "previous episode or marker", [Char('[')], ""),
    spec!(Replay, A::NextEpisode, "replay.episode.next", "next episode or marker", [Char(']')], "episode"),
    spec!(Replay, A::Slower, "slower", "half the speed", [Char('<'), Char('-')], ""),
    spec!(Replay, A::Faster, "faster", "twice the speed", [Char('>'), Char('+')], "speed"),
    spec!(Replay, A::IdleCap, "idle", "cap silences: off, 1 s, 2 s, 5 s", [Char('i')], "idle"),
    spec!(Replay, A::Search, "replay.search", "search in the output", [Char('/')], "search"),
    spec!(Replay, A::NextMatch, "replay.match.next", "next match", [Char('n')], ""),
    spec!(Replay, A::PrevMatch, "replay.match.prev", "previous match", [Char('N')], ""),
    spec!(Replay, A::SeekPercent(0), "seek.start", "0-9: jump to 0 % … 90 %", [Char('0')], ""),
    spec!(Replay, A::SeekEnd, "seek.end", "to the end; follows a growing cast", [Char('G'), Key::End], "end"),
    spec!(Replay, A::Top, "replay.start", "to the start", [Char('g'), Key::Home], ""),
    spec!(Replay, A::Up, "scroll.up", "scroll a tall or wide terminal up", [Key::Up, Ctrl('u')], ""),
    spec!(Replay, A::Down, "scroll.down", "scroll it down", [Key::Down, Ctrl('d')], ""),
    spec!(Replay, A::PrevTab, "scroll.left", "scroll it left", [Char('H')], ""),
    spec!(Replay, A::NextTab, "scroll.right", "scroll it right", [Char('L')], ""),
    spec!(Replay, A::NextPane, "cast.next", "next recording of this trial", [Key::Tab], ""),
    spec!(Stop, A::Open, "mend", "mend the selected finding (asks)", [Key::Enter, Char('l')], "mend"),
    spec!(Stop, A::MendAll, "mend.all", "mend all that can be mended (asks)", [Char('m')], "mend all"),
    spec!(Stop, A::Refresh, "audit", "look again what is left", [Char('r')], "look again"),
    spec!(Stop, A::Stop, "stop.again", "stop: ask again, another signal or less patience", [Char('s')], "stop"),
    spec!(Stop, A::Down, "finding.next", "next finding", [Char('j'), Key::Down], ""),
    spec!(Stop, A::Up, "finding.prev", "previous finding", [Char('k'), Key::Up], ""),
    spec!(Stop, A::PageDown, "finding.page.down", "a page down", [Ctrl('d'), Key::PageDown], ""),
    spec!(Stop, A::PageUp, "finding.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Stop, A::Top, "finding.first", "first finding", [Char('g'), Key::Home], ""),
    spec!(Stop, A::Bottom, "finding.last", "last finding", [Char('G'), Key::End], ""),
    spec!(
        Triage,
        A::Verdict,
        "triage.verdict",
        "say what this one is: v, then a letter; goes on to the next",
        [Char('v')],
        "verdict"
    ),
    spec!(Triage, A::Undo, "undo", "undo the last verdict of this session", [Char('u')], "undo"),
    spec!(Triage, A::Note, "note", "add a note to this one", [Char('n')], "note"),
    spec!(Triage, A::Down, "item.next", "next item", [Char('j'), Key::Down], ""),
    spec!(Triage, A::Up, "item.prev", "previous item", [Char('k'), Key::Up], ""),
    spec!(Triage, A::NextOpen, "item.open", "next one without a verdict", [Char('.')], ""),
    spec!(Triage, A::Top, "item.first", "first item", [Char('g'), Key::Home], ""),
    spec!(Triage, A::Bottom, "item.last", "last item", [Char('G'), Key::End], ""),
    spec!(Triage, A::PageDown, "evidence.down", "scroll the evidence down", [Ctrl('d'), Key::PageDown], ""),
    spec!(Triage, A::PageUp, "evidence.up", "scroll it up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Triage, A::Open, "triage.trial", "the trial: its steps", [Key::Enter, Char('l')], "open"),
    spec!(
        Triage,
        A::OpenReplay,
        "triage.replay",
        "the terminal recording, at its exception or last activity",
        [Char('c')],
        "replay"
    ),
    spec!(Triage, A::ShowVerifier, "triage.verifier", "the verifier: cases and output", [Char('o')], "verifier"),
    spec!(Triage, A::ShowException, "triage.exception", "the exception", [Char('e')], "exception"),
    spec!(Triage, A::ShowLog, "triage.log", "the agent's log", [Char('w')], "log"),
    spec!(
        Triage,
        A::Similar,
        "similar",
        "only those that failed alike: same rule, or same exception type; again: all",
        [Char('f')],
        "alike"
    ),
    spec!(Triage, A::Filter, "triage.filter", "filter, in the words of the trials list", [Char('/')], "filter"),
    spec!(Triage, A::ClearFilter, "triage.all", "show all again", [Char('F')], ""),
    spec!(
        Triage,
        A::Bulk,
        "bulk",
        "one verdict for all shown that have none (asks for a reason, names them)",
        [Char('b')],
        "bulk"
    ),
    spec!(
        Triage,
        A::Outage,
        "outage",
        "note an outage, from - to UTC; overlaps:outage then shows who ran in it",
        [Char('O')],
        ""
    ),
    spec!(Triage, A::Mark, "triage.mark", "mark this one, or take the mark away", [Char(' ')], ""),
    spec!(
        Triage,
        A::Requeue,
        "triage.requeue",
        "run the marked trials again, or this one: shows the plan",
        [Char('r')],
        "requeue"
    ),
    spec!(
        Triage,
        A::RequeueInfra,
        "triage.requeue.infra",
        "run all again that failed for their surroundings: shows the plan",
        [Char('R')],
        ""
    ),
    spec!(Triage, A::Regrade, "triage.regrade", "run its verifier again in its held container (asks)", [Char('V')], ""),
    spec!(
        Triage,
        A::ResumePreview,
        "triage.resume.preview",
        "what harbor job resume would do to this job (changes nothing)",
        [Char('P')],
        ""
    ),
    spec!(Triage, A::Zoom, "triage.zoom", "the item alone, or the list beside it", [Char('z'), Key::Tab], ""),
    spec!(Triage, A::Stop, "triage.stop", "stop the job (asks); audit what a stop left", [Char('s')], ""),
    spec!(Triage, A::Acts, "triage.acts", "what can be done with this", [Char('x')], ""),
    spec!(Preview, A::Down, "preview.down", "down", [Char('j'), Key::Down], ""),
    spec!(Preview, A::Up, "preview.up", "up", [Char('k'), Key::Up], ""),
    spec!(Preview, A::PageDown, "preview.page.down", "a page down", [Char(' '), Ctrl('d'), Key::PageDown], "scroll"),
    spec!(Preview, A::PageUp, "preview.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Preview, A::Top, "preview.first", "to the top", [Char('g'), Key::Home], ""),
    spec!(Preview, A::Bottom, "preview.last", "to the end", [Char('G'), Key::End], ""),
    spec!(Preview, A::Refresh, "preview.again", "look again", [Char('r')], "look again"),
    spec!(
        Preview,
        A::RequeueInfra,
        "preview.requeue",
        "the safer way: run again what has no reward, in a new job: shows the plan",
        [Char('R')],
        "requeue instead"
    ),
    spec!(Compare, A::Open, "compare.open", "the trials of this task", [Key::Enter, Char('l')], "trials"),
    spec!(
        Compare,
        A::Similar,
        "compare.flips",
        "only tasks that some solved and others did not; again: all",
        [Char('f')],
        "flips"
    ),
    spec!(Compare, A::Down, "compare.down", "next task", [Char('j'), Key::Down], ""),
    spec!(Compare, A::Up, "compare.up", "previous task", [Char('k'), Key::Up], ""),
    spec!(Compare, A::PageDown, "compare.page.down", "a page down", [Ctrl('d'), Key::PageDown], ""),
    spec!(Compare, A::PageUp, "compare.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Compare, A::Top, "compare.first", "first task", [Char('g'), Key::Home], ""),
    spec!(Compare, A::Bottom, "compare.last", "last task", [Char('G'), Key::End], ""),
    spec!(Serving, A::Open, "serving.open", "open: limits, figures, diagnoses", [Key::Enter, Char('l')], "open"),
    spec!(Serving, A::NextPane, "serving.pane", "next pane: replicas, diagnoses, server log", [Key::Tab], "pane"),
    spec!(Serving, A::Zoom, "serving.zoom", "this pane alone, or all", [Char('z')], "zoom"),
    spec!(Serving, A::Slower, "serving.shorter", "timeline: a shorter span", [Char('<')], ""),
    spec!(Serving, A::Faster, "serving.longer", "timeline: a longer span, up to 8 h", [Char('>')], ""),
    spec!(Serving, A::Search, "serving.search", "filter the server log, by words", [Char('/')], "filter log"),
    spec!(Serving, A::ClearFilter, "serving.all", "the whole server log again", [Char('F')], ""),
    spec!(Serving, A::Down, "serving.down", "next row", [Char('j'), Key::Down], ""),
    spec!(Serving, A::Up, "serving.up", "previous row", [Char('k'), Key::Up], ""),
    spec!(Serving, A::PageDown, "serving.page.down", "a page down", [Char(' '), Ctrl('d'), Key::PageDown], ""),
    spec!(Serving, A::PageUp, "serving.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Serving, A::Top, "serving.first", "first row", [Char('g'), Key::Home], ""),
    spec!(
        Serving,
        A::Bottom,
        "serving.last",
        "last row; in the log: stay there while it grows",
        [Char('G'), Key::End],
        "end"
    ),
    spec!(
        Serving,
        A::AbortRequest,
        "serving.abort",
        "abort one request at its server (asks); nothing else is changed there",
        [Char('X')],
        "abort request"
    ),
    spec!(Serving, A::Acts, "serving.acts", "what can be done with this", [Char('x')], ""),
    spec!(Jobs, A::Open, "jobs.open", "open this job on this screen", [Key::Enter, Char('l')], "open"),
    spec!(
        Jobs,
        A::Filter,
        "jobs.filter",
        "filter: words, field:value, !not (state, agent, model, dataset, owner, name), marked",
        [Char('/')],
        "filter"
    ),
    spec!(Jobs, A::SortMenu, "jobs.sort", "sort by a column", [Char('o')], "order"),
    spec!(Jobs, A::Mark, "jobs.mark", "mark this job, or take the mark away", [Char(' ')], "mark"),
    spec!(Jobs, A::OpenMarked, "jobs.open.marked", "open the marked jobs together", [Char('m')], ""),
    spec!(Jobs, A::AddRoot, "jobs.add", "look through another directory of jobs, and remember it", [Char('a')], "add"),
    spec!(
        Jobs,
        A::ForgetRoot,
        "jobs.forget",
        "forget a directory: look through it no more (touches no file)",
        [Char('D')],
        "forget"
    ),
    spec!(Jobs, A::ClearFilter, "jobs.all", "show all again", [Char('F')], ""),
    spec!(Jobs, A::InvertSort, "jobs.sort.invert", "turn the order round", [Char('O')], ""),
    spec!(Jobs, A::Refresh, "jobs.again", "look at everything now", [Char('r')], ""),
    spec!(Jobs, A::Down, "jobs.down", "next job", [Char('j'), Key::Down], ""),
    spec!(Jobs, A::Up, "jobs.up", "previous job", [Char('k'), Key::Up], ""),
    spec!(Jobs, A::PageDown, "jobs.page.down", "a page down", [Ctrl('d'), Key::PageDown], ""),
    spec!(Jobs, A::PageUp, "jobs.page.up", "a page up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Jobs, A::Top, "jobs.first", "first job", [Char('g'), Key::Home], ""),
    spec!(Jobs, A::Bottom, "jobs.last", "last job", [Char('G'), Key::End], ""),
    spec!(
        Jobs,
        A::ResumePreview,
        "jobs.resume.preview",
        "a job of this screen: what harbor job resume would do to it (changes nothing)",
        [Char('P')],
        ""
    ),
    spec!(Jobs, A::Stop, "jobs.stop", "a job of this screen: stop it (asks); audit what a stop left", [Char('s')], ""),
    spec!(Requeue, A::Open, "requeue.choose", "do what has the focus", [Key::Enter, Char('l')], "choose"),
    spec!(Requeue, A::Down, "requeue.down", "next choice", [Char('j'), Key::Down], ""),
    spec!(Requeue, A::Up, "requeue.up", "previous choice", [Char('k'), Key::Up], ""),
    spec!(
        Requeue,
        A::PageDown,
        "requeue.page.down",
        "scroll the plan down",
        [Char(' '), Ctrl('d'), Key::PageDown],
        "scroll"
    ),
    spec!(Requeue, A::PageUp, "requeue.page.up", "scroll it up", [Ctrl('u'), Key::PageUp], ""),
    spec!(Requeue, A::Top, "requeue.first", "first choice", [Char('g'), Key::Home], ""),
    spec!(Requeue, A::Bottom, "requeue.last", "last choice", [Char('G'), Key::End], ""),
];

/// What a key means in a context: the context's own table first, then the global one.
pub fn lookup(context: Context, key: Key) -> Option<Action> {
    if context == Context::Replay
        && let Key::Char(c @ '0'..='9') = key
    {
        return Some(Action::SeekPercent((c as u8).saturating_sub(b'0')));
    }
    let find =
        |wanted: Context| ACTIONS.iter().find(|s| s.context == wanted && s.keys.contains(&key)).map(|s| s.action);
    find(context).or_else(|| find(Context::Global))
}

/// The registry entries that apply in a context, its own first.
pub fn available(context: Context) -> impl Iterator<Item = &'static Spec> {
    ACTIONS
        .iter()
        .filter(move |s| s.context == context)
        .chain(ACTIONS.iter().filter(move |s| s.context == Context::Global && context != Context::Global))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_means_two_things_in_one_context() {
        for context in [
            Context::Global,
            Context::List,
            Context::Trial,
            Context::Replay,
            Context::Stop,
            Context::Triage,
            Context::Requeue,
            Context::Preview,
            Context::Compare,
            Context::Serving,
            Context::Jobs,
        ] {
            let mut seen = HashSet::new();
            for spec in ACTIONS.iter().filter(|s| s.context == context) {
                for key in spec.keys {
                    assert!(seen.insert(*key), "{key} twice in {context:?}");
                }
            }
        }
        let ids: HashSet<_> = ACTIONS.iter().map(|s| s.id).collect();
        assert_eq!(ids.len(), ACTIONS.len());
    }

    #[test]
    fn nothing_needs_a_key_that_tmux_or_a_phone_swallows() {
        for spec in ACTIONS {
            let plain = spec.keys.iter().any(|k| matches!(k, Key::Char(_) | Key::Enter));
            let spare = matches!(
                spec.action,
                Action::Quit
                    | Action::Redraw
                    | Action::Suspend
                    | Action::PageDown
                    | Action::PageUp
                    | Action::NextPane
                    | Action::Up
                    | Action::Down
                    | Action::NextTab
                    | Action::PrevTab
            );
            assert!(plain || spare, "{} has no plain key", spec.id);
            assert!(!spec.keys.contains(&Key::Ctrl('b')), "{}", spec.id);
        }
    }
}
