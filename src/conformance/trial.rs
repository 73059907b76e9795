//! [`Trial`]: one operator call as the sweep tries it.

use std::fmt;

use super::layout::{Layout, Placed};
use super::{Case, Fill};
use crate::numerics::DType;
use crate::program::{BuildError, Builder, InputKind, Op, Program, ValueId};
use crate::tensor::{HostTensor, TensorError};

/// A value that is put among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Not a number.
    Nan,
    /// Plus infinity.
    Infinity,
    /// Minus infinity.
    MinusInfinity,
    /// The smallest subnormal of the dtype, times three.
    Subnormal,
}

impl Lane {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Nan, Self::Infinity, Self::MinusInfinity, Self::Subnormal];

    const fn name(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::Infinity => "infinity",
            Self::MinusInfinity => "minus-infinity",
            Self::Subnormal => "subnormal",
        }
    }

    fn value(self, dtype: DType) -> f64 {
        match self {
            Self::Nan => f64::NAN,
            Self::Infinity => f64::INFINITY,
            Self::MinusInfinity => f64::NEG_INFINITY,
            Self::Subnormal => 3.0 * crate::numerics::ulp_size(0.0, dtype),
        }
    }
}

/// In what respect a call differs from the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// In none.
    Plain,
    /// Input in another layout.
    Input(usize, Layout),
    /// Incoming gradient in another layout.
    Incoming(Layout),
    /// The input has another consumer, applied before the operator.
    UsedBefore(usize),
    /// The input has another consumer, applied after the operator.
    UsedAfter(usize),
    /// Called again after a call at another shape: equal bits are expected.
    Again,
    /// A special value among those of an input.
    Special(usize, Lane),
    /// Values −1, 0 and 1, on which every correct kernel agrees bit for bit.
    Integers,
    /// Values of full precision, from which the mode of computation shows.
    Mode,
}

/// One call: a case in one dtype, with one respect in which it is special.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Operator, shapes and kinds of values.
    pub case: Case,
    /// Dtype of the float inputs.
    pub dtype: DType,
    /// What is special.
    pub variant: Variant,
    /// Kernel set of the engine, by name; `None`: the default one.
    pub kernels: Option<&'static str>,
    /// The call in between, of [`Variant::Again`].
    pub between: Option<Box<Case>>,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = |i: usize| self.case.inputs.get(i).map_or("?", |input| input.name.as_str());
        write!(f, "{}", self.case.name)?;
        match self.variant {
            Variant::Plain => {}
            Variant::Input(i, layout) => write!(f, "+{layout}:{}", input(i))?,
            Variant::Incoming(layout) => write!(f, "+{layout}:gradient")?,
            Variant::UsedBefore(i) => write!(f, "+used-before:{}", input(i))?,
            Variant::UsedAfter(i) => write!(f, "+used-after:{}", input(i))?,
            Variant::Again => write!(f, "+again")?,
            Variant::Special(i, lane) => write!(f, "+{}:{}", lane.name(), input(i))?,
            Variant::Integers => write!(f, "+integers")?,
            Variant::Mode => write!(f, "+mode")?,
        }
        write!(f, "@{}", self.dtype)?;
        self.kernels.map_or(Ok(()), |kernels| write!(f, "/{kernels}"))
    }
}

/// A trial, ready to run.
#[derive(Debug)]
pub struct Prepared {
    /// The program.
    pub program: Program,
    /// The program as far as the operator: what an inference runs.
    pub forward: Program,
    /// Index of the operator's node.
    pub node: usize,
    /// One tensor for each input of the program, in its order.
    pub feed: Vec<HostTensor>,
    /// Inputs of the operator, as the dtype holds them.
    pub inputs: Vec<HostTensor>,
    /// Layout of each of them in the program's inputs.
    pub placed: Vec<Placed>,
    /// Incoming gradients of the results.
    pub incoming: Vec<Option<HostTensor>>,
    /// What the other consumer adds to the gradient of an input.
    pub added: Option<(usize, Vec<f64>)>,
}

