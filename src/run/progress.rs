//! What a target's process says while it runs: one JSON object a line on its standard
//! output.
//!
//! Libraries print there too, so a line that is no message is kept as text, never an error.

use std::io::Write;

use serde::{Deserialize, Serialize};

/// Part of the life of a target's process, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The process exists and has said nothing yet.
    Start,
    /// Checkpoint, program and batch are read and checked.
    Prepare,
    /// The engine opens its device.
    Engine,
    /// Known questions to the device.
    Canary,
    /// Passes without observation.
    Bare,
    /// The pass that is recorded: forward.
    Forward,
    /// The same: backward.
    Backward,
    /// Forward passes over all labelled samples.
    Evaluate,
    /// Noise replicas of the reference.
    Noise,
    /// The recording is written.
    Write,
}

impl Stage {
    /// Name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Prepare => "prepare",
            Self::Engine => "engine",
            Self::Canary => "canary",
            Self::Bare => "bare pass",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Evaluate => "evaluate",
            Self::Noise => "noise",
            Self::Write => "write",
        }
    }
}

/// One line from a target's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Where it is.
    Progress {
        /// Part of its life.
        stage: Stage,
        /// Share of that part that is done, 0 to 1.
        fraction: f64,
    },
    /// The device does not exist here.
    Absent {
        /// Whether the engine has code for it at all.
        built: bool,
        /// What was seen.
        reason: String,
    },
    /// It could not finish and says why.
    Failed {
        /// Where it was.
        stage: Stage,
        /// Why.
        reason: String,
    },
    /// The recording is complete.
    Done {
        /// Highest resident memory of the process, where the system tells.
        peak_bytes: Option<u64>,
    },
}

impl Message {
    /// Reads one line; `None` if it is something else.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        // Cheap refusal of what libraries print.
        if !line.starts_with("{\"message\"") {
            return None;
        }
        serde_json::from_str(line).ok()
    }

    /// Writes one line and flushes it.
    ///
    /// # Errors
    /// If nobody listens any more.
    pub fn send(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)?;
        out.flush()
    }
}

/// Where progress goes: called with a stage and the share of it that is done, from any thread.
pub type Progress<'a> = dyn Fn(Stage, f64) + Sync + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_pipe() {
        let messages = [
            Message::Progress { stage: Stage::Backward, fraction: 0.25 },
            Message::Absent { built: true, reason: "no CUDA device".to_owned() },
            Message::Failed { stage: Stage::Engine, reason: "a\n\"b\"".to_owned() },
            Message::Done { peak_bytes: Some(1 << 40) },
        ];
        for message in messages {
            let mut line = Vec::new();
            message.send(&mut line).unwrap();
            let text = String::from_utf8(line).unwrap();
            assert_eq!(text.lines().count(), 1);
            assert_eq!(Message::parse(&text), Some(message));
        }
    }

    #[test]
    fn what_a_library_prints_is_no_message() {
        for line in
            ["", "loading kernels", "{}", "{\"message\": \"launch\"}", "{\"message\":\"done\"", "\u{7}"]
        {
            assert_eq!(Message::parse(line), None, "{line}");
        }
    }
}
