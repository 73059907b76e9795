//! Simulated rounding: every result and every cotangent is moved by the error that an
//! operator is expected to make in given formats.
//!
//! An element v becomes `v + (a·s + c·|v|)·ξ`, with ξ close to N(0, 1) and independent for
//! each value, replica and place: equal elements of one result get equal errors, because
//! rounding is a function of the value. (A mean hands the same gradient to every position;
//! a sum over them cannot average an error away that they share.) `c` is the error of storing the result; `a` is the rest
//! of the operator's eta (accumulation, operands, elementary functions). The scale s is |v|,
//! or, for sums, the larger of |v| and the root of the sum of the squares of the terms,
//! scaled so that its norm is the larger of the two norms: a sum that cancels exactly still
//! carries the error of its terms. Sums of equal terms have more than that (`sum`). Below the normal range of the format the storage error
//! is absolute: the value is rounded to a whole number of subnormal steps.
//!
//! Random numbers are hashes of value and place, so neither threads nor the order of
//! execution change them.

use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use super::applied::{Cotangent, Terms};
use super::elementwise::{contiguous, from_vec, map, slice, zip};
use super::sum::pairwise;
use super::tape::BackwardLevels;
use super::tensor::Floats;
use crate::engine::Call;
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::program::Op;

/// Formats that a target computes an operator in, by the dtype of the value and the role.
pub type Formats = Arc<dyn Fn(DType, Role) -> FloatFormat + Send + Sync>;

/// One replica of a run with simulated rounding.
#[derive(Clone)]
pub struct NoiseSpec {
    /// Coefficients of the error model.
    pub model: ErrorModel,
    /// Formats of the target.
    pub formats: Formats,
    /// Seed of all replicas.
    pub seed: u64,
    /// Number of this replica.
    pub replica: u64,
}

impl fmt::Debug for NoiseSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseSpec")
            .field("model", &self.model)
            .field("seed", &self.seed)
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// Where noise is added: which of its draws are used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Result of the forward computation.
    Result(usize),
    /// Cotangent that an operator hands to one of its inputs.
    Cotangent(usize),
    /// Sum of two cotangents of one value.
    FanIn(usize),
    /// Between the parts of one operator.
    Inner,
}

/// Size of the noise at one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    /// Error of the computation, relative to the scale.
    accumulate: f64,
    /// Error of storing, relative to the element.
    store: f64,
    /// Smallest positive subnormal of the format.
    underflow: f64,
    /// Smallest normal value of the format.
    normal: f64,
}

/// The noise of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise<'a> {
    spec: &'a NoiseSpec,
}

impl<'a> Noise<'a> {
    pub(super) const fn new(spec: &'a NoiseSpec) -> Self {
        Self { spec }
    }

    fn level(self, dtype: DType, role: Role, terms: usize, functions: bool) -> Level {
        if role == Role::Exact || !dtype.is_float() {
            return Level::default();
        }
        let format = (self.spec.formats)(dtype, role);
        let fn_ulp = if functions { self.spec.model.fn_ulp } else { 0.0 };
        let model = ErrorModel { fn_ulp, ..self.spec.model };
        let total = model.eta(role, terms, &format);
        let accumulate = model.eta(role, terms, &FloatFormat { u_store: 0.0, ..format });
        let normal = if format.u_store > 0.0 { format.underflow / (2.0 * format.u_store) } else { 0.0 };
        Level { accumulate, store: total - accumulate, underflow: format.underflow, normal }
    }

    /// Rounding of result `index`.
    pub(super) fn forward_level(self, call: &Call<'_>, index: usize) -> Level {
        let dtype = call.outputs.get(index).map_or(DType::F32, |v| v.dtype);
        if let (Op::Cast { .. }, Some(from)) = (call.op, call.inputs.first()) {
            return self.cast_level(from.dtype, dtype);
        }
        let terms = call.op.forward_terms(call.inputs, call.outputs);
        self.level(dtype, call.op.role(), terms, !call.op.is_arithmetic())
    }

    /// Rounding of the cotangents of each input, and of their sums where a value is used
    /// more than once.
    pub(super) fn backward_levels(self, call: &Call<'_>) -> Vec<BackwardLevels> {
        let level = |index: usize, dtype: DType| {
            let fan_in = self.level(dtype, Role::Reduction, 2, false);
            let operator = if let (Op::Cast { .. }, Some(from)) = (call.op, call.outputs.first()) {
                self.cast_level(from.dtype, dtype)
            } else {
                let role = call.op.backward_role(index, call.inputs, call.outputs);
                let terms = call.op.backward_terms(index, call.inputs, call.outputs);
                self.level(dtype, role, terms, !call.op.is_arithmetic())
            };
            BackwardLevels { operator, fan_in }
        };
        call.inputs.iter().enumerate().map(|(index, value)| level(index, value.dtype)).collect()
    }