/// A trial could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// It does not type-check.
    #[error(transparent)]
    Program(#[from] BuildError),
    /// Its tensors do not fit this machine.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The layout would change nothing.
    #[error("`{0}` has no such layout")]
    Layout(String),
}

/// Values around a sliced tensor: read by mistake they are seen.
const AROUND: f64 = 7.0;

impl Trial {
    /// A plain trial.
    #[must_use]
    pub const fn plain(case: Case, dtype: DType) -> Self {
        Self { case, dtype, variant: Variant::Plain, kernels: None, between: None }
    }

    /// Dimensions of an input that must not repeat their values: those that are sorted or
    /// searched, where equal values would leave the answer open.
    pub(super) fn fixed(case: &Case, input: usize) -> Vec<usize> {
        let Some(input) = case.inputs.get(input) else { return Vec::new() };
        let rank = input.shape.len();
        if let Fill::Permutation { .. } = input.fill {
            return (0..rank).collect();
        }
        if input.fill != Fill::Distinct {
            return Vec::new();
        }
        let dims: Vec<isize> = match &case.op {
            Op::Argmax { dim, .. } | Op::Topk { dim, .. } | Op::Sort { dim, .. } => vec![*dim],
            Op::Amax { dims, .. } | Op::Amin { dims, .. } => dims.clone(),
            Op::MaxPool2d { .. } => vec![-1, -2],
            _ => Vec::new(),
        };
        if dims.is_empty() {
            return (0..rank).collect();
        }
        dims.iter().filter_map(|dim| crate::program::normalize_dim(*dim, rank).ok()).collect()
    }

    /// The program and its tensors.
    ///
    /// # Errors
    /// If the trial does not type-check, or its layout does not exist.
    pub fn prepare(&self, seed: u64) -> Result<Prepared, TrialError> {
        let mut b = Builder::new(&self.case.name);
        let (mut feed, mut inputs, mut placed, mut ids) = (vec![], vec![], vec![], vec![]);
        for (i, input) in self.case.inputs.iter().enumerate() {
            let layout = match self.variant {
                Variant::Input(which, layout) if which == i => layout,
                _ => Layout::Contiguous,
            };
            let place = Placed::new(layout, &input.shape, &Self::fixed(&self.case, i))
                .ok_or_else(|| TrialError::Layout(self.to_string()))?;
            let dtype = input.fill.dtype().unwrap_or(self.dtype);
            let key = super::case::mix(seed ^ super::case::mix(i as u64 + 1));
            let tensor = self.storage(i, &place, dtype, key)?;
            let kind = if input.differentiable { InputKind::Parameter } else { InputKind::Buffer };
            let id = b.input(&input.name, kind, &place.storage, dtype, |p| p.below = input.fill.below());
            ids.push(place.view(&mut b, id));
            inputs.push(HostTensor::from_f64(dtype, input.shape.clone(), &place.gather(&tensor.to_f64()))?);
            feed.push(tensor);
            placed.push(place);
        }
        let mut extra = None;
        let mut added = None;
        if let Variant::UsedBefore(i) | Variant::UsedAfter(i) = self.variant {
            let shape = inputs[i].shape().to_vec();
            let values = Fill::Float.values(shape.iter().product(), 1, super::case::mix(seed ^ 0x77));
            let weight = b.input("other.weight", InputKind::Buffer, &shape, self.dtype, |_| {});
            feed.push(HostTensor::from_f64(self.dtype, shape, &values)?);
            added = Some((i, values));
            if let Variant::UsedBefore(_) = self.variant {
                extra = Some(weighed(&mut b, ids[i], weight));
            } else {
                extra = Some(weight);
            }
        }
        let results = b.apply_all(self.case.op.clone(), &ids);
        let node = b.nodes() - 1;
        for (i, result) in results.iter().enumerate() {
            b.module(&format!("result.{i}"), |_| *result);
        }
        let mut other = match self.variant {
            Variant::UsedAfter(i) => extra.map(|weight| weighed(&mut b, ids[i], weight)),
            _ => extra,
        };
        let mut incoming = Vec::new();
        let mut loss: Option<ValueId> = None;
        for (i, result) in results.iter().enumerate() {
            let value = b.value(*result).clone();
            let differentiable = self.case.inputs.iter().any(|input| input.differentiable);
            if !value.dtype.is_float() || !self.case.is_differentiable_result(i) || !differentiable {
                incoming.push(None);
                continue;
            }
            let layout = match self.variant {
                Variant::Incoming(layout) if i == 0 => layout,
                _ => Layout::Contiguous,
            };
            let place =
                Placed::new(layout, &value.shape, &[]).ok_or_else(|| TrialError::Layout(self.to_string()))?;
            let count = place.storage.iter().product();
            let fill = self.fill(Fill::Float);
            let values = fill.values(count, 1, super::case::mix(seed ^ super::case::mix(0x99 + i as u64)));
            let weight =
                b.input(&format!("incoming.{i}"), InputKind::Buffer, &place.storage, value.dtype, |_| {});
            let tensor = HostTensor::from_f64(value.dtype, place.storage.clone(), &values)?;
            incoming.push(Some(HostTensor::from_f64(value.dtype, value.shape, &place.gather(&values))?));
            feed.push(tensor);
            let consumed = place.consume(&mut b, *result);
            let mut sum = weighed(&mut b, consumed, weight);
            if let Some(other) = other.take() {
                let (first, second) =
                    if matches!(self.variant, Variant::UsedBefore(_)) { (other, sum) } else { (sum, other) };
                sum = b.apply(Op::Add {}, &[first, second]);
            }
            loss = Some(loss.map_or(sum, |loss| b.apply(Op::Add {}, &[loss, sum])));
        }
        if let Some(loss) = loss {
            b.set_loss(loss);
        }
        let program = b.finish()?;
        let mut forward = program.clone();
        forward.nodes.truncate(node + 1);
        forward.outputs.loss = None;
        Ok(Prepared { program, forward, node, feed, inputs, placed, incoming, added })
    }

