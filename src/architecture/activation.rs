//! Activation functions by the names that configs use.

use super::config::{Config, ConfigFault};
use crate::program::{Gelu, Op};

/// The operator that a config names in `field`.
pub(super) fn activation(config: &Config, field: &'static str, default: &str) -> Result<Op, ConfigFault> {
    let name = config.text_or(field, default)?;
    named(name).ok_or_else(|| ConfigFault::UnknownActivation {
        field,
        found: name.to_owned(),
        known: NAMES.join(", "),
    })
}

const NAMES: [&str; 9] =
    ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh", "sigmoid", "hardswish"];

fn named(name: &str) -> Option<Op> {
    Some(match name {
        "gelu" => Op::Gelu { approximate: Gelu::None },
        // One formula; transformers computes `gelu_new` from its parts, here it is one node.
        "gelu_new" | "gelu_pytorch_tanh" => Op::Gelu { approximate: Gelu::Tanh },
        "relu" => Op::Relu {},
        "silu" | "swish" => Op::Silu {},
        "tanh" => Op::Tanh {},
        "sigmoid" => Op::Sigmoid {},
        "hardswish" => Op::Hardswish {},
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_known() {
        assert!(NAMES.iter().all(|name| named(name).is_some()));
    }

    #[test]
    fn an_unknown_activation_lists_the_known_ones() {
        let config = Config::parse(br#"{"hidden_act": "mish"}"#).unwrap();
        let message = activation(&config, "hidden_act", "gelu").unwrap_err().to_string();
        assert!(message.starts_with("unknown activation `mish` in the field `hidden_act`; known are gelu,"));
    }
}
