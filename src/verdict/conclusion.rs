//! From rows to one outcome and its exit code. The only place that knows either.

use serde::{Deserialize, Serialize};

use super::{Cause, Counts, Finding, Verdict};

/// Exit codes: stable, documented in `docs/exit-codes.md`.
pub mod exit {
    /// Everything within its band or reviewed.
    pub const PARITY: u8 = 0;
    /// An unreviewed deviation or fallback, or a stale review.
    pub const DEVIATION: u8 = 1;
    /// The request was wrong, or a file could not be read.
    pub const USAGE: u8 = 2;
    /// The recordings are not comparable.
    pub const NOT_COMPARABLE: u8 = 3;
    /// Nothing, or not everything that was asked for, was compared.
    pub const INCOMPLETE: u8 = 4;
}

/// Outcome of a whole table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclusion {
    /// One of [`exit`].
    pub exit_code: u8,
    /// One sentence: what decided it.
    pub sentence: String,
}

/// What is held against a table, as the user and the policy say.
#[derive(Clone, Copy, Debug)]
pub struct Demands {
    /// Absent devices are noted, not held against the table.
    pub absences_allowed: bool,
    /// Share of inconclusive gradients of a target above which the table proves too little.
    pub inconclusive_gradients: f64,
}

/// Concludes.
#[must_use]
pub fn conclude(findings: &[Finding], demands: Demands) -> Conclusion {
    let counts = Counts::of(findings);
    let alarm = findings.iter().find(|f| matches!(f.verdict, Verdict::Outside | Verdict::Invalid));
    if let Some(first) = alarm {
        let number = counts.outside + counts.invalid;
        let others = if number > 1 { format!(" and {} more", number - 1) } else { String::new() };
        let sentence = format!("deviation: {} of {}{others}", first.quantity, first.target);
        return Conclusion { exit_code: exit::DEVIATION, sentence };
    }
    incomplete(findings, &counts, demands).map_or_else(
        || Conclusion { exit_code: exit::PARITY, sentence: agreement(findings, &counts) },
        |sentence| Conclusion { exit_code: exit::INCOMPLETE, sentence },
    )
}

/// Parity, or parity as far as the policy lets work leave the device.
fn agreement(findings: &[Finding], counts: &Counts) -> String {
    let number = counts.within + counts.marginal;
    let mut elsewhere: Vec<&str> =
        findings.iter().filter(|f| f.verdict == Verdict::Allowed).map(|f| f.target.as_str()).collect();
    elsewhere.dedup();
    if elsewhere.is_empty() {
        return format!("parity: {number} quantities within their bands");
    }
    format!(
        "usable with a known CPU share: {number} quantities within their bands, and {} operators of {} left \
         the device as the policy allows",
        counts.allowed,
        elsewhere.join(", ")
    )
}

/// Why a table without an alarm still does not show parity.
fn incomplete(findings: &[Finding], counts: &Counts, demands: Demands) -> Option<String> {
    let absent = |f: &&Finding| f.cause == Some(Cause::Absent);
    if !demands.absences_allowed
        && let Some(row) = findings.iter().find(absent)
    {
        let note = row.notes.first().cloned().unwrap_or_default();
        return Some(format!("incomplete: {} was asked for and is absent ({note})", row.target));
    }
    if counts.within + counts.marginal == 0 {
        return Some("incomplete: nothing was compared".to_owned());
    }
    if let Some(row) = findings.iter().find(|f| f.verdict == Verdict::Missing && !absent(f)) {
        return Some(format!("incomplete: {} of {} is missing", row.quantity, row.target));
    }
    if let Some(row) = findings.iter().find(|f| f.verdict == Verdict::Unchecked) {
        return Some(format!("incomplete: nothing to compare {} of {} with", row.quantity, row.target));
    }
    for row in findings.iter().filter(|f| f.verdict == Verdict::Inconclusive) {
        if matches!(row.quantity.as_str(), "loss" | "logits") {
            return Some(format!(
                "inconclusive: rounding alone could hide a change of {} of {}",
                row.quantity, row.target
            ));
        }
    }
    inconclusive_gradients(findings, demands.inconclusive_gradients)
}

