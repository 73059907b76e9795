//! Input that nobody would write by accident: every outcome is a value or an error, never a panic.

use proptest::prelude::*;
use serde_json::{Value, json};
use tensor_parity::architecture::{BuildOptions, Config, Mode, build};
use tensor_parity::tensor::safetensors::Header;

/// A sound file of two tensors.
fn sound() -> Vec<u8> {
    let json = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1,3],"data_offsets":[8,11]}}"#;
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.extend_from_slice(&[7; 11]);
    bytes
}

/// Numbers at the edges of what a header or a config can hold, and texts and lists in their place.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(json!(u64::MAX)),
        Just(json!(1u64 << 24)),
        Just(json!(1e300)),
        Just(json!("gelu")),
        Just(json!([])),
        Just(json!([1, 2, 3])),
        Just(json!({"0": "a", "1": "b"})),
        Just(json!(true)),
        (1u64..64).prop_map(|n| json!(n)),
        (1u64..(1 << 24)).prop_map(|n| json!(n)),
        proptest::collection::vec(1u64..(1 << 24), 1..5).prop_map(|list| json!(list)),
    ]
}

const FIELDS: [&str; 27] = [
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "image_size",
    "patch_size",
    "num_channels",
    "qkv_bias",
    "id2label",
    "num_labels",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "layer_sizes",
    "vocab_size",
    "n_positions",
    "n_embd",
    "n_head",
    "n_inner",
    "activation_function",
    "attn_pdrop",
    "tie_word_embeddings",
    "embedding_size",
    "hidden_sizes",
    "layer_type",
    "downsample_in_bottleneck",
    "downsample_in_first_stage",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn headers_of_arbitrary_bytes_are_settled(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Header::parse(&bytes);
    }

    #[test]
    fn headers_of_damaged_files_are_settled_and_ranges_stay_inside(
        edits in proptest::collection::vec((0usize..200, any::<u8>()), 1..4),
        keep in 0usize..200,
    ) {
        let mut bytes = sound();
        for (at, byte) in edits {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        bytes.truncate(keep);
        if let Ok(header) = Header::parse(&bytes) {
            for entry in header.entries {
                prop_assert!(entry.range.start <= entry.range.end && entry.range.end <= bytes.len());
                let elements: usize = entry.shape.iter().product();
                prop_assert_eq!(entry.range.len(), elements * entry.dtype.size());
            }
        }
    }

    #[test]
    fn configs_of_odd_values_build_or_say_why(
        family in prop_oneof![Just("vit"), Just("mlp"), Just("gpt2"), Just("resnet")],
        fields in proptest::collection::vec((0..FIELDS.len(), odd_value()), 0..6),
        batch in prop_oneof![Just(1usize), Just(2), Just(1 << 16), Just(usize::MAX)],
        sequence in prop_oneof![Just(None), Just(Some(2usize)), Just(Some(usize::MAX))],
        image in prop_oneof![Just(None), Just(Some([1usize, 1])), Just(Some([usize::MAX, 7]))],
        train in any::<bool>(),
    ) {
        let mut config = json!({"model_type": family, "num_hidden_layers": 1, "n_layer": 1, "depths": [1, 1]});
        for (field, value) in fields {
            config[FIELDS[field]] = value;
        }
        let mode = if train { Mode::Train } else { Mode::Eval };
        let config = Config::parse(config.to_string().as_bytes()).unwrap();
        match build(&config, &BuildOptions { batch, sequence, image, mode }) {
            Ok(program) => prop_assert!(program.validate().is_ok()),
            Err(fault) => prop_assert!(fault.to_string().len() > 10),
        }
    }
}
