//! Checkpoints: what is read, and every bad input with its own error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tensor_parity::architecture::{BuildOptions, Config, build};
use tensor_parity::checkpoint::{Checkpoint, CheckpointError, Warning};
use tensor_parity::numerics::DType;
use tensor_parity::program::Program;
use tensor_parity::tensor::HostTensor;
use tensor_parity::tensor::safetensors::{FileFault, HeaderFault, write};

type Tensors = BTreeMap<String, HostTensor>;

const MLP: &str = r#"{"model_type": "mlp", "layer_sizes": [3, 4, 2]}"#;

fn program(config: &str) -> Program {
    build(&Config::parse(config.as_bytes()).unwrap(), &BuildOptions::default()).unwrap()
}

fn tensor(dtype: DType, shape: &[usize], first: f64) -> HostTensor {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| first + i as f64).collect();
    HostTensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
}

/// The tensors of `MLP`.
fn tensors() -> Tensors {
    [
        ("layers.0.weight", &[4, 3][..]),
        ("layers.0.bias", &[4]),
        ("layers.1.weight", &[2, 4]),
        ("layers.1.bias", &[2]),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (key, shape))| (key.to_owned(), tensor(DType::F32, shape, 100.0 * i as f64)))
    .collect()
}

fn put(path: &Path, tensors: &Tensors) {
    let list: Vec<_> = tensors.iter().collect();
    write(path, &list, &BTreeMap::new()).unwrap();
}

/// A model directory with these tensors in one file.
fn single(tensors: &Tensors) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("model.safetensors"), tensors);
    dir
}

/// A model directory with the tensors of layer 0 and layer 1 in two shards, after `change` of
/// the key to shard map.
fn sharded(change: impl FnOnce(&mut BTreeMap<String, String>)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut map = BTreeMap::new();
    for layer in 0..2 {
        let name = format!("model-0000{}-of-00002.safetensors", layer + 1);
        let part: Tensors =
            tensors().into_iter().filter(|(key, _)| key.starts_with(&format!("layers.{layer}."))).collect();
        put(&dir.path().join(&name), &part);
        map.extend(part.keys().map(|key| (key.clone(), name.clone())));
    }
    change(&mut map);
    put_index(dir.path(), &map);
    dir
}

fn put_index(dir: &Path, map: &BTreeMap<String, String>) {
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn fails(dir: &TempDir) -> CheckpointError {
    let error = Checkpoint::open(dir.path()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&*dir.path().to_string_lossy()), "the file is named: {message}");
    error
}

/// A `model.safetensors` of these bytes.
fn raw(bytes: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

/// A `model.safetensors` with this header and so many bytes of data.
fn with_header(json: &str, data: usize) -> TempDir {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    raw(&bytes)
}

fn header_fault(dir: &TempDir) -> HeaderFault {
    match fails(dir) {
        CheckpointError::File(error) => match error.fault {
            FileFault::Header(fault) => fault,
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

#[test]
fn a_single_file_is_mapped_and_fits_its_program() {
    let dir = single(&tensors());
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let program = program(MLP);
    assert_eq!(checkpoint.check(&program).unwrap(), []);
    for input in &program.inputs {
        if let Some(expected) = tensors().get(&input.name) {
            let found = checkpoint.tensor(input).unwrap();
            assert_eq!((found.shape(), found.bytes()), (expected.shape(), expected.bytes()));
            assert!(format!("{found:?}").contains("Mapped"), "a view of the file, not a copy");
        }
    }
    assert_eq!(checkpoint.elements(), 12 + 4 + 8 + 2);
}

#[test]
fn shards_hold_the_same_content_as_one_file() {
    let (one, two) = (single(&tensors()), sharded(|_| ()));
    let (one, two) = (Checkpoint::open(one.path()).unwrap(), Checkpoint::open(two.path()).unwrap());
    assert_eq!(two.shards().len(), 2);
    assert_eq!(one.content_hash(), two.content_hash());
    assert_eq!(one.tensor_hashes(), two.tensor_hashes());
    assert_eq!(two.check(&program(MLP)).unwrap(), []);
}

#[test]
fn the_content_hash_ignores_header_order_and_metadata_and_sees_every_bit() {
    let entry = |name: &str, begin: usize| {
        format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{begin},{}]}}"#, begin + 1)
    };
    let file = |header: String, data: [u8; 2]| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&data);
        Checkpoint::open(raw(&bytes).path()).unwrap().content_hash()
    };
    let base = file(format!("{{{},{}}}", entry("a", 0), entry("b", 1)), [1, 2]);
    assert_eq!(base, file(format!("{{{},{}}}", entry("b", 1), entry("a", 0)), [1, 2]));
    assert_eq!(base, file(format!("{{{},{}}}", entry("b", 0), entry("a", 1)), [2, 1]));
    let metadata = r#""__metadata__":{"format":"pt"}"#;
    assert_eq!(base, file(format!("{{{metadata},{},{}}}", entry("a", 0), entry("b", 1)), [1, 2]));
    assert_ne!(base, file(format!("{{{},{}}}", entry("a", 0), entry("b", 1)), [1, 3]));
    assert_ne!(base, file(format!("{{{},{}}}", entry("a", 0), entry("c", 1)), [1, 2]));
}

