//! `config.json`: typed access, with errors that name file and field.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::program::BuildError;

/// Name of the config in a model directory.
pub const CONFIG_FILE: &str = "config.json";

/// Largest size that any field may have: beyond every real model, and small enough that
/// no product of a few sizes overflows.
pub(super) const MAX_SIZE: u64 = 1 << 24;

/// Most layers that a model may have.
const MAX_LAYERS: usize = 4096;

/// No program could be made from a config.
#[derive(Debug, thiserror::Error)]
#[error("`{path}`: {fault}")]
pub struct ArchitectureError {
    /// The config file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub fault: ConfigFault,
}

/// What is wrong with a config. Messages are fragments that follow "`file`: ".
#[derive(Debug, thiserror::Error)]
pub enum ConfigFault {
    /// There is none.
    #[error("no such file; put the model's config.json beside its weights")]
    Missing,
    /// The system refused.
    #[error("cannot be read: {0}; check its permissions")]
    Io(std::io::Error),
    /// Not JSON.
    #[error("is not JSON: {0}; fetch it again or correct it there")]
    Json(serde_json::Error),
    /// JSON, but no object.
    #[error("is not a JSON object; fetch the model's config.json again")]
    NotAnObject,
    /// A field that has no default is not there.
    #[error("the field `{0}` is missing; add it")]
    MissingField(&'static str),
    /// A field holds another type.
    #[error("the field `{field}` must be {expected}, it is {found}; correct it")]
    WrongType {
        /// Field.
        field: String,
        /// In words.
        expected: &'static str,
        /// The JSON text, cut short.
        found: String,
    },
    /// A field is out of range.
    #[error("the field `{field}` is {found}, it must be {expected}; correct it")]
    OutOfRange {
        /// Field.
        field: String,
        /// The value.
        found: String,
        /// In words.
        expected: String,
    },
    /// A family that this build does not know.
    #[error("unknown model_type `{found}`{hint}; known are {known}")]
    UnknownModelType {
        /// As the config has it.
        found: String,
        /// Names of all families.
        known: String,
        /// The nearest name, as a suggestion, or nothing.
        hint: String,
    },
    /// An activation function that this build does not know.
    #[error("unknown activation `{found}` in the field `{field}`; known are {known}")]
    UnknownActivation {
        /// Field.
        field: &'static str,
        /// As the config has it.
        found: String,
        /// Names of all.
        known: String,
    },
    /// Two fields contradict each other.
    #[error("{0}")]
    Inconsistent(String),
    /// A switch that changes the computation in a way that is not built.
    #[error("the field `{field}` is {found}, which is not supported; only {supported} is")]
    Unsupported {
        /// Field.
        field: &'static str,
        /// The value.
        found: String,
        /// What is supported.
        supported: &'static str,
    },
    /// What was asked for besides the config.
    #[error("{0}")]
    Options(String),
    /// The sizes do not make a program.
    #[error("the config does not make a consistent model: {0}; correct its sizes")]
    Build(#[from] BuildError),
}

/// The fields of a config. Unknown fields are ignored: configs hold many that do not change
/// the numbers. A field that is `null` counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Config {
    fields: Map<String, Value>,
}

impl Config {
    /// Reads the config of a model directory.
    ///
    /// # Errors
    /// If it is absent, unreadable, or not a JSON object.
    pub fn read(model_dir: &Path) -> Result<Self, ArchitectureError> {
        let path = model_dir.join(CONFIG_FILE);
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ConfigFault::Missing,
            _ => ConfigFault::Io(error),
        });
        text.and_then(|text| Self::parse(&text)).map_err(|fault| ArchitectureError { path, fault })
    }

    /// Reads a config from its text.
    ///
    /// # Errors
    /// If it is not a JSON object.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigFault> {
        match serde_json::from_slice(text).map_err(ConfigFault::Json)? {
            Value::Object(fields) => Ok(Self { fields }),
            _ => Err(ConfigFault::NotAnObject),
        }
    }

    /// The value of a field that is there and not `null`.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// A positive size with a default.
    pub(super) fn size_or(&self, field: &'static str, default: usize) -> Result<usize, ConfigFault> {
        self.get(field).map_or(Ok(default), |value| positive(field, value))
    }

    /// A number of layers with a default.
    pub(super) fn layers_or(&self, field: &'static str, default: usize) -> Result<usize, ConfigFault> {
        let layers = self.size_or(field, default)?;
        if layers <= MAX_LAYERS { Ok(layers) } else { Err(too_many(field, layers)) }
    }

    /// A list of numbers of layers; `None` where absent.
    pub(super) fn depths(&self, field: &'static str) -> Result<Option<Vec<usize>>, ConfigFault> {
        let depths = self.sizes(field)?;
        let total = depths.iter().flatten().fold(0usize, |sum, depth| sum.saturating_add(*depth));
        if total <= MAX_LAYERS { Ok(depths) } else { Err(too_many(field, total)) }
    }

    /// A size, or a pair of sizes `[height, width]`, with a default for both.
    pub(super) fn pair_or(&self, field: &'static str, default: usize) -> Result<[usize; 2], ConfigFault> {
        match self.get(field) {
            None => Ok([default; 2]),
            Some(Value::Array(pair)) => match pair.as_slice() {
                [height, width] => Ok([positive(field, height)?, positive(field, width)?]),
                _ => Err(wrong_type(field, "a size or a pair of sizes", &Value::Array(pair.clone()))),
            },
            Some(value) => positive(field, value).map(|size| [size; 2]),
        }
    }

    /// A list of positive sizes; `None` where absent.
    pub(super) fn sizes(&self, field: &'static str) -> Result<Option<Vec<usize>>, ConfigFault> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(list)) => {
                list.iter().map(|value| positive(field, value)).collect::<Result<_, _>>().map(Some)
            }
            Some(value) => Err(wrong_type(field, "a list of sizes", value)),
        }
    }

    /// A finite number, at least 0, with a default.
    pub(super) fn number_or(&self, field: &'static str, default: f64) -> Result<f64, ConfigFault> {
        let Some(value) = self.get(field) else { return Ok(default) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(number),
            Some(number) => Err(ConfigFault::OutOfRange {
                field: field.to_owned(),
                found: number.to_string(),
                expected: "finite and not negative".to_owned(),
            }),
            None => Err(wrong_type(field, "a number", value)),
        }
    }

    /// A probability below 1, with a default.
    pub(super) fn probability_or(&self, field: &'static str, default: f64) -> Result<f64, ConfigFault> {
        let p = self.number_or(field, default)?;
        if p < 1.0 {
            return Ok(p);
        }
        Err(ConfigFault::OutOfRange {
            field: field.to_owned(),
            found: p.to_string(),
            expected: "at least 0 and below 1".to_owned(),
        })
    }

    /// A switch with a default.
    pub(super) fn flag_or(&self, field: &'static str, default: bool) -> Result<bool, ConfigFault> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| wrong_type(field, "true or false", value))
    }

    /// A text with a default.
    pub(super) fn text_or<'a>(
        &'a self,
        field: &'static str,
        default: &'a str,
    ) -> Result<&'a str, ConfigFault> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_str().ok_or_else(|| wrong_type(field, "a text", value))
    }

    /// Refuses a switch that is not at the one value that is built.
    pub(super) fn require_flag(
        &self,
        field: &'static str,
        default: bool,
        supported: bool,
    ) -> Result<(), ConfigFault> {
        let found = self.flag_or(field, default)?;
        if found == supported {
            return Ok(());
        }
        let supported = if supported { "true" } else { "false" };
        Err(ConfigFault::Unsupported { field, found: found.to_string(), supported })
    }

    /// Number of classes: the length of `id2label`, else `num_labels`, else 2. More than one:
    /// a single class means regression in these families, which is not built.
    pub(super) fn classes(&self) -> Result<usize, ConfigFault> {
        let classes = match self.get("id2label") {
            Some(Value::Object(labels)) => labels.len(),
            Some(value) => return Err(wrong_type("id2label", "an object", value)),
            None => self.size_or("num_labels", 2)?,
        };
        if classes > 1 {
            return Ok(classes);
        }
        Err(ConfigFault::OutOfRange {
            field: "id2label".to_owned(),
            found: format!("{classes} long"),
            expected: "at least 2 classes long (one class means regression, which is not supported)"
                .to_owned(),
        })
    }
}