    /// Rounding of what an operator stores between its parts, in the dtype of its result:
    /// kernels of matrix units read such values in that dtype even where they keep sums wider.
    pub(super) fn inner(self, call: &Call<'_>) -> InnerRounding {
        let dtype = call.outputs.first().map_or(DType::F32, |v| v.dtype);
        let level = Level { accumulate: 0.0, ..self.level(dtype, Role::Elementwise, 1, false) };
        InnerRounding { level, key: self.key(call.node, Stage::Inner) }
    }

    /// A conversion rounds once, and only towards the coarser format.
    fn cast_level(self, from: DType, to: DType) -> Level {
        let level = self.level(to, Role::Elementwise, 1, false);
        if from.unit_roundoff() >= to.unit_roundoff() && from.min_exponent() >= to.min_exponent() {
            return Level::default();
        }
        Level { accumulate: 0.0, ..level }
    }

    /// The value with its rounding errors.
    pub(super) fn perturb(self, exact: Cotangent, level: &Level, node: usize, stage: Stage) -> Floats {
        const CHUNK: usize = 1 << 14;
        if level.accumulate == 0.0 && level.store == 0.0 {
            return exact.value;
        }
        let key = self.key(node, stage);
        let scale = exact.terms.as_ref().map(|terms| sum_scale(&exact.value, terms));
        let shape = exact.value.shape().to_vec();
        let mut values = contiguous(&exact.value).into_owned().into_raw_vec_and_offset().0;
        let scale = scale.as_ref().map(slice);
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            let start = chunk * CHUNK;
            for (i, v) in values.iter_mut().enumerate() {
                let bits = mix(key ^ v.to_bits());
                let (s, bits) = match scale.and_then(|s| s.get(start + i)) {
                    Some(s) => (*s, mix(bits ^ s.to_bits())),
                    None => (v.abs(), bits),
                };
                let moved = level.apply(*v, s, bits);
                if moved.is_finite() {
                    *v = moved;
                }
            }
        });
        from_vec(&shape, values).into_shared()
    }

    /// Distinct for each replica and place.
    fn key(self, node: usize, stage: Stage) -> u64 {
        let (stage, index) = match stage {
            Stage::Result(i) => (1, i),
            Stage::Cotangent(i) => (2, i),
            Stage::FanIn(i) => (3, i),
            Stage::Inner => (4, 0),
        };
        [self.spec.replica, node as u64, stage, index as u64]
            .into_iter()
            .fold(mix(self.spec.seed), |key, part| mix(key ^ mix(part)))
    }
}

/// Rounding of values that an operator stores between its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerRounding {
    level: Level,
    key: u64,
}

impl InnerRounding {
    /// Rounds `values` in place; `part` tells what is stored apart.
    pub(super) fn round(&self, part: u64, values: &mut [f64]) {
        const CHUNK: usize = 1 << 14;
        if self.level.store == 0.0 {
            return;
        }
        let key = mix(self.key ^ mix(part));
        values.par_chunks_mut(CHUNK).for_each(|values| {
            for v in values {
                let moved = self.level.apply(*v, v.abs(), mix(key ^ v.to_bits()));
                if moved.is_finite() {
                    *v = moved;
                }
            }
        });
    }
}

impl Level {
    fn apply(&self, v: f64, scale: f64, bits: u64) -> f64 {
        if v.abs() >= self.normal {
            return v + (self.accumulate * scale + self.store * v.abs()) * normal(bits);
        }
        // As it is stored. Not an independent draw: values far below a step are lost together,
        // and a sum over them with all of them.
        let computed = v + self.accumulate * scale * normal(bits);
        (computed / self.underflow).round_ties_even() * self.underflow
    }
}

/// Scale of the error of sums with these values and terms, row-major.
fn sum_scale(value: &Floats, terms: &Terms) -> Floats {
    let norm = |x: &Floats| {
        let squares = map(x, |v| v * v).into_shared();
        pairwise(slice(&contiguous(&squares))).sqrt()
    };
    let larger = |a: f64, b: f64| if a >= b { a } else { b };
    let scale = zip(value, &terms.magnitude, |v, t| larger(v.abs(), t)).into_shared();
    let factor = larger(norm(value), norm(&terms.magnitude)) / norm(&scale);
    let factor = if factor.is_finite() { factor } else { 1.0 };
    let scaled = match &terms.coherence {
        Some(coherence) => zip(&scale, coherence, |s, c| s * factor * c),
        None => map(&scale, |s| s * factor),
    };
    contiguous(&scaled.into_shared())
}

/// Mean 0, variance 1, close to normal: four uniform lanes of 16 bits (excess kurtosis −0.3).
fn normal(bits: u64) -> f64 {
    let lanes = (0..4).map(|lane| (bits >> (16 * lane)) & 0xffff).sum::<u64>();
    (lanes as f64 - 131_070.0) / 65_536.0 * 1.732_050_807_568_877_2
}

/// The finaliser of splitmix64, after one step of its counter.
const fn mix(position: u64) -> u64 {
    let z = position.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_mean_zero_and_variance_one() {
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|i| normal(mix(i))).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
    }
}
