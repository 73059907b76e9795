//! [`Emulation`]: what the software MPS device is told to lack or to get wrong.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One deficiency of one operator of the software MPS device, as written on the command
/// line: `KIND[:PARAMETER]@OPERATOR`, such as `unsupported@aten::_softmax`,
/// `scale:1e-3@aten::mul` or `zeroed@device` (every operator).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Emulation {
    kind: &'static Kind,
    parameter: f64,
    operator: String,
}

/// A deficiency that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot emulate `{text}`: {reason}; write KIND[:PARAMETER]@OPERATOR, such as unsupported@aten::_softmax, \
     with one of {}",
    kinds()
)]
pub struct EmulationError {
    /// As written.
    pub text: String,
    /// What is wrong.
    pub reason: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    parameter: Option<&'static str>,
}

const fn kind(name: &'static str, parameter: Option<&'static str>) -> Kind {
    Kind { name, parameter }
}

/// `unsupported` takes an operator away, so that it really falls back through the
/// dispatcher; the others plant a fault.
const KINDS: &[Kind] = &[
    kind("unsupported", None),
    kind("fallback-every", Some("CALLS")),
    kind("fallback-in-backward", None),
    kind("scale", Some("EPSILON")),
    kind("drift", Some("EPSILON")),
    kind("wrong-first-call", Some("EPSILON")),
    kind("ignore-storage-offset", None),
    kind("transposed-as-contiguous", None),
    kind("tail-zero", Some("BLOCK")),
    kind("tail-stale", Some("BLOCK")),
    kind("in-place-lost", None),
    kind("broadcast-not-reduced", None),
    kind("half-accumulation", None),
    kind("one-nan", None),
    kind("zeroed", None),
    kind("fail-allocation", None),
];

fn kinds() -> String {
    let words: Vec<String> = KINDS
        .iter()
        .map(|k| k.parameter.map_or_else(|| k.name.to_owned(), |p| format!("{}:{p}", k.name)))
        .collect();
    words.join(", ")
}

impl FromStr for Emulation {
    type Err = EmulationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| EmulationError { text: text.to_owned(), reason };
        let (what, operator) = text.split_once('@').ok_or_else(|| error("it names no operator"))?;
        if operator != "device" && !operator.contains("::") {
            return Err(error("operators are named as libtorch does, such as aten::mm"));
        }
        let (name, parameter) =
            what.split_once(':').map_or((what, None), |(name, parameter)| (name, Some(parameter)));
        let kind = KINDS.iter().find(|k| k.name == name).ok_or_else(|| error("there is no such kind"))?;
        let parameter = match (kind.parameter, parameter) {
            (None, None) => 0.0,
            (Some(_), Some(text)) => {
                let value: f64 = text.parse().map_err(|_| error("the parameter is no number"))?;
                let whole = kind.parameter != Some("EPSILON");
                if !value.is_finite()
                    || whole && !(1.0..=1e9).contains(&value)
                    || whole && value.fract() != 0.0
                {
                    return Err(error("the parameter is out of range"));
                }
                value
            }
            (Some(_), None) => return Err(error("it needs a parameter")),
            (None, Some(_)) => return Err(error("it takes no parameter")),
        };
        if operator == "device" && kind.name == "unsupported" {
            return Err(error("a device without any operator is no device"));
        }
        Ok(Self { kind, parameter, operator: operator.to_owned() })
    }
}

impl fmt::Display for Emulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.parameter {
            None => write!(f, "{}@{}", self.kind.name, self.operator),
            Some("EPSILON") => write!(f, "{}:{:e}@{}", self.kind.name, self.parameter, self.operator),
            Some(_) => write!(f, "{}:{}@{}", self.kind.name, self.parameter, self.operator),
        }
    }
}

impl TryFrom<String> for Emulation {
    type Error = EmulationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Emulation> for String {
    fn from(emulation: Emulation) -> Self {
        emulation.to_string()
    }
}

impl Emulation {
    /// Whether it takes an operator away, which is no fault but a device of fewer kernels.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        self.kind.name == "unsupported"
    }
}

#[cfg(feature = "torch")]
pub(super) use with_libtorch::apply;

#[cfg(feature = "torch")]
mod with_libtorch {
    use super::Emulation;
    use crate::engine::torch::native::software_mps::{self, Fault};

    /// Tells the registered software device.
    pub(in crate::engine::torch) fn apply(emulations: &[Emulation]) -> Result<(), String> {
        software_mps::clear().map_err(|e| e.to_string())?;
        let absent: Vec<&str> =
            emulations.iter().filter(|e| e.is_absence()).map(|e| e.operator.as_str()).collect();
        software_mps::set_unsupported(&absent).map_err(|e| e.to_string())?;
        for emulation in emulations {
            if let Some(fault) = emulation.fault() {
                software_mps::add_fault(&emulation.operator, fault).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    impl Emulation {
        fn fault(&self) -> Option<Fault> {
            let epsilon = self.parameter;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 1 to 1e9")]
            let whole = self.parameter as u32;
            Some(match self.kind.name {
                "fallback-every" => Fault::FallbackEvery { calls: whole },
                "fallback-in-backward" => Fault::FallbackInBackward,
                "scale" => Fault::Scale { epsilon },
                "drift" => Fault::Drift { epsilon },
                "wrong-first-call" => Fault::WrongFirstCall { epsilon },
                "ignore-storage-offset" => Fault::IgnoreStorageOffset,
                "transposed-as-contiguous" => Fault::TransposedAsContiguous,
                "tail-zero" => Fault::TailNotComputed { block_elements: whole, stale: false },
                "tail-stale" => Fault::TailNotComputed { block_elements: whole, stale: true },
                "in-place-lost" => Fault::InPlaceLost,
                "broadcast-not-reduced" => Fault::BroadcastNotReduced,
                "half-accumulation" => Fault::HalfAccumulation,
                "one-nan" => Fault::OneNan,
                "zeroed" => Fault::Zeroed,
                "fail-allocation" => Fault::FailAllocation,
                _ => return None,
            })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_kind_but_the_absence_is_a_fault() {
            for kind in super::super::KINDS {
                let emulation = Emulation { kind, parameter: 2.0, operator: "aten::mm".to_owned() };
                assert_eq!(emulation.fault().is_none(), emulation.is_absence(), "{emulation}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in KINDS {
            let what = match kind.parameter {
                None => kind.name.to_owned(),
                Some("EPSILON") => format!("{}:1e-3", kind.name),
                Some(_) => format!("{}:16", kind.name),
            };
            let text = format!("{what}@aten::mm");
            assert_eq!(text.parse::<Emulation>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_emulated_is_refused_with_the_list() {
        for text in [
            "",
            "unsupported",
            "unsupported@mm",
            "gremlin@aten::mm",
            "scale@aten::mm",
            "scale:x@aten::mm",
            "scale:NaN@aten::mm",
            "tail-zero:0@aten::mm",
            "tail-zero:1.5@aten::mm",
            "zeroed:1@aten::mm",
            "unsupported@device",
        ] {
            let message = text.parse::<Emulation>().unwrap_err().to_string();
            assert!(message.contains("half-accumulation"), "{message}");
        }
    }
}
