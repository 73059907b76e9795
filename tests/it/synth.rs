//! Synthetic model directories.

use std::path::Path;

use tensor_parity::architecture::{BuildOptions, load};
use tensor_parity::batch::{Batch, DATA_FILE};
use tensor_parity::checkpoint::Checkpoint;
use tensor_parity::engine::interpreter::{PassOptions, run_pass};
use tensor_parity::engine::reference::ReferenceEngine;
use tensor_parity::synth::{SynthError, SynthOptions, sizes, synth};

fn options(family: &str, size: &str, shards: usize) -> SynthOptions {
    SynthOptions { family: family.to_owned(), size: size.to_owned(), seed: 7, shards }
}

/// Names in a folder, hidden ones included.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_small_model_of_every_family_loads_fits_and_runs_in_a_sound_range() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["mlp", "gpt2", "resnet"] {
        let out = dir.path().join(family);
        let made = synth(&options(family, "tiny", 1), &out).unwrap();
        assert_eq!(names(&out), ["config.json", "model.safetensors", "validation.safetensors"]);
        let program = load(&out, &BuildOptions { batch: 4, ..BuildOptions::default() }).unwrap();
        let checkpoint = Checkpoint::open(&out).unwrap();
        assert_eq!(checkpoint.check(&program).unwrap(), []);
        assert_eq!((checkpoint.elements(), checkpoint.non_finite()), (made.elements, vec![]));
        let batch = Batch::from_file(&program, &out.join(DATA_FILE), 0, 0).unwrap();
        let feed = |name: &str| {
            let input = program.inputs.iter().find(|input| input.name == name)?;
            checkpoint.tensor(input).or_else(|| batch.get(name).cloned())
        };
        let pass = run_pass(&ReferenceEngine::new(), &program, &feed, PassOptions::default()).unwrap();
        let logits = pass.logits.unwrap().to_f64();
        let rms = (logits.iter().map(|v| v * v).sum::<f64>() / logits.len() as f64).sqrt();
        assert!((0.1..10.0).contains(&rms), "{family}: logits of {rms}");
    }
    assert_eq!(names(dir.path()), ["gpt2", "mlp", "resnet"], "nothing else is left");
}

#[test]
fn shards_hold_the_same_weights_as_one_file_and_another_seed_gives_others() {
    let dir = tempfile::tempdir().unwrap();
    let hash = |name: &str, options: &SynthOptions| {
        let out = dir.path().join(name);
        synth(options, &out).unwrap();
        Checkpoint::open(&out).unwrap().content_hash()
    };
    let one = hash("one", &options("gpt2", "tiny", 1));
    let three = hash("three", &options("gpt2", "tiny", 3));
    assert_eq!(one, three);
    assert_eq!(Checkpoint::open(&dir.path().join("three")).unwrap().shards().len(), 3);
    assert_ne!(one, hash("other", &SynthOptions { seed: 8, ..options("gpt2", "tiny", 1) }));
    let all = hash("all", &options("mlp", "tiny", 6));
    assert_eq!(all, hash("mlp", &options("mlp", "tiny", 1)), "one tensor a file");
}

#[test]
fn the_weights_of_a_seed_never_change() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("mlp");
    synth(&options("mlp", "tiny", 1), &out).unwrap();
    let hash = Checkpoint::open(&out).unwrap().content_hash();
    // Computed a second time by an independent program.
    let golden = "163c8c1a6d49f21cd7fdb2917ace12b81175a445ee20ca44981de8b0107ee2d8";
    assert_eq!(hash.to_hex().as_str(), golden);
}

#[test]
fn an_unknown_family_or_size_lists_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    for (family, size) in [("bert", "tiny"), ("vit", "huge")] {
        let message = synth(&options(family, size, 1), &dir.path().join("x")).unwrap_err().to_string();
        assert!(sizes().all(|(f, s)| message.contains(&format!("{f} {s}"))), "{message}");
    }
    assert!(names(dir.path()).is_empty());
}

#[test]
fn an_occupied_output_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), b"x").unwrap();
    assert!(matches!(synth(&options("mlp", "tiny", 1), &out), Err(SynthError::Occupied(_))));
    assert!(matches!(synth(&options("mlp", "tiny", 1), &out.join("mine")), Err(SynthError::Occupied(_))));
    assert_eq!((names(dir.path()), names(&out)), (vec!["model".to_owned()], vec!["mine".to_owned()]));
}

#[test]
fn an_empty_folder_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    synth(&options("mlp", "tiny", 1), dir.path()).unwrap();
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_failure_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("missing").join("model");
    assert!(matches!(synth(&options("mlp", "tiny", 1), &out), Err(SynthError::Io { .. })));
    for shards in [0, 7] {
        let error = synth(&options("mlp", "tiny", shards), &dir.path().join("x")).unwrap_err();
        assert!(matches!(error, SynthError::Shards(n, 6) if n == shards), "{error}");
    }
    assert!(names(dir.path()).is_empty());
}
