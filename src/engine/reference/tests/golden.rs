//! Results and gradients of every conformance case against PyTorch's, in f64.
//!
//! `tests/golden/operators/generate.py` made the file; its head says how.

use std::collections::BTreeMap;
use std::path::Path;

use super::{ReferenceEngine, gradient, pass};
use crate::conformance::{Case, cases};
use crate::numerics::DType;
use crate::program::Program;
use crate::tensor::HostTensor;
use crate::tensor::safetensors::{SafetensorsFile, write};

/// Both sides round in f64, over at most 100 terms of order 1 to 10.
const TOLERANCE: f64 = 1e-13;

fn f64_inputs(case: &Case) -> (Program, Vec<HostTensor>) {
    let program = case.program_in(DType::F64).unwrap();
    let inputs = case.host_inputs_for(&program, 1).unwrap();
    (program, inputs)
}

/// What the reference has for a case, under the names of the golden file.
fn quantities(case: &Case) -> BTreeMap<String, Vec<f64>> {
    let (program, inputs) = f64_inputs(case);
    let out = pass(&ReferenceEngine::new(), &program, &inputs);
    let results = out.activations.iter().map(|(name, t)| (format!("{}|{name}", case.name), t.to_f64()));
    let gradients = case.inputs.iter().filter_map(|input| {
        Some((format!("{}|gradient.{}", case.name, input.name), gradient(&out, &input.name)?))
    });
    results.chain(gradients).collect()
}

#[test]
fn every_operator_agrees_with_pytorch() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/operators/golden.safetensors");
    let file = SafetensorsFile::open(&path).unwrap();
    let expected: BTreeMap<String, Vec<f64>> =
        file.tensors().map(|(n, t)| (n.to_owned(), t.to_f64())).collect();
    let found: BTreeMap<String, Vec<f64>> = cases().iter().flat_map(quantities).collect();
    assert!(found.keys().eq(expected.keys()), "the table of cases changed: run generate.py again");
    let wrong = disagreements(&expected, &found);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names of the quantities that differ; NaN differs from everything.
fn disagreements<'a>(
    expected: &'a BTreeMap<String, Vec<f64>>,
    found: &BTreeMap<String, Vec<f64>>,
) -> Vec<&'a str> {
    let agrees = |name: &String, expected: &[f64]| {
        let scale = expected.iter().fold(1.0, |scale, v| if v.abs() > scale { v.abs() } else { scale });
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * scale;
        found.get(name).is_some_and(|f| f.len() == expected.len() && f.iter().zip(expected).all(near))
    };
    expected.iter().filter(|(name, values)| !agrees(name, values)).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_last_digit_a_lost_element_and_nan_are_disagreements() {
    let expected: BTreeMap<String, Vec<f64>> =
        ["a", "b", "c", "d"].map(|name| (name.to_owned(), vec![0.5, 2.0])).into();
    let mut found = expected.clone();
    found.insert("b".to_owned(), vec![0.5 + 1e-12, 2.0]);
    found.insert("c".to_owned(), vec![0.5, f64::NAN]);
    found.insert("d".to_owned(), vec![0.5]);
    assert_eq!(disagreements(&expected, &found), ["b", "c", "d"]);
}

#[test]
#[ignore = "writes the input of generate.py to the folder PARITY_EXPORT"]
fn export_cases() {
    let folder = std::env::var("PARITY_EXPORT").unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let mut tensors: Vec<(String, HostTensor)> = Vec::new();
    let mut table = Vec::new();
    for case in cases() {
        let (program, inputs) = f64_inputs(&case);
        for (input, tensor) in program.inputs.iter().zip(inputs) {
            let tensor = if tensor.dtype().is_float() { tensor.cast(DType::F64) } else { tensor };
            tensors.push((format!("{}|{}", case.name, input.name), tensor));
        }
        let inputs: Vec<_> = case
            .inputs
            .iter()
            .map(|i| serde_json::json!({ "name": i.name, "differentiable": i.differentiable }))
            .collect();
        table.push(serde_json::json!({ "name": case.name, "op": case.op, "inputs": inputs }));
    }
    let folder = Path::new(&folder);
    std::fs::write(folder.join("cases.json"), serde_json::to_vec(&table).unwrap()).unwrap();
    let tensors: Vec<(&str, &HostTensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
    write(&folder.join("inputs.safetensors"), &tensors, &BTreeMap::new()).unwrap();
}
