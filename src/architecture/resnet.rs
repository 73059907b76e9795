//! `resnet`: the `ResNetForImageClassification` of Hugging Face.
//!
//! Its config does not fix the image size; batch norm has eps 1e-5 and momentum 0.1 always.

use super::activation::activation;
use super::config::{Config, ConfigFault};
use super::mlp::cross_entropy;
use super::registry::{BuildOptions, Mode};
use super::vit::{linear, signed};
use crate::program::{Builder, Op, Program, ValueId};

/// Height and width when nobody says otherwise.
const IMAGE: usize = 224;
/// Largest height and width.
const MAX_IMAGE: usize = 1 << 16;
/// A bottleneck works on a quarter of its output channels.
const REDUCTION: usize = 4;

#[expect(clippy::struct_excessive_bools, reason = "four independent switches of the config")]
struct ResNet {
    batch: usize,
    image: [usize; 2],
    channels: usize,
    stem: usize,
    widths: Vec<usize>,
    depths: Vec<usize>,
    bottleneck: bool,
    act: Op,
    downsample_in_first_stage: bool,
    downsample_in_bottleneck: bool,
    classes: usize,
    training: bool,
}

/// A convolution with batch norm: channels, window and step.
#[derive(Clone, Copy)]
struct Conv {
    from: usize,
    to: usize,
    kernel: usize,
    stride: usize,
    active: bool,
}

pub(super) fn build(config: &Config, options: &BuildOptions) -> Result<Program, ConfigFault> {
    ResNet::new(config, options)?.build()
}

impl ResNet {
    /// Defaults are those of `ResNetConfig`.
    fn new(config: &Config, options: &BuildOptions) -> Result<Self, ConfigFault> {
        let bottleneck = match config.text_or("layer_type", "bottleneck")? {
            "bottleneck" => true,
            "basic" => false,
            other => {
                return Err(ConfigFault::Unsupported {
                    field: "layer_type",
                    found: format!("`{other}`"),
                    supported: "`basic` or `bottleneck`",
                });
            }
        };
        let image = match options.image {
            Some(image) if image.iter().any(|size| !(1..=MAX_IMAGE).contains(size)) => {
                return Err(ConfigFault::Options(format!(
                    "an image of {image:?} cannot be built; ask for 1 to {MAX_IMAGE} rows and columns"
                )));
            }
            Some(image) => image,
            None => config.pair_or("image_size", IMAGE)?,
        };
        let resnet = Self {
            batch: options.batch,
            image,
            channels: config.size_or("num_channels", 3)?,
            stem: config.size_or("embedding_size", 64)?,
            widths: config.sizes("hidden_sizes")?.unwrap_or_else(|| vec![256, 512, 1024, 2048]),
            depths: config.depths("depths")?.unwrap_or_else(|| vec![3, 4, 6, 3]),
            bottleneck,
            act: activation(config, "hidden_act", "relu")?,
            downsample_in_first_stage: config.flag_or("downsample_in_first_stage", false)?,
            downsample_in_bottleneck: config.flag_or("downsample_in_bottleneck", false)?,
            classes: config.classes()?,
            training: options.mode == Mode::Train,
        };
        if resnet.widths.len() != resnet.depths.len() || resnet.widths.is_empty() {
            return Err(ConfigFault::Inconsistent(format!(
                "{} stages in `hidden_sizes` and {} in `depths`; give both the same length, at least 1",
                resnet.widths.len(),
                resnet.depths.len()
            )));
        }
        if let Some(width) = resnet.widths.iter().find(|width| bottleneck && **width < REDUCTION) {
            return Err(ConfigFault::Inconsistent(format!(
                "a bottleneck of {width} channels (`hidden_sizes`) leaves none inside; use at least {REDUCTION}"
            )));
        }
        Ok(resnet)
    }

    fn build(&self) -> Result<Program, ConfigFault> {
        let mut b = Builder::new("resnet");
        let images =
            b.batch_input("pixel_values", &[self.batch, self.channels, self.image[0], self.image[1]]);
        let labels = b.labels("labels", &[self.batch], self.classes);
        b.unused_keys(&["*.num_batches_tracked"]);
        let x = b.scope("resnet", |b| {
            let x = b.module("embedder", |b| {
                let stem = Conv { from: self.channels, to: self.stem, kernel: 7, stride: 2, active: true };
                let x = self.conv(b, "embedder", "resnet.embedder.embedder", images, stem);
                b.module("pooler", |b| {
                    let pool = Op::MaxPool2d {
                        kernel_size: [3, 3],
                        stride: [2, 2],
                        padding: [1, 1],
                        dilation: [1, 1],
                        ceil_mode: false,
                    };
                    b.apply(pool, &[x])
                })
            });
            let x = b.module("encoder", |b| self.stages(b, x));
            b.module("pooler", |b| b.apply(Op::AdaptiveAvgPool2d { output_size: [1, 1] }, &[x]))
        });
        let width = self.widths.last().copied().unwrap_or(self.stem);
        let logits = b.module("classifier.1", |b| {
            let flat = b.apply(Op::Reshape { shape: vec![signed(self.batch), signed(width)] }, &[x]);
            linear(b, "classifier.1", flat, width, self.classes, true)
        });
        b.set_logits(logits);
        let loss = b.scope("loss", |b| b.apply(cross_entropy(), &[logits, labels]));
        b.set_loss(loss);
        Ok(b.finish()?)
    }