#[test]
fn no_file_says_what_lies_there_instead() {
    let dir = tempfile::tempdir().unwrap();
    assert!(fails(&dir).to_string().ends_with("check the path, or make a model with `parity synth`"));
    fs::write(dir.path().join("pytorch_model.bin"), b"x").unwrap();
    assert!(fails(&dir).to_string().contains("convert that with `safetensors.torch.save_file`"));
    put(&dir.path().join("weights.safetensors"), &tensors());
    assert!(fails(&dir).to_string().contains("it holds `weights.safetensors`: rename that"));
    let error = Checkpoint::open(Path::new("/nonexistent")).unwrap_err().to_string();
    assert_eq!(error, "`/nonexistent`: no such file; check the path");
}

#[test]
fn another_kind_of_file_is_refused() {
    let fault = header_fault(&raw(b"PK\x03\x04 a pickle in a zip archive"));
    assert!(matches!(fault, HeaderFault::NotSafetensors(hint) if hint.contains("pickle")));
}

#[test]
fn a_truncated_header_is_refused() {
    assert_eq!(header_fault(&raw(b"\x10\0\0")), HeaderFault::TooShort(3));
    let whole = fs::read(single(&tensors()).path().join("model.safetensors")).unwrap();
    let fault = header_fault(&raw(&whole[..40]));
    assert!(matches!(fault, HeaderFault::BeyondFile { available: 32, .. }), "{fault}");
}

#[test]
fn a_header_length_beyond_the_file_is_refused_without_reserving_it() {
    let mut bytes = u64::MAX.to_le_bytes().to_vec();
    bytes.extend_from_slice(b"{}");
    assert_eq!(header_fault(&raw(&bytes)), HeaderFault::BeyondFile { header: u64::MAX, available: 2 });
}

#[test]
fn truncated_data_is_refused() {
    let whole = fs::read(single(&tensors()).path().join("model.safetensors")).unwrap();
    let fault = header_fault(&raw(&whole[..whole.len() - 1]));
    assert!(matches!(fault, HeaderFault::OutOfRange { .. }), "{fault}");
}

#[test]
fn overlapping_and_out_of_range_offsets_are_refused() {
    let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
    let fault = header_fault(&with_header(json, 3));
    assert_eq!(fault, HeaderFault::Overlap { first: "a".to_owned(), second: "b".to_owned() });
    let json =
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[18446744073709551613,18446744073709551615]}}"#;
    assert!(matches!(header_fault(&with_header(json, 2)), HeaderFault::OutOfRange { .. }));
}

#[test]
fn a_duplicate_key_is_refused() {
    let json = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    assert_eq!(header_fault(&with_header(json, 2)), HeaderFault::DuplicateKey("a".to_owned()));
}