    /// What takes the place of floating-point values.
    const fn fill(&self, fill: Fill) -> Fill {
        match self.variant {
            Variant::Integers if fill.is_float() => Fill::Digit,
            Variant::Mode if fill.is_float() => Fill::Full,
            _ => fill,
        }
    }

    /// The storage of an input: its values, special ones among them.
    fn storage(&self, i: usize, place: &Placed, dtype: DType, key: u64) -> Result<HostTensor, TrialError> {
        let input = &self.case.inputs[i];
        let fill = self.fill(input.fill);
        let columns = place.storage.last().copied().unwrap_or(1);
        let count: usize = place.storage.iter().product();
        let elements: usize = input.shape.iter().product();
        let mut values = if count > elements {
            // Of a larger tensor: only what is read has meaning.
            let own = fill.values(elements, input.shape.last().copied().unwrap_or(1), key);
            let around = if input.fill.is_float() { AROUND } else { 0.0 };
            let mut values = vec![around; count];
            for (at, value) in place.positions.iter().zip(own) {
                values[*at] = value;
            }
            values
        } else {
            fill.values(count, columns, key)
        };
        if let Variant::Special(which, lane) = self.variant
            && which == i
        {
            for at in [count / 2, count.saturating_sub(1)] {
                if let Some(slot) = values.get_mut(at) {
                    *slot = lane.value(dtype);
                }
            }
        }
        Ok(HostTensor::from_f64(dtype, place.storage.clone(), &values)?)
    }
}

fn weighed(b: &mut Builder, value: ValueId, weight: ValueId) -> ValueId {
    let product = b.apply(Op::Mul {}, &[value, weight]);
    b.apply(Op::Sum { dims: vec![], keepdim: false }, &[product])
}
