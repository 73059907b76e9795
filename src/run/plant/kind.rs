//! [`Plant`]: which fault, how strong, where.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlantKind {
    /// The gradient of one parameter is twice what the engine computed.
    DoubleGradient,
    /// The gradient of one parameter is `None`.
    DropGradient,
    /// The gradient of one parameter is zero.
    ZeroGradient,
    /// One element of an operator's result is NaN.
    Nan,
    /// One element of an operator's result is +∞.
    Inf,
    /// One element of an operator's result is −∞.
    NegInf,
    /// An operator's result is read with its last two dimensions swapped.
    Transpose,
    /// An operator's result is multiplied by 1 + ε.
    Scale(f64),
    /// An operator's result is zero.
    Zero,
    /// An operator returns what the operator of this kind and shape before it returned.
    Stale,
    /// A matrix product adds up its partial sums in f16.
    HalfAccumulation,
    /// A matrix product reads its operands in bf16.
    HalfOperands,
    /// One delivered tensor lacks its last element.
    Truncate,
    /// Tensors say they live on this device.
    Device(String),
    /// Nothing is delivered.
    NoTensors,
    /// The process aborts in the middle of the forward pass.
    Abort,
    /// The process is killed there.
    Kill,
    /// The process exits there with this code, without a recording.
    Exit(i32),
    /// The process stops making progress there.
    Hang,
    /// libtorch's TF32 switches are on although the precision says off.
    Tf32,
}

/// A fault and its place: `KIND[:PARAM][:PLACE]`.
///
/// The place is a parameter key for gradients, the name of a quantity for `truncate`, and
/// for operators a node's index, its `ATen` name or its module path (the first that
/// matches). Without one a place in the middle is taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Plant {
    /// What is done.
    pub kind: PlantKind,
    /// Where.
    pub place: Option<String>,
}

/// A planted fault that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot plant `{text}`: {reason}; write KIND[:PARAM][:PLACE] with one of {}", NAMES.join(", "))]
pub struct PlantError {
    /// As written.
    pub text: String,
    /// What is wrong.
    pub reason: &'static str,
}

const NAMES: [&str; 20] = [
    "double-gradient",
    "drop-gradient",
    "zero-gradient",
    "nan",
    "inf",
    "neg-inf",
    "transpose",
    "scale:EPS",
    "zero",
    "stale",
    "half-accumulation",
    "half-operands",
    "truncate",
    "device:NAME",
    "no-tensors",
    "abort",
    "kill",
    "exit:CODE",
    "hang",
    "tf32",
];

impl FromStr for Plant {
    type Err = PlantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| PlantError { text: text.to_owned(), reason };
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        // Kinds with a parameter take it first; what remains is the place.
        let parameter = || {
            let rest = rest.ok_or_else(|| error("it needs a parameter"))?;
            Ok(rest.split_once(':').map_or((rest, None), |(parameter, place)| (parameter, Some(place))))
        };
        let (kind, place) = match name {
            "double-gradient" => (PlantKind::DoubleGradient, rest),
            "drop-gradient" => (PlantKind::DropGradient, rest),
            "zero-gradient" => (PlantKind::ZeroGradient, rest),
            "nan" => (PlantKind::Nan, rest),
            "inf" => (PlantKind::Inf, rest),
            "neg-inf" => (PlantKind::NegInf, rest),
            "transpose" => (PlantKind::Transpose, rest),
            "zero" => (PlantKind::Zero, rest),
            "stale" => (PlantKind::Stale, rest),
            "half-accumulation" => (PlantKind::HalfAccumulation, rest),
            "half-operands" => (PlantKind::HalfOperands, rest),
            "truncate" => (PlantKind::Truncate, rest),
            "no-tensors" => (PlantKind::NoTensors, rest),
            "abort" => (PlantKind::Abort, rest),
            "kill" => (PlantKind::Kill, rest),
            "hang" => (PlantKind::Hang, rest),
            "tf32" => (PlantKind::Tf32, rest),
            // A device name may itself hold a colon.
            "device" => (PlantKind::Device(rest.ok_or_else(|| error("it needs a device"))?.to_owned()), None),
            "exit" => {
                let (code, place) = parameter()?;
                (PlantKind::Exit(code.parse().map_err(|_| error("the exit code is no number"))?), place)
            }
            "scale" => {
                let (epsilon, place) = parameter()?;
                let epsilon: f64 = epsilon.parse().map_err(|_| error("the factor is no number"))?;
                (PlantKind::Scale(epsilon), place)
            }
            _ => return Err(error("there is no such kind")),
        };
        let place = place.filter(|p| !p.is_empty()).map(str::to_owned);
        Ok(Self { kind, place })
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            PlantKind::DoubleGradient => f.write_str("double-gradient"),
            PlantKind::DropGradient => f.write_str("drop-gradient"),
            PlantKind::ZeroGradient => f.write_str("zero-gradient"),
            PlantKind::Nan => f.write_str("nan"),
            PlantKind::Inf => f.write_str("inf"),
            PlantKind::NegInf => f.write_str("neg-inf"),
            PlantKind::Transpose => f.write_str("transpose"),
            PlantKind::Scale(epsilon) => write!(f, "scale:{epsilon:e}"),
            PlantKind::Zero => f.write_str("zero"),
            PlantKind::Stale => f.write_str("stale"),
            PlantKind::HalfAccumulation => f.write_str("half-accumulation"),
            PlantKind::HalfOperands => f.write_str("half-operands"),
            PlantKind::Truncate => f.write_str("truncate"),
            PlantKind::Device(name) => write!(f, "device:{name}"),
            PlantKind::NoTensors => f.write_str("no-tensors"),
            PlantKind::Abort => f.write_str("abort"),
            PlantKind::Kill => f.write_str("kill"),
            PlantKind::Exit(code) => write!(f, "exit:{code}"),
            PlantKind::Hang => f.write_str("hang"),
            PlantKind::Tf32 => f.write_str("tf32"),
        }?;
        match &self.place {
            Some(place) => write!(f, ":{place}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Plant {
    type Error = PlantError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Plant> for String {
    fn from(plant: Plant) -> Self {
        plant.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for name in NAMES {
            let text = match name {
                "scale:EPS" => "scale:1e-3",
                "device:NAME" => "device:cuda:1",
                "exit:CODE" => "exit:0",
                plain => plain,
            };
            let plant: Plant = text.parse().unwrap();
            assert_eq!(plant.to_string(), text);
            if !text.starts_with("device") {
                let placed = format!("{text}:encoder.layer.0");
                let plant: Plant = placed.parse().unwrap();
                assert_eq!((plant.to_string(), plant.place.as_deref()), (placed, Some("encoder.layer.0")));
            }
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_the_list() {
        for text in ["", "gremlin", "scale", "scale:much", "exit", "exit:x", "device"] {
            let message = text.parse::<Plant>().unwrap_err().to_string();
            assert!(message.contains("double-gradient"), "{message}");
        }
    }
}
