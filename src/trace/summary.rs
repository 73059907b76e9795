//! [`summarise`]: operators by count and time, by device, transfers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::nesting::Nesting;
use super::placement::span_ns;
use super::{EventKind, OperatorEvent, Phase};

/// One operator in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRow {
    /// Name as the engine has it.
    pub op: String,
    /// Part of the pass.
    pub phase: Phase,
    /// Calls.
    pub calls: u64,
    /// Nanoseconds from start to end, nested operators included.
    pub total_ns: u64,
    /// Nanoseconds without the operators nested in it.
    pub self_ns: u64,
    /// Devices of its tensors, plain numbers left out.
    pub devices: Vec<String>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Operators whose results are there (arguments, where there are no results).
    pub operators: u64,
    /// Their own nanoseconds, nested operators not included.
    pub self_ns: u64,
}

/// Transfers between two devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferRow {
    /// Device the bytes came from.
    pub from: String,
    /// Device the bytes went to.
    pub to: String,
    /// Number of transfers.
    pub count: u64,
    /// All bytes.
    pub bytes: u64,
}

/// A pass in figures. Times are those of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Nanoseconds from the first start to the last end.
    pub span_ns: u64,
    /// All events, autograd's and ranges included.
    pub events: u64,
    /// Threads that ran something.
    pub threads: u64,
    /// Operators, those with most own time first.
    pub operators: Vec<OperatorRow>,
    /// By device.
    pub devices: BTreeMap<String, DeviceRow>,
    /// Transfers, most bytes first.
    pub transfers: Vec<TransferRow>,
}

/// Counts one pass.
#[must_use]
pub fn summarise(events: &[OperatorEvent]) -> Summary {
    let own = self_times(events);
    let mut operators: HashMap<(&str, Phase), (OperatorRow, BTreeSet<&str>)> = HashMap::new();
    let mut devices: BTreeMap<String, DeviceRow> = BTreeMap::new();
    let mut transfers: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for (event, own) in events.iter().zip(own) {
        if event.kind != EventKind::Operator {
            continue;
        }
        let (row, on) =
            operators.entry((&event.op, event.phase)).or_insert_with(|| (empty(event), BTreeSet::new()));
        row.calls += 1;
        row.total_ns = row.total_ns.saturating_add(event.duration_ns);
        row.self_ns = row.self_ns.saturating_add(own);
        on.extend(event.tensors().filter(|t| !t.number).map(|t| t.device.as_str()));
        if let Some(tensor) = event.outputs.iter().chain(&event.inputs).find(|t| !t.number) {
            let device = devices.entry(tensor.device.clone()).or_default();
            device.operators += 1;
            device.self_ns = device.self_ns.saturating_add(own);
        }
        if let Some(transfer) = event.transfer().filter(|_| event.bytes_moved > 0) {
            let (count, bytes) = transfers.entry((transfer.from, transfer.to)).or_default();
            *count += 1;
            *bytes = bytes.saturating_add(event.bytes_moved);
        }
    }
    let mut operators: Vec<OperatorRow> = operators
        .into_values()
        .map(|(row, on)| OperatorRow { devices: on.into_iter().map(str::to_owned).collect(), ..row })
        .collect();
    operators.sort_by(|a, b| b.self_ns.cmp(&a.self_ns).then(a.op.cmp(&b.op)).then(a.phase.cmp(&b.phase)));
    let mut transfers: Vec<TransferRow> = transfers
        .into_iter()
        .map(|((from, to), (count, bytes))| TransferRow { from, to, count, bytes })
        .collect();
    transfers.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let threads: BTreeSet<u32> = events.iter().map(|event| event.thread).collect();
    Summary {
        span_ns: span_ns(events),
        events: events.len() as u64,
        threads: threads.len() as u64,
        operators,
        devices,
        transfers,
    }
}

fn empty(event: &OperatorEvent) -> OperatorRow {
    OperatorRow {
        op: event.op.clone(),
        phase: event.phase,
        calls: 0,
        total_ns: 0,
        self_ns: 0,
        devices: Vec::new(),
    }
}

/// Duration without the events nested directly in it.
fn self_times(events: &[OperatorEvent]) -> Vec<u64> {
    let nesting = Nesting::of(events);
    let mut own: Vec<u64> = events.iter().map(|event| event.duration_ns).collect();
    for (position, event) in events.iter().enumerate() {
        if let Some(parent) = nesting.parent(position) {
            own[parent] = own[parent].saturating_sub(event.duration_ns);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{event, tensor};

    #[test]
    fn own_time_leaves_out_what_is_nested() {
        let outer = OperatorEvent { duration_ns: 100, ..event(0, "aten::linear") };
        let inner =
            OperatorEvent { duration_ns: 70, start_ns: 10, parent: Some(0), ..event(1, "aten::addmm") };
        let summary = summarise(&[outer, inner]);
        let own: Vec<_> = summary.operators.iter().map(|row| (row.op.as_str(), row.self_ns)).collect();
        assert_eq!(own, [("aten::addmm", 70), ("aten::linear", 30)]);
        assert_eq!(summary.span_ns, 100);
    }

    #[test]
    fn transfers_are_counted_by_direction() {
        let (device, host) = (tensor(&[4], "f32", "mps:0"), tensor(&[4], "f32", "cpu"));
        let copy = |seq, inputs: [&crate::trace::TensorMeta; 2]| OperatorEvent {
            inputs: inputs.into_iter().cloned().collect(),
            outputs: vec![inputs[0].clone()],
            bytes_moved: 16,
            ..event(seq, "aten::copy_")
        };
        let summary =
            summarise(&[copy(0, [&host, &device]), copy(1, [&host, &device]), copy(2, [&device, &host])]);
        let rows: Vec<_> =
            summary.transfers.iter().map(|t| (t.from.as_str(), t.to.as_str(), t.count, t.bytes)).collect();
        assert_eq!(rows, [("mps:0", "cpu", 2, 32), ("cpu", "mps:0", 1, 16)]);
        assert_eq!(summary.devices["cpu"].operators, 2);
    }
}
