//! What an engine can do of a program, asked before it runs.
//!
//! An operator that an engine declares it does not have ends the pass there: what comes
//! before it is still computed and compared, the rest is *skipped* with the reason. A
//! missing gradient skips the gradients only.

use std::collections::HashMap;

use crate::engine::{Engine, Support};
use crate::program::{InputKind, Op, Program, Value, ValueId};
use crate::recording::{Quantity, QuantityKind, State};
use crate::trace::Phase;

/// The answers of one engine about one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// First node that has no forward computation, and why.
    pub forward: Option<(usize, String)>,
    /// Why there are no gradients, if there are none.
    pub backward: Option<String>,
    /// Decompositions that stand in, by node.
    decomposed: HashMap<usize, &'static str>,
}

impl Coverage {
    /// Asks `engine` about every node of `program`.
    pub(super) fn ask<E: Engine>(engine: &E, program: &Program) -> Self {
        let mut coverage = Self::default();
        let differentiable = differentiable(program);
        for (index, node) in program.nodes.iter().enumerate() {
            let types: Vec<&Value> = node.inputs.iter().map(|id| program.value(*id)).collect();
            let Some(dtype) = node.outputs.first().map(|id| program.value(*id).dtype) else { continue };
            match engine.supports(&node.op, dtype, &types, Phase::Forward) {
                Support::Native => {}
                Support::Decomposed(name) => {
                    coverage.decomposed.insert(index, name);
                }
                Support::Unsupported(reason) => {
                    coverage.forward = Some((index, reason_at(engine, program, index, &reason)));
                    break;
                }
            }
            let needed = node.outputs.iter().any(|id| differentiable.get(id.index()) == Some(&true));
            if !needed || coverage.backward.is_some() {
                continue;
            }
            match engine.supports(&node.op, dtype, &types, Phase::Backward) {
                Support::Native => {}
                Support::Decomposed(name) => {
                    coverage.decomposed.entry(index).or_insert(name);
                }
                Support::Unsupported(reason) => {
                    let reason = reason_at(engine, program, index, &reason);
                    coverage.backward = Some(format!("no gradients: {reason}"));
                }
            }
        }
        if let Some((_, reason)) = &coverage.forward {
            coverage.backward = Some(reason.clone());
        }
        coverage
    }

    /// The part of `program` that can be computed: all of it, or the nodes before the first
    /// unsupported one with what they produce.
    pub(super) fn computable(&self, program: &Program) -> Program {
        let Some((until, _)) = &self.forward else { return program.clone() };
        let mut part = program.clone();
        part.nodes.truncate(*until);
        let mut made = vec![false; part.values.len()];
        let inputs = part.inputs.iter().map(|input| input.value);
        for id in inputs.chain(part.nodes.iter().flat_map(|node| node.outputs.iter().copied())) {
            if let Some(slot) = made.get_mut(id.index()) {
                *slot = true;
            }
        }
        let there = |id: ValueId| made.get(id.index()) == Some(&true);
        part.captures.retain(|capture| there(capture.value));
        part.outputs.loss = part.outputs.loss.filter(|id| there(*id));
        part.outputs.logits = part.outputs.logits.filter(|id| there(*id));
        part.outputs.buffers.retain(|buffer| there(buffer.value));
        // A device may refuse to hold what nothing there computes with.
        let used: Vec<ValueId> = part.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        part.inputs.retain(|input| used.contains(&input.value));
        part
    }

    /// Marks in `quantities` what will not be computed, and what a decomposition computes.
    /// `program` is the one the coverage was asked for.
    pub(super) fn mark(&self, program: &Program, quantities: &mut [Quantity]) {
        let part = self.computable(program);
        let origin = origins(program);
        for quantity in quantities {
            let skip = match quantity.kind {
                QuantityKind::Loss => self.forward.as_ref().filter(|_| part.outputs.loss.is_none()),
                QuantityKind::Logits => self.forward.as_ref().filter(|_| part.outputs.logits.is_none()),
                QuantityKind::Metric => self.forward.as_ref(),
                QuantityKind::Activation => {
                    self.forward.as_ref().filter(|_| !part.captures.iter().any(|c| c.name == quantity.path))
                }
                QuantityKind::Buffer => self.forward.as_ref().filter(|_| {
                    !part.outputs.buffers.iter().any(|b| quantity.kind.quantity(&b.name) == quantity.name)
                }),
                QuantityKind::Gradient | QuantityKind::InputGradient | QuantityKind::ActivationGradient => {
                    None
                }
            };
            let gradient = matches!(
                quantity.kind,
                QuantityKind::Gradient | QuantityKind::InputGradient | QuantityKind::ActivationGradient
            );
            let reason = match skip {
                Some((_, reason)) => Some(reason),
                None if gradient => self.backward.as_ref(),
                None => None,
            };
            if let Some(reason) = reason {
                quantity.state = State::Skipped { reason: reason.clone() };
            }
            quantity.decomposed = value_of(program, quantity)
                .and_then(|id| origin.get(id.index()).copied().flatten())
                .and_then(|node| self.decomposed.get(&node))
                .map(|name| (*name).to_owned());
        }
    }
}

fn reason_at<E: Engine>(engine: &E, program: &Program, index: usize, reason: &str) -> String {
    let info = engine.info();
    format!("{} on {} does not support {}: {reason}", info.engine, info.device, program.describe_node(index))
}

/// For every value whether a gradient can flow into it.
fn differentiable(program: &Program) -> Vec<bool> {
    let mut flows = vec![false; program.values.len()];
    for input in &program.inputs {
        let leaf = matches!(input.kind, InputKind::Parameter | InputKind::Batch);
        if let Some(slot) = flows.get_mut(input.value.index()) {
            *slot = leaf && program.value(input.value).dtype.is_float();
        }
    }
    for node in &program.nodes {
        if node.inputs.iter().any(|id| flows.get(id.index()) == Some(&true)) {
            for id in &node.outputs {
                if let Some(slot) = flows.get_mut(id.index()) {
                    *slot = program.value(*id).dtype.is_float();
                }
            }
        }
    }
    flows
}

/// For every value the node that computed it, seen through casts.
fn origins(program: &Program) -> Vec<Option<usize>> {
    let mut origin: Vec<Option<usize>> = vec![None; program.values.len()];
    for (index, node) in program.nodes.iter().enumerate() {
        let through = match (&node.op, node.inputs.first()) {
            (Op::Cast { .. }, Some(id)) => origin.get(id.index()).copied().flatten(),
            _ => None,
        };
        for id in &node.outputs {
            if let Some(slot) = origin.get_mut(id.index()) {
                *slot = through.or(Some(index));
            }
        }
    }
    origin
}

/// The value of a forward quantity.
fn value_of(program: &Program, quantity: &Quantity) -> Option<ValueId> {
    match quantity.kind {
        QuantityKind::Loss => program.outputs.loss,
        QuantityKind::Logits => program.outputs.logits,
        QuantityKind::Activation => {
            program.captures.iter().find(|c| c.name == quantity.path).map(|c| c.value)
        }
        _ => None,
    }
}
