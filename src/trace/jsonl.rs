//! `trace.jsonl`: one event a line.

use std::io::{self, BufRead, Write};

use super::OperatorEvent;

/// A trace could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read or written.
    #[error("the trace could not be read or written: {0}; check the path and the disk")]
    Io(#[from] io::Error),
    /// A line is not an event.
    #[error("line {line} of the trace is not an operator event: {source}; record the pass again")]
    Line {
        /// Line number from 1.
        line: usize,
        /// What the parser says.
        source: serde_json::Error,
    },
}

/// Writes events, one a line.
///
/// # Errors
/// If `out` refuses.
pub fn write_events(out: &mut impl Write, events: &[OperatorEvent]) -> Result<(), TraceError> {
    for event in events {
        serde_json::to_writer(&mut *out, event).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads events, one a line; empty lines are passed over.
///
/// # Errors
/// If the input cannot be read or a line is not an event.
pub fn read_events(input: impl BufRead) -> Result<Vec<OperatorEvent>, TraceError> {
    let mut events = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let event =
            serde_json::from_str(&line).map_err(|source| TraceError::Line { line: index + 1, source })?;
        events.push(event);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{event, tensor};

    #[test]
    fn what_is_written_is_read_back() {
        let events = vec![
            OperatorEvent { inputs: vec![tensor(&[2, 3], "f32", "mps:0")], ..event(0, "aten::relu") },
            OperatorEvent { parent: Some(0), depth: 1, node: Some(4), ..event(1, "aten::copy_") },
        ];
        let mut bytes = Vec::new();
        write_events(&mut bytes, &events).unwrap();
        assert_eq!(bytes.as_slice().lines().count(), 2);
        assert_eq!(read_events(bytes.as_slice()).unwrap(), events);
    }

    #[test]
    fn a_line_that_was_cut_off_is_refused_with_its_number() {
        let mut bytes = Vec::new();
        write_events(&mut bytes, &[event(0, "a"), event(1, "b")]).unwrap();
        bytes.truncate(bytes.len() - 9);
        let message = read_events(bytes.as_slice()).unwrap_err().to_string();
        assert!(message.starts_with("line 2 "), "{message}");
        assert!(message.ends_with("record the pass again"), "{message}");
    }
}
