//! One row of the difference table, and the table.

use serde::{Deserialize, Serialize};

use super::Attribution;

/// What was decided about one quantity of one target.
///
/// Only `Within` and `Marginal` are agreement. Nothing else is ever counted as passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The comparison itself is void: the target did not run where it claims.
    Invalid,
    /// Deviates by more than its band allows, or disagrees in kind (shape, NaN, severed).
    Outside,
    /// Expected, but the target delivered nothing.
    Missing,
    /// Rounding alone could hide a deviation of the size of the signal.
    Inconclusive,
    /// Not compared, with the reason: the engine declares that it lacks the operator.
    Skipped,
    /// Delivered, but nothing to compare it with.
    Unchecked,
    /// Work left the device, and the policy allows it: neither an alarm nor a comparison.
    Allowed,
    /// Between the pass and the fail multiple: worth a look, no alarm.
    Marginal,
    /// Within its band.
    Within,
}

impl Verdict {
    /// Worst first: the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Outside,
        Self::Missing,
        Self::Inconclusive,
        Self::Skipped,
        Self::Unchecked,
        Self::Allowed,
        Self::Marginal,
        Self::Within,
    ];

    /// Name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Outside => "outside",
            Self::Missing => "missing",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
            Self::Unchecked => "unchecked",
            Self::Allowed => "allowed",
            Self::Marginal => "marginal",
            Self::Within => "within",
        }
    }
}

/// Why a row that was not judged by its band has its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Normwise deviation beyond the band.
    Deviation,
    /// A single element far out in the tail.
    SingleElement,
    /// Finite on one side, NaN or infinite on the other, or infinities of opposite sign.
    NonFinite,
    /// Shapes differ.
    Shape,
    /// Element classes differ (integer against float).
    Dtype,
    /// The engine has no gradient where the reference has one.
    GradientSevered,
    /// The gradient is exactly zero where the reference's is not.
    GradientZero,
    /// The engine has a gradient where the reference has none.
    GradientUnexpected,
    /// A validation metric moved by more than rounding explains.
    Metric,
    /// The target's process ended without a whole recording.
    Died,
    /// The target recorded nothing that could be compared.
    NothingRecorded,
    /// Tensors lived on another device than the one asked for.
    WrongDevice,
    /// The device is emulated: never a result of the device it stands for.
    Emulated,
    /// Capture or tracing changed the numbers.
    Observer,
    /// Two runs differ on a target that promises equal bits.
    Nondeterministic,
    /// The device or the engine is not here.
    Absent,
    /// An operator ran on the CPU inside an accelerator's pass, or data went there and back.
    Fallback,
    /// The device gave a wrong answer to a known question.
    Canary,
    /// The device's own profiler saw no kernel.
    NoKernels,
    /// A switch makes the target compute in less than its precision says.
    ModeMismatch,
}

/// The band that a row was judged by, with the line that set it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedBand {
    /// At most this: within.
    pub pass: f64,
    /// More than this: outside.
    pub fail: f64,
    /// Unit of both: `floor`, `ulp`, `relative`, `samples`.
    pub unit: String,
    /// Up to this many ULP an element may always deviate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_ulp: Option<f64>,
    /// Rule that set the band.
    pub rule: String,
    /// Policy file and line of the rule.
    pub line: String,
    /// Why the number has its value.
    pub reason: String,
}

/// The element that deviates most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstElement {
    /// Its index, one number a dimension.
    pub index: Vec<usize>,
    /// What the target has there.
    #[serde(with = "number")]
    pub candidate: f64,
    /// What the reference has there.
    #[serde(with = "number")]
    pub reference: f64,
    /// Distance in units in the last place of the target's dtype, at the reference.
    #[serde(with = "number")]
    pub ulp: f64,
}

