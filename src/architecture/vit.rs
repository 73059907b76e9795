//! `vit`: the `ViTForImageClassification` of Hugging Face.

use super::activation::activation;
use super::attention::{Attention, attention};
use super::config::{Config, ConfigFault};
use super::mlp::cross_entropy;
use super::registry::{BuildOptions, Mode};
use crate::program::{Builder, Op, Program, ValueId};

struct Vit {
    batch: usize,
    width: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    act: Op,
    eps: f64,
    image: [usize; 2],
    patch: [usize; 2],
    channels: usize,
    qkv_bias: bool,
    classes: usize,
    hidden_dropout: f64,
    attention_dropout: f64,
}

pub(super) fn build(config: &Config, options: &BuildOptions) -> Result<Program, ConfigFault> {
    Vit::new(config, options)?.build()
}

impl Vit {
    /// Defaults are those of `ViTConfig`.
    fn new(config: &Config, options: &BuildOptions) -> Result<Self, ConfigFault> {
        let train = options.mode == Mode::Train;
        let dropout = |field| config.probability_or(field, 0.0).map(|p| if train { p } else { 0.0 });
        let vit = Self {
            batch: options.batch,
            width: config.size_or("hidden_size", 768)?,
            layers: config.layers_or("num_hidden_layers", 12)?,
            heads: config.size_or("num_attention_heads", 12)?,
            inner: config.size_or("intermediate_size", 3072)?,
            act: activation(config, "hidden_act", "gelu")?,
            eps: config.number_or("layer_norm_eps", 1e-12)?,
            image: config.pair_or("image_size", 224)?,
            patch: config.pair_or("patch_size", 16)?,
            channels: config.size_or("num_channels", 3)?,
            qkv_bias: config.flag_or("qkv_bias", true)?,
            classes: config.classes()?,
            hidden_dropout: dropout("hidden_dropout_prob")?,
            attention_dropout: dropout("attention_probs_dropout_prob")?,
        };
        if !vit.width.is_multiple_of(vit.heads) {
            return Err(ConfigFault::Inconsistent(format!(
                "{} heads (`num_attention_heads`) do not divide the width {} (`hidden_size`); correct one of them",
                vit.heads, vit.width
            )));
        }
        // A remainder is left out by the convolution, as in the original; nothing must be left.
        if vit.image.iter().zip(&vit.patch).any(|(image, patch)| patch > image) {
            return Err(ConfigFault::Inconsistent(format!(
                "a patch of {:?} (`patch_size`) does not fit into an image of {:?} (`image_size`); correct one of them",
                vit.patch, vit.image
            )));
        }
        Ok(vit)
    }

    fn build(&self) -> Result<Program, ConfigFault> {
        let mut b = Builder::new("vit");
        let images =
            b.batch_input("pixel_values", &[self.batch, self.channels, self.image[0], self.image[1]]);
        let labels = b.labels("labels", &[self.batch], self.classes);
        // The bare model has a pooler and mask tokens that the classifier leaves out.
        b.unused_keys(&["vit.pooler.*", "vit.embeddings.mask_token"]);
        let x = b.scope("vit", |b| {
            let x = b.module("embeddings", |b| self.embeddings(b, images));
            let x = b.module("encoder", |b| {
                (0..self.layers).fold(x, |x, i| b.module(&format!("layer.{i}"), |b| self.layer(b, i, x)))
            });
            b.module("layernorm", |b| self.norm(b, "vit.layernorm", x))
        });
        let logits = b.module("classifier", |b| {
            let first = b.apply(Op::Select { dim: 1, index: 0 }, &[x]);
            linear(b, "classifier", first, self.width, self.classes, true)
        });
        b.set_logits(logits);
        let loss = b.scope("loss", |b| b.apply(cross_entropy(), &[logits, labels]));
        b.set_loss(loss);
        Ok(b.finish()?)
    }

    fn embeddings(&self, b: &mut Builder, images: ValueId) -> ValueId {
        let [rows, columns] = [self.image[0] / self.patch[0], self.image[1] / self.patch[1]];
        let (width, patches) = (self.width, rows * columns);
        let class = b.parameter("vit.embeddings.cls_token", &[1, 1, width]);
        let positions = b.parameter("vit.embeddings.position_embeddings", &[1, patches + 1, width]);
        let patches = b.module("patch_embeddings", |b| {
            let x = b.module("projection", |b| {
                let key = "vit.embeddings.patch_embeddings.projection";
                let shape = [width, self.channels, self.patch[0], self.patch[1]];
                let weight = b.parameter(&format!("{key}.weight"), &shape);
                let bias = b.parameter(&format!("{key}.bias"), &[width]);
                let conv = Op::Conv2d { stride: self.patch, padding: [0, 0], dilation: [1, 1], groups: 1 };
                b.apply(conv, &[images, weight, bias])
            });
            let flat = b.apply(Op::Reshape { shape: vec![signed(self.batch), signed(width), -1] }, &[x]);
            b.apply(Op::Permute { dims: vec![0, 2, 1] }, &[flat])
        });
        let class = b.apply(Op::Expand { shape: vec![signed(self.batch), -1, -1] }, &[class]);
        let tokens = b.apply(Op::Cat { dim: 1 }, &[class, patches]);
        let x = b.apply(Op::Add {}, &[tokens, positions]);
        b.dropout(x, self.hidden_dropout)
    }

