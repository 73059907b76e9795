//! The graph of applied operators and the walk from the loss to the leaves.
//!
//! A variable holds the record that made it, a record the variables it read: the graph is
//! freed with the tensors that refer to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ndarray::ArrayD;

use super::applied::{Cotangent, Vjp, Want};
use super::noise::{Level, Noise, Stage};
use super::tensor::Floats;

/// Identities of variables and the order of records; only their order matters.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A value whose gradient may be asked for.
#[derive(Debug)]
pub(super) struct Variable {
    id: u64,
    source: Option<Arc<Record>>,
}

impl Variable {
    /// A leaf: a program input.
    pub(super) fn leaf() -> Arc<Self> {
        Arc::new(Self { id: next(), source: None })
    }
}

/// Rounding of one input's cotangent: by the operator, and where it meets another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackwardLevels {
    pub(super) operator: Level,
    pub(super) fan_in: Level,
}

/// One applied operator.
pub(super) struct Record {
    order: u64,
    node: usize,
    vjp: Vjp,
    inputs: Vec<Option<Arc<Variable>>>,
    outputs: Vec<u64>,
    results: Vec<Floats>,
    levels: Vec<BackwardLevels>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Drop for Record {
    /// Frees a chain of records in a loop: recursion would overflow the stack of a thread
    /// on a deep program.
    fn drop(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        while let Some(variable) = inputs.pop() {
            let source = variable.and_then(Arc::into_inner).and_then(|v| v.source);
            if let Some(mut record) = source.and_then(Arc::into_inner) {
                inputs.append(&mut record.inputs);
            }
        }
    }
}

/// What [`record`] links into the graph.
pub(super) struct Step {
    /// Index of the program's node.
    pub(super) node: usize,
    /// The operator's vector-Jacobian product.
    pub(super) vjp: Vjp,
    /// Variables of the arguments.
    pub(super) inputs: Vec<Option<Arc<Variable>>>,
    /// Results that the product reads; empty if it reads none.
    pub(super) results: Vec<Floats>,
    /// Number of results.
    pub(super) outputs: usize,
    /// Rounding of the cotangents; empty without noise.
    pub(super) levels: Vec<BackwardLevels>,
}

/// Links an applied operator into the graph; a variable for each of its results.
pub(super) fn record(step: Step) -> Vec<Arc<Variable>> {
    let ids: Vec<u64> = (0..step.outputs).map(|_| next()).collect();
    let Step { node, vjp, inputs, results, levels, .. } = step;
    let record = Arc::new(Record { order: next(), node, vjp, inputs, outputs: ids.clone(), results, levels });
    ids.into_iter().map(|id| Arc::new(Variable { id, source: Some(Arc::clone(&record)) })).collect()
}

/// Gradients of the scalar `loss`, one a wanted variable; `None` for what is not connected.
pub(super) fn backward(
    loss: Option<&Arc<Variable>>,
    shape: &[usize],
    wrt: &[Option<&Arc<Variable>>],
    noise: Option<&Noise<'_>>,
) -> Vec<Option<Floats>> {
    let wanted: BTreeSet<u64> = wrt.iter().flatten().map(|v| v.id).collect();
    let mut cotangents: HashMap<u64, Floats> = HashMap::new();
    let mut pending: BTreeMap<u64, Arc<Record>> = BTreeMap::new();
    if let Some(loss) = loss {
        cotangents.insert(loss.id, ArrayD::ones(shape).into_shared());
        if let Some(source) = &loss.source {
            pending.insert(source.order, Arc::clone(source));
        }
    }
    // Records in reverse order of execution: all uses of a value come before its source.
    while let Some((_, record)) = pending.pop_last() {
        let outputs: Vec<Option<Floats>> = record
            .outputs
            .iter()
            .map(|id| if wanted.contains(id) { cotangents.get(id).cloned() } else { cotangents.remove(id) })
            .collect();
        let needs: Vec<bool> = record.inputs.iter().map(Option::is_some).collect();
        let found = (record.vjp)(&outputs, &record.results, &Want { needs: &needs, terms: noise.is_some() });
        for (index, (variable, found)) in record.inputs.iter().zip(found).enumerate() {
            let (Some(variable), Some(mut found)) = (variable, found) else { continue };
            let level = noise.zip(record.levels.get(index));
            if let Some((noise, level)) = level {
                found = noise.perturb(found, &level.operator, record.node, Stage::Cotangent(index)).into();
            }
            let sum = match cotangents.remove(&variable.id) {
                None => found.value,
                Some(before) => {
                    let sum = Cotangent::from(before + &found.value);
                    match level {
                        Some((noise, level)) => {
                            noise.perturb(sum, &level.fan_in, record.node, Stage::FanIn(index))
                        }
                        None => sum.value,
                    }
                }
            };
            cotangents.insert(variable.id, sum);
            if let Some(source) = &variable.source {
                pending.insert(source.order, Arc::clone(source));
            }
        }
    }
    wrt.iter().map(|variable| variable.and_then(|v| cotangents.get(&v.id)).cloned()).collect()
}
