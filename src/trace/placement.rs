//! [`detect`]: from events to [`Placement`].
//!
//! The signature of a CPU fallback in libtorch's dispatcher is an operator with an
//! `aten::_to_cpu` nested in it; the execution on the CPU that follows emits nothing. Other
//! engines, and programs that move tensors themselves, show an operator whose tensors are
//! all on the host. Both are looked for, whatever the engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::fallback::{Fallback, FallbackKind, always_on_cpu};
use super::nesting::Nesting;
use super::{EventKind, OperatorEvent, Phase, TensorMeta, is_host};

/// What is known of one pass.
#[derive(Clone, Copy, Debug)]
pub struct PassTrace<'a> {
    /// Name and device of each program input when the pass began.
    pub inputs: &'a [(String, String)],
    /// Its events.
    pub events: &'a [OperatorEvent],
}

/// Where the work of one or more equal passes was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Device that was asked for.
    pub asked: String,
    /// Number of passes.
    pub steps: usize,
    /// Operators that had a tensor on a device, by device.
    pub operators: BTreeMap<String, u64>,
    /// What left the device, the longest first within a kind.
    pub fallbacks: Vec<Fallback>,
}

impl Placement {
    /// Whether every operator ran where it was asked to.
    #[must_use]
    pub fn as_asked(&self) -> bool {
        self.fallbacks.is_empty() && self.operators.get(&self.asked).is_some_and(|count| *count > 0)
    }

    /// Whether the device that was asked for did nothing at all: such a pass is no result of
    /// that device.
    #[must_use]
    pub fn device_unused(&self) -> bool {
        self.operators.get(&self.asked).is_none_or(|count| *count == 0)
    }
}

/// Finds what left the device `asked` in one or more equal passes.
#[must_use]
pub fn detect(asked: &str, passes: &[PassTrace<'_>]) -> Placement {
    let mut found = Found { asked, steps: passes.len(), rows: HashMap::new() };
    let mut operators: BTreeMap<String, u64> = BTreeMap::new();
    let mut total_ns = 0_u64;
    for (step, pass) in passes.iter().enumerate() {
        let operator_events = || pass.events.iter().filter(|event| event.kind == EventKind::Operator);
        for event in operator_events() {
            let devices: BTreeSet<&str> =
                event.tensors().filter(|t| !t.number).map(|t| t.device.as_str()).collect();
            for device in devices {
                *operators.entry(device.to_owned()).or_default() += 1;
            }
        }
        total_ns = total_ns.saturating_add(span_ns(pass.events));
        if operator_events().next().is_some() && !operator_events().any(|e| uses(e, asked)) {
            found.whole_pass(step, pass.events);
        } else if is_host(asked) {
            found.foreign(step, pass.events);
        } else {
            found.inputs(step, pass.inputs);
            found.foreign(step, pass.events);
            found.walk(step, pass.events);
        }
    }
    Placement { asked: asked.to_owned(), steps: passes.len(), operators, fallbacks: found.finish(total_ns) }
}

fn uses(event: &OperatorEvent, device: &str) -> bool {
    event.tensors().any(|tensor| !tensor.number && tensor.device == device)
}

/// From the first start to the last end.
pub(super) fn span_ns(events: &[OperatorEvent]) -> u64 {
    let start = events.iter().map(|event| event.start_ns).min().unwrap_or(0);
    events.iter().map(OperatorEvent::end_ns).max().unwrap_or(0).saturating_sub(start)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: FallbackKind,
    operator: String,
    phase: Phase,
    node: Option<usize>,
    path: String,
    shapes: Vec<Vec<usize>>,
    dtypes: Vec<String>,
}

#[derive(Default)]
struct Row {
    order: usize,
    calls: Vec<u32>,
    to_host: u64,
    to_device: u64,
    duration_ns: u64,
    reason: String,
}

struct Found<'a> {
    asked: &'a str,
    steps: usize,
    rows: HashMap<Key, Row>,
}

