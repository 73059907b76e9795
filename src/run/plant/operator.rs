//! Faults of one operator, one gradient, one process: a [`Hook`] on the engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use super::{Plant, PlantKind};
use crate::engine::{BackwardRequest, Call, Engine, EngineError, Leaf};
use crate::numerics::DType;
use crate::program::{InputKind, Op, Program, Value, infer};
use crate::run::hooks::Hook;
use crate::run::process;
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// Matrix products are split into this many partial sums where they are added up in f16.
const PARTS: usize = 8;

/// A fault, placed in one program.
pub(in crate::run) struct Planted<T> {
    kind: PlantKind,
    /// Node whose result is changed, or before which the process ends.
    node: Option<usize>,
    /// Position of the gradient that is changed among the differentiable leaves.
    leaf: Option<usize>,
    /// Earlier results by operator name and shape, for [`PlantKind::Stale`].
    earlier: RefCell<HashMap<(&'static str, Vec<usize>), T>>,
}

impl<T> Planted<T> {
    /// Finds the place of `plant` in `program`; the reason if there is none.
    ///
    /// # Errors
    /// What to name instead, as text.
    pub(in crate::run) fn new(plant: &Plant, program: &Program) -> Result<Self, String> {
        use PlantKind::{
            Abort, Device, DoubleGradient, DropGradient, Exit, HalfAccumulation, HalfOperands, Hang, Kill,
            NoTensors, Tf32, Truncate, ZeroGradient,
        };
        let (mut node, mut leaf) = (None, None);
        match &plant.kind {
            DoubleGradient | DropGradient | ZeroGradient => leaf = Some(place_leaf(plant, program)?),
            Device(_) | NoTensors | Tf32 | Truncate => {}
            Abort | Kill | Exit(_) | Hang if plant.place.is_none() => node = Some(program.nodes.len() / 2),
            HalfAccumulation | HalfOperands => {
                node = Some(place_node(plant, program, |op| {
                    matches!(op, Op::Linear {} | Op::Matmul {} | Op::Mm {} | Op::Bmm {})
                })?);
            }
            _ => node = Some(place_node(plant, program, |_| true)?),
        }
        Ok(Self { kind: plant.kind.clone(), node, leaf, earlier: RefCell::default() })
    }
}

/// Leaves with a gradient, in the order in which the interpreter asks for them.
fn leaves(program: &Program) -> impl Iterator<Item = (&str, InputKind)> {
    program
        .inputs
        .iter()
        .filter(|input| {
            matches!(input.kind, InputKind::Parameter | InputKind::Batch)
                && program.value(input.value).dtype.is_float()
        })
        .map(|input| (input.name.as_str(), input.kind))
}

fn place_leaf(plant: &Plant, program: &Program) -> Result<usize, String> {
    if let Some(name) = &plant.place {
        return leaves(program)
            .position(|(leaf, _)| leaf == name)
            .ok_or_else(|| format!("no parameter or input is called `{name}`"));
    }
    let weights: Vec<usize> = leaves(program)
        .enumerate()
        .filter(|(_, (name, kind))| *kind == InputKind::Parameter && name.ends_with("weight"))
        .map(|(position, _)| position)
        .collect();
    weights.get(weights.len() / 2).copied().ok_or_else(|| "there is no weight".to_owned())
}

/// The node that the plant names, else the middle one of those that `fits` and whose result
/// is a float tensor of at least two dimensions.
fn place_node(plant: &Plant, program: &Program, fits: impl Fn(&Op) -> bool) -> Result<usize, String> {
    let candidates: Vec<usize> = program
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| {
            let value = node.outputs.first().map(|id| program.value(*id));
            fits(&node.op) && value.is_some_and(|v| v.dtype.is_float())
        })
        .map(|(index, _)| index)
        .collect();
    let named = |name: &str| {
        candidates.iter().copied().find(|index| {
            index.to_string() == name
                || program.nodes.get(*index).is_some_and(|n| n.op.name() == name || n.path == name)
        })
    };
    if let Some(name) = &plant.place {
        return named(name)
            .ok_or_else(|| format!("no fitting node has the index, operator or path `{name}`"));
    }
    let large = |index: &usize| {
        let node = program.nodes.get(*index)?;
        let value = program.value(*node.outputs.first()?);
        (value.shape.len() >= 2).then_some(*index)
    };
    let large: Vec<usize> = candidates.iter().filter_map(large).collect();
    large.get(large.len() / 2).copied().ok_or_else(|| "no node fits".to_owned())
}

impl<E: Engine> Hook<E> for Planted<E::Tensor> {
    fn mark(&self, phase: Phase, node: Option<usize>) {
        if phase == Phase::Forward && node.is_some() && node == self.node {
            match self.kind {
                PlantKind::Abort => std::process::abort(),
                PlantKind::Kill => process::raise(libc::SIGKILL),
                PlantKind::Exit(code) => std::process::exit(code),
                PlantKind::Hang => loop {
                    std::thread::sleep(Duration::from_hours(1));
                },
                _ => {}
            }
        }
    }

