//! Families against the original: logits, loss, activations and every gradient of the f64
//! reference beside what transformers computes in f64 (`tests/golden`; its `make.py` says how).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tensor_parity::architecture::{BuildOptions, Mode, load};
use tensor_parity::batch::{DATA_FILE, Evaluation};
use tensor_parity::checkpoint::{Checkpoint, Warning};
use tensor_parity::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use tensor_parity::engine::reference::ReferenceEngine;
use tensor_parity::numerics::max_nan;
use tensor_parity::program::{InputKind, Program};
use tensor_parity::tensor::HostTensor;
use tensor_parity::tensor::safetensors::SafetensorsFile;

/// Normwise relative difference that two f64 computations of these sizes stay far below.
const AGREEMENT: f64 = 1e-12;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

struct Case {
    program: Program,
    warnings: Vec<Warning>,
    out: PassOutput,
    golden: SafetensorsFile,
    prefix: &'static str,
    checked: usize,
}

impl Case {
    /// Runs the model of `model` on the inputs of `golden`, whose names start with `prefix`.
    fn run(model: &str, golden: &str, prefix: &'static str, options: &BuildOptions) -> Self {
        let golden = SafetensorsFile::open(&repository(golden).join("golden.safetensors")).unwrap();
        let program = load(&repository(model), options).unwrap();
        let checkpoint = Checkpoint::open(&repository(model)).unwrap();
        let warnings = checkpoint.check(&program).unwrap();
        let feed = |name: &str| {
            let input = program.inputs.iter().find(|input| input.name == name)?;
            checkpoint.tensor(input).or_else(|| golden.tensor(name))
        };
        let options = PassOptions { capture: true, gradients: true, ..PassOptions::default() };
        let out = run_pass(&ReferenceEngine::new(), &program, &feed, options).unwrap();
        Self { program, warnings, out, golden, prefix, checked: 0 }
    }

    fn agrees(&mut self, name: &str, found: &HostTensor) {
        let name = format!("{}{name}", self.prefix);
        let expected = self.golden.tensor(&name).unwrap_or_else(|| panic!("no golden `{name}`"));
        assert_eq!(found.shape(), expected.shape(), "{name}");
        let (found, expected) = (found.to_f64(), expected.to_f64());
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let difference = norm(&mut found.iter().zip(&expected).map(|(f, e)| f - e));
        // Some gradients vanish in exact arithmetic (an attention key's bias): theirs is an
        // absolute scale, far below the 0.01 to 1 of their neighbours.
        let scale = max_nan(norm(&mut expected.iter().copied()), 1e-3);
        // Not `>`: a NaN must fail.
        assert!(difference <= AGREEMENT * scale, "{name}: {difference:e} on a scale of {scale:e}");
        self.checked += 1;
    }

    /// Loss, logits, the input's gradient and every parameter's that the golden file holds: all
    /// of up to `largest` elements.
    fn check(&mut self, largest: usize) {
        let out = std::mem::take(&mut self.out);
        self.agrees("loss", out.loss.as_ref().unwrap());
        self.agrees("logits", out.logits.as_ref().unwrap());
        let start = format!("{}grad.", self.prefix);
        let gradients = self.golden.entries().iter().filter(|e| e.name.starts_with(&start)).count();
        let mut compared = 0;
        for (key, gradient) in &out.parameter_gradients {
            let Gradient::Value(gradient) = gradient else { panic!("no gradient for {key}") };
            if gradient.elements() <= largest {
                self.agrees(&format!("grad.{key}"), gradient);
                compared += 1;
            }
        }
        assert_eq!(compared, gradients, "every golden gradient has its counterpart");
        assert_eq!(out.parameter_gradients.len(), self.program.inputs_of(InputKind::Parameter).count());
        for (_, gradient) in &out.input_gradients {
            let Gradient::Value(gradient) = gradient else { panic!("no gradient for the input") };
            self.agrees("grad_input", gradient);
        }
        self.out = out;
    }

    /// Module outputs, by the name of the golden hidden state.
    fn check_activations(&mut self, modules: &[&str]) {
        let activations: BTreeMap<_, _> = self.out.activations.iter().cloned().collect();
        for (k, module) in modules.iter().enumerate() {
            self.agrees(&format!("activation.hidden_states.{k}"), &activations[*module]);
        }
    }

    /// Updated running statistics.
    fn check_buffers(&mut self) {
        let buffers = std::mem::take(&mut self.out.buffers);
        assert!(!buffers.is_empty());
        for (key, buffer) in &buffers {
            self.agrees(&format!("buffer.{key}"), buffer);
        }
    }
}