    fn layer(&self, b: &mut Builder, i: usize, x: ValueId) -> ValueId {
        let key = format!("vit.encoder.layer.{i}");
        let width = self.width;
        let y = b.module("layernorm_before", |b| self.norm(b, &format!("{key}.layernorm_before"), x));
        let y = b.module("attention", |b| {
            let y = b.module("attention", |b| {
                let [q, k, v] = ["query", "key", "value"].map(|name| {
                    let key = format!("{key}.attention.attention.{name}");
                    b.module(name, |b| linear(b, &key, y, width, width, self.qkv_bias))
                });
                let spec = Attention { heads: self.heads, is_causal: false, dropout: self.attention_dropout };
                attention(b, &spec, q, k, v)
            });
            b.module("output", |b| {
                let y = b.module("dense", |b| {
                    linear(b, &format!("{key}.attention.output.dense"), y, width, width, true)
                });
                b.dropout(y, self.hidden_dropout)
            })
        });
        let x = b.apply(Op::Add {}, &[y, x]);
        let y = b.module("layernorm_after", |b| self.norm(b, &format!("{key}.layernorm_after"), x));
        let y = b.module("intermediate", |b| {
            let y = b.module("dense", |b| {
                linear(b, &format!("{key}.intermediate.dense"), y, width, self.inner, true)
            });
            b.apply(self.act.clone(), &[y])
        });
        b.module("output", |b| {
            let y =
                b.module("dense", |b| linear(b, &format!("{key}.output.dense"), y, self.inner, width, true));
            let y = b.dropout(y, self.hidden_dropout);
            b.apply(Op::Add {}, &[y, x])
        })
    }

    fn norm(&self, b: &mut Builder, key: &str, x: ValueId) -> ValueId {
        layer_norm(b, key, x, self.width, self.eps)
    }
}

/// `x Wᵀ + bias` with the parameters `KEY.weight` `[to, from]` and `KEY.bias` `[to]`.
pub(super) fn linear(b: &mut Builder, key: &str, x: ValueId, from: usize, to: usize, bias: bool) -> ValueId {
    let mut inputs = vec![x, b.parameter(&format!("{key}.weight"), &[to, from])];
    if bias {
        inputs.push(b.parameter(&format!("{key}.bias"), &[to]));
    }
    b.apply(Op::Linear {}, &inputs)
}

/// Layer norm over the last `width` elements with the parameters `KEY.weight` and `KEY.bias`.
pub(super) fn layer_norm(b: &mut Builder, key: &str, x: ValueId, width: usize, eps: f64) -> ValueId {
    let weight = b.parameter(&format!("{key}.weight"), &[width]);
    let bias = b.parameter(&format!("{key}.bias"), &[width]);
    b.apply(Op::LayerNorm { normalized_shape: vec![width], eps }, &[x, weight, bias])
}

/// Sizes are bounded far below the largest `isize`.
pub(super) fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::registry;
    use crate::program::InputKind;

    fn program(text: &str, mode: Mode) -> Result<Program, ConfigFault> {
        let options = BuildOptions { batch: 2, mode, ..BuildOptions::default() };
        registry::build(&Config::parse(text.as_bytes()).unwrap(), &options)
    }

    const SMALL: &str = r#"{"model_type": "vit", "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": 1, "intermediate_size": 40, "image_size": 12, "patch_size": 4,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}"#;

    #[test]
    fn the_base_model_has_86_million_parameters() {
        let text = r#"{"model_type": "vit", "id2label": {"0": "a", "1": "b"}}"#;
        let p = program(text, Mode::Eval).unwrap();
        let count: usize =
            p.inputs_of(InputKind::Parameter).map(|i| p.value(i.value).shape.iter().product::<usize>()).sum();
        assert_eq!(count, 85_800_194); // 85 798 656 of the encoder and 2·(768+1) of the head
        assert_eq!(p.inputs_of(InputKind::Parameter).count(), 12 * 16 + 8);
    }

    #[test]
    fn modules_are_captured_under_the_original_names() {
        let p = program(SMALL, Mode::Eval).unwrap();
        let names: Vec<_> = p.captures.iter().map(|c| c.name.as_str()).collect();
        for name in [
            "vit.embeddings.patch_embeddings.projection",
            "vit.encoder.layer.0.attention.attention.query",
            "vit.encoder.layer.0.attention.attention",
            "vit.encoder.layer.0.attention.output.dense",
            "vit.encoder.layer.0.output",
            "vit.encoder.layer.0",
            "vit.layernorm",
            "classifier",
        ] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
    }

    #[test]
    fn dropout_masks_exist_in_training_only() {
        assert_eq!(program(SMALL, Mode::Eval).unwrap().inputs_of(InputKind::Mask).count(), 0);
        let p = program(SMALL, Mode::Train).unwrap();
        let masks: Vec<_> = p.inputs_of(InputKind::Mask).map(|m| p.value(m.value).shape.clone()).collect();
        let tokens = vec![2, 10, 24];
        assert_eq!(masks, [tokens.clone(), vec![2, 3, 10, 10], tokens.clone(), tokens]);
        assert!(p.nodes.iter().all(|n| n.op.name() != "scaled_dot_product_attention"));
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_refused() {
        let message = program(&SMALL.replace("\": 3", "\": 5"), Mode::Eval).unwrap_err().to_string();
        assert!(
            message.starts_with("5 heads (`num_attention_heads`) do not divide the width 24"),
            "{message}"
        );
    }

    #[test]
    fn a_patch_larger_than_the_image_is_refused() {
        let text = SMALL.replace("\"patch_size\": 4", "\"patch_size\": 13");
        assert!(program(&text, Mode::Eval).unwrap_err().to_string().contains("`patch_size`"));
    }
}
