//! [`Case`]: one operator on given inputs.

use crate::numerics::DType;
use crate::program::{BuildError, Builder, InputKind, Op, Program, ValueId};
use crate::tensor::{HostTensor, TensorError};

/// What the values of an input are like. Floats are multiples of 2^-7 (weights: 2^-9) with
/// at most 8 significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// In (−2, 2), never 0, and never within 2^-7 of an [`Fill::Even`] value.
    Float,
    /// In (−2, 2) on the grid between those of [`Fill::Float`]: the second operand of
    /// operators with a kink where both are equal. Never 0.
    Even,
    /// In (0.25, 2).
    Positive,
    /// In (−2.4, 2.4), all different by at least 2^-5; up to 150 elements.
    Distinct,
    /// In (−0.5, 0.5), never 0.
    Weight,
    /// In (0.25, 1): t·log t is steep near 0.
    Probability,
    /// In (−2, −0.25): a logarithm of a probability.
    LogProbability,
    /// An additive mask: 0, or −∞ in about a quarter of the elements, never in the first
    /// column.
    AdditiveMask,
    /// `I64` in `0..below`.
    Index {
        /// Exclusive upper bound.
        below: usize,
    },
    /// `I64` in `0..below`, all different.
    Permutation {
        /// Exclusive upper bound.
        below: usize,
    },
    /// `I64` in `0..below`, but `ignore` in the first element.
    Target {
        /// Exclusive upper bound.
        below: usize,
        /// What the first element is.
        ignore: i64,
    },
    /// `U8`, 0 or 1.
    Mask,
    /// Ones: a sum whose every partial sum is known.
    One,
    /// −1, 0 or 1: every partial sum of products is an integer.
    Digit,
    /// 100 and a deviation of up to three `1/steps`: a mean much larger than the deviation.
    Around {
        /// Steps to the unit.
        steps: u32,
    },
    /// In (−2, 2), with every bit that the dtype has.
    Full,
    /// An additive mask whose first row is −∞ throughout.
    MaskedRow,
}

/// One input of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseInput {
    /// Name in the program.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// What the values are like.
    pub fill: Fill,
    /// Whether the operator has a gradient for it.
    pub differentiable: bool,
}

/// One operator on given inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique: the operator's name and what is special, such as `conv2d/groups`.
    pub name: String,
    /// Operator and attributes.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<CaseInput>,
}

/// Prefix of the constants that weigh the results in the loss.
const WEIGHTS: &str = "result_weight";

impl Case {
    pub(super) fn new(op: Op, special: &str, inputs: &[(&str, &[usize], Fill)]) -> Self {
        let kind = op.name();
        let name = if special.is_empty() { kind.to_owned() } else { format!("{kind}/{special}") };
        let inputs = inputs
            .iter()
            .map(|(name, shape, fill)| CaseInput {
                name: (*name).to_owned(),
                shape: shape.to_vec(),
                fill: *fill,
                differentiable: fill.is_float() && !matches!(fill, Fill::AdditiveMask | Fill::MaskedRow),
            })
            .collect();
        Self { name, op, inputs }
    }

    /// Declares inputs for which the operator has no gradient.
    pub(super) fn constant(mut self, names: &[&str]) -> Self {
        for input in &mut self.inputs {
            input.differentiable &= !names.contains(&input.name.as_str());
        }
        self
    }

    /// Whether result `index` has a gradient (if it is floating-point at all).
    #[must_use]
    pub const fn is_differentiable_result(&self, index: usize) -> bool {
        // Updated running statistics are state, not results.
        !matches!(self.op, Op::BatchNorm { .. }) || index == 0
    }

    /// The case in `F32`, nominally, as programs are.
    ///
    /// # Errors
    /// If the case does not type-check.
    pub fn program(&self) -> Result<Program, BuildError> {
        self.program_in(DType::F32)
    }

    /// A program with one node of the operator under test, whose float inputs are of `dtype`.
    /// Results are captured as `result.0`, `result.1`, ..; the loss is the sum over all
    /// differentiable results of `result · result_weight` with constant weights (there is
    /// no loss where no result is differentiable).
    ///
    /// # Errors
    /// If the case does not type-check.
    pub fn program_in(&self, dtype: DType) -> Result<Program, BuildError> {
        let mut b = Builder::new(&self.name);
        let inputs: Vec<ValueId> = self
            .inputs
            .iter()
            .map(|input| {
                let kind = match (input.fill, input.differentiable) {
                    (Fill::Mask, _) => InputKind::Mask,
                    (Fill::Index { .. } | Fill::Permutation { .. } | Fill::Target { .. }, _) => {
                        InputKind::Label
                    }
                    (Fill::Weight, true) => InputKind::Parameter,
                    (_, true) => InputKind::Batch,
                    (_, false) => InputKind::Buffer,
                };
                let dtype = input.fill.dtype().unwrap_or(dtype);
                b.input(&input.name, kind, &input.shape, dtype, |i| i.below = input.fill.below())
            })
            .collect();
        let results = b.apply_all(self.op.clone(), &inputs);
        let mut loss: Option<ValueId> = None;
        for (index, result) in results.into_iter().enumerate() {
            b.module(&format!("result.{index}"), |_| result);
            let value = b.value(result).clone();
            if !value.dtype.is_float() || !self.is_differentiable_result(index) {
                continue;
            }
            let name = format!("{WEIGHTS}.{index}");
            let weight = b.input(&name, InputKind::Buffer, &value.shape, value.dtype, |_| {});
            let weighed = b.apply(Op::Mul {}, &[result, weight]);
            let sum = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[weighed]);
            loss = Some(loss.map_or(sum, |loss| b.apply(Op::Add {}, &[loss, sum])));
        }
        if let Some(loss) = loss {
            b.set_loss(loss);
        }
        b.finish()
    }

    /// One tensor for each input of [`Case::program`], in its order.
    ///
    /// # Errors
    /// If the case does not type-check.
    pub fn host_inputs(&self, seed: u64) -> Result<Vec<HostTensor>, CaseError> {
        self.host_inputs_for(&self.program()?, seed)
    }

    /// One tensor for each input of `program`, which is this case in any dtype.
    ///
    /// # Errors
    /// If a shape is too large for this machine.
    pub fn host_inputs_for(&self, program: &Program, seed: u64) -> Result<Vec<HostTensor>, CaseError> {
        let tensor = |(position, input): (usize, &crate::program::ProgramInput)| {
            let value = program.value(input.value);
            let fill = self.inputs.get(position).map_or(Fill::Float, |i| i.fill);
            let count = value.shape.iter().product();
            let columns = value.shape.last().copied().unwrap_or(1);
            let values = fill.values(count, columns, mix(seed ^ mix(position as u64 + 1)));
            HostTensor::from_f64(value.dtype, value.shape.clone(), &values).map_err(CaseError::from)
        };
        program.inputs.iter().enumerate().map(tensor).collect()
    }
}