#[test]
fn the_trained_vit_agrees_with_transformers() {
    let options = BuildOptions { batch: 8, ..BuildOptions::default() };
    let mut case = Case::run("fixtures/digits-vit", "tests/golden/vit", "", &options);
    assert_eq!(case.warnings, []);
    // This golden file leaves larger gradients out; the small model's has every one.
    case.check(1024);
    let layers = (0..4).map(|i| format!("vit.encoder.layer.{i}")).collect::<Vec<_>>();
    let modules: Vec<&str> =
        std::iter::once("vit.embeddings").chain(layers.iter().map(String::as_str)).collect();
    case.check_activations(&modules);
    assert_eq!(case.checked, 2 + 47 + 1 + 5); // 25 of 72 gradients are larger
}

#[test]
fn a_vit_of_other_settings_agrees_with_transformers() {
    let options = BuildOptions { batch: 3, ..BuildOptions::default() };
    let mut case = Case::run("tests/golden/vit-small", "tests/golden/vit-small", "", &options);
    case.check(usize::MAX);
    case.check_activations(&["vit.embeddings", "vit.encoder.layer.0", "vit.encoder.layer.1"]);
}

#[test]
fn gpt2_agrees_with_transformers() {
    let options = BuildOptions { batch: 2, sequence: Some(16), ..BuildOptions::default() };
    let mut case = Case::run("tests/golden/gpt2", "tests/golden/gpt2", "", &options);
    assert_eq!(case.warnings, []);
    case.check(usize::MAX);
}

fn resnet(model: &str, mode: Mode) -> Case {
    let prefix = if mode == Mode::Train { "train." } else { "eval." };
    let options = BuildOptions { batch: 2, image: Some([32, 32]), mode, ..BuildOptions::default() };
    let mut case = Case::run(model, model, prefix, &options);
    assert!(
        matches!(case.warnings.as_slice(), [Warning::Unused { keys }] if keys.iter().all(|k| k.ends_with("num_batches_tracked")))
    );
    case.check(usize::MAX);
    case.check_activations(&["resnet.embedder", "resnet.encoder.stages.0", "resnet.encoder.stages.1"]);
    case
}

#[test]
fn resnets_in_evaluation_agree_with_transformers() {
    for model in ["tests/golden/resnet-basic", "tests/golden/resnet-bottleneck"] {
        assert!(resnet(model, Mode::Eval).out.buffers.is_empty());
    }
}

#[test]
fn resnets_in_training_agree_with_transformers_and_update_their_statistics() {
    for model in ["tests/golden/resnet-basic", "tests/golden/resnet-bottleneck"] {
        resnet(model, Mode::Train).check_buffers();
    }
}

#[test]
#[should_panic(expected = "on a scale of")]
fn a_model_with_one_other_setting_does_not_agree() {
    // The erf form of the activation in place of the tanh form: 1e-4 apart.
    let dir = tempfile::tempdir().unwrap();
    let model = repository("tests/golden/vit-small");
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    std::fs::write(dir.path().join("config.json"), config.replace("gelu_new", "gelu")).unwrap();
    std::fs::copy(model.join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let options = BuildOptions { batch: 3, ..BuildOptions::default() };
    Case::run(dir.path().to_str().unwrap(), "tests/golden/vit-small", "", &options).check(usize::MAX);
}

/// Correct predictions and samples of the data file of a model.
fn top1(model: &str, batch: usize) -> (usize, usize) {
    let model = repository(model);
    let program = load(&model, &BuildOptions { batch, ..BuildOptions::default() }).unwrap();
    let checkpoint = Checkpoint::open(&model).unwrap();
    let evaluation = Evaluation::open(&program, &model.join(DATA_FILE)).unwrap();
    let mut correct = 0;
    for chunk in evaluation.chunks(&program) {
        let chunk = chunk.unwrap();
        let feed = |name: &str| {
            let input = program.inputs.iter().find(|input| input.name == name)?;
            checkpoint.tensor(input).or_else(|| chunk.batch.get(name).cloned())
        };
        let out = run_pass(&ReferenceEngine::new(), &program, &feed, PassOptions::default()).unwrap();
        let logits = out.logits.unwrap();
        let classes = logits.shape()[1];
        let labels = chunk.batch.get("labels").unwrap().to_i64();
        let rows = logits.to_f64();
        correct += rows
            .chunks(classes)
            .zip(labels)
            .take(chunk.valid)
            .filter(|(row, label)| {
                let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
                i64::try_from(best).unwrap() == *label
            })
            .count();
    }
    (correct, evaluation.samples())
}

#[test]
fn the_fixtures_reach_the_accuracy_that_their_makers_measured() {
    // Batches that do not divide the samples: the last piece is filled up and must not count.
    assert_eq!(top1("fixtures/digits-vit", 64), (446, 450));
    assert_eq!(top1("fixtures/mlp-tiny", 7), (34, 40));
}
