//! `gpt2`: the `GPT2LMHeadModel` of Hugging Face.
//!
//! The `Conv1D` layers keep their weights as `[in, out]` and are `addmm` on flattened rows,
//! as in the original. Labels are aligned with `input_ids` and shifted inside: position t is
//! scored against label t+1.

use super::activation::activation;
use super::attention::{Attention, attention};
use super::config::{Config, ConfigFault};
use super::mlp::cross_entropy;
use super::registry::{BuildOptions, Mode};
use super::vit::signed;
use crate::numerics::DType;
use crate::program::{Builder, InputKind, Op, Program, ValueId};

/// Tokens in a sample when nobody says otherwise.
const SEQUENCE: usize = 64;

struct Gpt2 {
    batch: usize,
    tokens: usize,
    vocabulary: usize,
    positions: usize,
    width: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    act: Op,
    eps: f64,
    tied: bool,
    embedding_dropout: f64,
    attention_dropout: f64,
    residual_dropout: f64,
}

pub(super) fn build(config: &Config, options: &BuildOptions) -> Result<Program, ConfigFault> {
    Gpt2::new(config, options)?.build()
}

impl Gpt2 {
    /// Defaults are those of `GPT2Config`.
    fn new(config: &Config, options: &BuildOptions) -> Result<Self, ConfigFault> {
        let train = options.mode == Mode::Train;
        let dropout = |field| config.probability_or(field, 0.1).map(|p| if train { p } else { 0.0 });
        config.require_flag("scale_attn_weights", true, true)?;
        config.require_flag("scale_attn_by_inverse_layer_idx", false, false)?;
        config.require_flag("reorder_and_upcast_attn", false, false)?;
        config.require_flag("add_cross_attention", false, false)?;
        let width = config.size_or("n_embd", 768)?;
        let positions = config.size_or("n_positions", 1024)?;
        let gpt2 = Self {
            batch: options.batch,
            tokens: options.sequence.unwrap_or(SEQUENCE.min(positions)),
            vocabulary: config.size_or("vocab_size", 50257)?,
            positions,
            width,
            layers: config.layers_or("n_layer", 12)?,
            heads: config.size_or("n_head", 12)?,
            inner: config.size_or("n_inner", 4 * width)?,
            act: activation(config, "activation_function", "gelu_new")?,
            eps: config.number_or("layer_norm_epsilon", 1e-5)?,
            tied: config.flag_or("tie_word_embeddings", true)?,
            embedding_dropout: dropout("embd_pdrop")?,
            attention_dropout: dropout("attn_pdrop")?,
            residual_dropout: dropout("resid_pdrop")?,
        };
        if !gpt2.width.is_multiple_of(gpt2.heads) {
            return Err(ConfigFault::Inconsistent(format!(
                "{} heads (`n_head`) do not divide the width {} (`n_embd`); correct one of them",
                gpt2.heads, gpt2.width
            )));
        }
        if !(2..=positions).contains(&gpt2.tokens) {
            return Err(ConfigFault::Options(format!(
                "a sequence of {} tokens cannot be scored by this model; ask for 2 to {positions} (`n_positions`)",
                gpt2.tokens
            )));
        }
        Ok(gpt2)
    }