    fn apply(
        &self,
        engine: &E,
        call: &Call<'_>,
        inputs: &[&E::Tensor],
    ) -> Result<Vec<E::Tensor>, EngineError> {
        if self.kind == PlantKind::Stale {
            return self.stale(engine, call, inputs);
        }
        if self.node != Some(call.node) {
            return engine.apply(call, inputs);
        }
        let mut results = match self.kind {
            PlantKind::HalfAccumulation => half_accumulation(engine, call, inputs)?,
            PlantKind::HalfOperands => half_operands(engine, call, inputs)?,
            _ => engine.apply(call, inputs)?,
        };
        if let (Some(first), Some(value)) = (results.first_mut(), call.outputs.first()) {
            let steps = Steps { engine, node: call.node };
            *first = match self.kind {
                PlantKind::Nan => steps.poison(first, value, f64::NAN)?,
                PlantKind::Inf => steps.poison(first, value, f64::INFINITY)?,
                PlantKind::NegInf => steps.poison(first, value, f64::NEG_INFINITY)?,
                PlantKind::Scale(epsilon) => {
                    steps.one(&Op::MulScalar { value: 1.0 + epsilon }, &[(first, value)])?.0
                }
                // Not a multiplication by 0, for which an engine may drop the gradient.
                PlantKind::Zero => steps.one(&Op::Sub {}, &[(first, value), (first, value)])?.0,
                PlantKind::Transpose => steps.transpose(first, value)?,
                _ => first.clone(),
            };
        }
        Ok(results)
    }

    fn backward(
        &self,
        engine: &E,
        request: &BackwardRequest<'_, E::Tensor>,
    ) -> Result<Vec<Option<E::Tensor>>, EngineError> {
        let mut gradients = engine.backward(request)?;
        if let Some(slot) = self.leaf.and_then(|leaf| gradients.get_mut(leaf)) {
            let scaled = |factor: f64, gradient: Option<E::Tensor>| {
                let Some(gradient) = gradient else { return Ok(None) };
                let host = engine.download(&gradient)?;
                let values: Vec<f64> = host.to_f64().iter().map(|v| v * factor).collect();
                let host = HostTensor::from_f64(host.dtype(), host.shape().to_vec(), &values)
                    .map_err(|e| failed(engine, &e.to_string()))?;
                engine.upload(&host, Leaf::Constant).map(Some)
            };
            *slot = match self.kind {
                PlantKind::DoubleGradient => scaled(2.0, slot.take())?,
                PlantKind::ZeroGradient => scaled(0.0, slot.take())?,
                PlantKind::DropGradient => None,
                _ => slot.take(),
            };
        }
        Ok(gradients)
    }

    fn device_of(&self, engine: &E, tensor: &E::Tensor) -> String {
        match &self.kind {
            PlantKind::Device(name) => name.clone(),
            _ => engine.device_of(tensor),
        }
    }
}

impl<T: Clone> Planted<T> {
    /// Returns the result of the earlier operator of the same kind and shape at the node, if
    /// there was one.
    fn stale<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        call: &Call<'_>,
        inputs: &[&T],
    ) -> Result<Vec<T>, EngineError> {
        let mut results = engine.apply(call, inputs)?;
        if let (Some(first), Some(value)) = (results.first_mut(), call.outputs.first()) {
            let key = (call.op.name(), value.shape.clone());
            let fresh = first.clone();
            if self.node == Some(call.node)
                && let Some(old) = self.earlier.borrow().get(&key)
            {
                *first = old.clone();
            }
            self.earlier.borrow_mut().insert(key, fresh);
        }
        Ok(results)
    }
}

/// Further operators at the place of the fault, so that gradients flow through it.
struct Steps<'a, E> {
    engine: &'a E,
    node: usize,
}

