//! Which quantities of two recordings belong together, and what was left out.
//!
//! By name, never by position: nothing is cut to the shorter list, renamed or guessed.
//! Every expected quantity ends in exactly one [`Fate`], and [`Coverage`] counts the fates
//! apart. Nothing compared, or not everything that was expected, can therefore never look
//! like success.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{GradientState, Structural};
use crate::numerics::DType;

/// What a recording says about one quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantityEntry {
    /// Stable name, such as `gradient/encoder.0.weight`.
    pub name: String,
    /// What is there.
    pub presence: Presence,
}

/// What is there of one quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// A tensor, or a scalar (empty shape).
    Tensor {
        /// Element type.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
        /// For gradients: what they hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gradient: Option<GradientState>,
    },
    /// The engine answered that it has no gradient.
    NoGradient,
    /// The target did not produce it, for a declared reason.
    Skipped {
        /// Such as `candle:cpu does not support conv2d in bf16`.
        reason: String,
    },
}

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What is judged.
    Candidate,
    /// What it is judged against.
    Reference,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Candidate => "candidate",
            Self::Reference => "reference",
        })
    }
}

/// Three lists of names: what should be there, and what is.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// Names that the plan asks for.
    pub expected: &'a [String],
    /// Entries of the candidate.
    pub candidate: &'a [QuantityEntry],
    /// Entries of the reference.
    pub reference: &'a [QuantityEntry],
}

/// The lists cannot be aligned: no verdict is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlignmentError {
    /// A name stands twice in one list.
    #[error(
        "the {list} names `{name}` twice, so it is not known which one is meant; \
         record again with one quantity of that name"
    )]
    Duplicate {
        /// `expected list`, `candidate`, `reference`.
        list: &'static str,
        /// The name.
        name: String,
    },
}

/// What becomes of one quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// Both sides have a tensor of the same shape and dtype class: compare values.
    Compare,
    /// Both sides have something, and what they have differs already: a verdict, and it
    /// counts as compared.
    Differs {
        /// In what.
        difference: Difference,
    },
    /// Neither side has a gradient: agreement about an absence; it counts as compared.
    NeitherHasGradient,
    /// A target declared that it cannot produce it.
    Skipped {
        /// Who.
        side: Side,
        /// Why.
        reason: String,
    },
    /// Expected, and not there.
    Missing {
        /// On which sides.
        sides: Vec<Side>,
    },
    /// There, but not expected: nobody judges it.
    Unchecked {
        /// Where it was found.
        sides: Vec<Side>,
    },
}

/// A difference before any value is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// Shapes differ.
    Shape {
        /// Shape of the candidate.
        candidate: Vec<usize>,
        /// Shape of the reference.
        reference: Vec<usize>,
    },
    /// Floats against integers.
    DTypeClass {
        /// Dtype of the candidate.
        candidate: DType,
        /// Dtype of the reference.
        reference: DType,
    },
    /// One side has no gradient, the other has one (zero or not).
    Gradient {
        /// State on the candidate's side.
        candidate: GradientState,
        /// State on the reference's side.
        reference: GradientState,
    },
}

impl From<Difference> for Option<Structural> {
    fn from(difference: Difference) -> Self {
        match difference {
            Difference::Shape { candidate, reference } => Some(Structural::Shape { candidate, reference }),
            Difference::DTypeClass { candidate, reference } => {
                Some(Structural::DTypeClass { candidate, reference })
            }
            Difference::Gradient { .. } => None,
        }
    }
}

/// One row of an alignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the quantity.
    pub name: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// Counts that are never merged: they add up to the number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Quantities that the plan asks for.
    pub expected: usize,
    /// Of those: compared (by value, or found different in structure).
    pub compared: usize,
    /// Of those: declared as not available, with a reason.
    pub skipped: usize,
    /// Of those: absent on a side without a word.
    pub missing: usize,
    /// Found but not expected, or without a rule to judge by: seen by nobody.
    pub unchecked: usize,
}

impl Coverage {
    /// Whether every expected quantity was compared, and there was at least one. The
    /// opposite is exit code 4.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.expected > 0 && self.compared == self.expected
    }

    /// Whether nothing at all was compared.
    #[must_use]
    pub const fn is_void(&self) -> bool {
        self.compared == 0
    }

    /// Moves one compared quantity to the unchecked ones: it has no rule to be judged by,
    /// or turned out to be empty. It stays expected, so that the whole is not complete.
    pub const fn retract(&mut self) {
        if self.compared > 0 {
            self.compared -= 1;
            self.unchecked += 1;
        }
    }

    /// Adds the counts of another comparison, each to its own.
    pub const fn merge(&mut self, other: &Self) {
        self.expected += other.expected;
        self.compared += other.compared;
        self.skipped += other.skipped;
        self.missing += other.missing;
        self.unchecked += other.unchecked;
    }
}

/// Result of aligning two recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Expected quantities in the order of the plan, then unexpected ones by name.
    pub rows: Vec<Row>,
    /// Their counts.
    pub coverage: Coverage,
}

