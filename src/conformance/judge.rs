//! One delivered tensor against what it must be.
//!
//! Non-finite values are settled before any arithmetic. What is left is measured in floors:
//! ‖e‖ / ‖sigma‖ over the tensor, and the largest |e_i| / sigma_i, whose bound grows with the
//! number of elements as the extreme of that many normal deviations does. Where sigma is 0
//! no correct engine deviates, and any difference is outside.

use serde::{Deserialize, Serialize};

use super::floor::Expected;
use crate::numerics::{DType, Role};
use crate::tensor::HostTensor;

/// Multiples of the floor of one operator alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiples {
    /// At most this: within.
    pub pass: f64,
    /// More than this: outside.
    pub fail: f64,
}

/// Where multiples come from.
pub trait Bands {
    /// Of results of `role` in `dtype`, judged operator by operator.
    fn isolated(&self, role: Role, dtype: DType) -> Multiples;

    /// Chance of a false alarm that one tensor may have.
    fn tail(&self) -> f64;
}

/// What is wrong with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Another shape or dtype.
    Structure,
    /// NaN or infinity where there is none, or none where there is.
    NonFinite,
    /// Values beyond what rounding explains.
    Value,
    /// A gradient that does not exist, without an error.
    NoGradient,
    /// A gradient where there is none.
    UnexpectedGradient,
    /// An error, or a panic, although the operator is declared.
    Refused,
    /// Other bits in a second call.
    NotRepeatable,
    /// Computes in another mode than declared.
    ModeMismatch,
    /// The process ended.
    Died,
}

impl Fault {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::NonFinite => "non-finite",
            Self::Value => "value",
            Self::NoGradient => "no gradient",
            Self::UnexpectedGradient => "unexpected gradient",
            Self::Refused => "refused",
            Self::NotRepeatable => "not repeatable",
            Self::ModeMismatch => "mode mismatch",
            Self::Died => "died",
        }
    }
}

/// How one tensor compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// `None`: within, or between the two multiples.
    pub fault: Option<Fault>,
    /// Whether the norm is above the multiple that passes.
    pub close: bool,
    /// Beyond an accumulator in f32, but explained by sums and steps in the 16-bit dtype.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub coarse: bool,
    /// ‖e‖ in floors; infinite for what no correct engine does.
    #[serde(with = "number")]
    pub floors: f64,
    /// What was seen, in words: the worst element.
    pub note: String,
}

impl Judgement {
    /// Something that is not a matter of size.
    #[must_use]
    pub const fn fault(fault: Fault, note: String) -> Self {
        Self { fault: Some(fault), close: false, coarse: false, floors: f64::INFINITY, note }
    }
}

/// A number that may be infinite, in JSON.
mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { s.serialize_f64(*value) } else { s.serialize_str("infinite") }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Number {
            Finite(f64),
            Word(String),
        }
        Ok(match Number::deserialize(d)? {
            Number::Finite(value) => value,
            Number::Word(word) if word == "infinite" => f64::INFINITY,
            Number::Word(_) => f64::NAN,
        })
    }
}

