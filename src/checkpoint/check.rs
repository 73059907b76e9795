//! Keys, shapes and dtypes against a program.

use std::collections::BTreeSet;
use std::fmt;

use super::{Checkpoint, CheckpointError, KeyProblem, KeyProblems};
use crate::program::{InputKind, Program, ProgramInput};

/// Odd, but not wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Stored, and known to be of no use to this family.
    Unused {
        /// The keys, sorted.
        keys: Vec<String>,
    },
    /// A tied tensor is stored under several keys, with different values.
    TiedDiffer {
        /// The key that is used.
        used: String,
        /// The key that is not.
        other: String,
    },
    /// Weights that are not finite.
    NonFinite {
        /// The key.
        key: String,
        /// Number of NaN elements.
        nan: usize,
        /// Number of infinite elements.
        infinite: usize,
        /// Row-major index of the first of either.
        first: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unused { keys } => {
                let shown: Vec<&str> = keys.iter().take(3).map(String::as_str).collect();
                let more = if keys.len() > shown.len() { ", ..." } else { "" };
                let noun = if keys.len() == 1 { "key is" } else { "keys are" };
                write!(f, "{} stored {noun} not used by this model ({}{more})", keys.len(), shown.join(", "))
            }
            Self::TiedDiffer { used, other } => write!(
                f,
                "`{other}` is tied to `{used}` but stored with other values; `{used}` is used, \
                 remove `{other}` or set tie_word_embeddings to false"
            ),
            Self::NonFinite { key, nan, infinite, first } => write!(
                f,
                "`{key}` holds {nan} NaN and {infinite} infinite values, the first at element {first}; \
                 every result that depends on it will be non-finite too"
            ),
        }
    }
}

impl Checkpoint {
    /// Holds the checkpoint against `program`: every parameter and buffer is stored (or a
    /// tied alias is), in the right shape and class of dtype (any float width serves), and
    /// nothing is stored that the program does not know.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`] with all of it.
    pub fn check(&self, program: &Program) -> Result<Vec<Warning>, CheckpointError> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let wanted = program
            .inputs
            .iter()
            .filter(|input| matches!(input.kind, InputKind::Parameter | InputKind::Buffer));
        for input in wanted {
            known.extend(std::iter::once(&input.name).chain(&input.aliases).map(String::as_str));
            let value = program.value(input.value);
            let Some((key, entry)) = self.stored_key(input).and_then(|key| Some((key, self.entry(key)?)))
            else {
                problems.push(KeyProblem::Missing { key: input.name.clone(), shape: value.shape.clone() });
                continue;
            };
            if entry.shape != value.shape {
                problems.push(KeyProblem::Misshaped {
                    key: key.to_owned(),
                    expected: value.shape.clone(),
                    found: entry.shape.clone(),
                });
            }
            if entry.dtype.is_float() != value.dtype.is_float() {
                let key = key.to_owned();
                problems.push(KeyProblem::WrongDType { key, expected: value.dtype, found: entry.dtype });
            }
            warnings.extend(self.tied(input, key));
        }
        let mut unused = Vec::new();
        for key in self.keys().filter(|key| !known.contains(key)) {
            if program.unused_keys.iter().any(|pattern| matches(pattern, key)) {
                unused.push(key.to_owned());
            } else {
                let shape = self.entry(key).map(|entry| entry.shape.clone()).unwrap_or_default();
                problems.push(KeyProblem::Unexpected { key: key.to_owned(), shape });
            }
        }
        if !problems.is_empty() {
            problems.sort();
            return Err(CheckpointError::Mismatch {
                path: self.path().to_path_buf(),
                problems: KeyProblems(problems),
            });
        }
        if !unused.is_empty() {
            warnings.insert(0, Warning::Unused { keys: unused });
        }
        Ok(warnings)
    }

    /// Other keys of a tied input that hold something else.
    fn tied(&self, input: &ProgramInput, used: &str) -> Vec<Warning> {
        let Some(tensor) = self.get(used) else { return Vec::new() };
        let differs = |key: &&String| {
            self.get(key).is_some_and(|other| {
                (other.dtype(), other.shape(), other.bytes())
                    != (tensor.dtype(), tensor.shape(), tensor.bytes())
            })
        };
        input
            .aliases
            .iter()
            .filter(|key| *key != used)
            .filter(differs)
            .map(|other| Warning::TiedDiffer { used: used.to_owned(), other: other.clone() })
            .collect()
    }
}

/// Whether `pattern`, in which `*` stands for any text, describes all of `key`.
fn matches(pattern: &str, key: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| key.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("a.b", "a.b") && !matches("a.b", "a.bc") && !matches("a.b", "xa.b"));
        assert!(matches("vit.pooler.*", "vit.pooler.dense.bias") && !matches("vit.pooler.*", "vit.x"));
        assert!(matches("*.attn.bias", "transformer.h.0.attn.bias"));
        assert!(!matches("*.attn.bias", "transformer.h.0.attn.c_attn.bias"));
        assert!(matches("h.*.a.*", "h.1.a.x") && !matches("h.*.a.*", "h.1.b.x"));
        assert!(!matches("ab*ba", "aba"), "prefix and suffix may not share text");
    }
}
