//! One node alone, forward and backward.

use super::{ReferenceValues, ReplayJudge};
use crate::conformance::floor::{Expected, Local, local};
use crate::conformance::{Fault, Judgement, judge};
use crate::engine::{BackwardRequest, Call, Engine, EngineError, Leaf, Support};
use crate::program::{Op, Program, Value, infer};
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// A tensor of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Result by position.
    Result(usize),
    /// Gradient of the argument at this position.
    Gradient(usize),
}

/// How far one tensor is from what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// Which tensor.
    pub part: Part,
    /// ‖found − exact‖ over the elements that are finite on both sides; NaN if nothing of
    /// this shape was delivered.
    pub error: f64,
    /// What rounding alone may cause: the norm of the standard deviations of these elements.
    pub floor: f64,
    /// The verdict of the local bands.
    pub judgement: Judgement,
}

/// What came of one direction of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Direction {
    /// The node has no such direction: the loss does not depend on it.
    None,
    /// It ran; its tensors are among the deviations.
    Ran,
    /// The engine declares that it has no such thing.
    Unsupported(String),
    /// The engine (or, for what was expected, the reference) reported an error.
    Failed(String),
}

/// One node, replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Index of the node in the program.
    pub node: usize,
    /// `ATen` name of the operator.
    pub operator: String,
    /// Module path; may be empty.
    pub path: String,
    /// Results.
    pub forward: Direction,
    /// Gradients.
    pub backward: Direction,
    /// Name of the decomposition that stands in for the operator, if the engine declares one.
    pub decomposed: Option<String>,
    /// Results in order, then gradients in the order of the arguments.
    pub deviations: Vec<Deviation>,
}

impl Replayed {
    /// Whether a tensor is outside or a direction failed.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        let failed = |direction: &Direction| matches!(direction, Direction::Failed(_));
        failed(&self.forward)
            || failed(&self.backward)
            || self.deviations.iter().any(|d| d.judgement.fault.is_some())
    }

    /// The largest deviation, in floors; NaN counts as infinite.
    #[must_use]
    pub fn floors(&self) -> f64 {
        let largest = |a: f64, d: &Deviation| {
            let floors = if d.judgement.floors.is_nan() { f64::INFINITY } else { d.judgement.floors };
            if floors > a { floors } else { a }
        };
        self.deviations.iter().fold(0.0, largest)
    }
}

/// Replays every node of `program` on `engine`. `program` is in the target's precision,
/// `values` are the reference's of the same program.
pub fn replay<E: Engine>(
    engine: &E,
    program: &Program,
    values: &ReferenceValues,
    judge: &ReplayJudge<'_>,
) -> Vec<Replayed> {
    (0..program.nodes.len()).filter_map(|node| replay_node(engine, program, values, node, judge)).collect()
}

/// Replays one node; `None` if the program has no such node or `values` are of another
/// program. Never fails: what an engine reports is part of the outcome.
pub fn replay_node<E: Engine>(
    engine: &E,
    program: &Program,
    values: &ReferenceValues,
    node: usize,
    judge: &ReplayJudge<'_>,
) -> Option<Replayed> {
    let site = Site::new(program, values, node)?;
    let mut replayed = Replayed {
        node,
        operator: site.op.name().to_owned(),
        path: site.path.to_owned(),
        forward: Direction::Ran,
        backward: Direction::Ran,
        decomposed: None,
        deviations: Vec::new(),
    };
    let trains = site.incoming.iter().any(Option::is_some);
    if !trains {
        replayed.backward = Direction::None;
    }
    let supports = |phase| {
        let dtype = site.outputs.first().map_or(crate::numerics::DType::F32, |v| v.dtype);
        engine.supports(site.op, dtype, &site.types, phase)
    };
    match supports(Phase::Forward) {
        Support::Native => {}
        Support::Decomposed(name) => replayed.decomposed = Some(name.to_owned()),
        Support::Unsupported(reason) => {
            if trains {
                replayed.backward = Direction::Unsupported(reason.clone());
            }
            replayed.forward = Direction::Unsupported(reason);
            return Some(replayed);
        }
    }
    if let (true, Support::Unsupported(reason)) = (trains, supports(Phase::Backward)) {
        replayed.backward = Direction::Unsupported(reason);
    }
    let expected = match local(site.op, &site.inputs, &site.incoming, &judge.rounding) {
        Ok(expected) => expected,
        Err(error) => {
            replayed.forward = Direction::Failed(format!("the reference: {error}"));
            return Some(replayed);
        }
    };
    let gradients = replayed.backward == Direction::Ran;
    match site.run(engine, &expected, gradients) {
        Ok(delivered) => replayed.deviations = delivered.compare(&expected, judge),
        Err((Phase::Forward, error)) => {
            replayed.forward = Direction::Failed(error.to_string());
            if gradients {
                replayed.backward = Direction::None;
            }
        }
        Err((_, error)) => {
            replayed.backward = Direction::Failed(error.to_string());
            // The results are worth having all the same.
            if let Ok(delivered) = site.run(engine, &expected, false) {
                replayed.deviations = delivered.compare(&expected, judge);
            }
        }
    }
    Some(replayed)
}

