//! `None`, zero and a value are three states of a gradient.
//!
//! An engine that has no gradient for a parameter (a severed graph) is not an engine whose
//! gradient happens to be zero; treating the two alike hides exactly the faults that a
//! gradient check exists for.

use serde::{Deserialize, Serialize};

use super::TensorView;

/// What an engine returned for one gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GradientState {
    /// The engine has no gradient for it.
    None,
    /// A tensor of zeros (of either sign).
    Zero,
    /// A tensor with at least one element that is not zero (NaN is not zero).
    Value,
}

impl GradientState {
    /// State of what an engine returned. A tensor without elements is `Zero`.
    #[must_use]
    pub fn of(gradient: Option<TensorView<'_>>) -> Self {
        let Some(tensor) = gradient else { return Self::None };
        // The sign bit is the top bit of the last byte of an element; all else must be 0.
        let sign: u8 = if tensor.dtype().is_float() { 0x7f } else { 0xff };
        let size = tensor.dtype().size();
        let zero = tensor.bytes().chunks_exact(size).all(|element| {
            element.split_last().is_none_or(|(last, rest)| last & sign == 0 && rest.iter().all(|b| *b == 0))
        });
        if zero { Self::Zero } else { Self::Value }
    }
}

/// How the gradient states of candidate and reference relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GradientDifference {
    /// Both have a tensor: values decide (a zero against a value is a matter of values,
    /// and of the floor, since rounding alone can make one of a structural zero).
    Values,
    /// Both are zero everywhere.
    BothZero,
    /// Neither has a gradient: agreement about an absence, nothing was compared.
    BothNone,
    /// The candidate has none where the reference has a value: the graph was severed.
    Severed,
    /// The candidate has none where the reference has zeros. Not the same.
    NoneForZero,
    /// The candidate has a gradient where the reference has none.
    Unexpected,
    /// The candidate is zero everywhere, the reference is not.
    ZeroForValue,
}

impl GradientDifference {
    /// Relates the state of the candidate to that of the reference.
    #[must_use]
    pub const fn between(candidate: GradientState, reference: GradientState) -> Self {
        use GradientState::{None, Value, Zero};
        match (candidate, reference) {
            (None, None) => Self::BothNone,
            (None, Value) => Self::Severed,
            (None, Zero) => Self::NoneForZero,
            (Zero | Value, None) => Self::Unexpected,
            (Zero, Zero) => Self::BothZero,
            (Zero, Value) => Self::ZeroForValue,
            (Value, Zero | Value) => Self::Values,
        }
    }

    /// Whether the states alone already disagree. [`Self::ZeroForValue`] is left to the
    /// values: a reference below the candidate's smallest subnormal is rightly zero there.
    #[must_use]
    pub const fn is_structural(self) -> bool {
        matches!(self, Self::Severed | Self::NoneForZero | Self::Unexpected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;
    use crate::tensor::HostTensor;

    fn state(dtype: DType, values: &[f64]) -> GradientState {
        let tensor = HostTensor::from_f64(dtype, vec![values.len()], values).unwrap();
        GradientState::of(Some((&tensor).into()))
    }

    #[test]
    fn none_zero_and_value_are_three_states() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            assert_eq!(state(dtype, &[0.0, -0.0]), GradientState::Zero);
            assert_eq!(state(dtype, &[0.0, 1.0]), GradientState::Value);
            assert_eq!(state(dtype, &[0.0, f64::NAN]), GradientState::Value);
        }
        assert_eq!(state(DType::F16, &[2f64.powi(-24)]), GradientState::Value);
        assert_eq!(state(DType::I64, &[i64::MIN as f64]), GradientState::Value);
        assert_eq!(GradientState::of(None), GradientState::None);
    }

    #[test]
    fn a_missing_gradient_is_not_a_zero_gradient() {
        use GradientState::{None, Value, Zero};
        assert!(GradientDifference::between(None, Zero).is_structural());
        assert!(GradientDifference::between(None, Value).is_structural());
        assert!(GradientDifference::between(Zero, None).is_structural());
        assert!(GradientDifference::between(Value, None).is_structural());
        assert!(!GradientDifference::between(Value, Value).is_structural());
        assert_eq!(GradientDifference::between(Zero, Value), GradientDifference::ZeroForValue);
    }
}