impl<E: Engine> Steps<'_, E> {
    /// Applies an operator with one result.
    fn one(&self, op: &Op, inputs: &[(&E::Tensor, &Value)]) -> Result<(E::Tensor, Value), EngineError> {
        let types: Vec<&Value> = inputs.iter().map(|(_, value)| *value).collect();
        let outputs = infer(op, &types).map_err(|e| failed(self.engine, &e.reason))?;
        let output_types: Vec<&Value> = outputs.iter().collect();
        let call =
            Call { op, inputs: &types, outputs: &output_types, node: self.node, path: "planted fault" };
        let tensors: Vec<&E::Tensor> = inputs.iter().map(|(tensor, _)| *tensor).collect();
        let result = self.engine.apply(&call, &tensors)?.into_iter().next();
        match (result, outputs.into_iter().next()) {
            (Some(tensor), Some(value)) => Ok((tensor, value)),
            _ => Err(failed(self.engine, "an operator gave no result")),
        }
    }

    /// The middle element plus a non-finite number, which is that number.
    fn poison(&self, tensor: &E::Tensor, value: &Value, poison: f64) -> Result<E::Tensor, EngineError> {
        let elements = value.shape.iter().product::<usize>();
        let mut delta = vec![0.0; elements];
        if let Some(slot) = delta.get_mut(elements / 2) {
            *slot = poison;
        }
        let host = HostTensor::from_f64(value.dtype, value.shape.clone(), &delta)
            .map_err(|e| failed(self.engine, &e.to_string()))?;
        let delta = self.engine.upload(&host, Leaf::Constant)?;
        Ok(self.one(&Op::Add {}, &[(tensor, value), (&delta, value)])?.0)
    }

    /// The last two dimensions swapped and read under the old shape.
    fn transpose(&self, tensor: &E::Tensor, value: &Value) -> Result<E::Tensor, EngineError> {
        let rank = value.shape.len();
        if rank < 2 {
            return Err(failed(self.engine, "a tensor to transpose needs two dimensions"));
        }
        let mut dims: Vec<isize> = (0..).take(rank).collect();
        dims.swap(rank - 1, rank - 2);
        let (swapped, swapped_value) = self.one(&Op::Permute { dims }, &[(tensor, value)])?;
        let shape = value.shape.iter().map(|d| d.cast_signed()).collect();
        Ok(self.one(&Op::Reshape { shape }, &[(&swapped, &swapped_value)])?.0)
    }

    fn cast(
        &self,
        tensor: &E::Tensor,
        value: &Value,
        dtype: DType,
    ) -> Result<(E::Tensor, Value), EngineError> {
        self.one(&Op::Cast { dtype }, &[(tensor, value)])
    }
}

/// Operands rounded to bf16 and widened again before the product.
fn half_operands<E: Engine>(
    engine: &E,
    call: &Call<'_>,
    inputs: &[&E::Tensor],
) -> Result<Vec<E::Tensor>, EngineError> {
    let steps = Steps { engine, node: call.node };
    let mut rounded = Vec::new();
    for (tensor, value) in inputs.iter().zip(call.inputs) {
        let (half, half_value) = steps.cast(tensor, value, DType::BF16)?;
        rounded.push(steps.cast(&half, &half_value, value.dtype)?.0);
    }
    engine.apply(call, &rounded.iter().collect::<Vec<_>>())
}

/// The product as a sum of partial products along the inner dimension, added up in f16.
fn half_accumulation<E: Engine>(
    engine: &E,
    call: &Call<'_>,
    inputs: &[&E::Tensor],
) -> Result<Vec<E::Tensor>, EngineError> {
    let steps = Steps { engine, node: call.node };
    let ([a, b, ..], [a_value, b_value, ..]) = (inputs, call.inputs) else {
        return Err(failed(engine, "a product needs two operands"));
    };
    let inner = a_value.shape.last().copied().unwrap_or(1);
    // `linear` has its inner dimension last in both operands.
    let b_dim = if matches!(call.op, Op::Linear {}) { -1 } else { -2 };
    let step = inner.div_ceil(PARTS).max(1);
    let mut total: Option<(E::Tensor, Value)> = None;
    for start in (0..inner).step_by(step) {
        let end = inner.min(start + step);
        let cut = |dim| Op::Slice { dim, start: start.cast_signed(), end: end.cast_signed(), step: 1 };
        let (a_part, a_type) = steps.one(&cut(-1), &[(a, a_value)])?;
        let (b_part, b_type) = steps.one(&cut(b_dim), &[(b, b_value)])?;
        let (part, part_type) = steps.one(call.op, &[(&a_part, &a_type), (&b_part, &b_type)])?;
        let (part, part_type) = steps.cast(&part, &part_type, DType::F16)?;
        total = Some(match total {
            None => (part, part_type),
            Some((sum, sum_type)) => steps.one(&Op::Add {}, &[(&sum, &sum_type), (&part, &part_type)])?,
        });
    }
    let (sum, sum_type) = total.ok_or_else(|| failed(engine, "the inner dimension is empty"))?;
    let (mut result, mut value) = steps.cast(&sum, &sum_type, a_value.dtype)?;
    // The bias of `linear` is added in full.
    if let (Some(bias), Some(bias_value)) = (inputs.get(2), call.inputs.get(2)) {
        (result, value) = steps.one(&Op::Add {}, &[(&result, &value), (bias, bias_value)])?;
    }
    debug_assert!(call.outputs.first().is_none_or(|v| **v == value));
    Ok(vec![result])
}

fn failed<E: Engine>(engine: &E, message: &str) -> EngineError {
    EngineError::Failed {
        engine: engine.info().engine,
        op: "planted fault".to_owned(),
        message: message.to_owned(),
    }
}