impl Found<'_> {
    fn row(&mut self, step: usize, key: Key, duration_ns: u64) -> &mut Row {
        let (order, steps) = (self.rows.len(), self.steps);
        let row =
            self.rows.entry(key).or_insert_with(|| Row { order, calls: vec![0; steps], ..Row::default() });
        if let Some(calls) = row.calls.get_mut(step) {
            *calls = calls.saturating_add(1);
        }
        row.duration_ns = row.duration_ns.saturating_add(duration_ns);
        row
    }

    fn event(&mut self, step: usize, kind: FallbackKind, event: &OperatorEvent) -> &mut Row {
        self.row(step, key(kind, event), event.duration_ns)
    }

    fn inputs(&mut self, step: usize, inputs: &[(String, String)]) {
        for (name, device) in inputs {
            if device == self.asked {
                continue;
            }
            let key = Key {
                kind: FallbackKind::MisplacedTensor,
                operator: name.clone(),
                phase: Phase::Forward,
                node: None,
                path: String::new(),
                shapes: Vec::new(),
                dtypes: Vec::new(),
            };
            let reason = format!("the program input was on {device} when the pass began");
            self.row(step, key, 0).reason = reason;
        }
    }

    /// The device that was asked for did nothing.
    fn whole_pass(&mut self, step: usize, events: &[OperatorEvent]) {
        let mut devices: BTreeSet<&str> = BTreeSet::new();
        for event in events {
            devices.extend(event.tensors().filter(|t| !t.number).map(|t| t.device.as_str()));
        }
        let devices: Vec<&str> = devices.into_iter().collect();
        let key = Key {
            kind: FallbackKind::DeviceNotAsked,
            operator: "the whole pass".to_owned(),
            phase: Phase::Forward,
            node: None,
            path: String::new(),
            shapes: Vec::new(),
            dtypes: Vec::new(),
        };
        let reason = format!("{} was asked for, every operator ran on {}", self.asked, devices.join(", "));
        self.row(step, key, span_ns(events)).reason = reason;
    }

    /// Operators on an accelerator that was not asked for.
    fn foreign(&mut self, step: usize, events: &[OperatorEvent]) {
        let asked = self.asked.to_owned();
        let elsewhere = |event: &OperatorEvent| {
            event.tensors().find(|t| t.on_accelerator() && t.device != asked).map(|t| t.device.clone())
        };
        let nesting = Nesting::of(events);
        for (position, event) in events.iter().enumerate() {
            if event.kind != EventKind::Operator {
                continue;
            }
            let Some(device) = elsewhere(event) else { continue };
            let inside = nesting.ancestors(position).any(|outer| {
                events[outer].kind == EventKind::Operator && elsewhere(&events[outer]).is_some()
            });
            if !inside {
                let reason = format!("{asked} was asked for, it ran on {device}");
                self.event(step, FallbackKind::DeviceNotAsked, event).reason = reason;
            }
        }
    }

    fn walk(&mut self, step: usize, events: &[OperatorEvent]) {
        let nesting = Nesting::of(events);
        let fallen = fallen_operators(events, &nesting);
        for position in &fallen {
            self.fallen(step, *position, events, &nesting);
        }
        for (position, event) in events.iter().enumerate() {
            let covered = event.kind != EventKind::Operator
                || fallen.contains(&position)
                || nesting.ancestors(position).any(|outer| fallen.contains(&outer));
            if covered {
                continue;
            }
            if event.bytes_moved > 0 {
                self.round_trip(step, position, events, &nesting);
                continue;
            }
            let Some(kind) = suspicious(event) else { continue };
            let inside = nesting.ancestors(position).any(|outer| {
                let outer = &events[outer];
                outer.kind == EventKind::Operator && (outer.is_copy() || suspicious(outer) == Some(kind))
            });
            if !inside {
                let reason = match kind {
                    FallbackKind::MisplacedTensor => describe_mixture(event),
                    _ => "all its tensors are on the host".to_owned(),
                };
                self.event(step, kind, event).reason = reason;
            }
        }
    }

    /// An operator that the dispatcher sent to the CPU.
    fn fallen(&mut self, step: usize, position: usize, events: &[OperatorEvent], nesting: &Nesting) {
        let event = &events[position];
        let (kind, reason) = match always_on_cpu(self.asked, &event.op) {
            Some(reason) => (FallbackKind::AlwaysOnCpu, reason),
            None => (
                FallbackKind::OperatorOnCpu,
                "the device has no kernel for it; the dispatcher sent it to the CPU",
            ),
        };
        let (mut to_host, mut to_device) = (0_u64, 0_u64);
        let inner =
            (position..events.len()).filter(|at| nesting.ancestors(*at).any(|outer| outer == position));
        for inner in inner.map(|at| &events[at]).filter(|inner| inner.bytes_moved > 0) {
            match inner.transfer() {
                Some(transfer) if is_host(&transfer.to) => {
                    to_host = to_host.saturating_add(inner.bytes_moved);
                }
                _ => to_device = to_device.saturating_add(inner.bytes_moved),
            }
        }
        // An engine that copies without telling: what the operator read and wrote.
        let sum = |tensors: &[TensorMeta]| {
            tensors.iter().filter(|t| t.on_accelerator()).map(TensorMeta::bytes).sum()
        };
        if to_host == 0 {
            to_host = sum(&event.inputs);
        }
        if to_device == 0 {
            to_device = sum(&event.outputs);
        }
        let row = self.event(step, kind, event);
        reason.clone_into(&mut row.reason);
        row.to_host = row.to_host.saturating_add(to_host);
        row.to_device = row.to_device.saturating_add(to_device);
    }

    /// A transfer on its own, put to the operator that it is part of.
    fn round_trip(&mut self, step: usize, position: usize, events: &[OperatorEvent], nesting: &Nesting) {
        let event = &events[position];
        let Some(transfer) = event.transfer() else { return };
        let is_operator = |at: &usize| events[*at].kind == EventKind::Operator;
        let mut named = position;
        for outer in nesting.ancestors(position).filter(is_operator) {
            named = outer;
            if !events[outer].is_copy() {
                break;
            }
        }
        let to_host = is_host(&transfer.to);
        let row = self.event(step, FallbackKind::HostRoundTrip, &events[named]);
        row.reason = format!("from {} to {}", transfer.from, transfer.to);
        if to_host {
            row.to_host = row.to_host.saturating_add(event.bytes_moved);
        } else {
            row.to_device = row.to_device.saturating_add(event.bytes_moved);
        }
    }

    fn finish(self, total_ns: u64) -> Vec<Fallback> {
        let mut rows: Vec<(Key, Row)> = self.rows.into_iter().collect();
        rows.sort_by(|(a, x), (b, y)| {
            a.kind.cmp(&b.kind).then(y.duration_ns.cmp(&x.duration_ns)).then(x.order.cmp(&y.order))
        });
        let fallback = |(key, row): (Key, Row)| Fallback {
            kind: key.kind,
            operator: key.operator,
            phase: key.phase,
            node: key.node,
            path: key.path,
            shapes: key.shapes,
            dtypes: key.dtypes,
            calls: row.calls,
            bytes_to_host: row.to_host,
            bytes_to_device: row.to_device,
            share: if total_ns == 0 { 0.0 } else { row.duration_ns as f64 / total_ns as f64 },
            reason: row.reason,
        };
        rows.into_iter().map(fallback).collect()
    }
}