fn inconclusive_gradients(findings: &[Finding], share: f64) -> Option<String> {
    let mut targets: Vec<&str> = findings.iter().map(|f| f.target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.into_iter().find_map(|target| {
        let gradients: Vec<_> =
            findings.iter().filter(|f| f.target == target && f.quantity.starts_with("gradient/")).collect();
        let open = gradients.iter().filter(|f| f.verdict == Verdict::Inconclusive).count();
        (open as f64 > share * gradients.len() as f64).then(|| {
            format!(
                "inconclusive: {open} of {} gradients of {target} cannot be judged at this precision",
                gradients.len()
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(quantity: &str, verdict: Verdict, cause: Option<Cause>) -> Finding {
        Finding::about("candle:cpu@f32", quantity, verdict, cause, String::new())
    }

    fn demands(absences_allowed: bool) -> Demands {
        Demands { absences_allowed, inconclusive_gradients: 0.05 }
    }

    #[test]
    fn nothing_compared_is_never_parity() {
        assert_eq!(conclude(&[], demands(false)).exit_code, exit::INCOMPLETE);
        assert_eq!(
            conclude(&[row("loss", Verdict::Skipped, None)], demands(true)).exit_code,
            exit::INCOMPLETE
        );
        assert_eq!(
            conclude(&[row("loss", Verdict::Unchecked, None)], demands(true)).exit_code,
            exit::INCOMPLETE
        );
    }

    #[test]
    fn an_absent_target_is_incomplete_unless_absences_are_allowed() {
        let rows = [row("loss", Verdict::Within, None), row("target", Verdict::Missing, Some(Cause::Absent))];
        assert_eq!(conclude(&rows, demands(false)).exit_code, exit::INCOMPLETE);
        assert_eq!(conclude(&rows, demands(true)).exit_code, exit::PARITY);
    }

    #[test]
    fn a_deviation_decides_whatever_else_is_there() {
        let rows =
            [row("loss", Verdict::Within, None), row("logits", Verdict::Outside, Some(Cause::Deviation))];
        let conclusion = conclude(&rows, demands(true));
        assert_eq!(conclusion.exit_code, exit::DEVIATION);
        assert_eq!(conclusion.sentence, "deviation: logits of candle:cpu@f32");
    }

    #[test]
    fn an_allowed_fallback_is_never_plain_parity_and_compares_nothing() {
        let allowed = row("placement/forward/aten::mm", Verdict::Allowed, Some(Cause::Fallback));
        let conclusion = conclude(&[row("loss", Verdict::Within, None), allowed.clone()], demands(false));
        assert_eq!(conclusion.exit_code, exit::PARITY);
        assert!(conclusion.sentence.starts_with("usable with a known CPU share"), "{}", conclusion.sentence);
        assert_eq!(conclude(&[allowed], demands(false)).exit_code, exit::INCOMPLETE);
    }

    #[test]
    fn a_missing_quantity_is_incomplete() {
        let rows = [row("loss", Verdict::Within, None), row("gradient/w", Verdict::Missing, None)];
        assert_eq!(conclude(&rows, demands(true)).exit_code, exit::INCOMPLETE);
    }

    #[test]
    fn an_inconclusive_loss_or_many_inconclusive_gradients_prove_too_little() {
        let rows = [row("logits", Verdict::Within, None), row("loss", Verdict::Inconclusive, None)];
        assert_eq!(conclude(&rows, demands(true)).exit_code, exit::INCOMPLETE);
        let mut rows: Vec<_> =
            (0..20).map(|i| row(&format!("gradient/{i}"), Verdict::Within, None)).collect();
        rows[0].verdict = Verdict::Inconclusive;
        assert_eq!(conclude(&rows, demands(true)).exit_code, exit::PARITY);
        rows[1].verdict = Verdict::Inconclusive;
        assert_eq!(conclude(&rows, demands(true)).exit_code, exit::INCOMPLETE);
    }
}