fn positive(field: &str, value: &Value) -> Result<usize, ConfigFault> {
    let out_of_range = || ConfigFault::OutOfRange {
        field: field.to_owned(),
        found: short(value),
        expected: format!("a whole number from 1 to {MAX_SIZE}"),
    };
    match value {
        Value::Number(number) => number
            .as_u64()
            .filter(|n| (1..=MAX_SIZE).contains(n))
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(out_of_range),
        _ => Err(wrong_type(field, "a whole number", value)),
    }
}

fn too_many(field: &str, found: usize) -> ConfigFault {
    ConfigFault::OutOfRange {
        field: field.to_owned(),
        found: found.to_string(),
        expected: format!("at most {MAX_LAYERS} layers"),
    }
}

fn wrong_type(field: &str, expected: &'static str, found: &Value) -> ConfigFault {
    ConfigFault::WrongType { field: field.to_owned(), expected, found: short(found) }
}

/// JSON text of a value, cut short.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn null_counts_as_absent_and_unknown_fields_are_ignored() {
        let c = config(r#"{"n_inner": null, "whatever": [1]}"#);
        assert_eq!(c.size_or("n_inner", 7).unwrap(), 7);
    }

    #[test]
    fn sizes_are_positive_whole_numbers_within_bounds() {
        for text in ["0", "-3", "2.5", "16777217", "1e30", "true", "\"12\"", "[1]"] {
            let c = config(&format!(r#"{{"hidden_size": {text}}}"#));
            let message = c.size_or("hidden_size", 1).unwrap_err().to_string();
            assert!(message.contains("`hidden_size`") && message.ends_with("correct it"), "{message}");
        }
    }

    #[test]
    fn a_size_may_be_a_pair_where_it_is_one() {
        let c = config(r#"{"a": 8, "b": [8, 12], "c": [1, 2, 3]}"#);
        assert_eq!(c.pair_or("a", 1).unwrap(), [8, 8]);
        assert_eq!(c.pair_or("b", 1).unwrap(), [8, 12]);
        assert!(c.pair_or("c", 1).is_err());
    }

    #[test]
    fn the_number_of_classes_is_the_length_of_id2label() {
        assert_eq!(config(r#"{"id2label": {"0": "a", "1": "b", "2": "c"}}"#).classes().unwrap(), 3);
        assert_eq!(config("{}").classes().unwrap(), 2);
        assert!(config(r#"{"id2label": {"0": "a"}}"#).classes().is_err());
        assert!(config(r#"{"id2label": ["a"]}"#).classes().is_err());
    }

    #[test]
    fn probabilities_stay_below_one() {
        assert!(config(r#"{"p": 1.0}"#).probability_or("p", 0.0).is_err());
        assert!(config(r#"{"p": -0.1}"#).probability_or("p", 0.0).is_err());
        assert_eq!(config(r#"{"p": 0.1}"#).probability_or("p", 0.0).unwrap(), 0.1);
    }
}