    fn build(&self) -> Result<Program, ConfigFault> {
        let mut b = Builder::new("gpt2");
        let ids = b.batch_indices("input_ids", &[self.batch, self.tokens], self.vocabulary);
        // Not declared as the labels of a metric: they are not aligned with the logits.
        let labels = b.input("labels", InputKind::Label, &[self.batch, self.tokens], DType::I64, |input| {
            input.below = Some(self.vocabulary);
        });
        // Buffers of causal masks in older files, with and without the prefix.
        b.unused_keys(&["*h.*.attn.bias", "*h.*.attn.masked_bias"]);
        let table_aliases: &[&str] =
            if self.tied { &["wte.weight", "lm_head.weight"] } else { &["wte.weight"] };
        let table = b.tied_parameter("transformer.wte.weight", table_aliases, &[self.vocabulary, self.width]);
        let x = b.module("transformer", |b| {
            let tokens = b.module("wte", |b| b.apply(Op::Embedding {}, &[table, ids]));
            let positions = b.module("wpe", |b| {
                let table = parameter(b, "wpe.weight", &[self.positions, self.width]);
                b.apply(Op::Slice { dim: 0, start: 0, end: signed(self.tokens), step: 1 }, &[table])
            });
            let x = b.apply(Op::Add {}, &[tokens, positions]);
            let x = b.dropout(x, self.embedding_dropout);
            let x = (0..self.layers).fold(x, |x, i| b.module(&format!("h.{i}"), |b| self.block(b, i, x)));
            b.module("ln_f", |b| self.norm(b, "ln_f", x))
        });
        let logits = b.module("lm_head", |b| {
            let weight =
                if self.tied { table } else { b.parameter("lm_head.weight", &[self.vocabulary, self.width]) };
            b.apply(Op::Linear {}, &[x, weight])
        });
        b.set_logits(logits);
        let loss = b.scope("loss", |b| {
            let last = signed(self.tokens);
            let rows = signed(self.batch * (self.tokens - 1));
            let scores = b.apply(Op::Slice { dim: 1, start: 0, end: last - 1, step: 1 }, &[logits]);
            let scores = b.apply(Op::Reshape { shape: vec![rows, signed(self.vocabulary)] }, &[scores]);
            let next = b.apply(Op::Slice { dim: 1, start: 1, end: last, step: 1 }, &[labels]);
            let next = b.apply(Op::Reshape { shape: vec![rows] }, &[next]);
            b.apply(cross_entropy(), &[scores, next])
        });
        b.set_loss(loss);
        Ok(b.finish()?)
    }

    fn block(&self, b: &mut Builder, i: usize, x: ValueId) -> ValueId {
        let (key, width) = (format!("h.{i}"), self.width);
        let y = b.module("ln_1", |b| self.norm(b, &format!("{key}.ln_1"), x));
        let y = b.module("attn", |b| {
            let y =
                b.module("c_attn", |b| self.conv1d(b, &format!("{key}.attn.c_attn"), y, width, 3 * width));
            let pieces = b.apply_all(Op::Split { split_size: width, dim: -1 }, &[y]);
            let &[q, k, v] = pieces.as_slice() else { return y }; // an earlier error is kept
            let spec = Attention { heads: self.heads, is_causal: true, dropout: self.attention_dropout };
            let y = attention(b, &spec, q, k, v);
            let y = b.module("c_proj", |b| self.conv1d(b, &format!("{key}.attn.c_proj"), y, width, width));
            b.dropout(y, self.residual_dropout)
        });
        let x = b.apply(Op::Add {}, &[y, x]);
        let y = b.module("ln_2", |b| self.norm(b, &format!("{key}.ln_2"), x));
        let y = b.module("mlp", |b| {
            let y = b.module("c_fc", |b| self.conv1d(b, &format!("{key}.mlp.c_fc"), y, width, self.inner));
            let y = b.module("act", |b| b.apply(self.act.clone(), &[y]));
            let y =
                b.module("c_proj", |b| self.conv1d(b, &format!("{key}.mlp.c_proj"), y, self.inner, width));
            b.dropout(y, self.residual_dropout)
        });
        b.apply(Op::Add {}, &[x, y])
    }

    /// `x W + b` with `W` `[from, to]`, as one `addmm` over all rows.
    fn conv1d(&self, b: &mut Builder, key: &str, x: ValueId, from: usize, to: usize) -> ValueId {
        let weight = parameter(b, &format!("{key}.weight"), &[from, to]);
        let bias = parameter(b, &format!("{key}.bias"), &[to]);
        let rows = b.apply(Op::Reshape { shape: vec![-1, signed(from)] }, &[x]);
        let y = b.apply(Op::Addmm { beta: 1.0, alpha: 1.0 }, &[bias, rows, weight]);
        let shape = [self.batch, self.tokens, to].map(signed).to_vec();
        b.apply(Op::Reshape { shape }, &[y])
    }

