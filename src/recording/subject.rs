//! [`Subject`]: what must agree before anything is compared.

use serde::{Deserialize, Serialize};

/// What was computed, as opposed to by whom: checkpoint, program, batch, seed, mode.
///
/// Hashes are blake3 in hexadecimal. Precision and captures are not part of it: an f64
/// recording is compared with a bf16 one of the same subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Content of the checkpoint, independent of shards and header order.
    pub checkpoint: String,
    /// The base program (before any precision rewrite).
    pub program: String,
    /// Bytes of the batch.
    pub batch: String,
    /// Bytes of all samples that metrics are computed on; empty where there are none.
    pub evaluation: String,
    /// Seed of the batch and of dropout masks.
    pub seed: u64,
    /// `train` or `eval`.
    pub mode: String,
}

impl Subject {
    /// blake3 over the parts, each with its name and length, in hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in self.parts() {
            for text in [name, value.as_str()] {
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Names of the parts in which two subjects differ, with both values.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        self.parts()
            .into_iter()
            .zip(other.parts())
            .filter(|((_, a), (_, b))| a != b)
            .map(|((name, a), (_, b))| (name, a, b))
            .collect()
    }

    fn parts(&self) -> [(&'static str, String); 6] {
        [
            ("checkpoint", self.checkpoint.clone()),
            ("program", self.program.clone()),
            ("batch", self.batch.clone()),
            ("evaluation", self.evaluation.clone()),
            ("seed", self.seed.to_string()),
            ("mode", self.mode.clone()),
        ]
    }
}

#[cfg(test)]
pub(super) fn example() -> Subject {
    Subject {
        checkpoint: "c0".into(),
        program: "p0".into(),
        batch: "b0".into(),
        evaluation: String::new(),
        seed: 7,
        mode: "eval".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_fingerprint() {
        let base = example();
        let changed = [
            Subject { checkpoint: "c1".into(), ..base.clone() },
            Subject { program: "p1".into(), ..base.clone() },
            Subject { batch: "b1".into(), ..base.clone() },
            Subject { evaluation: "e1".into(), ..base.clone() },
            Subject { seed: 8, ..base.clone() },
            Subject { mode: "train".into(), ..base.clone() },
        ];
        for other in &changed {
            assert_ne!(base.fingerprint(), other.fingerprint());
            assert_eq!(base.differences(other).len(), 1);
        }
        assert!(base.differences(&base.clone()).is_empty());
    }

    #[test]
    fn text_cannot_move_from_one_part_to_the_next() {
        let a = Subject { checkpoint: "ab".into(), program: "c".into(), ..example() };
        let b = Subject { checkpoint: "a".into(), program: "bc".into(), ..example() };
        assert_ne!(a.fingerprint(), b.fingerprint());
    }
}
