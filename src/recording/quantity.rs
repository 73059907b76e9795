//! [`Quantity`]: one thing that recordings are compared in.

use serde::{Deserialize, Serialize};

use super::number;
use crate::numerics::{DType, Role};

/// What sort of thing a quantity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantityKind {
    /// The scalar that is differentiated: `loss`.
    Loss,
    /// Class scores of the batch: `logits`.
    Logits,
    /// Output of a module: `activation/<module path>`.
    Activation,
    /// Gradient of a parameter: `gradient/<parameter key>`.
    Gradient,
    /// Gradient of a float batch input: `input_gradient/<input>`.
    InputGradient,
    /// Gradient of a module's output: `activation_gradient/<module path>`.
    ActivationGradient,
    /// Updated buffer: `buffer/<key>`.
    Buffer,
    /// Validation metric: `metric/loss`, `metric/top1`, `metric/top5`.
    Metric,
}

impl QuantityKind {
    /// Every kind, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Loss,
        Self::Metric,
        Self::Logits,
        Self::Activation,
        Self::Gradient,
        Self::InputGradient,
        Self::ActivationGradient,
        Self::Buffer,
    ];

    /// Name in tables, and first part of a quantity's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Logits => "logits",
            Self::Activation => "activation",
            Self::Gradient => "gradient",
            Self::InputGradient => "input_gradient",
            Self::ActivationGradient => "activation_gradient",
            Self::Buffer => "buffer",
            Self::Metric => "metric",
        }
    }

    /// Name of the quantity of this kind that belongs to `subject` (module path, key,
    /// input, metric); `loss` and `logits` have none.
    #[must_use]
    pub fn quantity(self, subject: &str) -> String {
        match self {
            Self::Loss | Self::Logits => self.name().to_owned(),
            _ => format!("{}/{subject}", self.name()),
        }
    }
}

/// What became of a quantity that was asked for. The four are never merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// A tensor of this name is in `tensors.safetensors`.
    Value,
    /// The engine answered that there is none (a gradient that does not exist). Not zero.
    None,
    /// Not computed, for a reason that was known beforehand (operator unsupported).
    Skipped {
        /// The reason.
        reason: String,
    },
    /// It should be there and is not.
    Missing {
        /// What was seen.
        reason: String,
    },
}

/// Deviation that rounding alone causes in a quantity, predicted by noise injected into the
/// reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Root mean square over replicas of the Euclidean norm of the deviation, never below
    /// the error of storing the quantity in its dtype. Absolute, in units of the quantity.
    #[serde(with = "number")]
    pub norm: f64,
    /// Number of noise replicas behind it.
    pub replicas: u32,
    /// Effective number of independent elements in the deviation, from the spread of its
    /// square over replicas: between 1 and the number of elements.
    #[serde(with = "number")]
    pub degrees_of_freedom: f64,
}

/// One quantity: identity, type, state, and in reference recordings its floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// Stable name, the same in every recording; also the name of its tensor.
    pub name: String,
    /// What sort of thing.
    pub kind: QuantityKind,
    /// Arithmetic that produced it.
    pub role: Role,
    /// Module path; empty where it belongs to none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Index, in the base program, of the node that produced it (for a gradient: the node
    /// that reads the value differentiated).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
    /// Dtype that the precision gives it. What a target delivered instead stands in
    /// [`super::Manifest::tensors`].
    pub dtype: DType,
    /// Shape that the program gives it.
    pub shape: Vec<usize>,
    /// What became of it.
    #[serde(flatten)]
    pub state: State,
    /// A named decomposition stood in for the operator; its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decomposed: Option<String>,
    /// Predicted noise floor (reference recordings only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
}

impl Quantity {
    /// Whether a tensor of this quantity is there to be read.
    #[must_use]
    pub fn has_value(&self) -> bool {
        self.state == State::Value
    }

    /// Number of elements that the program gives it; 1 for a scalar.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}
