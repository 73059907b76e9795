//! Which quantities a plan asks for, and where in the program each one comes from.

use crate::numerics::{DType, Role};
use crate::program::{InputKind, Op, Program, Value, ValueId};
use crate::recording::{Quantity, QuantityKind, State};

use super::Captures;

/// Metrics over the evaluation set, in the order of tables.
pub(super) const METRICS: [&str; 3] = ["loss", "top1", "top5"];

/// Every quantity, in program order, all of them still *missing*: a target has to earn each
/// other state. Nodes and roles are those of the base program, dtypes those of `precise`,
/// the same program in the dtypes of the precision.
#[must_use]
pub fn quantities(base: &Program, precise: &Program, captures: Captures, metrics: bool) -> Vec<Quantity> {
    let places = Places::of(base);
    let mut list = Vec::new();
    if let (Some(id), Some(typed)) = (base.outputs.loss, precise.outputs.loss) {
        let node = places.producer(id);
        list.push(quantity(QuantityKind::Loss, "", (Role::Loss, node), base, precise.value(typed)));
    }
    if metrics {
        let scalar = Value { shape: Vec::new(), dtype: DType::F64 };
        for name in METRICS {
            list.push(quantity(QuantityKind::Metric, name, (Role::Metric, None), base, &scalar));
        }
    }
    if let (Some(id), Some(typed)) = (base.outputs.logits, precise.outputs.logits) {
        list.push(quantity(QuantityKind::Logits, "", places.output(base, id), base, precise.value(typed)));
    }
    if captures.activations {
        for (capture, typed) in base.captures.iter().zip(&precise.captures) {
            let mut row = quantity(
                QuantityKind::Activation,
                &capture.name,
                places.output(base, capture.value),
                base,
                precise.value(typed.value),
            );
            row.path.clone_from(&capture.name);
            list.push(row);
        }
    }
    if base.outputs.loss.is_some() && captures.gradients {
        let differentiable = |kind| {
            base.inputs.iter().zip(&precise.inputs).filter(move |(input, typed)| {
                input.kind == kind && precise.value(typed.value).dtype.is_float()
            })
        };
        for (input, typed) in differentiable(InputKind::Parameter) {
            let place = places.gradient(base, input.value);
            list.push(quantity(QuantityKind::Gradient, &input.name, place, base, precise.value(typed.value)));
        }
        for (input, typed) in differentiable(InputKind::Batch) {
            let place = places.gradient(base, input.value);
            let value = precise.value(typed.value);
            list.push(quantity(QuantityKind::InputGradient, &input.name, place, base, value));
        }
        if captures.activation_gradients {
            for (capture, typed) in base.captures.iter().zip(&precise.captures) {
                let value = precise.value(typed.value);
                if value.dtype.is_float() {
                    let place = places.gradient(base, capture.value);
                    let kind = QuantityKind::ActivationGradient;
                    let mut row = quantity(kind, &capture.name, place, base, value);
                    row.path.clone_from(&capture.name);
                    list.push(row);
                }
            }
        }
    }
    for (buffer, typed) in base.outputs.buffers.iter().zip(&precise.outputs.buffers) {
        let place = places.output(base, buffer.value);
        list.push(quantity(QuantityKind::Buffer, &buffer.name, place, base, precise.value(typed.value)));
    }
    list
}

fn quantity(
    kind: QuantityKind,
    subject: &str,
    (role, node): (Role, Option<usize>),
    base: &Program,
    value: &Value,
) -> Quantity {
    let path = node.and_then(|n| base.nodes.get(n)).map_or_else(String::new, |n| n.path.clone());
    Quantity {
        name: kind.quantity(subject),
        kind,
        role,
        path,
        node,
        dtype: value.dtype,
        shape: value.shape.clone(),
        state: State::Missing { reason: "the target delivered nothing under this name".to_owned() },
        decomposed: None,
        floor: None,
    }
}

/// Who makes and who first reads each value of a program.
struct Places {
    producers: Vec<Option<usize>>,
    readers: Vec<Option<usize>>,
}