/// Compares what an engine delivered with what it must be.
#[must_use]
pub fn judge(expected: &Expected, found: &HostTensor, bands: &dyn Bands) -> Judgement {
    if found.shape() != expected.shape || found.dtype() != expected.dtype {
        let note = format!(
            "{:?} {} instead of {:?} {}",
            found.shape(),
            found.dtype(),
            expected.shape,
            expected.dtype
        );
        return Judgement::fault(Fault::Structure, note);
    }
    let multiples = bands.isolated(expected.role, expected.dtype);
    let values = found.to_f64();
    if let Some(mismatch) = class_mismatch(expected, &values, multiples.fail) {
        return mismatch;
    }
    let (mut error, mut floor) = (0.0, 0.0);
    let mut worst: Option<(usize, f64)> = None;
    for (i, ((found, exact), sigma)) in values.iter().zip(&expected.values).zip(&expected.sigma).enumerate() {
        if !found.is_finite() || !exact.is_finite() {
            continue;
        }
        let e = (found - exact).abs();
        error += e * e;
        floor += sigma * sigma;
        let z = if e == 0.0 { 0.0 } else { e / sigma };
        if worst.is_none_or(|(_, before)| z > before) {
            worst = Some((i, z));
        }
    }
    let floors = if error == 0.0 { 0.0 } else { (error / floor).sqrt() };
    let (at, z) = worst.unwrap_or((0, 0.0));
    let tail = multiples.fail / 3.0 * (2.0 * (2.0 * values.len().max(1) as f64 / bands.tail()).ln()).sqrt();
    // A NaN floor (an overflow of the terms) decides nothing by size.
    let outside = floors > multiples.fail || z > tail || (z == f64::INFINITY && error > 0.0);
    let note =
        if floors > multiples.pass || outside { element(expected, &values, at) } else { String::new() };
    Judgement {
        fault: outside.then_some(Fault::Value),
        close: floors > multiples.pass,
        coarse: false,
        floors,
        note,
    }
}

/// NaN and infinities: the exact value, rounded to the dtype, says what must stand there.
/// Close to the largest finite value both answers are right.
fn class_mismatch(expected: &Expected, found: &[f64], fail: f64) -> Option<Judgement> {
    let max = expected.dtype.max_finite();
    let integer = !expected.dtype.is_float();
    // Half a step above the largest finite value rounds to infinity.
    let limit = max * (1.0 + expected.dtype.unit_roundoff());
    let mut mismatches = 0;
    let mut first = None;
    for (i, ((found, exact), sigma)) in found.iter().zip(&expected.values).zip(&expected.sigma).enumerate() {
        // Where the terms overflow, steps may be infinite and their difference anything but
        // finite.
        let overflows = sigma.is_finite() && *sigma >= limit * expected.dtype.unit_roundoff();
        let agrees = if overflows && !integer && !found.is_finite() {
            true
        } else if exact.is_nan() || found.is_nan() {
            exact.is_nan() && found.is_nan()
        } else if integer || (exact.is_finite() && found.is_finite()) {
            found.is_finite() && (found.abs() <= max)
        } else if exact.is_infinite() {
            exact == found
        } else {
            // Overflow: only where the value, give or take its error, is too large.
            let room = if sigma.is_finite() { fail * sigma } else { 0.0 };
            found.is_sign_positive() == exact.is_sign_positive() && exact.abs() + room >= limit
        };
        // And a finite value where the exact one is far too large.
        let missed = found.is_finite() && exact.is_finite() && !integer && {
            let room = if sigma.is_finite() { fail * sigma } else { 0.0 };
            exact.abs() - room > limit
        };
        if !agrees || missed {
            mismatches += 1;
            first.get_or_insert(i);
        }
    }
    let first = first?;
    let note = format!("{} ({mismatches} of {})", element(expected, found, first), found.len());
    Some(Judgement::fault(Fault::NonFinite, note))
}

/// `[1, 2]: 3.5 instead of 4`.
fn element(expected: &Expected, found: &[f64], at: usize) -> String {
    let mut index = vec![0; expected.shape.len()];
    let mut rest = at;
    for (slot, size) in index.iter_mut().zip(&expected.shape).rev() {
        *slot = rest % size.max(&1);
        rest /= size.max(&1);
    }
    let (found, exact) = (found.get(at), expected.values.get(at));
    let text = |v: Option<&f64>| v.map_or_else(|| "nothing".to_owned(), |v| short(*v));
    format!("{index:?}: {} instead of {}", text(found), text(exact))
}