/// A node with what it reads.
struct Site<'a> {
    op: &'a Op,
    path: &'a str,
    node: usize,
    /// Index for the operators around the node: none of the program's.
    around: usize,
    types: Vec<&'a Value>,
    outputs: Vec<&'a Value>,
    inputs: Vec<HostTensor>,
    incoming: Vec<Option<HostTensor>>,
}

impl<'a> Site<'a> {
    fn new(program: &'a Program, values: &ReferenceValues, index: usize) -> Option<Self> {
        let node = program.nodes.get(index)?;
        Some(Self {
            op: &node.op,
            path: &node.path,
            node: index,
            around: program.nodes.len(),
            types: node.inputs.iter().map(|id| program.value(*id)).collect(),
            outputs: node.outputs.iter().map(|id| program.value(*id)).collect(),
            inputs: node.inputs.iter().map(|id| values.rounded(program, *id)).collect::<Option<_>>()?,
            incoming: node.outputs.iter().map(|id| values.incoming(program, *id)).collect(),
        })
    }

    /// Applies the node, and differentiates Σ result·incoming.
    fn run<E: Engine>(
        &self,
        engine: &E,
        expected: &Local,
        gradients: bool,
    ) -> Result<Delivered, (Phase, EngineError)> {
        let forward = |e| (Phase::Forward, e);
        let backward = |e| (Phase::Backward, e);
        let leaves: Vec<E::Tensor> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(index, host)| {
                let wanted = gradients && expected.gradients.get(index).is_some_and(Option::is_some);
                engine.upload(host, if wanted { Leaf::Differentiable } else { Leaf::Constant })
            })
            .collect::<Result<_, _>>()
            .map_err(forward)?;
        let arguments: Vec<&E::Tensor> = leaves.iter().collect();
        let call = Call {
            op: self.op,
            inputs: &self.types,
            outputs: &self.outputs,
            node: self.node,
            path: self.path,
        };
        engine.mark(Phase::Forward, Some(self.node));
        let results = engine.apply(&call, &arguments).map_err(forward)?;
        engine.synchronize().map_err(forward)?;
        let download = |tensor: &E::Tensor| engine.download(tensor);
        let mut delivered = Delivered {
            results: results.iter().map(download).collect::<Result<_, _>>().map_err(forward)?,
            gradients: None,
        };
        if gradients {
            let loss = self.loss(engine, &results).map_err(backward)?;
            let wanted: Vec<usize> = (0..leaves.len())
                .filter(|i| expected.gradients.get(*i).is_some_and(Option::is_some))
                .collect();
            let wrt: Vec<&E::Tensor> = wanted.iter().filter_map(|i| leaves.get(*i)).collect();
            engine.mark(Phase::Backward, None);
            let found = engine.backward(&BackwardRequest { loss: &loss, wrt: &wrt }).map_err(backward)?;
            engine.synchronize().map_err(backward)?;
            let mut all = vec![None; leaves.len()];
            for (index, tensor) in wanted.into_iter().zip(found) {
                if let (Some(slot), Some(tensor)) = (all.get_mut(index), tensor) {
                    *slot = Some(download(&tensor).map_err(backward)?);
                }
            }
            delivered.gradients = Some(all);
        }
        Ok(delivered)
    }

    fn loss<E: Engine>(&self, engine: &E, results: &[E::Tensor]) -> Result<E::Tensor, EngineError> {
        let mut loss: Option<(E::Tensor, Value)> = None;
        for ((result, value), incoming) in results.iter().zip(&self.outputs).zip(&self.incoming) {
            let Some(incoming) = incoming else { continue };
            let incoming = engine.upload(incoming, Leaf::Constant)?;
            let (weighed, kind) = self.step(engine, &Op::Mul {}, &[value, value], &[result, &incoming])?;
            let sum = Op::Sum { dims: vec![], keepdim: false };
            let (sum, kind) = self.step(engine, &sum, &[&kind], &[&weighed])?;
            loss = Some(match loss {
                Some((before, other)) => {
                    self.step(engine, &Op::Add {}, &[&other, &kind], &[&before, &sum])?
                }
                None => (sum, kind),
            });
        }
        loss.map(|(loss, _)| loss).ok_or_else(|| self.failed(self.op, "no result has a gradient".to_owned()))
    }

    /// An operator beside the node.
    fn step<E: Engine>(
        &self,
        engine: &E,
        op: &Op,
        types: &[&Value],
        inputs: &[&E::Tensor],
    ) -> Result<(E::Tensor, Value), EngineError> {
        let outputs = infer(op, types).map_err(|e| self.failed(op, e.reason))?;
        let kinds: Vec<&Value> = outputs.iter().collect();
        let call = Call { op, inputs: types, outputs: &kinds, node: self.around, path: "" };
        let result = engine.apply(&call, inputs)?.into_iter().next();
        result.zip(outputs.first().cloned()).ok_or_else(|| self.failed(op, "no result".to_owned()))
    }

    fn failed(&self, op: &Op, message: String) -> EngineError {
        let engine = format!("replay of #{}", self.node);
        EngineError::Failed { engine, op: op.name().to_owned(), message }
    }
}

