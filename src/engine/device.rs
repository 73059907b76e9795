//! [`DeviceSpec`]: the device part of a target.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Family of devices, under the names that targets use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// Host processor.
    Cpu,
    /// NVIDIA GPU.
    Cuda,
    /// Apple GPU through Metal (candle's name).
    Metal,
    /// Apple GPU through Metal Performance Shaders (libtorch's name).
    Mps,
    /// A software device in the place of [`DeviceKind::Mps`], for tests: a kind of its own, so
    /// that nothing it produces can be taken for a result of the real one.
    MpsEmulated,
}

impl DeviceKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Cuda, Self::Metal, Self::Mps, Self::MpsEmulated];

    /// Lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Mps => "mps",
            Self::MpsEmulated => "mps-emulated",
        }
    }
}

/// A device as a target names it: `cpu`, `cuda:1`, `metal`. The index defaults to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// Family.
    pub kind: DeviceKind,
    /// Which one of the family; always 0 for `cpu`.
    pub index: usize,
}

/// A device name that no engine knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device `{0}`; use cpu, cuda[:N], metal[:N] or mps[:N]")]
pub struct UnknownDevice(pub String);

impl DeviceSpec {
    /// The host processor.
    pub const CPU: Self = Self { kind: DeviceKind::Cpu, index: 0 };
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Cpu => f.pad("cpu"),
            kind => f.pad(&format!("{}:{}", kind.name(), self.index)),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownDevice(text.to_owned());
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index.parse::<usize>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)?;
        match (kind, index) {
            (DeviceKind::Cpu, Some(index)) if index > 0 => Err(unknown()),
            (kind, index) => Ok(Self { kind, index: index.unwrap_or(0) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_written_with_their_index() {
        for (text, canonical) in [
            ("cpu", "cpu"),
            ("cpu:0", "cpu"),
            ("cuda", "cuda:0"),
            ("cuda:3", "cuda:3"),
            ("metal", "metal:0"),
            ("mps-emulated", "mps-emulated:0"),
        ] {
            assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn unknown_devices_are_refused() {
        for text in ["", "gpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            let message = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(message.ends_with("use cpu, cuda[:N], metal[:N] or mps[:N]"), "{message}");
        }
    }
}