fn key(kind: FallbackKind, event: &OperatorEvent) -> Key {
    let tensors = || event.inputs.iter().filter(|tensor| !tensor.number);
    Key {
        kind,
        operator: event.op.clone(),
        phase: event.phase,
        node: event.node,
        path: event.path.clone(),
        shapes: tensors().map(|tensor| tensor.shape.clone()).collect(),
        dtypes: tensors().map(|tensor| tensor.dtype.clone()).collect(),
    }
}

/// Operators with an `aten::_to_cpu` in them: the innermost operator around it, or, where
/// that is the `out` form that a functional or in-place one calls, the one that was called.
fn fallen_operators(events: &[OperatorEvent], nesting: &Nesting) -> BTreeSet<usize> {
    let base = |at: usize| events[at].op.trim_end_matches('_');
    let called = |position: usize| {
        let mut operators =
            nesting.ancestors(position).filter(|outer| events[*outer].kind == EventKind::Operator);
        let innermost = operators.next()?;
        Some(operators.take_while(|outer| base(*outer) == base(innermost)).last().unwrap_or(innermost))
    };
    let to_cpu = events.iter().enumerate().filter(|(_, event)| event.op == "aten::_to_cpu");
    to_cpu.filter_map(|(position, _)| called(position)).collect()
}

/// An operator, not itself a copy, with tensors on the host.
fn suspicious(event: &OperatorEvent) -> Option<FallbackKind> {
    let mixed = event.tensors().any(TensorMeta::on_accelerator);
    let host_input = event.inputs.iter().any(|t| t.on_host() && !(mixed && is_host_state(t)));
    if event.is_copy() || !host_input {
        return None;
    }
    Some(if mixed { FallbackKind::MisplacedTensor } else { FallbackKind::OperatorOnCpu })
}

/// A whole number without dimensions beside tensors of the device: seed and offset of a
/// random generator, which libtorch keeps on the host and hands to its kernels as plain
/// arguments (seen: fused attention's backward on CUDA). No data of the program.
fn is_host_state(tensor: &TensorMeta) -> bool {
    tensor.shape.is_empty() && tensor.dtype == "i64"
}

fn describe_mixture(event: &OperatorEvent) -> String {
    let on_host: Vec<String> = (0..)
        .zip(&event.inputs)
        .filter(|(_, tensor)| tensor.on_host() && !is_host_state(tensor))
        .map(|(index, tensor): (u32, _)| format!("argument {index} {:?} {}", tensor.shape, tensor.dtype))
        .collect();
    format!("on the host: {}", on_host.join(", "))
}
