//! Exact results and gradients of one call, with the standard deviation of each element.

use super::spread::{self, Site, Spread, Values};
use crate::conformance::Placed;
use crate::engine::reference::{ReferenceEngine, Tensor};
use crate::engine::{BackwardRequest, Call, Engine, EngineError, Leaf};
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::program::{Op, Value, infer};
use crate::tensor::HostTensor;

/// What an engine rounds by.
#[derive(Clone, Copy)]
pub struct Rounding<'a> {
    /// Coefficients of the error model.
    pub model: ErrorModel,
    /// Formats that a correct engine computes in, by dtype and role.
    pub formats: &'a dyn Fn(DType, Role) -> FloatFormat,
}

/// One result or gradient as it must be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Element type in which an engine delivers it.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Arithmetic that it comes from.
    pub role: Role,
    /// Values, in f64.
    pub values: Vec<f64>,
    /// Standard deviation that rounding gives each of them; 0: no correct engine deviates.
    pub sigma: Vec<f64>,
}

/// Everything that one call must give.
#[derive(Clone, Debug)]
pub struct Local {
    /// Results in the operator's order.
    pub results: Vec<Expected>,
    /// Gradients of the inputs; `None` where the operator has none.
    pub gradients: Vec<Option<Expected>>,
}

/// What `op` gives on `inputs` (as their dtypes hold them), and its gradients for the given
/// incoming gradients, one a result (`None`: the result takes no part).
///
/// # Errors
/// What the reference says of arguments that the operator does not take.
pub fn local(
    op: &Op,
    inputs: &[HostTensor],
    incoming: &[Option<HostTensor>],
    rounding: &Rounding<'_>,
) -> Result<Local, EngineError> {
    let types: Vec<Value> =
        inputs.iter().map(|t| Value { shape: t.shape().to_vec(), dtype: t.dtype() }).collect();
    let types: Vec<&Value> = types.iter().collect();
    let outputs = infer(op, &types).map_err(|e| failed(op, e.reason))?;
    let outputs: Vec<&Value> = outputs.iter().collect();
    let inputs: Vec<Values> = inputs.iter().map(Values::of).collect();
    let incoming: Vec<Option<Values>> = incoming.iter().map(|g| g.as_ref().map(Values::of)).collect();
    let (results, gradients) = exact(op, &inputs, &incoming)?;
    let site = Site {
        op,
        types: &types,
        outputs: &outputs,
        inputs: &inputs,
        results: &results,
        incoming: &incoming,
    };
    let levels = Levels { rounding, functions: !op.is_arithmetic() };
    let mut expected = Vec::new();
    for (index, (values, value)) in results.iter().zip(&outputs).enumerate() {
        let terms = op.forward_terms(&types, &outputs);
        let spread = spread::forward(&site, index)?;
        let level = match (op, types.first()) {
            (Op::Cast { .. }, Some(from)) => levels.cast(from.dtype, value.dtype),
            _ => levels.of(value.dtype, op.role(), terms),
        };
        expected.push(level.expected(value, op.role(), values, &spread));
    }
    let mut found = Vec::new();
    for (index, (gradient, value)) in gradients.iter().zip(&types).enumerate() {
        let Some(values) = gradient else {
            found.push(None);
            continue;
        };
        let mut role = op.backward_role(index, &types, &outputs);
        let mut terms = op.backward_terms(index, &types, &outputs);
        if let Some(most) = multiplicity(op, index, &inputs) {
            // Types do not tell how often an index repeats; its values do.
            terms = most;
            role = if most > 1 { Role::Reduction } else { Role::Exact };
        }
        let level = match (op, outputs.first()) {
            (Op::Cast { .. }, Some(from)) => levels.cast(from.dtype, value.dtype),
            _ => levels.of(value.dtype, role, terms),
        };
        let spread = spread::backward(&site, index, values, &levels)?;
        found.push(Some(level.expected(value, role, values, &spread)));
    }
    Ok(Local { results: expected, gradients: found })
}

