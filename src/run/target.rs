//! [`Target`]: engine, device and precision, as written on the command line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine::DeviceSpec;
use crate::precision::{Precision, UnknownPrecision};
use crate::recording::TargetId;

/// Engines that a target can name. Whether one is built in is another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineKind {
    /// f64 on the host, this project's own.
    Reference,
    /// candle.
    Candle,
    /// libtorch.
    Torch,
}

impl EngineKind {
    /// Every engine, the reference first.
    pub const ALL: [Self; 3] = [Self::Reference, Self::Candle, Self::Torch];

    /// Name in targets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Candle => "candle",
            Self::Torch => "torch",
        }
    }
}

/// Who computes: `engine[:device]@precision`.
///
/// The device defaults to `cpu`, the precision to `f32`. The precision of `reference` says
/// from which weights and inputs it starts and which rounding its noise floors predict; it
/// computes in f64 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// The library.
    pub engine: EngineKind,
    /// Where it computes.
    pub device: DeviceSpec,
    /// In what.
    pub precision: Precision,
}

/// A target that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No such engine.
    #[error(
        "unknown engine `{engine}` in target `{target}`{}; write `engine[:device]@precision` with \
         reference, candle or torch", suggestion.as_deref().map(|s| format!(" (did you mean `{s}`?)")).unwrap_or_default()
    )]
    Engine {
        /// As written.
        target: String,
        /// The unknown part.
        engine: String,
        /// The nearest name.
        suggestion: Option<String>,
    },
    /// No such device.
    #[error("target `{target}`: {source}")]
    Device {
        /// As written.
        target: String,
        /// What is wrong.
        source: crate::engine::UnknownDevice,
    },
    /// The device is not one of this engine.
    #[error("target `{target}`: {engine} has no device `{device}`; use {choices}")]
    NoSuchPair {
        /// As written.
        target: String,
        /// The engine.
        engine: &'static str,
        /// The device.
        device: String,
        /// What it has.
        choices: &'static str,
    },
    /// No such precision.
    #[error("target `{target}`: {source}")]
    Precision {
        /// As written.
        target: String,
        /// What is wrong.
        source: UnknownPrecision,
    },
}

impl Target {
    /// The reference for what this target computes.
    #[must_use]
    pub const fn reference(&self) -> Self {
        Self { engine: EngineKind::Reference, device: DeviceSpec::CPU, precision: self.precision }
    }

    /// Whether this is the reference itself.
    #[must_use]
    pub const fn is_reference(&self) -> bool {
        matches!(self.engine, EngineKind::Reference)
    }

    /// Its parts by name, as a recording holds them.
    #[must_use]
    pub fn id(&self) -> TargetId {
        TargetId {
            name: self.to_string(),
            engine: self.engine.name().to_owned(),
            device: self.device.to_string(),
            precision: self.precision.to_string(),
        }
    }

    /// Its name as part of a file name: without characters that some file system refuses.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.engine {
            EngineKind::Reference => format!("reference@{}", self.precision),
            engine => format!("{}:{}@{}", engine.name(), self.device, self.precision),
        };
        f.pad(&text)
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        use crate::engine::DeviceKind::{Cpu, Cuda, Metal, Mps, MpsEmulated};
        let target = || text.to_owned();
        let (place, precision) = text.split_once('@').unwrap_or((text, "f32"));
        let (engine, device) = place.split_once(':').unwrap_or((place, "cpu"));
        let engine = EngineKind::ALL.into_iter().find(|e| e.name() == engine).ok_or_else(|| {
            let near =
                EngineKind::ALL.iter().map(|e| (e.name(), strsim::damerau_levenshtein(e.name(), engine)));
            let suggestion = near.filter(|(_, d)| *d <= 3).min_by_key(|(_, d)| *d).map(|(n, _)| n.to_owned());
            TargetError::Engine { target: target(), engine: engine.to_owned(), suggestion }
        })?;
        let device: DeviceSpec =
            device.parse().map_err(|source| TargetError::Device { target: target(), source })?;
        let (fits, choices) = match engine {
            EngineKind::Reference => (device.kind == Cpu, "cpu"),
            EngineKind::Candle => (matches!(device.kind, Cpu | Cuda | Metal), "cpu, cuda[:N] or metal[:N]"),
            EngineKind::Torch => {
                (matches!(device.kind, Cpu | Cuda | Mps | MpsEmulated), "cpu, cuda[:N] or mps")
            }
        };
        if !fits {
            let (engine, device) = (engine.name(), device.to_string());
            return Err(TargetError::NoSuchPair { target: target(), engine, device, choices });
        }
        let precision =
            precision.parse().map_err(|source| TargetError::Precision { target: target(), source })?;
        Ok(Self { engine, device, precision })
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_they_are_read() {
        for text in ["reference@f32", "candle:cpu@bf16", "torch:cuda:1@tf32", "candle:metal:0@f16"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for (short, full) in [
            ("reference", "reference@f32"),
            ("candle", "candle:cpu@f32"),
            ("candle@f64", "candle:cpu@f64"),
            ("torch:cuda", "torch:cuda:0@f32"),
            ("torch:mps-emulated", "torch:mps-emulated:0@f32"),
        ] {
            assert_eq!(short.parse::<Target>().unwrap().to_string(), full);
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        for (text, part) in [
            ("candel:cpu@f32", "did you mean `candle`"),
            ("", "unknown engine"),
            ("mlx", "reference, candle or torch"),
            ("candle:gpu@f32", "gpu"),
            ("candle:mps@f32", "metal"),
            ("candle:mps-emulated@f32", "metal"),
            ("torch:metal@f32", "mps"),
            ("reference:cuda@f32", "cpu"),
            ("candle:cpu@f8", "f8"),
            ("candle:cuda:x@f32", "cuda:x"),
        ] {
            let message = text.parse::<Target>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn every_target_has_the_reference_of_its_precision() {
        let target: Target = "torch:cuda:1@bf16".parse().unwrap();
        assert_eq!(target.reference().to_string(), "reference@bf16");
        assert!(target.reference().is_reference() && !target.is_reference());
        assert_eq!(target.file_name(), "torch-cuda-1@bf16");
    }
}
