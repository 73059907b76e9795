//! Whole models: libtorch against the reference in f64, and the placement of a pass on the
//! software MPS device.

use std::path::Path;

use super::process::in_own_process;
use crate::architecture::{BuildOptions, load};
use crate::batch::Batch;
use crate::checkpoint::Checkpoint;
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use crate::engine::reference::ReferenceEngine;
use crate::engine::torch::TorchEngine;
use crate::engine::{DeviceSpec, Engine};
use crate::precision::{Precision, rewrite};
use crate::tensor::HostTensor;
use crate::trace::{PassTrace, detect};

const MODELS: [&str; 4] = [
    "fixtures/digits-vit",
    "tests/golden/gpt2",
    "tests/golden/resnet-basic",
    "tests/golden/resnet-bottleneck",
];

fn pass<E: Engine>(engine: &E, model: &str, precision: Precision, trace: bool) -> PassOutput {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(model);
    let base = load(&folder, &BuildOptions { batch: 2, ..BuildOptions::default() }).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let batch = Batch::from_seed(&base, 7).unwrap();
    let program = rewrite(&base, precision).unwrap();
    let feed = |name: &str| {
        let input = program.inputs.iter().find(|input| input.name == name)?;
        let stored = checkpoint.tensor(input).or_else(|| batch.get(name).cloned())?;
        Some(stored.cast(program.value(input.value).dtype))
    };
    let options = PassOptions { capture: true, gradients: true, activation_gradients: true, trace };
    run_pass(engine, &program, &feed, options).unwrap_or_else(|e| panic!("{model}: {e}"))
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Name, ‖a − b‖, ‖b‖ of every quantity, and whether both have a gradient or neither.
fn compared(a: &PassOutput, b: &PassOutput) -> Vec<(String, f64, f64)> {
    let mut all = Vec::new();
    let mut tensors = |name: &str, x: &HostTensor, y: &HostTensor| {
        let (x, y) = (x.to_f64(), y.to_f64());
        let difference: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
        all.push((name.to_owned(), norm(&difference), norm(&y)));
    };
    tensors("loss", a.loss.as_ref().unwrap(), b.loss.as_ref().unwrap());
    for ((name, x), (_, y)) in
        a.activations.iter().chain(&a.buffers).zip(b.activations.iter().chain(&b.buffers))
    {
        tensors(name, x, y);
    }
    for (found, expected) in [
        (&a.parameter_gradients, &b.parameter_gradients),
        (&a.input_gradients, &b.input_gradients),
        (&a.activation_gradients, &b.activation_gradients),
    ] {
        assert_eq!(found.len(), expected.len());
        for ((name, x), (_, y)) in found.iter().zip(expected) {
            match (x, y) {
                (Gradient::Value(x), Gradient::Value(y)) => tensors(&format!("gradient of {name}"), x, y),
                (x, y) => assert!(matches!((x, y), (Gradient::None, Gradient::None)), "{name}"),
            }
        }
    }
    all
}

#[test]
fn whole_models_agree_with_the_reference_at_the_rounding_of_f64() {
    let engine = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    for model in MODELS {
        let (found, expected) = (
            pass(&engine, model, Precision::F64, false),
            pass(&ReferenceEngine::new(), model, Precision::F64, false),
        );
        let rows = compared(&found, &expected);
        assert!(rows.len() > 50, "{model}: {}", rows.len());
        // Gradients that are zero by cancellation (of key biases) are compared with the others.
        let largest = rows.iter().map(|(_, _, norm)| *norm).fold(0.0, |a: f64, b| if b > a { b } else { a });
        for (name, difference, norm) in rows {
            let bound = 1e-12 * norm + 1e-16 * largest;
            assert!(difference <= bound, "{model} {name}: {difference:.2e} of {norm:.2e}");
        }
    }
}

#[test]
fn whole_models_stay_on_the_emulated_device_and_agree_with_the_cpu() {
    in_own_process("models::whole_models_stay_on_the_emulated_device_and_agree_with_the_cpu", || {
        let engine = TorchEngine::new(&"mps-emulated".parse().unwrap()).unwrap();
        let host = TorchEngine::new(&DeviceSpec::CPU).unwrap();
        for model in MODELS {
            let found = pass(&engine, model, Precision::F32, true);
            let label = engine.info().device;
            let traces = [PassTrace { inputs: &found.input_devices, events: &found.events }];
            let placement = detect(&label, &traces);
            assert!(placement.as_asked(), "{model}: {:#?}", placement.fallbacks);
            let named = found.events.iter().filter(|e| e.op.starts_with("aten::") && !e.path.is_empty());
            assert!(named.count() * 2 > found.events.iter().filter(|e| e.op.starts_with("aten::")).count());
            let expected = pass(&host, model, Precision::F32, false);
            let rows = compared(&found, &expected);
            let largest =
                rows.iter().map(|(_, _, norm)| *norm).fold(0.0, |a: f64, b| if b > a { b } else { a });
            for (name, difference, norm) in rows {
                let bound = 1e-4 * norm + 1e-7 * largest;
                assert!(difference <= bound, "{model} {name}: {difference:.2e} of {norm:.2e}");
            }
        }
    });
}