    fn stages(&self, b: &mut Builder, mut x: ValueId) -> ValueId {
        let mut from = self.stem;
        for (s, (to, depth)) in self.widths.iter().zip(&self.depths).enumerate() {
            let first = if s > 0 || self.downsample_in_first_stage { 2 } else { 1 };
            x = b.module(&format!("stages.{s}"), |b| {
                (0..*depth).fold(x, |x, l| {
                    let (from, stride) = if l == 0 { (from, first) } else { (*to, 1) };
                    let key = format!("resnet.encoder.stages.{s}.layers.{l}");
                    b.module(&format!("layers.{l}"), |b| self.layer(b, &key, x, from, *to, stride))
                })
            });
            from = *to;
        }
        x
    }

    fn layer(
        &self,
        b: &mut Builder,
        key: &str,
        x: ValueId,
        from: usize,
        to: usize,
        stride: usize,
    ) -> ValueId {
        let convs = if self.bottleneck {
            let inner = to / REDUCTION;
            let [first, second] = if self.downsample_in_bottleneck { [stride, 1] } else { [1, stride] };
            vec![
                Conv { from, to: inner, kernel: 1, stride: first, active: true },
                Conv { from: inner, to: inner, kernel: 3, stride: second, active: true },
                Conv { from: inner, to, kernel: 1, stride: 1, active: false },
            ]
        } else {
            vec![
                Conv { from, to, kernel: 3, stride, active: true },
                Conv { from: to, to, kernel: 3, stride: 1, active: false },
            ]
        };
        let y = b.module("layer", |b| {
            convs
                .iter()
                .enumerate()
                .fold(x, |y, (i, conv)| self.conv(b, &i.to_string(), &format!("{key}.layer.{i}"), y, *conv))
        });
        let residual = if from != to || stride != 1 {
            let conv = Conv { from, to, kernel: 1, stride, active: false };
            self.conv(b, "shortcut", &format!("{key}.shortcut"), x, conv)
        } else {
            x
        };
        let y = b.apply(Op::Add {}, &[y, residual]);
        b.module("activation", |b| b.apply(self.act.clone(), &[y]))
    }

    fn conv(&self, b: &mut Builder, name: &str, key: &str, x: ValueId, conv: Conv) -> ValueId {
        let Conv { from, to, kernel, stride, active } = conv;
        b.module(name, |b| {
            let y = b.module("convolution", |b| {
                let weight = b.parameter(&format!("{key}.convolution.weight"), &[to, from, kernel, kernel]);
                let op =
                    Op::Conv2d { stride: [stride; 2], padding: [kernel / 2; 2], dilation: [1, 1], groups: 1 };
                b.apply(op, &[x, weight])
            });
            let y = b.module("normalization", |b| self.batch_norm(b, &format!("{key}.normalization"), y, to));
            if active { b.module("activation", |b| b.apply(self.act.clone(), &[y])) } else { y }
        })
    }

    fn batch_norm(&self, b: &mut Builder, key: &str, x: ValueId, channels: usize) -> ValueId {
        let [weight, bias] = ["weight", "bias"].map(|n| b.parameter(&format!("{key}.{n}"), &[channels]));
        let statistics = ["running_mean", "running_var"].map(|n| format!("{key}.{n}"));
        let [mean, var] = [&statistics[0], &statistics[1]].map(|key| b.buffer(key, &[channels]));
        let op = Op::BatchNorm { training: self.training, momentum: 0.1, eps: 1e-5 };
        let results = b.apply_all(op, &[x, weight, bias, mean, var]);
        for (key, updated) in statistics.iter().zip(results.iter().skip(1)) {
            b.update_buffer(key, *updated);
        }
        results.first().copied().unwrap_or(x)
    }
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

    #[test]
    fn the_default_model_is_resnet_50() {
        let labels: Vec<_> = (0..1000).map(|i| format!("\"{i}\": \"x\"")).collect();
        let text = format!(r#"{{"model_type": "resnet", "id2label": {{{}}}}}"#, labels.join(","));
        let p = program(&text, Mode::Eval).unwrap();
        let count: usize =
            p.inputs_of(InputKind::Parameter).map(|i| p.value(i.value).shape.iter().product::<usize>()).sum();
        assert_eq!(count, 25_557_032);
        assert_eq!(p.inputs_of(InputKind::Buffer).count(), 2 * 53);
        assert!(p.outputs.buffers.is_empty());
    }

    #[test]
    fn training_updates_every_running_statistic() {
        let text = r#"{"model_type": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1],
            "embedding_size": 8, "layer_type": "basic", "image_size": 32}"#;
        let p = program(text, Mode::Train).unwrap();
        let buffers: Vec<_> = p.inputs_of(InputKind::Buffer).map(|i| i.name.clone()).collect();
        let updated: Vec<_> = p.outputs.buffers.iter().map(|b| b.name.clone()).collect();
        assert_eq!(buffers, updated);
        assert_eq!(updated.len(), 2 * 6);
    }

    #[test]
    fn stages_and_depths_must_agree() {
        let text = r#"{"model_type": "resnet", "hidden_sizes": [8], "depths": [1, 1]}"#;
        assert!(program(text, Mode::Eval).unwrap_err().to_string().contains("`depths`"));
        let text = r#"{"model_type": "resnet", "hidden_sizes": [], "depths": []}"#;
        assert!(program(text, Mode::Eval).is_err());
        let text = r#"{"model_type": "resnet", "layer_type": "wide"}"#;
        assert!(program(text, Mode::Eval).unwrap_err().to_string().contains("`wide`"));
    }
}
