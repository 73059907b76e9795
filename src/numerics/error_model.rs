//! How large an error plain rounding causes in one operator.
//!
//! A floating-point operator with an inner reduction of length n, inputs and outputs held
//! in given formats and an accumulator of roundoff `u_acc` deviates from the exact result,
//! normwise, by about
//!
//! ```text
//! eta = c_acc·√n·u_acc + c_in·√2·u_in + c_store·u_store + fn_ulp·u_compute
//! ```
//!
//! times a scale S: the norm of the result, or, where terms cancel, the root of the sum of
//! the squares of the *terms*. The √n law is the probabilistic one (Higham and Mary, SIAM
//! J. Sci. Comput. 41(5), 2019); the coefficient 0.30 was measured for sequential sums of
//! zero-mean products and is a ceiling for blocked and pairwise orders; 0.425·u is the
//! root-mean-square error of storing values that are spread evenly over a binade.

use serde::{Deserialize, Serialize};

use super::DType;

/// How operands are brought into a narrower format before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputRounding {
    /// Operands are used as they are.
    Exact,
    /// Rounded to nearest.
    Nearest,
    /// Truncated: about 2.6 times the error of rounding, and biased.
    Truncate,
}

/// Formats that one operator computes in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloatFormat {
    /// Roundoff of results as they are stored.
    pub u_store: f64,
    /// Roundoff of the accumulator of reductions, and of elementary functions.
    pub u_acc: f64,
    /// Roundoff of operands as a matrix unit reads them.
    pub u_in: f64,
    /// How they get there.
    pub input_rounding: InputRounding,
    /// Smallest positive subnormal result, for absolute floors.
    pub underflow: f64,
}

impl FloatFormat {
    /// What a correct engine does in `dtype`: 16-bit formats accumulate in f32.
    #[must_use]
    pub const fn of(dtype: DType) -> Self {
        let u = dtype.unit_roundoff();
        let u_acc = match dtype {
            DType::F16 | DType::BF16 => DType::F32.unit_roundoff(),
            _ => u,
        };
        let underflow = match dtype {
            DType::F64 => 5e-324,
            DType::F32 => 1.401_298_464_324_817e-45,
            DType::F16 => 5.960_464_477_539_063e-8,
            DType::BF16 => 9.183_549_615_799_121e-41,
            DType::I64 | DType::U8 => 0.0,
        };
        Self { u_store: u, u_acc, u_in: 0.0, input_rounding: InputRounding::Exact, underflow }
    }

    /// f32 with operands of matrix products read in TF32 (10 explicit mantissa bits).
    #[must_use]
    pub const fn tf32(input_rounding: InputRounding) -> Self {
        Self { u_in: 4.882_812_5e-4, input_rounding, ..Self::of(DType::F32) }
    }
}

/// Kind of arithmetic that an operator does: what its error depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Moves or selects values; correct engines agree bit for bit.
    Exact,
    /// One rounding an element, possibly an elementary function.
    Elementwise,
    /// Matrix products.
    Matmul,
    /// Convolutions.
    Conv,
    /// Sums, means, variances and scatter-additions.
    Reduction,
    /// Softmax and its relatives.
    Softmax,
    /// Layer, RMS, group and batch normalisation.
    Normalisation,
    /// Scaled dot-product attention: two products around a softmax.
    Attention,
    /// Losses.
    Loss,
    /// Validation metrics.
    Metric,
}

impl Role {
    /// Every role, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::Exact,
        Self::Elementwise,
        Self::Matmul,
        Self::Conv,
        Self::Reduction,
        Self::Softmax,
        Self::Normalisation,
        Self::Attention,
        Self::Loss,
        Self::Metric,
    ];

    /// Name in policies and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Elementwise => "elementwise",
            Self::Matmul => "matmul",
            Self::Conv => "conv",
            Self::Reduction => "reduction",
            Self::Softmax => "softmax",
            Self::Normalisation => "normalisation",
            Self::Attention => "attention",
            Self::Loss => "loss",
            Self::Metric => "metric",
        }
    }
}

/// Coefficients of the error model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorModel {
    /// Growth of a reduction's error with √n, in units of the accumulator's roundoff.
    pub c_acc: f64,
    /// Error of storing a result, in units of its roundoff.
    pub c_store: f64,
    /// Error of rounding operands to nearest.
    pub c_in_nearest: f64,
    /// Error of truncating operands.
    pub c_in_truncate: f64,
    /// Error of an elementary function, in units of the computing roundoff.
    pub fn_ulp: f64,
}

impl Default for ErrorModel {
    fn default() -> Self {
        Self { c_acc: 0.30, c_store: 0.425, c_in_nearest: 0.425, c_in_truncate: 1.115, fn_ulp: 2.0 }
    }
}

impl ErrorModel {
    /// Normwise relative error of an operator of `role` that reduces over `n` terms.
    #[must_use]
    pub fn eta(&self, role: Role, n: usize, format: &FloatFormat) -> f64 {
        let growth = self.c_acc * (n.max(1) as f64).sqrt() * format.u_acc;
        let operands = match format.input_rounding {
            InputRounding::Exact => 0.0,
            InputRounding::Nearest => self.c_in_nearest,
            InputRounding::Truncate => self.c_in_truncate,
        } * std::f64::consts::SQRT_2
            * format.u_in;
        let store = self.c_store * format.u_store;
        let function = self.fn_ulp * format.u_acc;
        match role {
            Role::Exact => 0.0,
            Role::Elementwise | Role::Metric => store + function,
            Role::Matmul | Role::Conv => growth + operands + store,
            Role::Reduction => growth + store,
            Role::Softmax | Role::Normalisation | Role::Loss => growth + store + function,
            Role::Attention => growth + operands + store + function,
        }
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_abs_diff_eq;

    use super::*;

    #[test]
    fn a_matrix_product_in_f32_has_the_documented_error() {
        // k = 256: 0.30·16·u + 0.425·u = 3.1e-7; k = 4096: 1.17e-6.
        let format = FloatFormat::of(DType::F32);
        let model = ErrorModel::default();
        assert_abs_diff_eq!(model.eta(Role::Matmul, 256, &format), 3.11e-7, epsilon = 2e-9);
        assert_abs_diff_eq!(model.eta(Role::Matmul, 4096, &format), 1.170e-6, epsilon = 2e-9);
    }

    #[test]
    fn sixteen_bit_storage_dominates_a_wide_accumulator() {
        let format = FloatFormat::of(DType::BF16);
        let eta = ErrorModel::default().eta(Role::Matmul, 1024, &format);
        assert!((eta - 1.66e-3).abs() < 5e-6, "{eta}");
    }

    #[test]
    fn exact_operators_have_no_error() {
        assert_eq!(ErrorModel::default().eta(Role::Exact, 1 << 20, &FloatFormat::of(DType::BF16)), 0.0);
    }
}
