//! Which operators move bytes from one device to another.

use super::nesting::Nesting;
use super::{EventKind, OperatorEvent, TensorMeta};

/// Bytes that went from one device to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Device they came from.
    pub from: String,
    /// Device they went to.
    pub to: String,
    /// Bytes as they left.
    pub bytes: u64,
}

impl OperatorEvent {
    /// The transfer that this operator is, judged by its name and the devices of its tensors:
    /// libtorch's copies, and the reading of a single value by the host.
    #[must_use]
    pub fn transfer(&self) -> Option<Transfer> {
        if self.kind != EventKind::Operator {
            return None;
        }
        let (from, to) = match self.op.as_str() {
            "aten::copy_" => (self.inputs.get(1)?, self.inputs.first()?),
            "aten::_copy_from" | "aten::_copy_from_and_resize" => (self.inputs.first()?, self.inputs.get(1)?),
            "aten::_to_copy" | "aten::to" => (self.inputs.first()?, self.outputs.first()?),
            "aten::_local_scalar_dense" | "aten::item" => {
                let from = self.inputs.first()?;
                return from.on_accelerator().then(|| moved(from, "cpu"));
            }
            _ => return None,
        };
        (from.device != to.device && !from.number).then(|| moved(from, &to.device))
    }

    /// Whether copying is all that this operator does.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(
            self.op.as_str(),
            "aten::copy_"
                | "aten::_copy_from"
                | "aten::_copy_from_and_resize"
                | "aten::_to_copy"
                | "aten::to"
                | "aten::_to_cpu"
                | "aten::_local_scalar_dense"
                | "aten::item"
        )
    }
}

fn moved(from: &TensorMeta, to: &str) -> Transfer {
    Transfer { from: from.device.clone(), to: to.to_owned(), bytes: from.bytes() }
}

/// Fills in [`OperatorEvent::bytes_moved`]: a transfer counts at the innermost event that
/// shows it, once.
pub fn count_transfers(events: &mut [OperatorEvent]) {
    let nesting = Nesting::of(events);
    let transfers: Vec<Option<Transfer>> = events.iter().map(OperatorEvent::transfer).collect();
    let mut has_inner = vec![false; events.len()];
    for (position, transfer) in transfers.iter().enumerate() {
        if transfer.is_some() {
            for outer in nesting.ancestors(position) {
                has_inner[outer] = true;
            }
        }
    }
    for ((event, transfer), has_inner) in events.iter_mut().zip(transfers).zip(has_inner) {
        event.bytes_moved = if has_inner { 0 } else { transfer.map_or(0, |transfer| transfer.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{event, tensor};

    #[test]
    fn a_nested_transfer_counts_once_and_inside() {
        let (device, host) = (tensor(&[4], "f32", "mps:0"), tensor(&[4], "f32", "cpu"));
        let mut events = vec![
            OperatorEvent {
                inputs: vec![device.clone()],
                outputs: vec![host.clone()],
                ..event(0, "aten::_to_copy")
            },
            OperatorEvent {
                inputs: vec![host.clone(), device],
                outputs: vec![host],
                parent: Some(0),
                ..event(1, "aten::copy_")
            },
        ];
        count_transfers(&mut events);
        assert_eq!((events[0].bytes_moved, events[1].bytes_moved), (0, 16));
        let transfer = events[1].transfer().unwrap();
        assert_eq!((transfer.from.as_str(), transfer.to.as_str()), ("mps:0", "cpu"));
    }

    #[test]
    fn a_copy_within_a_device_moves_nothing() {
        let device = tensor(&[4], "f32", "mps:0");
        let mut events =
            vec![OperatorEvent { inputs: vec![device.clone(), device], ..event(0, "aten::copy_") }];
        count_transfers(&mut events);
        assert_eq!(events[0].bytes_moved, 0);
    }

    #[test]
    fn reading_a_number_is_a_transfer_of_its_bytes() {
        let mut events = vec![OperatorEvent {
            inputs: vec![tensor(&[], "f32", "cuda:0")],
            ..event(0, "aten::_local_scalar_dense")
        }];
        count_transfers(&mut events);
        assert_eq!(events[0].bytes_moved, 4);
    }
}
