//! One target in a process of its own: start, listen, wait, and kill where needed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::process::{self, Ended, Usage};
use super::progress::{Message, Stage};

/// How often a child is looked after.
const TICK: Duration = Duration::from_millis(5);
/// How long a child may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// How long output may still come after the process ended (a grandchild may hold the pipe).
const DRAIN: Duration = Duration::from_millis(200);
/// Lines of text that are kept of what a child printed.
const TAIL_LINES: usize = 40;
/// Longest line that is kept, in bytes.
const LINE_BYTES: u64 = 4096;

/// What to start.
#[derive(Clone, Debug)]
pub(super) struct ChildSpec {
    /// The program, usually this one.
    pub binary: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables to set, or (`None`) to remove.
    pub environment: BTreeMap<String, Option<String>>,
    /// Kill it after this long without a message.
    pub silence: Option<Duration>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChildReport {
    /// How it ended.
    pub ended: Ended,
    /// The stage that it named last.
    pub stage: Stage,
    /// Its last word, if it had one.
    pub last: Option<Message>,
    /// The end of what it and its libraries printed, without messages.
    pub tail: Vec<String>,
    /// What it used.
    pub usage: Usage,
    /// The signal that this process got meanwhile, which ended the child.
    pub interrupted: Option<i32>,
}

enum Heard {
    Message(Message),
    Text(String),
}

/// Runs one child to its end.
///
/// # Errors
/// If it cannot be started at all.
pub(super) fn run(spec: &ChildSpec, progress: &mut dyn FnMut(Stage, f64)) -> std::io::Result<ChildReport> {
    let mut command = Command::new(&spec.binary);
    command.args(&spec.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in &spec.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let began = Instant::now();
    let mut child = command.spawn()?;
    let (sender, heard) = channel();
    if let Some(out) = child.stdout.take() {
        listen(out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        listen(err, sender.clone());
    }
    drop(sender);
    Watch {
        pid: child.id(),
        began,
        spoke: began,
        stage: Stage::Start,
        last: None,
        tail: VecDeque::new(),
        killed: None,
        interrupted: None,
        silence: spec.silence,
    }
    .until_the_end(&heard, progress)
}

/// Reads lines on a thread of their own, so that a full pipe never stops the child.
fn listen(pipe: impl Read + Send + 'static, sender: Sender<Heard>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without an end must not fill the memory: it is cut.
            match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let heard = match Message::parse(&text) {
                Some(message) => Heard::Message(message),
                None => Heard::Text(text.trim_end().to_owned()),
            };
            if sender.send(heard).is_err() {
                return;
            }
        }
    });
}

struct Watch {
    pid: u32,
    began: Instant,
    spoke: Instant,
    stage: Stage,
    last: Option<Message>,
    tail: VecDeque<String>,
    killed: Option<(Instant, Ended)>,
    interrupted: Option<i32>,
    silence: Option<Duration>,
}

