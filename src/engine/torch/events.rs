//! Events of libtorch's dispatcher in the model that all engines share.

use std::collections::HashMap;

use super::native::{self, RawEvent, RawTensor, RawTrace, Scope};
use super::tensor::{device_label, kind_name};
use crate::trace::{self, EventKind, OperatorEvent, Phase, TensorMeta};

/// Events of the pass, in order of start. What libtorch did outside it (uploads, downloads)
/// is left out.
pub(super) fn convert(raw: &RawTrace) -> Vec<OperatorEvent> {
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    let mut threads: HashMap<u64, u32> = HashMap::new();
    let mut events = Vec::with_capacity(raw.events.len());
    for event in &raw.events {
        let Some(phase) = phase(event) else { continue };
        let seq = events.len() as u64;
        numbers.insert(event.sequence, seq);
        let next = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        events.push(OperatorEvent {
            seq,
            phase,
            op: event.name.to_string(),
            overload: event.overload.to_string(),
            kind: kind(event),
            node: event.node.and_then(|node| usize::try_from(node).ok()),
            path: String::new(),
            parent: event.parent.and_then(|parent| numbers.get(&parent).copied()),
            depth: u32::from(event.depth),
            thread: *threads.entry(event.thread).or_insert(next),
            inputs: metas(&event.inputs),
            outputs: metas(&event.outputs),
            bytes_moved: 0,
            start_ns: event.start_ns,
            duration_ns: event.duration_ns,
        });
    }
    trace::count_transfers(&mut events);
    events
}

const fn phase(event: &RawEvent) -> Option<Phase> {
    match event.phase {
        native::Phase::Forward => Some(Phase::Forward),
        native::Phase::Backward => Some(Phase::Backward),
        native::Phase::Optimizer => Some(Phase::Optimizer),
        native::Phase::None | native::Phase::Transfer => None,
    }
}

/// Operators have names like `aten::addmm`; autograd's engine reports its own steps under
/// `autograd::` beside the nodes that it evaluates.
fn kind(event: &RawEvent) -> EventKind {
    match event.scope {
        Scope::User => EventKind::Range,
        Scope::BackwardFunction => EventKind::Autograd,
        Scope::Function
            if event.name.starts_with("autograd::") || event.name.starts_with("torch::autograd::") =>
        {
            EventKind::Autograd
        }
        Scope::Function => EventKind::Operator,
    }
}

fn metas(tensors: &[RawTensor]) -> Vec<TensorMeta> {
    let defined = tensors.iter().filter(|tensor| tensor.defined);
    defined
        .map(|tensor| TensorMeta {
            shape: tensor.shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect(),
            dtype: kind_name(tensor.kind),
            device: device_label(tensor.device),
            number: tensor.wrapped_number,
        })
        .collect()
}