#[test]
fn metadata_without_tensors_is_refused() {
    let error = fails(&with_header(r#"{"__metadata__":{"format":"pt"}}"#, 0));
    assert!(matches!(error, CheckpointError::Empty { .. }), "{error}");
}

#[test]
fn a_zero_sized_tensor_is_refused() {
    let error = fails(&with_header(r#"{"w":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}}"#, 0));
    assert!(
        matches!(&error, CheckpointError::ZeroSized { key, shape, .. } if key == "w" && *shape == [0, 3])
    );
}

#[test]
fn an_unsupported_dtype_is_refused_by_name() {
    let fault =
        header_fault(&with_header(r#"{"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#, 1));
    let message = fault.to_string();
    assert_eq!(
        message,
        "the tensor `w` has the unsupported dtype `F8_E4M3`; convert it to F64, F32, F16, BF16, I64 or U8"
    );
}

#[test]
fn a_missing_shard_is_named_with_a_key_that_it_holds() {
    let dir = sharded(|_| ());
    fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    let error = fails(&dir);
    assert!(matches!(&error, CheckpointError::MissingShard { key, .. } if key == "layers.1.bias"), "{error}");
}

#[test]
fn a_shard_that_the_index_does_not_name_is_refused() {
    let dir = sharded(|_| ());
    put(&dir.path().join("model-00003-of-00003.safetensors"), &tensors());
    let error = fails(&dir);
    assert!(
        matches!(&error, CheckpointError::ShardNotIndexed { path } if path.ends_with("model-00003-of-00003.safetensors"))
    );
    // A data file beside the shards is none of the index's business.
    fs::rename(
        dir.path().join("model-00003-of-00003.safetensors"),
        dir.path().join("validation.safetensors"),
    )
    .unwrap();
    assert!(Checkpoint::open(dir.path()).is_ok());
}

#[test]
fn a_key_in_two_shards_is_refused() {
    let dir = sharded(|_| ());
    let key = "layers.0.bias".to_owned();
    let mut second: Tensors = tensors().into_iter().filter(|(k, _)| k.starts_with("layers.1")).collect();
    second.insert(key.clone(), tensors().remove(&key).unwrap());
    put(&dir.path().join("model-00002-of-00002.safetensors"), &second);
    let error = fails(&dir);
    assert!(matches!(&error, CheckpointError::KeyInTwoShards { key: k, .. } if *k == key), "{error}");
}

#[test]
fn a_key_that_its_shard_does_not_hold_is_refused() {
    let first = "model-00001-of-00002.safetensors".to_owned();
    let error = fails(&sharded(|map| drop(map.insert("extra".to_owned(), first.clone()))));
    assert!(matches!(&error, CheckpointError::KeyNotInShard { key, .. } if key == "extra"), "{error}");
    // There, but in the other shard.
    let error = fails(&sharded(|map| drop(map.insert("layers.1.bias".to_owned(), first))));
    assert!(matches!(&error, CheckpointError::KeyNotInShard { key, .. } if key == "layers.1.bias"));
}

#[test]
fn a_key_that_the_index_does_not_list_is_refused() {
    let error = fails(&sharded(|map| drop(map.remove("layers.1.bias"))));
    assert!(
        matches!(&error, CheckpointError::KeyNotIndexed { key, .. } if key == "layers.1.bias"),
        "{error}"
    );
}

#[test]
fn an_index_that_is_damaged_hostile_or_repeats_a_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("model.safetensors.index.json");
    for text in
        ["", "{", "[]", r#"{"weight_map": []}"#, r#"{"weight_map": {}}"#, r#"{"weight_map": {"a": 1}}"#]
    {
        fs::write(&index, text).unwrap();
        assert!(matches!(fails(&dir), CheckpointError::IndexJson { .. }), "{text}");
    }
    for shard in ["../model.safetensors", "/etc/passwd", "", ".", "a/b.safetensors"] {
        fs::write(&index, format!(r#"{{"weight_map": {{"a": "{shard}"}}}}"#)).unwrap();
        assert!(matches!(fails(&dir), CheckpointError::ShardName { .. }), "{shard}");
    }
    fs::write(&index, r#"{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}"#).unwrap();
    assert!(matches!(fails(&dir), CheckpointError::IndexDuplicateKey { key, .. } if key == "a"));
}

#[test]
fn everything_that_does_not_fit_is_listed_at_once() {
    let mut t = tensors();
    t.remove("layers.0.bias");
    t.insert("layers.1.weight".to_owned(), tensor(DType::F32, &[4, 2], 0.0));
    t.insert("layers.1.bias".to_owned(), tensor(DType::I64, &[2], 0.0));
    t.insert("layers.2.weight".to_owned(), tensor(DType::F32, &[1], 0.0));
    let dir = single(&t);
    let error = Checkpoint::open(dir.path()).unwrap().check(&program(MLP)).unwrap_err();
    let expected = format!(
        "`{}` does not fit the model that its config describes:
  1 key missing:
    layers.0.bias [4]
  1 key unexpected:
    layers.2.weight [1]
  1 key of another shape:
    layers.1.weight [4, 2], the model has [2, 4]
  1 key of another dtype:
    layers.1.bias i64, the model has floating point
use the checkpoint that belongs to this config.json, or correct the config",
        dir.path().display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn any_float_width_serves() {
    let t: Tensors = tensors().into_iter().map(|(key, t)| (key, t.cast(DType::BF16))).collect();
    let dir = single(&t);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let program = program(MLP);
    assert_eq!(checkpoint.check(&program).unwrap(), []);
    let weight = program.inputs.iter().find(|i| i.name == "layers.0.weight").unwrap();
    assert_eq!(checkpoint.tensor(weight).unwrap().dtype(), DType::BF16, "stored dtypes are kept");
}

const GPT2: &str =
    r#"{"model_type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 2, "n_layer": 1, "n_head": 1}"#;

/// The tensors of `GPT2` under the keys that `rename` gives.
fn gpt2(rename: impl Fn(&str) -> String) -> Tensors {
    let program = program(GPT2);
    let parameters = program.inputs_of(tensor_parity::program::InputKind::Parameter);
    parameters.map(|i| (rename(&i.name), tensor(DType::F32, &program.value(i.value).shape, 1.0))).collect()
}

#[test]
fn a_tied_tensor_may_be_stored_under_either_key() {
    for key in ["transformer.wte.weight", "lm_head.weight"] {
        let dir = single(&gpt2(|name| name.replace("transformer.wte.weight", key)));
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let program = program(GPT2);
        assert_eq!(checkpoint.check(&program).unwrap(), [], "{key}");
        let table = program.inputs.iter().find(|i| i.name == "transformer.wte.weight").unwrap();
        assert_eq!(checkpoint.stored_key(table), Some(key));
        assert_eq!(checkpoint.tensor(table).unwrap().shape(), [5, 2]);
    }
}

#[test]
fn tied_tensors_stored_with_other_values_are_a_warning() {
    let mut t = gpt2(str::to_owned);
    t.insert("lm_head.weight".to_owned(), t["transformer.wte.weight"].clone());
    let dir = single(&t);
    assert_eq!(Checkpoint::open(dir.path()).unwrap().check(&program(GPT2)).unwrap(), []);
    t.insert("lm_head.weight".to_owned(), tensor(DType::F32, &[5, 2], 7.0));
    let dir = single(&t);
    let warnings = Checkpoint::open(dir.path()).unwrap().check(&program(GPT2)).unwrap();
    assert_eq!(
        warnings,
        [Warning::TiedDiffer {
            used: "transformer.wte.weight".to_owned(),
            other: "lm_head.weight".to_owned()
        }]
    );
}

#[test]
fn harmless_extra_keys_are_noted_and_others_refused() {
    let mut t = gpt2(|name| name.replacen("transformer.", "", 1));
    t.insert("h.0.attn.bias".to_owned(), tensor(DType::F32, &[1, 1, 4, 4], 0.0));
    let dir = single(&t);
    let warnings = Checkpoint::open(dir.path()).unwrap().check(&program(GPT2)).unwrap();
    assert_eq!(warnings, [Warning::Unused { keys: vec!["h.0.attn.bias".to_owned()] }]);
    t.insert("h.0.attn.extra".to_owned(), tensor(DType::F32, &[1], 0.0));
    let dir = single(&t);
    let error = Checkpoint::open(dir.path()).unwrap().check(&program(GPT2)).unwrap_err().to_string();
    assert!(error.contains("1 key unexpected:\n    h.0.attn.extra [1]\n"), "{error}");
}

#[test]
fn weights_that_are_not_finite_are_warnings_with_names() {
    let mut t = tensors();
    t.insert(
        "layers.0.bias".to_owned(),
        HostTensor::from_f64(DType::F32, vec![4], &[0.0, f64::NAN, f64::INFINITY, f64::NAN]).unwrap(),
    );
    let dir = single(&t);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.check(&program(MLP)).unwrap(), [], "not an error");
    let warnings = checkpoint.non_finite();
    assert_eq!(
        warnings,
        [Warning::NonFinite { key: "layers.0.bias".to_owned(), nan: 2, infinite: 1, first: 1 }]
    );
    assert!(warnings[0].to_string().starts_with("`layers.0.bias` holds 2 NaN and 1 infinite values"));
}
