//! Export to the trace event format that Chrome and Perfetto open.
//!
//! Complete events (`ph: "X"`) with start and duration in microseconds, one track a thread;
//! shapes, dtypes, devices, node and module path stand in `args`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{EventKind, OperatorEvent, TensorMeta};

/// Writes events as one JSON object; `title` names the process in the viewer.
///
/// # Errors
/// If `out` refuses.
pub fn write_chrome(out: &mut impl Write, title: &str, events: &[OperatorEvent]) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let name = json!({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": title}});
    serde_json::to_writer(&mut *out, &name)?;
    let mut threads: Vec<u32> = events.iter().map(|event| event.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for thread in threads {
        let name = json!({
            "name": "thread_name", "ph": "M", "pid": 1, "tid": thread,
            "args": {"name": format!("thread {thread}")},
        });
        out.write_all(b",\n")?;
        serde_json::to_writer(&mut *out, &name)?;
    }
    for event in events {
        out.write_all(b",\n")?;
        serde_json::to_writer(&mut *out, &complete(event))?;
    }
    out.write_all(b"]}\n")
}

fn complete(event: &OperatorEvent) -> Value {
    let mut args = json!({
        "seq": event.seq,
        "inputs": event.inputs.iter().map(describe).collect::<Vec<_>>(),
        "outputs": event.outputs.iter().map(describe).collect::<Vec<_>>(),
    });
    if let Some(args) = args.as_object_mut() {
        if !event.overload.is_empty() {
            args.insert("overload".to_owned(), json!(event.overload));
        }
        if let Some(node) = event.node {
            args.insert("node".to_owned(), json!(node));
        }
        if !event.path.is_empty() {
            args.insert("module".to_owned(), json!(event.path));
        }
        if event.bytes_moved > 0 {
            args.insert("bytes moved".to_owned(), json!(event.bytes_moved));
        }
    }
    let kind = match event.kind {
        EventKind::Operator => "operator",
        EventKind::Autograd => "autograd",
        EventKind::Range => "range",
    };
    json!({
        "name": event.op,
        "cat": format!("{},{kind}", event.phase.name()),
        "ph": "X",
        "ts": event.start_ns as f64 / 1000.0,
        "dur": event.duration_ns as f64 / 1000.0,
        "pid": 1,
        "tid": event.thread,
        "args": args,
    })
}

fn describe(tensor: &TensorMeta) -> String {
    format!("{:?} {} {}", tensor.shape, tensor.dtype, tensor.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{event, tensor};

    #[test]
    fn every_event_becomes_a_complete_event_on_its_thread() {
        let events = vec![
            event(0, "aten::linear"),
            OperatorEvent {
                thread: 3,
                start_ns: 1500,
                duration_ns: 250,
                path: "head".to_owned(),
                inputs: vec![tensor(&[2], "f32", "cpu")],
                ..event(1, "aten::mm")
            },
        ];
        let mut bytes = Vec::new();
        write_chrome(&mut bytes, "torch:cpu", &events).unwrap();
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        let all = read["traceEvents"].as_array().unwrap();
        let complete: Vec<&Value> = all.iter().filter(|e| e["ph"] == "X").collect();
        assert_eq!(complete.len(), 2);
        assert_eq!(complete[1]["ts"], 1.5);
        assert_eq!(complete[1]["dur"], 0.25);
        assert_eq!(complete[1]["tid"], 3);
        assert_eq!(complete[1]["args"]["module"], "head");
        assert_eq!(complete[1]["args"]["inputs"][0], "[2] f32 cpu");
        assert_eq!(all.iter().filter(|e| e["name"] == "thread_name").count(), 2);
    }
}
