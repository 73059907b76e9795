//! `mlp`: this project's own multilayer perceptron.
//!
//! `{"model_type": "mlp", "layer_sizes": [in, .., classes], "hidden_act": "relu"}`; keys
//! `layers.I.weight` and `layers.I.bias`; the activation follows every layer but the last;
//! the loss is the mean cross-entropy.

use super::activation::activation;
use super::config::{Config, ConfigFault};
use super::registry::BuildOptions;
use crate::program::{Builder, LossReduction, Op, Program};

pub(super) fn build(config: &Config, options: &BuildOptions) -> Result<Program, ConfigFault> {
    let sizes = config.sizes("layer_sizes")?.ok_or(ConfigFault::MissingField("layer_sizes"))?;
    let act = activation(config, "hidden_act", "relu")?;
    let ([input, ..], [.., classes]) = (sizes.as_slice(), sizes.as_slice()) else {
        return Err(too_few());
    };
    let (input, classes, layers) = (*input, *classes, sizes.len() - 1);
    if layers == 0 || classes < 2 {
        return Err(too_few());
    }
    let mut b = Builder::new("mlp");
    let mut x = b.batch_input("input", &[options.batch, input]);
    let labels = b.labels("labels", &[options.batch], classes);
    for (i, pair) in sizes.windows(2).enumerate() {
        let &[from, to] = pair else { continue };
        x = b.module(&format!("layers.{i}"), |b| {
            let weight = b.parameter(&format!("layers.{i}.weight"), &[to, from]);
            let bias = b.parameter(&format!("layers.{i}.bias"), &[to]);
            b.apply(Op::Linear {}, &[x, weight, bias])
        });
        if i + 1 < layers {
            x = b.module(&format!("act.{i}"), |b| b.apply(act.clone(), &[x]));
        }
    }
    b.set_logits(x);
    let loss = b.scope("loss", |b| b.apply(cross_entropy(), &[x, labels]));
    b.set_loss(loss);
    Ok(b.finish()?)
}

fn too_few() -> ConfigFault {
    ConfigFault::OutOfRange {
        field: "layer_sizes".to_owned(),
        found: "too short".to_owned(),
        expected: "at least [inputs, classes], with 2 or more classes".to_owned(),
    }
}

/// Mean cross-entropy that leaves out labels of −100, as everywhere in these families.
pub(super) const fn cross_entropy() -> Op {
    Op::CrossEntropy { ignore_index: -100, label_smoothing: 0.0, reduction: LossReduction::Mean }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::registry;
    use crate::program::InputKind;

    fn program(text: &str) -> Result<Program, ConfigFault> {
        registry::build(&Config::parse(text.as_bytes()).unwrap(), &BuildOptions::default())
    }

    #[test]
    fn layers_are_captured_under_their_names() {
        let p = program(r#"{"model_type": "mlp", "layer_sizes": [12, 16, 16, 5]}"#).unwrap();
        let captures: Vec<_> = p.captures.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(captures, ["layers.0", "act.0", "layers.1", "act.1", "layers.2"]);
        assert_eq!(p.inputs_of(InputKind::Parameter).count(), 6);
        assert_eq!(p.value(p.outputs.logits.unwrap()).shape, [8, 5]);
    }

    #[test]
    fn too_few_sizes_are_refused() {
        for sizes in ["[]", "[3]", "[3, 1]"] {
            let text = format!(r#"{{"model_type": "mlp", "layer_sizes": {sizes}}}"#);
            assert!(program(&text).unwrap_err().to_string().contains("`layer_sizes`"), "{sizes}");
        }
        let missing = program(r#"{"model_type": "mlp"}"#).unwrap_err();
        assert!(matches!(missing, ConfigFault::MissingField("layer_sizes")));
    }
}