/// How often the most frequent index occurs, of operators whose gradient adds what has the
/// same index; of the windows that may overlap, of adaptive pooling.
fn multiplicity(op: &Op, index: usize, inputs: &[Values]) -> Option<usize> {
    let along = match op {
        Op::Embedding {} | Op::IndexSelect { .. } if index == 0 => None,
        Op::Gather { dim } if index == 0 => {
            let shape = &inputs.get(1)?.shape;
            Some(crate::program::normalize_dim(*dim, shape.len()).ok()?)
        }
        Op::AdaptiveAvgPool2d { .. } => return Some(4),
        _ => return None,
    };
    let indices = inputs.get(1)?;
    let lanes = match along {
        Some(dim) => super::lanes::lanes(&indices.shape, &[dim]),
        None => vec![(0..indices.data.len()).collect()],
    };
    let most = |lane: &Vec<usize>| {
        let mut counts = std::collections::HashMap::new();
        for i in lane {
            *counts.entry(indices.data[*i].to_bits()).or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(1)
    };
    lanes.iter().map(most).max()
}

fn failed(op: &Op, message: String) -> EngineError {
    EngineError::Failed { engine: "reference".to_owned(), op: op.name().to_owned(), message }
}

/// Results, and gradients of the float inputs.
type Evaluated = (Vec<Values>, Vec<Option<Values>>);

/// `op` in f64, differentiated by the sum of its results weighed with the incoming gradients.
pub(super) fn exact(
    op: &Op,
    inputs: &[Values],
    incoming: &[Option<Values>],
) -> Result<Evaluated, EngineError> {
    let engine = ReferenceEngine::new();
    let upload = |values: &Values, leaf| engine.upload(&values.host()?, leaf);
    let differentiable = incoming.iter().any(Option::is_some);
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|values| {
            let leaf =
                if differentiable && values.dtype.is_float() { Leaf::Differentiable } else { Leaf::Constant };
            upload(values, leaf)
        })
        .collect::<Result<_, _>>()?;
    let arguments: Vec<&Tensor> = leaves.iter().collect();
    let results = call(&engine, op, &arguments)?;
    let mut loss: Option<Tensor> = None;
    for (result, gradient) in results.iter().zip(incoming) {
        let Some(gradient) = gradient else { continue };
        let gradient = upload(gradient, Leaf::Constant)?;
        let weighed = first(call(&engine, &Op::Mul {}, &[result, &gradient])?)?;
        let sum = first(call(&engine, &Op::Sum { dims: vec![], keepdim: false }, &[&weighed])?)?;
        loss = Some(match loss {
            Some(loss) => first(call(&engine, &Op::Add {}, &[&loss, &sum])?)?,
            None => sum,
        });
    }
    let gradients = match &loss {
        Some(loss) => engine.backward(&BackwardRequest { loss, wrt: &arguments })?,
        None => vec![None; inputs.len()],
    };
    let values = |tensor: &Tensor| engine.download(tensor).map(|host| Values::of(&host));
    let results = results.iter().map(values).collect::<Result<_, _>>()?;
    let gradients = gradients.iter().map(|g| g.as_ref().map(values).transpose()).collect::<Result<_, _>>()?;
    Ok((results, gradients))
}

fn call(engine: &ReferenceEngine, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, EngineError> {
    let types: Vec<Value> = inputs.iter().map(|t| t.value()).collect();
    let types: Vec<&Value> = types.iter().collect();
    let outputs = infer(op, &types).map_err(|e| failed(op, e.reason))?;
    let outputs: Vec<&Value> = outputs.iter().collect();
    engine.apply(&Call { op, inputs: &types, outputs: &outputs, node: 0, path: "" }, inputs)
}

fn first(results: Vec<Tensor>) -> Result<Tensor, EngineError> {
    results.into_iter().next().ok_or_else(|| failed(&Op::Add {}, "no result".to_owned()))
}

/// Levels of rounding of one call.
pub(super) struct Levels<'a> {
    rounding: &'a Rounding<'a>,
    functions: bool,
}

/// Error at one place, relative to terms and to the stored value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Of the computation, relative to the terms.
    pub accumulate: f64,
    /// Of storing, relative to the value.
    pub store: f64,
    /// One more rounding in the format that is computed in.
    step: f64,
    underflow: f64,
    normal: f64,
    dtype: DType,
}

impl Levels<'_> {
    pub(super) fn of(&self, dtype: DType, role: Role, terms: usize) -> Level {
        if role == Role::Exact || !dtype.is_float() {
            return Level { accumulate: 0.0, store: 0.0, step: 0.0, underflow: 0.0, normal: 0.0, dtype };
        }
        let format = (self.rounding.formats)(dtype, role);
        let fn_ulp = if self.functions { self.rounding.model.fn_ulp } else { 0.0 };
        let model = ErrorModel { fn_ulp, ..self.rounding.model };
        let accumulate = model.eta(role, terms, &FloatFormat { u_store: 0.0, ..format });
        let store = model.eta(role, terms, &format) - accumulate;
        let normal = if format.u_store > 0.0 { format.underflow / (2.0 * format.u_store) } else { 0.0 };
        let step = self.rounding.model.c_store * format.u_acc;
        Level { accumulate, store, step, underflow: format.underflow, normal, dtype }
    }

    /// A conversion rounds once, and only towards the coarser format.
    fn cast(&self, from: DType, to: DType) -> Level {
        let level = self.of(to, Role::Elementwise, 1);
        let exact = from.unit_roundoff() >= to.unit_roundoff() && from.min_exponent() >= to.min_exponent();
        if exact { self.of(to, Role::Exact, 1) } else { Level { accumulate: 0.0, ..level } }
    }
}