impl Watch {
    fn until_the_end(
        mut self,
        heard: &Receiver<Heard>,
        progress: &mut dyn FnMut(Stage, f64),
    ) -> std::io::Result<ChildReport> {
        let mut open = true;
        let (ended, mut usage) = loop {
            if open {
                match heard.recv_timeout(TICK) {
                    Ok(heard) => self.take(heard, progress),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => open = false,
                }
            } else {
                std::thread::sleep(TICK);
            }
            if let Some(end) = process::try_wait(self.pid)? {
                break end;
            }
            self.look_after();
        };
        usage.wall_s = self.began.elapsed().as_secs_f64();
        let until = Instant::now() + DRAIN;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match heard.recv_timeout(left) {
                Ok(heard) => self.take(heard, progress),
                Err(_) => break,
            }
        }
        if let Some(Message::Done { peak_bytes: Some(peak) }) = self.last {
            usage.peak_bytes = peak;
        }
        Ok(ChildReport {
            // What we did to it explains more than the signal that it got from us.
            ended: self.killed.map_or(ended, |(_, why)| why),
            stage: self.stage,
            last: self.last,
            tail: self.tail.into(),
            usage,
            interrupted: self.interrupted,
        })
    }

    fn take(&mut self, heard: Heard, progress: &mut dyn FnMut(Stage, f64)) {
        match heard {
            Heard::Message(message) => {
                self.spoke = Instant::now();
                if let Message::Progress { stage, fraction } = message {
                    self.stage = stage;
                    progress(stage, fraction);
                } else {
                    if let Message::Failed { stage, .. } = message {
                        self.stage = stage;
                    }
                    self.last = Some(message);
                }
            }
            Heard::Text(text) => {
                if self.tail.len() == TAIL_LINES {
                    self.tail.pop_front();
                }
                self.tail.push_back(text);
            }
        }
    }

    /// Passes signals on and ends a child that is silent for too long.
    fn look_after(&mut self) {
        if self.interrupted.is_none()
            && let Some(number) = process::SignalGuard::caught()
        {
            self.interrupted = Some(number);
            self.killed = Some((Instant::now(), Ended::Signal { number }));
            process::signal(self.pid, number);
        }
        if let Some(limit) = self.silence
            && self.killed.is_none()
            && self.spoke.elapsed() > limit
        {
            // It may hang in a driver where no milder signal reaches it.
            self.killed = Some((Instant::now(), Ended::TimedOut { after_s: limit.as_secs() }));
            process::signal(self.pid, libc::SIGKILL);
        }
        if let Some((since, _)) = self.killed
            && since.elapsed() > GRACE
        {
            process::signal(self.pid, libc::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that is a shell script.
    fn shell(script: &str) -> ChildSpec {
        ChildSpec {
            binary: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::new(),
            silence: Some(Duration::from_secs(20)),
        }
    }

    fn report(script: &str) -> ChildReport {
        run(&shell(script), &mut |_, _| {}).unwrap()
    }

    const FORWARD: &str = r#"echo '{"message":"progress","stage":"forward","fraction":0.5}'"#;

    #[test]
    fn progress_and_the_last_word_are_heard_among_other_output() {
        let script = format!(
            "echo noise; {FORWARD}; echo '{{\"message\":\"done\",\"peak_bytes\":77}}'; echo more >&2"
        );
        let mut seen = Vec::new();
        let report = run(&shell(&script), &mut |stage, fraction| seen.push((stage, fraction))).unwrap();
        assert_eq!(seen, [(Stage::Forward, 0.5)]);
        assert_eq!(report.ended, Ended::Exit { code: 0 });
        assert_eq!(report.last, Some(Message::Done { peak_bytes: Some(77) }));
        assert_eq!(report.usage.peak_bytes, 77);
        let mut tail = report.tail;
        tail.sort();
        assert_eq!(tail, ["more", "noise"]);
    }

    #[test]
    fn every_way_to_die_is_told_apart() {
        let cases = [
            ("exit 3", Ended::Exit { code: 3 }),
            ("kill -9 $$", Ended::Signal { number: libc::SIGKILL }),
            ("kill -6 $$", Ended::Signal { number: libc::SIGABRT }),
            ("kill -11 $$", Ended::Signal { number: libc::SIGSEGV }),
        ];
        for (script, expected) in cases {
            let report = report(&format!("{FORWARD}; echo 'last words' >&2; {script}"));
            assert_eq!((report.ended, report.stage), (expected, Stage::Forward), "{script}");
            assert_eq!(report.tail, ["last words"], "{script}");
            assert!(report.usage.wall_s > 0.0 && report.usage.peak_bytes > 0);
        }
    }

    #[test]
    fn a_silent_child_is_killed() {
        let spec = ChildSpec { silence: Some(Duration::from_millis(100)), ..shell("exec sleep 600") };
        let report = run(&spec, &mut |_, _| {}).unwrap();
        assert!(matches!(report.ended, Ended::TimedOut { .. }));
    }

    #[test]
    fn a_child_that_closes_its_output_is_still_waited_for() {
        let report = report("exec >&- 2>&-; sleep 0.2; exit 5");
        assert_eq!(report.ended, Ended::Exit { code: 5 });
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_does_not_hold_us_up() {
        let began = Instant::now();
        assert_eq!(report("sleep 30 & exit 0").ended, Ended::Exit { code: 0 });
        assert!(began.elapsed() < Duration::from_secs(20), "it waited for the grandchild");
    }

    #[test]
    fn endless_output_is_cut_and_only_its_end_is_kept() {
        let report = report("head -c 300000 /dev/zero | tr '\\0' 'x'; echo; seq 1 100");
        assert_eq!(report.tail.len(), TAIL_LINES);
        assert_eq!(report.tail.last().map(String::as_str), Some("100"));
    }

    #[test]
    fn environment_variables_are_set_and_removed_for_the_child_alone() {
        let spec = ChildSpec {
            environment: [("PARITY_X".to_owned(), Some("1".to_owned())), ("HOME".to_owned(), None)].into(),
            ..shell("echo ${PARITY_X:-unset} ${HOME:-unset}")
        };
        assert_eq!(run(&spec, &mut |_, _| {}).unwrap().tail, ["1 unset"]);
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let spec = ChildSpec { binary: "/nowhere/parity".into(), ..shell("") };
        assert!(run(&spec, &mut |_, _| {}).is_err());
    }
}
