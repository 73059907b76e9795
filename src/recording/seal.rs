//! The seal of `recording.json`: blake3 over its own text.
//!
//! It finds edits by hand and damage, it is no signature: whoever can write the file can
//! seal it again. It is taken over the text with the seal's own digits replaced by zeros,
//! so that no canonical form of JSON is needed.

const FIELD: &str = "\"seal\": \"";
const DIGITS: usize = 64;

/// `json` (an object, pretty-printed) with a seal as its first field.
pub(super) fn seal(json: &str) -> String {
    let body = json.strip_prefix('{').unwrap_or(json);
    let text = format!("{{\n  {FIELD}{}\",{body}\n", "0".repeat(DIGITS));
    let digits = blake3::hash(text.as_bytes()).to_hex();
    text.replacen(&"0".repeat(DIGITS), &digits, 1)
}

/// Whether the seal of `text` matches; `None` if it has none.
pub(super) fn verify(text: &str) -> Option<bool> {
    let start = text.find(FIELD)? + FIELD.len();
    let digits = text.get(start..start + DIGITS)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(text.get(..start)?.as_bytes());
    hasher.update("0".repeat(DIGITS).as_bytes());
    hasher.update(text.get(start + DIGITS..)?.as_bytes());
    Some(hasher.finalize().to_hex().as_str() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_breaks_the_seal() {
        let text = seal("{\n  \"loss\": 0.25\n}");
        assert_eq!(verify(&text), Some(true));
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_ne!(verify(&changed), Some(true), "byte {at}");
        }
        assert_eq!(verify("{}"), None);
        assert_eq!(verify("\"seal\": \"12"), None);
    }
}