    fn norm(&self, b: &mut Builder, key: &str, x: ValueId) -> ValueId {
        let weight = parameter(b, &format!("{key}.weight"), &[self.width]);
        let bias = parameter(b, &format!("{key}.bias"), &[self.width]);
        let op = Op::LayerNorm { normalized_shape: vec![self.width], eps: self.eps };
        b.apply(op, &[x, weight, bias])
    }
}

/// A parameter of the transformer; files of the bare model leave the prefix out.
fn parameter(b: &mut Builder, key: &str, shape: &[usize]) -> ValueId {
    b.tied_parameter(&format!("transformer.{key}"), &[key], shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::registry;

    const SMALL: &str = r#"{"model_type": "gpt2", "vocab_size": 97, "n_positions": 32, "n_embd": 32,
        "n_layer": 2, "n_head": 4}"#;

    fn program(text: &str, sequence: Option<usize>, mode: Mode) -> Result<Program, ConfigFault> {
        let options = BuildOptions { batch: 2, sequence, mode, ..BuildOptions::default() };
        registry::build(&Config::parse(text.as_bytes()).unwrap(), &options)
    }

    #[test]
    fn the_small_model_has_124_million_parameters() {
        let p = program(r#"{"model_type": "gpt2"}"#, None, Mode::Eval).unwrap();
        let count: usize =
            p.inputs_of(InputKind::Parameter).map(|i| p.value(i.value).shape.iter().product::<usize>()).sum();
        assert_eq!(count, 124_439_808);
        assert_eq!(p.value(p.outputs.logits.unwrap()).shape, [2, 64, 50257]);
    }

    #[test]
    fn a_tied_head_is_one_parameter_and_an_untied_one_is_its_own() {
        let tied = program(SMALL, None, Mode::Eval).unwrap();
        let head = |p: &Program| p.inputs.iter().filter(|i| i.name == "lm_head.weight").count();
        assert_eq!(head(&tied), 0);
        let untied = SMALL.replace("\"n_layer\"", "\"tie_word_embeddings\": false, \"n_layer\"");
        assert_eq!(head(&program(&untied, None, Mode::Eval).unwrap()), 1);
    }

    #[test]
    fn sequences_that_the_model_cannot_take_are_refused() {
        for tokens in [0, 1, 33] {
            let message = program(SMALL, Some(tokens), Mode::Eval).unwrap_err().to_string();
            assert!(message.contains("ask for 2 to 32"), "{message}");
        }
    }

    #[test]
    fn attention_switches_that_are_not_built_are_refused_by_name() {
        let text = SMALL.replace("\"n_layer\"", "\"reorder_and_upcast_attn\": true, \"n_layer\"");
        let message = program(&text, None, Mode::Eval).unwrap_err().to_string();
        assert_eq!(
            message,
            "the field `reorder_and_upcast_attn` is true, which is not supported; only false is"
        );
    }

    #[test]
    fn training_uses_one_causal_mask_and_a_dropout_mask_a_place() {
        let p = program(SMALL, Some(8), Mode::Train).unwrap();
        let causal = p.inputs_of(InputKind::Mask).filter(|m| m.drop_probability.is_none());
        assert_eq!(causal.map(|m| p.value(m.value).shape.clone()).collect::<Vec<_>>(), [vec![8, 8]]);
        let drawn = p.inputs_of(InputKind::Mask).filter(|m| m.drop_probability.is_some());
        assert_eq!(drawn.count(), 1 + 2 * 3);
        let back = serde_json::from_str::<Program>(&serde_json::to_string(&p).unwrap()).unwrap();
        assert!(back == p, "the program must be read back as it was written");
    }
}