/// A case could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// It does not type-check.
    #[error(transparent)]
    Program(#[from] BuildError),
    /// Its tensors do not fit this machine.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Fill {
    /// Whether the values are floating-point.
    #[must_use]
    pub const fn is_float(self) -> bool {
        self.dtype().is_none()
    }

    /// The integer dtype; `None` for floats, whose dtype is the program's.
    pub(super) const fn dtype(self) -> Option<DType> {
        match self {
            Self::Index { .. } | Self::Permutation { .. } | Self::Target { .. } => Some(DType::I64),
            Self::Mask => Some(DType::U8),
            _ => None,
        }
    }

    pub(super) const fn below(self) -> Option<usize> {
        match self {
            Self::Index { below } | Self::Permutation { below } | Self::Target { below, .. } => Some(below),
            _ => None,
        }
    }

    /// `count` values in rows of `columns`.
    pub(super) fn values(self, count: usize, columns: usize, key: u64) -> Vec<f64> {
        if let Self::Distinct | Self::Permutation { .. } = self {
            let order = permutation(if let Self::Permutation { below } = self { below } else { count }, key);
            let centre = count as f64 - 1.0;
            let value = |rank: &usize| match self {
                Self::Distinct => (2.0 * *rank as f64 - centre) / 64.0,
                _ => *rank as f64,
            };
            return order.iter().take(count).map(value).collect();
        }
        (0..count)
            .map(|i| {
                let bits = mix(key.wrapping_add(i as u64));
                let whole = |n: u64| (bits % n) as f64;
                match self {
                    // Odd multiples of 2^-7 up to 255, and even ones.
                    Self::Float | Self::Distinct => (2.0 * whole(256) - 255.0) / 128.0,
                    Self::Even => {
                        let k = whole(126) + 1.0;
                        if bits >> 63 == 0 { k / 64.0 } else { -k / 64.0 }
                    }
                    Self::Positive => (2.0 * whole(111) + 33.0) / 128.0,
                    Self::Weight => (2.0 * whole(256) - 255.0) / 512.0,
                    Self::Probability => (2.0 * whole(96) + 65.0) / 256.0,
                    Self::LogProbability => -(2.0 * whole(111) + 33.0) / 128.0,
                    Self::AdditiveMask if i % columns > 0 && bits.is_multiple_of(4) => f64::NEG_INFINITY,
                    Self::MaskedRow if i < columns => f64::NEG_INFINITY,
                    Self::AdditiveMask | Self::MaskedRow => 0.0,
                    Self::Target { ignore, .. } if i == 0 => ignore as f64,
                    Self::Index { below } | Self::Permutation { below } | Self::Target { below, .. } => {
                        whole(below.max(1) as u64)
                    }
                    Self::Mask => whole(2),
                    Self::One => 1.0,
                    Self::Full => ((bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0) * 2.0,
                    Self::Digit => whole(3) - 1.0,
                    Self::Around { steps } => 100.0 + (whole(7) - 3.0) / f64::from(steps),
                }
            })
            .collect()
    }
}

/// `0..n` in an order that depends on `key`.
fn permutation(n: usize, key: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| (mix(key.wrapping_add(*i as u64)), *i));
    order
}

/// One step of splitmix64.
pub(super) const fn mix(position: u64) -> u64 {
    let z = position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_dtype_holds_the_same_values() {
        let fills = [
            Fill::Float,
            Fill::Even,
            Fill::Positive,
            Fill::Distinct,
            Fill::Weight,
            Fill::Probability,
            Fill::LogProbability,
        ];
        for fill in fills {
            let values = fill.values(150, 10, 7);
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let t = HostTensor::from_f64(dtype, vec![150], &values).unwrap();
                assert_eq!(t.to_f64(), values, "{fill:?} {dtype}");
            }
            assert!(values.iter().all(|v| *v != 0.0) || fill == Fill::Distinct, "{fill:?}");
        }
    }

    #[test]
    fn distinct_values_differ() {
        let mut values = Fill::Distinct.values(150, 10, 3);
        values.sort_by(f64::total_cmp);
        assert!(values.windows(2).all(|w| w[1] - w[0] >= 1.0 / 32.0));
        assert!(values.iter().all(|v| v.abs() < 2.4));
    }
}