/// What an engine gave.
struct Delivered {
    results: Vec<HostTensor>,
    gradients: Option<Vec<Option<HostTensor>>>,
}

impl Delivered {
    fn compare(&self, expected: &Local, by: &ReplayJudge<'_>) -> Vec<Deviation> {
        let results = expected
            .results
            .iter()
            .enumerate()
            .map(|(i, expected)| deviation(Part::Result(i), expected, self.results.get(i), by));
        let gradients = self.gradients.iter().flatten().zip(&expected.gradients).enumerate();
        let gradients = gradients.filter_map(|(i, (found, expected))| {
            Some(deviation(Part::Gradient(i), expected.as_ref()?, found.as_ref(), by))
        });
        results.chain(gradients).collect()
    }
}

fn deviation(part: Part, expected: &Expected, found: Option<&HostTensor>, by: &ReplayJudge<'_>) -> Deviation {
    let (mut error, mut floor) = (0.0, 0.0);
    let values = found.filter(|t| t.shape() == expected.shape).map(HostTensor::to_f64);
    for (i, (exact, sigma)) in expected.values.iter().zip(&expected.sigma).enumerate() {
        let found = values.as_ref().and_then(|v| v.get(i)).copied();
        if exact.is_finite() && found.is_none_or(f64::is_finite) {
            floor += sigma * sigma;
            error += found.map_or(f64::NAN, |found| (found - exact) * (found - exact));
        }
    }
    let judgement = match found {
        Some(found) => judge(expected, found, by.bands),
        None if matches!(part, Part::Gradient(_)) => {
            Judgement::fault(Fault::NoGradient, "none was delivered".to_owned())
        }
        None => Judgement::fault(Fault::Structure, "none was delivered".to_owned()),
    };
    Deviation { part, error: f64::sqrt(error), floor: f64::sqrt(floor), judgement }
}
