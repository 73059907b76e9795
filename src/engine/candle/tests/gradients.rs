//! Gradients in f64 against central differences of candle's own forward: independent of the
//! reference.

use std::collections::BTreeSet;

use super::cases::cases;
use super::harness::{cpu, gradients, host, prepare};
use crate::conformance::Case;
use crate::numerics::DType;

/// Largest difference of a gradient from central differences, over the largest of them (or 1).
fn worst(case: &Case) -> f64 {
    let engine = cpu();
    let mut prepared = prepare(case, DType::F64);
    if prepared.program.outputs.loss.is_none() || matches!(case.op, crate::program::Op::Cast { .. }) {
        return 0.0;
    }
    let found = gradients(&prepared.pass(&engine, true).unwrap());
    let (mut error, mut size) = (0.0f64, 1.0f64);
    for (name, gradient) in found {
        let Some(gradient) = gradient else { continue };
        let original = prepared.inputs[&name].clone();
        let at = original.to_f64();
        for (e, gradient) in gradient.to_f64().into_iter().enumerate() {
            let h = 1e-5;
            let mut moved = |delta: f64| {
                let mut values = at.clone();
                values[e] += delta;
                prepared.inputs.insert(name.clone(), host(DType::F64, original.shape(), &values));
                prepared.pass(&engine, false).unwrap().loss.unwrap().to_f64()[0]
            };
            let expected = (moved(h) - moved(-h)) / (2.0 * h);
            let difference = (gradient - expected).abs();
            if difference.is_nan() || difference > error {
                error = difference;
            }
            if expected.abs() > size {
                size = expected.abs();
            }
        }
        prepared.inputs.insert(name, original);
    }
    error / size
}

/// Cases whose gradient candle 0.11.1 gets wrong, the deviation as `worst` measures it, and why.
const DEFECTS: &[(&str, f64, &str)] = &[
    ("conv1d", 0.83, "the backward's conv1d reads a transposed kernel as if it were contiguous"),
    ("conv1d/groups", 1.1, "the same"),
    ("max_pool2d", 0.75, "the gradient is divided by the size of the window"),
    ("max_pool2d/remainder", 0.85, "and spread over the input as if windows filled it"),
    ("avg_pool2d/tiled-remainder", 0.74, "the gradient is spread as if windows filled the input"),
    ("gelu", 2.0e-7, "the derivative has constants of six digits"),
    ("gelu/tanh", 2.4e-7, "the same"),
    ("index_put", 1.0, "the target keeps the gradient of rows that were overwritten"),
    ("scatter_add/full", 0.98, "the target loses the gradient of elements that are added to"),
];

#[test]
fn gradients_in_f64_agree_with_central_differences_but_for_known_defects() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for case in cases() {
        let error = worst(&case);
        let known = DEFECTS.iter().find(|(name, ..)| *name == case.name);
        match known {
            Some((name, size, _)) if (0.5 * size..2.0 * size).contains(&error) => drop(seen.insert(*name)),
            None if error < 1e-8 => {}
            _ => wrong.push(format!("{}: {error:.1e}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.len(), DEFECTS.len(), "a known defect has no case any more: {seen:?}");
}