impl Alignment {
    /// Rows whose values are to be compared.
    pub fn comparable(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.fate == Fate::Compare)
    }
}

/// Aligns two recordings by the names of their quantities.
///
/// # Errors
/// If a name stands twice in one of the lists.
pub fn align(lists: &Lists<'_>) -> Result<Alignment, AlignmentError> {
    let candidate = index("candidate", lists.candidate)?;
    let reference = index("reference", lists.reference)?;
    let mut alignment = Alignment::default();
    let mut expected = BTreeSet::new();
    for name in lists.expected {
        if !expected.insert(name.as_str()) {
            return Err(AlignmentError::Duplicate { list: "expected list", name: name.clone() });
        }
        let fate = fate(candidate.get(name.as_str()).copied(), reference.get(name.as_str()).copied());
        let coverage = &mut alignment.coverage;
        coverage.expected += 1;
        match fate {
            Fate::Compare | Fate::Differs { .. } | Fate::NeitherHasGradient => coverage.compared += 1,
            Fate::Skipped { .. } => coverage.skipped += 1,
            Fate::Missing { .. } => coverage.missing += 1,
            Fate::Unchecked { .. } => coverage.unchecked += 1,
        }
        alignment.rows.push(Row { name: name.clone(), fate });
    }
    let mut unexpected: BTreeMap<&str, Vec<Side>> = BTreeMap::new();
    for (side, entries) in [(Side::Candidate, &candidate), (Side::Reference, &reference)] {
        for name in entries.keys().filter(|name| !expected.contains(**name)) {
            unexpected.entry(name).or_default().push(side);
        }
    }
    for (name, sides) in unexpected {
        alignment.coverage.unchecked += 1;
        alignment.rows.push(Row { name: name.to_owned(), fate: Fate::Unchecked { sides } });
    }
    Ok(alignment)
}

fn index<'a>(
    list: &'static str,
    entries: &'a [QuantityEntry],
) -> Result<BTreeMap<&'a str, &'a Presence>, AlignmentError> {
    let mut index = BTreeMap::new();
    for entry in entries {
        if index.insert(entry.name.as_str(), &entry.presence).is_some() {
            return Err(AlignmentError::Duplicate { list, name: entry.name.clone() });
        }
    }
    Ok(index)
}