impl Places {
    fn of(program: &Program) -> Self {
        let mut producers = vec![None; program.values.len()];
        let mut readers = vec![None; program.values.len()];
        for (index, node) in program.nodes.iter().enumerate() {
            for id in &node.outputs {
                if let Some(slot) = producers.get_mut(id.index()) {
                    *slot = Some(index);
                }
            }
            for id in &node.inputs {
                if let Some(slot @ None) = readers.get_mut(id.index()) {
                    *slot = Some(index);
                }
            }
        }
        Self { producers, readers }
    }

    fn producer(&self, id: ValueId) -> Option<usize> {
        self.producers.get(id.index()).copied().flatten()
    }

    /// Role and node of a value that a node makes.
    fn output(&self, program: &Program, id: ValueId) -> (Role, Option<usize>) {
        let node = self.producer(id);
        let role = node.and_then(|n| program.nodes.get(n)).map_or(Role::Exact, |n| n.op.role());
        (role, node)
    }

    /// Role and node of the gradient of a value: those of the operator whose backward makes
    /// it. Operators that only move values are passed through, but a lookup adds up the
    /// gradients of all its readers, and so does broadcasting.
    fn gradient(&self, program: &Program, id: ValueId) -> (Role, Option<usize>) {
        let mut value = id;
        let mut found = (Role::Exact, None);
        while let Some(index) = self.readers.get(value.index()).copied().flatten() {
            let Some(node) = program.nodes.get(index) else { break };
            let role = match node.op {
                Op::Embedding {} | Op::IndexSelect { .. } | Op::Gather { .. } | Op::Expand { .. } => {
                    Role::Reduction
                }
                _ => node.op.role(),
            };
            let output = node.outputs.first();
            let broadcast = output.is_some_and(|out| {
                let elements = |id: ValueId| program.value(id).shape.iter().product::<usize>();
                elements(value) < elements(*out)
            });
            found = match role {
                Role::Elementwise if broadcast => (Role::Reduction, Some(index)),
                role => (role, Some(index)),
            };
            match output {
                // Strictly forward in the program, so this ends.
                Some(next) if found.0 == Role::Exact => value = *next,
                _ => break,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Builder;

    fn program() -> Program {
        let mut b = Builder::new("test");
        let x = b.batch_input("input", &[4, 3]);
        let y = b.module("fc", |b| {
            let w = b.parameter("fc.weight", &[2, 3]);
            let bias = b.parameter("fc.bias", &[2]);
            let y = b.apply(Op::Linear {}, &[x, w]);
            b.apply(Op::Add {}, &[y, bias])
        });
        let labels = b.labels("labels", &[4], 2);
        b.set_logits(y);
        let loss = b.apply(
            Op::CrossEntropy {
                reduction: crate::program::LossReduction::Mean,
                ignore_index: -100,
                label_smoothing: 0.0,
            },
            &[y, labels],
        );
        b.set_loss(loss);
        b.finish().unwrap()
    }

    #[test]
    fn every_quantity_of_a_program_is_listed_with_its_place() {
        let program = program();
        let rows = quantities(&program, &program, Captures::ALL, true);
        let got: Vec<_> = rows.iter().map(|q| (q.name.as_str(), q.role, q.node)).collect();
        let expected = [
            ("loss", Role::Loss, Some(2)),
            ("metric/loss", Role::Metric, None),
            ("metric/top1", Role::Metric, None),
            ("metric/top5", Role::Metric, None),
            ("logits", Role::Elementwise, Some(1)),
            ("activation/fc", Role::Elementwise, Some(1)),
            ("gradient/fc.weight", Role::Matmul, Some(0)),
            ("gradient/fc.bias", Role::Reduction, Some(1)),
            ("input_gradient/input", Role::Matmul, Some(0)),
            ("activation_gradient/fc", Role::Loss, Some(2)),
        ];
        assert_eq!(got, expected);
        assert!(rows.iter().all(|q| matches!(q.state, State::Missing { .. })));
        assert_eq!(rows[6].path, "fc");
    }

    #[test]
    fn what_is_not_asked_for_is_not_listed() {
        let program = program();
        let captures = Captures { activations: false, gradients: true, activation_gradients: false };
        let rows = quantities(&program, &program, captures, false);
        let names: Vec<_> = rows.iter().map(|q| q.name.as_str()).collect();
        let expected = ["loss", "logits", "gradient/fc.weight", "gradient/fc.bias", "input_gradient/input"];
        assert_eq!(names, expected);
    }
}
