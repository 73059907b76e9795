//! The configs that can be made, by family and size.

use serde_json::{Value, json};

/// Family, size, and the config.
type Entry = (&'static str, &'static str, fn() -> Value);

const SIZES: [Entry; 9] = [
    ("mlp", "tiny", || json!({"model_type": "mlp", "layer_sizes": [12, 16, 16, 5], "hidden_act": "relu"})),
    (
        "mlp",
        "wide",
        || json!({"model_type": "mlp", "layer_sizes": [784, 4096, 4096, 4096, 10], "hidden_act": "gelu"}),
    ),
    // ViT-Ti/16 and ViT-B/16 at 224: 5.7 M and 86.6 M parameters with 1000 classes.
    ("vit", "tiny", || vit(192, 3, 768)),
    ("vit", "base", || vit(768, 12, 3072)),
    ("gpt2", "tiny", || {
        json!({"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2,
            "n_head": 4})
    }),
    // The published small model: 124 M parameters.
    ("gpt2", "small", || {
        json!({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768,
            "n_layer": 12, "n_head": 12})
    }),
    ("resnet", "tiny", || {
        let mut config = resnet("basic", &[16, 32], &[1, 1], 16, 10);
        config["image_size"] = json!(32);
        config
    }),
    ("resnet", "18", || resnet("basic", &[64, 128, 256, 512], &[2, 2, 2, 2], 64, 1000)),
    ("resnet", "50", || resnet("bottleneck", &[256, 512, 1024, 2048], &[3, 4, 6, 3], 64, 1000)),
];

/// Every family and size, in a fixed order.
pub fn sizes() -> impl Iterator<Item = (&'static str, &'static str)> {
    SIZES.iter().map(|(family, size, _)| (*family, *size))
}

pub(super) fn config(family: &str, size: &str) -> Option<Value> {
    SIZES.iter().find(|entry| entry.0 == family && entry.1 == size).map(|entry| entry.2())
}

fn vit(width: usize, heads: usize, inner: usize) -> Value {
    json!({
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": width,
        "num_hidden_layers": 12,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
        "qkv_bias": true,
        "id2label": labels(1000),
    })
}

fn resnet(layer: &str, widths: &[usize], depths: &[usize], stem: usize, classes: usize) -> Value {
    json!({
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "num_channels": 3,
        "embedding_size": stem,
        "hidden_sizes": widths,
        "depths": depths,
        "layer_type": layer,
        "hidden_act": "relu",
        "id2label": labels(classes),
    })
}

fn labels(classes: usize) -> Value {
    (0..classes)
        .map(|i| (i.to_string(), json!(format!("LABEL_{i}"))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
