//! Floating-point numbers in JSON, which has no NaN and no infinity.
//!
//! Finite values are JSON numbers; the others are the strings `nan`, `inf` and `-inf`.
//! `serde_json` alone would write `null` for all three, and a NaN loss would read as an
//! absent one.

use serde::de::{Deserialize, Deserializer, Error, Unexpected};
use serde::ser::Serializer;

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Either {
    Number(f64),
    Text(String),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else if value.is_nan() {
        serializer.serialize_str("nan")
    } else {
        serializer.serialize_str(if *value > 0.0 { "inf" } else { "-inf" })
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match Either::deserialize(deserializer)? {
        Either::Number(value) => Ok(value),
        Either::Text(text) => match text.as_str() {
            "nan" => Ok(f64::NAN),
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            other => {
                Err(D::Error::invalid_value(Unexpected::Str(other), &"a number, `nan`, `inf` or `-inf`"))
            }
        },
    }
}

/// The same for a number that may be absent.
pub(super) mod optional {
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Wrapped(#[serde(with = "super")] f64);

    #[expect(clippy::ref_option, reason = "signature that serde asks for")]
    pub(in crate::recording) fn serialize<S: Serializer>(
        value: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Wrapped).serialize(serializer)
    }

    pub(in crate::recording) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|w| w.0))
    }
}

#[cfg(test)]
mod tests {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Row {
        #[serde(with = "super")]
        value: f64,
        #[serde(default, with = "super::optional")]
        other: Option<f64>,
    }

    #[test]
    fn nan_infinity_and_absence_are_told_apart_after_a_round_trip() {
        for value in [0.0, -1.5, 3e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let text = serde_json::to_string(&Row { value, other: Some(value) }).unwrap();
            let back: Row = serde_json::from_str(&text).unwrap();
            assert!(back.value.to_bits() == value.to_bits() || back.value.is_nan() && value.is_nan());
            assert_eq!(back.other.map(f64::is_nan), Some(value.is_nan()));
        }
        let back: Row = serde_json::from_str(r#"{"value": 1, "other": null}"#).unwrap();
        assert_eq!(back.other, None);
        assert!(serde_json::from_str::<Row>(r#"{"value": "big"}"#).is_err());
        assert!(serde_json::from_str::<Row>(r#"{"value": null}"#).is_err());
    }
}
