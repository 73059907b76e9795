//! What an operator hands back: results, and the closure that turns cotangents of the
//! results into cotangents of the inputs.

use ndarray::ArrayD;

use super::elementwise::{map, reshaped};
use super::noise::InnerRounding;
use super::tensor::{Data, Floats, Ints};
use crate::program::Value;

/// Why an operator cannot be applied to these values, in words.
pub(super) type Fault = String;

/// Surroundings of a forward computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    /// Types of the results, already inferred.
    pub(super) outputs: &'a [&'a Value],
    /// Whether the magnitude of summed terms is wanted (for noise).
    pub(super) terms: bool,
    /// Rounding of what an operator stores between its parts (for noise).
    pub(super) inner: Option<InnerRounding>,
}

impl Site<'_> {
    /// Shape of the first result.
    pub(super) fn shape(&self) -> &[usize] {
        self.outputs.first().map_or(&[], |v| v.shape.as_slice())
    }
}

/// What is wanted of a vector-Jacobian product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want<'a> {
    /// For each input whether its cotangent is needed.
    pub(super) needs: &'a [bool],
    /// Whether the magnitude of summed terms is wanted (for noise).
    pub(super) terms: bool,
}

impl Want<'_> {
    /// Whether the cotangent of input `index` is needed.
    pub(super) fn needs(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }

    /// The cotangent of input `index`, computed only when needed.
    pub(super) fn then<C: Into<Cotangent>>(
        &self,
        index: usize,
        compute: impl FnOnce() -> C,
    ) -> Option<Cotangent> {
        self.needs(index).then(|| compute().into())
    }
}

/// What is known of the terms that each element is the sum of.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Root of the sum of their squares; terms that are equal and follow each other count
    /// as one, their sum.
    pub(super) magnitude: Floats,
    /// Factor by which equal terms raise the error of accumulating them, at least 1;
    /// `None`: 1 everywhere.
    pub(super) coherence: Option<Floats>,
}

impl Terms {
    /// The same under another shape.
    pub(super) fn reshaped(&self, shape: &[usize]) -> Self {
        Self {
            magnitude: reshaped(&self.magnitude, shape),
            coherence: self.coherence.as_ref().map(|c| reshaped(c, shape)),
        }
    }

    /// Of sums that are divided by `divisor`.
    pub(super) fn divided(self, divisor: f64) -> Self {
        Self { magnitude: map(&self.magnitude, |t| t / divisor).into_shared(), ..self }
    }
}

impl From<Floats> for Terms {
    fn from(magnitude: Floats) -> Self {
        Self { magnitude, coherence: None }
    }
}

/// Gradient of the loss with respect to one value.
#[derive(Clone, Debug)]
pub(super) struct Cotangent {
    /// The gradient.
    pub(super) value: Floats,
    /// Of what it is the sum; `None` where nothing is summed or can cancel.
    pub(super) terms: Option<Terms>,
}

impl Cotangent {
    /// The value with the magnitude of its terms, where that is wanted.
    pub(super) fn of(value: impl Into<Cotangent>, terms: Option<impl Into<Terms>>) -> Self {
        Self { value: value.into().value, terms: terms.map(Into::into) }
    }

    /// The same under another shape.
    pub(super) fn reshaped(&self, shape: &[usize]) -> Self {
        Self { value: reshaped(&self.value, shape), terms: self.terms.as_ref().map(|t| t.reshaped(shape)) }
    }
}

impl From<Floats> for Cotangent {
    fn from(value: Floats) -> Self {
        Self { value, terms: None }
    }
}

impl From<ArrayD<f64>> for Cotangent {
    fn from(value: ArrayD<f64>) -> Self {
        value.into_shared().into()
    }
}

/// Turns cotangents of the results (and the results, if the operator asked to keep them)
/// into cotangents of the inputs (`None`: not differentiable in that input, or not wanted).
pub(super) type Vjp =
    Box<dyn Fn(&[Option<Floats>], &[Floats], &Want<'_>) -> Vec<Option<Cotangent>> + Send + Sync>;

/// One result and, for sums, the magnitude of its terms.
pub(super) struct Output {
    pub(super) data: Data,
    pub(super) terms: Option<Terms>,
}

/// Results of one operator.
pub(super) struct Applied {
    pub(super) outputs: Vec<Output>,
    /// `None`: no result depends differentiably on any input.
    pub(super) vjp: Option<Vjp>,
    /// Whether the product reads the results: it gets them as they went out, noise included.
    pub(super) keeps_outputs: bool,
}

impl Applied {
    /// One float result.
    pub(super) fn one(
        value: impl Into<Cotangent>,
        vjp: impl Fn(&Floats, &Want<'_>) -> Vec<Option<Cotangent>> + Send + Sync + 'static,
    ) -> Self {
        let Cotangent { value, terms } = value.into();
        let vjp: Vjp = Box::new(move |cotangents, _, want| match cotangents.first() {
            Some(Some(g)) => vjp(g, want),
            _ => Vec::new(),
        });
        let outputs = vec![Output { data: Data::Float(value), terms }];
        Self { outputs, vjp: Some(vjp), keeps_outputs: false }
    }

    /// One float result that its own derivative is written in.
    pub(super) fn by_result(
        value: impl Into<Cotangent>,
        vjp: impl Fn(&Floats, &Floats, &Want<'_>) -> Vec<Option<Cotangent>> + Send + Sync + 'static,
    ) -> Self {
        let Cotangent { value, terms } = value.into();
        let vjp: Vjp = Box::new(move |cotangents, results, want| match (cotangents, results) {
            ([Some(g), ..], [y, ..]) => vjp(g, y, want),
            _ => Vec::new(),
        });
        let outputs = vec![Output { data: Data::Float(value), terms }];
        Self { outputs, vjp: Some(vjp), keeps_outputs: true }
    }

    /// Several results.
    pub(super) fn many(outputs: Vec<Data>, vjp: Option<Vjp>) -> Self {
        let outputs = outputs.into_iter().map(|data| Output { data, terms: None }).collect();
        Self { outputs, vjp, keeps_outputs: false }
    }
}

/// The arguments of one operator, by position and kind.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a>(pub(super) &'a [Data]);

impl<'a> Arguments<'a> {
    /// Floating-point argument `index`.
    pub(super) fn float(&self, index: usize) -> Result<&'a Floats, Fault> {
        self.optional(index)?.ok_or_else(|| format!("argument {index} is missing"))
    }

    /// Floating-point argument `index`, if it was given.
    pub(super) fn optional(&self, index: usize) -> Result<Option<&'a Floats>, Fault> {
        match self.0.get(index) {
            Some(Data::Float(values)) => Ok(Some(values)),
            Some(Data::Integer(_)) => Err(format!("argument {index} must be floating-point")),
            None => Ok(None),
        }
    }

    /// Integer argument `index`.
    pub(super) fn integer(&self, index: usize) -> Result<&'a Ints, Fault> {
        match self.0.get(index) {
            Some(Data::Integer(values)) => Ok(values),
            Some(Data::Float(_)) => Err(format!("argument {index} must be an integer tensor")),
            None => Err(format!("argument {index} is missing")),
        }
    }
}
