//! Known defects of engines: `tolerances/known.toml`.
//!
//! An entry excuses nothing: what it describes is a deviation of the engine and counts as
//! one. It tells the reader that the cause has been found, and where it is described.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::judge::Fault;
use super::survey::KnownAs;
use crate::engine::EngineInfo;
use crate::numerics::DType;
use crate::program::OpKind;

/// The built-in table.
const BUILTIN: &str = include_str!("../../tolerances/known.toml");

/// The table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// Not TOML, an unknown key, or a missing one.
    #[error("tolerances/known.toml: {0}")]
    Syntax(#[from] toml::de::Error),
    /// An entry that says nothing.
    #[error("tolerances/known.toml: entry {entry} ({operator}): {problem}; correct it")]
    Entry {
        /// Position, from 1.
        entry: usize,
        /// Its operator.
        operator: String,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default)]
    known: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    engine: String,
    versions: Vec<String>,
    #[serde(default)]
    devices: Vec<String>,
    operators: Vec<String>,
    #[serde(default)]
    kernels: Option<String>,
    #[serde(default)]
    quantities: Vec<String>,
    #[serde(default)]
    faults: Vec<Fault>,
    #[serde(default)]
    dtypes: Vec<DType>,
    reason: String,
    reference: String,
}

/// Known defects, in the order of the file.
#[derive(Clone, Debug)]
pub struct KnownDefects(Vec<Entry>);

/// Where something wrong was seen.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Who computed.
    pub engine: &'a EngineInfo,
    /// `ATen` name.
    pub operator: &'a str,
    /// Kernel set, unless it is the default one.
    pub kernels: Option<&'a str>,
    /// `result.0`, `gradient of weight`.
    pub quantity: &'a str,
    /// What kind.
    pub fault: Fault,
    /// Dtypes that show it.
    pub dtypes: &'a BTreeSet<DType>,
}

impl KnownDefects {
    /// The built-in table.
    ///
    /// # Errors
    /// Never in a released version: a test reads it.
    pub fn builtin() -> Result<Self, KnownError> {
        Self::parse(BUILTIN)
    }

    /// Reads a table strictly: an unknown key, operator or an empty reason is refused.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, KnownError> {
        let file: File = toml::from_str(text)?;
        let problem = |position: usize, entry: &Entry| -> Option<String> {
            let unknown =
                entry.operators.iter().find(|name| !OpKind::ALL.iter().any(|kind| kind.name() == **name));
            if file.schema != 1 {
                Some(format!("schema {} is not 1", file.schema))
            } else if let Some(name) = unknown {
                Some(format!("`{name}` is no operator"))
            } else if !matches!(entry.engine.as_str(), "candle" | "torch" | "reference") {
                Some(format!("`{}` is no engine", entry.engine))
            } else if entry.operators.is_empty() || entry.versions.is_empty() {
                Some("operators and versions may not be empty".to_owned())
            } else if entry.reason.trim().is_empty() || entry.reference.trim().is_empty() {
                Some("reason and reference may not be empty".to_owned())
            } else {
                debug_assert!(position < file.known.len());
                None
            }
        };
        for (position, entry) in file.known.iter().enumerate() {
            if let Some(problem) = problem(position, entry) {
                let operator = entry.operators.first().cloned().unwrap_or_default();
                return Err(KnownError::Entry { entry: position + 1, operator, problem });
            }
        }
        Ok(Self(file.known))
    }

    /// What is known of a place; the first entry that covers it with all its dtypes.
    #[must_use]
    pub fn find(&self, place: &Place<'_>) -> Option<KnownAs> {
        let entry = self.0.iter().find(|entry| entry.covers(place))?;
        Some(KnownAs { reason: entry.reason.clone(), reference: entry.reference.clone() })
    }
}

impl Entry {
    fn covers(&self, place: &Place<'_>) -> bool {
        fn listed(list: &[String], word: &str) -> bool {
            list.is_empty() || list.iter().any(|entry| entry == word)
        }
        // Results in training are the same quantity, computed where a gradient is asked for.
        let quantity = place.quantity.trim_end_matches(" in training");
        let device = place.engine.device.split(':').next().unwrap_or_default();
        self.engine == place.engine.engine
            && listed(&self.versions, &place.engine.version)
            && listed(&self.devices, device)
            && self.operators.iter().any(|operator| operator == place.operator)
            && self.kernels.as_deref() == place.kernels
            && listed(&self.quantities, quantity)
            && (self.faults.is_empty() || self.faults.contains(&place.fault))
            && (self.dtypes.is_empty() || place.dtypes.iter().all(|dtype| self.dtypes.contains(dtype)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(version: &str) -> EngineInfo {
        EngineInfo {
            engine: "candle".to_owned(),
            version: version.to_owned(),
            device: "cpu".to_owned(),
            device_name: None,
            emulated: false,
            deterministic: true,
            modes: Vec::new(),
        }
    }

    const ENTRY: &str = r#"
        schema = 1
        [[known]]
        engine = "candle"
        versions = ["0.11.1"]
        operators = ["sum"]
        quantities = ["result.0"]
        dtypes = ["f16", "bf16"]
        reason = "summed in the half type"
        reference = "somewhere"
    "#;

    #[test]
    fn the_built_in_table_is_read() {
        assert!(!KnownDefects::builtin().unwrap().0.is_empty());
    }

    #[test]
    fn an_entry_covers_its_engine_version_operator_and_dtypes_and_nothing_else() {
        let known = KnownDefects::parse(ENTRY).unwrap();
        let find = |version: &str, operator: &str, quantity: &str, dtypes: &[DType]| {
            let (engine, dtypes) = (engine(version), dtypes.iter().copied().collect());
            let place = Place {
                engine: &engine,
                operator,
                kernels: None,
                quantity,
                fault: Fault::Value,
                dtypes: &dtypes,
            };
            known.find(&place).is_some()
        };
        assert!(find("0.11.1", "sum", "result.0", &[DType::F16]));
        assert!(find("0.11.1", "sum", "result.0 in training", &[DType::BF16]));
        assert!(!find("0.11.2", "sum", "result.0", &[DType::F16]));
        assert!(!find("0.11.1", "mean", "result.0", &[DType::F16]));
        assert!(!find("0.11.1", "sum", "gradient of x", &[DType::F16]));
        assert!(!find("0.11.1", "sum", "result.0", &[DType::F16, DType::F32]));
    }

    #[test]
    fn mistakes_are_refused() {
        for (from, to, part) in [
            ("reason", "raeson", "unknown field"),
            ("\"sum\"", "\"summ\"", "`summ` is no operator"),
            ("\"candle\"", "\"candel\"", "`candel` is no engine"),
            ("\"summed in the half type\"", "\" \"", "reason"),
            ("schema = 1", "schema = 2", "schema 2"),
        ] {
            let error = KnownDefects::parse(&ENTRY.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