impl Expected {
    /// The gradient of what a tensor lies in: elements that share a place are summed.
    #[must_use]
    pub fn in_storage(&self, placed: &Placed, rounding: &Rounding<'_>) -> Self {
        let values = placed.scatter(&self.values);
        if placed.repeats() == 1 {
            let sigma = placed.scatter(&self.sigma);
            return Self { shape: placed.storage.clone(), values, sigma, ..self.clone() };
        }
        let squares: Vec<f64> = self.sigma.iter().map(|s| s * s).collect();
        let mut sigma: Vec<f64> = placed.scatter(&squares).into_iter().map(f64::sqrt).collect();
        let role = if self.role == Role::Exact { Role::Reduction } else { self.role };
        let squares: Vec<f64> = self.values.iter().map(|v| v * v).collect();
        let level = Levels { rounding, functions: false }.of(self.dtype, Role::Reduction, placed.repeats());
        for ((sigma, value), terms) in sigma.iter_mut().zip(&values).zip(placed.scatter(&squares)) {
            *sigma += level.accumulate * super::lanes::larger(*value, terms.sqrt()) + level.stored(*value);
        }
        Self { shape: placed.storage.clone(), values, sigma, role, ..self.clone() }
    }

    /// The sum with another gradient, which is exact.
    #[must_use]
    pub fn plus(&self, other: &[f64], rounding: &Rounding<'_>) -> Self {
        let level = Levels { rounding, functions: false }.of(self.dtype, Role::Reduction, 2);
        let role = if self.role == Role::Exact { Role::Reduction } else { self.role };
        let values: Vec<f64> = self.values.iter().zip(other).map(|(a, b)| a + b).collect();
        let parts = self.sigma.iter().zip(&values).zip(self.values.iter().zip(other));
        let sigma = parts
            .map(|((sigma, sum), (a, b))| {
                sigma + level.accumulate * a.hypot(*b) + level.stored(*sum) + level.stored(*a)
            })
            .collect();
        Self { role, values, sigma, ..self.clone() }
    }
}

/// Root-mean-square error of rounding to a grid, in steps.
const UNIFORM: f64 = 0.288_675_134_594_812_9;

impl Level {
    /// Error of storing a value.
    fn stored(&self, v: f64) -> f64 {
        if v.abs() >= self.normal {
            self.store * v.abs()
        } else if v == 0.0 {
            0.0
        } else {
            self.grid()
        }
    }

    /// Error of rounding to a subnormal; in f64 itself no less than the smallest number.
    fn grid(&self) -> f64 {
        let error = UNIFORM * self.underflow;
        if error > 0.0 { error } else { self.underflow }
    }

    fn expected(&self, value: &Value, role: Role, values: &Values, spread: &Spread) -> Expected {
        // Where terms were given, the formula has several steps, each with a rounding.
        let step_error = if spread.terms.is_empty() { 0.0 } else { self.step };
        let accumulate = self.accumulate + step_error;
        let sigma = values
            .data
            .iter()
            .enumerate()
            .map(|(i, v)| {
                if accumulate == 0.0 && self.store == 0.0 {
                    return 0.0;
                }
                let term = spread.terms.get(i).copied().unwrap_or(0.0);
                let saved = spread.saved.get(i).copied().unwrap_or(0.0);
                let extra = spread.extra.get(i).copied().unwrap_or(0.0);
                let scale = super::lanes::larger(*v, term);
                let stored = if v.abs() >= self.normal { self.store * v.abs() } else { 0.0 };
                let step = if v.abs() < self.normal && scale > 0.0 { self.grid() } else { 0.0 };
                let sigma = accumulate * scale + stored + self.store * saved + extra + step;
                // Terms that overflow where the value does not say nothing.
                if sigma.is_finite() || !v.is_finite() {
                    sigma
                } else {
                    self.accumulate * v.abs() + stored + step
                }
            })
            .collect();
        Expected { dtype: self.dtype, shape: value.shape.clone(), role, values: values.data.clone(), sigma }
    }
}