/// One row of the difference table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable identifier: a hash of target and quantity.
    pub id: String,
    /// Target, such as `candle:cpu@f32`.
    pub target: String,
    /// Quantity, such as `gradient/classifier.weight`, or `target` for the target as a whole.
    pub quantity: String,
    /// Shape, empty for scalars and for rows about a whole target.
    pub shape: Vec<usize>,
    /// Role of the operator that produced it.
    pub role: String,
    /// What was decided.
    pub verdict: Verdict,
    /// Why, where the verdict is not `within`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Deviation in the unit of the band.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub deviation: Option<f64>,
    /// Its band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<AppliedBand>,
    /// ‖candidate − reference‖ / ‖reference‖.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub relative: Option<f64>,
    /// Relative deviation that would have failed this row: what could not have been seen
    /// lies below it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub minimum_detectable: Option<f64>,
    /// The predicted noise floor: norm of the deviation that rounding alone causes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub floor: Option<f64>,
    /// The element that deviates most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstElement>,
    /// Whether it follows the engine or the device (rows outside their band).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Attribution>,
    /// What a reader should know besides, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Finding {
    /// A row that is not about numbers.
    #[must_use]
    pub fn about(target: &str, quantity: &str, verdict: Verdict, cause: Option<Cause>, note: String) -> Self {
        Self {
            id: finding_id(target, quantity),
            target: target.to_owned(),
            quantity: quantity.to_owned(),
            shape: Vec::new(),
            role: String::new(),
            verdict,
            cause,
            deviation: None,
            band: None,
            relative: None,
            minimum_detectable: None,
            floor: None,
            worst: None,
            attribution: None,
            notes: if note.is_empty() { Vec::new() } else { vec![note] },
        }
    }

    /// How far the row is beyond its band; rows without a band by their verdict alone.
    /// Larger is worse; NaN and infinite deviations are worst.
    #[must_use]
    pub fn severity(&self) -> f64 {
        match (&self.deviation, &self.band) {
            (Some(deviation), Some(band)) if deviation.is_finite() => deviation / band.fail,
            (Some(_), _) => f64::INFINITY,
            _ if self.verdict == Verdict::Within => 0.0,
            _ => f64::INFINITY,
        }
    }
}

/// Short stable identifier of a row.
#[must_use]
pub fn finding_id(target: &str, quantity: &str) -> String {
    let hash = blake3::hash(format!("{target}\n{quantity}").as_bytes());
    hash.to_hex().chars().take(8).collect()
}

/// Rows by verdict; never merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Within their bands.
    pub within: usize,
    /// Between pass and fail.
    pub marginal: usize,
    /// Outside.
    pub outside: usize,
    /// Void.
    pub invalid: usize,
    /// Not decidable at this precision.
    pub inconclusive: usize,
    /// Declared as unsupported.
    pub skipped: usize,
    /// Expected and absent.
    pub missing: usize,
    /// Present and not compared.
    pub unchecked: usize,
    /// Outside the device, as the policy allows.
    #[serde(default)]
    pub allowed: usize,
}

impl Counts {
    /// Counts of these rows.
    pub fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            *counts.slot(finding.verdict) += 1;
        }
        counts
    }

    const fn slot(&mut self, verdict: Verdict) -> &mut usize {
        match verdict {
            Verdict::Within => &mut self.within,
            Verdict::Marginal => &mut self.marginal,
            Verdict::Outside => &mut self.outside,
            Verdict::Invalid => &mut self.invalid,
            Verdict::Inconclusive => &mut self.inconclusive,
            Verdict::Skipped => &mut self.skipped,
            Verdict::Missing => &mut self.missing,
            Verdict::Unchecked => &mut self.unchecked,
            Verdict::Allowed => &mut self.allowed,
        }
    }

    /// Number of rows with this verdict.
    #[must_use]
    pub const fn get(mut self, verdict: Verdict) -> usize {
        *self.slot(verdict)
    }

    /// Rows that were compared.
    #[must_use]
    pub const fn compared(&self) -> usize {
        self.within + self.marginal + self.outside + self.inconclusive
    }
}

/// Numbers that may be infinite or NaN, which JSON has no word for: then a string.
mod number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    pub(super) enum Text {
        Number(f64),
        Word(String),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.serialize_str(if value.is_nan() {
                "NaN"
            } else if *value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            })
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Text::deserialize(deserializer)? {
            Text::Number(value) => Ok(value),
            Text::Word(word) => match word.as_str() {
                "NaN" => Ok(f64::NAN),
                "Infinity" => Ok(f64::INFINITY),
                "-Infinity" => Ok(f64::NEG_INFINITY),
                _ => Err(D::Error::custom(format!("`{word}` is not a number"))),
            },
        }
    }
}

mod optional_number {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "signature that serde asks for")]
    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::number::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        #[derive(Deserialize)]
        struct Wrapped(#[serde(with = "super::number")] f64);
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|w| w.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_apart() {
        let rows: Vec<_> =
            Verdict::ALL.into_iter().map(|v| Finding::about("t", v.name(), v, None, String::new())).collect();
        let counts = Counts::of(&rows);
        assert!(Verdict::ALL.into_iter().all(|v| counts.get(v) == 1));
        assert_eq!(counts.compared(), 4);
    }

    #[test]
    fn non_finite_numbers_survive_json() {
        let mut row = Finding::about("t", "q", Verdict::Outside, Some(Cause::NonFinite), String::new());
        row.deviation = Some(f64::NAN);
        row.worst = Some(WorstElement {
            index: vec![1],
            candidate: f64::NEG_INFINITY,
            reference: 1.0,
            ulp: f64::INFINITY,
        });
        let text = serde_json::to_string(&row).unwrap();
        let back: Finding = serde_json::from_str(&text).unwrap();
        assert!(back.deviation.unwrap().is_nan());
        assert_eq!(back.worst, row.worst);
    }
}
