//! One line of progress on standard error, only on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::{Event, Stage, Target};

/// The line.
#[derive(Debug)]
pub struct Line {
    bar: ProgressBar,
    targets: usize,
    done: usize,
}

impl Line {
    /// A line for `targets` targets; invisible where standard error is not a terminal.
    pub fn new(targets: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(1000) } else { ProgressBar::hidden() };
        if terminal {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let style = ProgressStyle::with_template("{prefix} [{bar:24}] {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Self { bar, targets, done: 0 }
    }

    /// Shows what one target does.
    pub fn event(&mut self, target: &Target, event: Event) {
        match event {
            Event::Started => self.show(target, Stage::Start.name(), 0.0),
            Event::Reused => self.show(target, "recorded before", 1.0),
            Event::Progress { stage, fraction } => self.show(target, stage.name(), fraction),
            Event::Ended => self.done += 1,
        }
    }

    fn show(&self, target: &Target, what: &str, fraction: f64) {
        self.bar.set_prefix(format!("{}/{} {target}", (self.done + 1).min(self.targets), self.targets));
        self.bar.set_message(what.to_owned());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 0..=1000 before"
        )]
        self.bar.set_position((fraction.clamp(0.0, 1.0) * 1000.0) as u64);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