/// Up to nine significant digits, without trailing zeros.
fn short(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return format!("{v}");
    }
    let size = v.abs();
    let text = if (1e-4..1e9).contains(&size) { format!("{v:.9}") } else { format!("{v:.8e}") };
    match text.split_once('e') {
        Some((digits, exponent)) => {
            format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        None => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Bands for Fixed {
        fn isolated(&self, _: Role, _: DType) -> Multiples {
            Multiples { pass: 3.0, fail: 6.0 }
        }

        fn tail(&self) -> f64 {
            1e-7
        }
    }

    fn expected(values: &[f64], sigma: f64) -> Expected {
        Expected {
            dtype: DType::F16,
            shape: vec![values.len()],
            role: Role::Reduction,
            values: values.to_vec(),
            sigma: vec![sigma; values.len()],
        }
    }

    fn verdict(expected: &Expected, found: &[f64]) -> Judgement {
        let found = HostTensor::from_f64(DType::F16, vec![found.len()], found).unwrap();
        judge(expected, &found, &Fixed)
    }

    #[test]
    fn a_deviation_is_measured_in_floors() {
        let expected = expected(&[1.0, 2.0, 4.0, 8.0], 0.5);
        assert_eq!(verdict(&expected, &[1.0, 2.5, 4.0, 8.0]).floors, 0.5);
        assert!(verdict(&expected, &[3.0, 4.0, 6.0, 10.0]).close);
        assert_eq!(verdict(&expected, &[5.0, 6.0, 8.0, 12.0]).fault, Some(Fault::Value));
    }

    #[test]
    fn one_element_of_many_is_enough() {
        let expected = expected(&vec![1.0; 4000], 0.125);
        let mut found = vec![1.0; 4000];
        found[77] = 4.0;
        let judgement = verdict(&expected, &found);
        assert!(judgement.floors < 1.0);
        assert_eq!(judgement.fault, Some(Fault::Value));
        assert_eq!(judgement.note, "[77]: 4 instead of 1");
    }

    #[test]
    fn without_sigma_any_difference_is_outside() {
        let expected = expected(&[1.0, 2.0], 0.0);
        assert_eq!(verdict(&expected, &[1.0, 2.0]).fault, None);
        assert_eq!(verdict(&expected, &[1.0, 2.001]).fault, Some(Fault::Value));
    }

    #[test]
    fn non_finite_values_are_settled_first() {
        let nan = expected(&[f64::NAN, 1.0], 1.0);
        assert_eq!(verdict(&nan, &[f64::NAN, 1.0]).fault, None);
        assert_eq!(verdict(&nan, &[0.0, 1.0]).fault, Some(Fault::NonFinite));
        let number = expected(&[1.0], 10.0);
        assert_eq!(verdict(&number, &[f64::NAN]).fault, Some(Fault::NonFinite));
        assert_eq!(verdict(&number, &[f64::NEG_INFINITY]).fault, Some(Fault::NonFinite));
        let infinite = expected(&[f64::INFINITY], 1.0);
        assert_eq!(verdict(&infinite, &[f64::INFINITY]).fault, None);
        assert_eq!(verdict(&infinite, &[f64::NEG_INFINITY]).fault, Some(Fault::NonFinite));
    }

    #[test]
    fn overflow_is_right_where_the_value_is_too_large_and_nowhere_else() {
        assert_eq!(verdict(&expected(&[70000.0], 1.0), &[f64::INFINITY]).fault, None);
        assert_eq!(verdict(&expected(&[70000.0], 1.0), &[65504.0]).fault, Some(Fault::NonFinite));
        assert_eq!(verdict(&expected(&[65500.0], 16.0), &[f64::INFINITY]).fault, None);
        assert_eq!(verdict(&expected(&[60000.0], 16.0), &[f64::INFINITY]).fault, Some(Fault::NonFinite));
    }

    #[test]
    fn a_wrong_shape_or_dtype_is_no_matter_of_size() {
        let expected = expected(&[1.0], 1.0);
        let found = HostTensor::from_f64(DType::F32, vec![1], &[1.0]).unwrap();
        assert_eq!(judge(&expected, &found, &Fixed).fault, Some(Fault::Structure));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 1.0, -2.25e-9, 3e12, f64::NAN].map(short), ["0.5", "1", "-2.25e-9", "3e12", "NaN"]);
    }
}