fn fate(candidate: Option<&Presence>, reference: Option<&Presence>) -> Fate {
    let skipped = |side, reason: &String| Fate::Skipped { side, reason: reason.clone() };
    let (c, r) = match (candidate, reference) {
        (None, None) => return Fate::Missing { sides: vec![Side::Candidate, Side::Reference] },
        (Some(c), Some(r)) => (c, r),
        // A declared reason on one side explains the row; the other side's silence does not.
        (Some(_), None) => return Fate::Missing { sides: vec![Side::Reference] },
        (None, Some(_)) => return Fate::Missing { sides: vec![Side::Candidate] },
    };
    match (c, r) {
        (Presence::Skipped { reason }, _) => skipped(Side::Candidate, reason),
        (_, Presence::Skipped { reason }) => skipped(Side::Reference, reason),
        (Presence::NoGradient, Presence::NoGradient) => Fate::NeitherHasGradient,
        (Presence::NoGradient, Presence::Tensor { gradient, .. }) => Fate::Differs {
            difference: Difference::Gradient {
                candidate: GradientState::None,
                reference: gradient.unwrap_or(GradientState::Value),
            },
        },
        (Presence::Tensor { gradient, .. }, Presence::NoGradient) => Fate::Differs {
            difference: Difference::Gradient {
                candidate: gradient.unwrap_or(GradientState::Value),
                reference: GradientState::None,
            },
        },
        (
            Presence::Tensor { dtype: c_dtype, shape: c_shape, .. },
            Presence::Tensor { dtype: r_dtype, shape: r_shape, .. },
        ) => {
            if c_dtype.is_float() != r_dtype.is_float() {
                let difference = Difference::DTypeClass { candidate: *c_dtype, reference: *r_dtype };
                Fate::Differs { difference }
            } else if c_shape == r_shape {
                Fate::Compare
            } else {
                let (candidate, reference) = (c_shape.clone(), r_shape.clone());
                Fate::Differs { difference: Difference::Shape { candidate, reference } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize]) -> QuantityEntry {
        let presence = Presence::Tensor { dtype: DType::F32, shape: shape.to_vec(), gradient: None };
        QuantityEntry { name: name.to_owned(), presence }
    }

    fn aligned(
        expected: &[&str],
        candidate: &[QuantityEntry],
        reference: &[QuantityEntry],
    ) -> Result<Alignment, AlignmentError> {
        let expected: Vec<String> = expected.iter().map(|s| (*s).to_owned()).collect();
        align(&Lists { expected: &expected, candidate, reference })
    }

    #[test]
    fn order_does_not_matter_and_names_do() {
        let a = aligned(
            &["x", "y"],
            &[tensor("x", &[2]), tensor("y", &[3])],
            &[tensor("y", &[3]), tensor("x", &[2])],
        )
        .unwrap();
        assert_eq!(a.coverage, Coverage { expected: 2, compared: 2, ..Coverage::default() });
        assert!(a.coverage.is_complete());
        assert_eq!(a.comparable().count(), 2);
    }

    #[test]
    fn an_output_missing_on_one_side_is_missing_not_a_warning() {
        let a = aligned(&["x", "y"], &[tensor("x", &[2])], &[tensor("x", &[2]), tensor("y", &[2])]).unwrap();
        assert_eq!(a.rows[1].fate, Fate::Missing { sides: vec![Side::Candidate] });
        assert_eq!((a.coverage.compared, a.coverage.missing), (1, 1));
        assert!(!a.coverage.is_complete());
        let a = aligned(&["x"], &[tensor("x", &[2])], &[]).unwrap();
        assert_eq!(a.rows[0].fate, Fate::Missing { sides: vec![Side::Reference] });
    }

    #[test]
    fn zero_quantities_are_void_not_complete() {
        let a = aligned(&[], &[], &[]).unwrap();
        assert!(a.coverage.is_void() && !a.coverage.is_complete());
        let a = aligned(&[], &[tensor("x", &[1])], &[tensor("x", &[1])]).unwrap();
        assert!(a.coverage.is_void() && !a.coverage.is_complete());
        assert_eq!(a.coverage.unchecked, 1);
    }

    #[test]
    fn a_quantity_without_a_reference_is_unchecked_and_not_counted_as_passed() {
        let a = aligned(&["x"], &[tensor("x", &[1]), tensor("extra", &[1])], &[tensor("x", &[1])]).unwrap();
        assert_eq!(a.rows[1].fate, Fate::Unchecked { sides: vec![Side::Candidate] });
        assert_eq!((a.coverage.compared, a.coverage.unchecked), (1, 1));
        let mut coverage = a.coverage;
        coverage.retract();
        assert_eq!((coverage.compared, coverage.unchecked), (0, 2));
        assert!(!coverage.is_complete());
    }

    #[test]
    fn a_longer_output_differs_instead_of_being_cut() {
        let a = aligned(&["x"], &[tensor("x", &[3])], &[tensor("x", &[2])]).unwrap();
        assert!(matches!(a.rows[0].fate, Fate::Differs { difference: Difference::Shape { .. } }));
        assert_eq!((a.coverage.compared, a.comparable().count()), (1, 0));
    }

    #[test]
    fn a_none_gradient_is_not_a_zero_gradient() {
        let none = QuantityEntry { name: "g".to_owned(), presence: Presence::NoGradient };
        let zero = QuantityEntry {
            name: "g".to_owned(),
            presence: Presence::Tensor {
                dtype: DType::F32,
                shape: vec![2],
                gradient: Some(GradientState::Zero),
            },
        };
        let a = aligned(&["g"], std::slice::from_ref(&none), std::slice::from_ref(&zero)).unwrap();
        let difference =
            Difference::Gradient { candidate: GradientState::None, reference: GradientState::Zero };
        assert_eq!(a.rows[0].fate, Fate::Differs { difference });
        let a = aligned(&["g"], std::slice::from_ref(&none), std::slice::from_ref(&none)).unwrap();
        assert_eq!(a.rows[0].fate, Fate::NeitherHasGradient);
    }

    #[test]
    fn an_unsupported_operator_is_skipped_with_its_reason_and_never_compared() {
        let skipped = QuantityEntry {
            name: "x".to_owned(),
            presence: Presence::Skipped { reason: "no conv2d in bf16".to_owned() },
        };
        let a = aligned(&["x"], &[skipped], &[tensor("x", &[2])]).unwrap();
        let reason = "no conv2d in bf16".to_owned();
        assert_eq!(a.rows[0].fate, Fate::Skipped { side: Side::Candidate, reason });
        assert_eq!((a.coverage.skipped, a.coverage.compared), (1, 0));
        assert!(!a.coverage.is_complete());
    }

    #[test]
    fn duplicate_names_are_refused() {
        let twice = [tensor("x", &[1]), tensor("x", &[1])];
        let once = [tensor("x", &[1])];
        assert!(aligned(&["x"], &twice, &once).is_err());
        assert!(aligned(&["x"], &once, &twice).is_err());
        let error = aligned(&["x", "x"], &once, &once).unwrap_err();
        assert!(error.to_string().contains("`x` twice"), "{error}");
    }

    #[test]
    fn counts_add_up_to_the_rows() {
        let a = aligned(
            &["a", "b"],
            &[tensor("a", &[1]), tensor("c", &[1])],
            &[tensor("a", &[1]), tensor("c", &[1]), tensor("d", &[1])],
        )
        .unwrap();
        let c = a.coverage;
        assert_eq!(c.compared + c.skipped + c.missing, c.expected);
        assert_eq!(c.expected + c.unchecked, a.rows.len());
    }
}
