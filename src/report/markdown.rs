//! Markdown that fits a pull-request comment: summary, rows to read, the rest folded.

use std::fmt::Write as _;

use super::format::{bytes, counts, deviation, engine, number, place, seconds, value};
use crate::verdict::{DifferenceTable, Finding, Verdict};

/// Rows shown before the fold.
const SHOWN: usize = 20;
/// Rows inside the fold; the whole table is in the JSON form.
const FOLDED: usize = 200;

/// The table as Markdown.
#[must_use]
pub fn render(table: &DifferenceTable) -> String {
    let mut out = String::new();
    write(table, &mut out).unwrap_or_else(|_| unreachable!("writing to a string cannot fail"));
    out
}

fn write(table: &DifferenceTable, out: &mut String) -> std::fmt::Result {
    let subject = &table.subject;
    let verdict = if table.conclusion.exit_code == 0 { "✅" } else { "❌" };
    writeln!(out, "## {verdict} parity of `{}`\n", subject.model)?;
    writeln!(out, "**{}** (exit code {})\n", table.conclusion.sentence, table.conclusion.exit_code)?;
    writeln!(
        out,
        "Subject `{}`, seed {}, batch {}, mode {}, {} evaluation samples; policy {} `{}`; {}.\n",
        subject.fingerprint,
        subject.seed,
        subject.batch_size,
        subject.mode,
        subject.evaluation_samples,
        table.policy.name,
        table.policy.hash,
        table.tool
    )?;
    writeln!(out, "| target | engine | device | loss | top-1 | forward | backward | peak memory | rows |")?;
    writeln!(out, "|---|---|---|--:|--:|--:|--:|--:|---|")?;
    for target in table.reference.iter().chain(&table.targets) {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
            target.target,
            engine(target),
            place(target),
            or_dash(target.loss.map(value)),
            or_dash(target.top1.map(|t| format!("{:.2} %", t * 100.0))),
            or_dash(target.forward_s.map(seconds)),
            or_dash(target.backward_s.map(seconds)),
            or_dash(target.peak_memory_bytes.map(bytes)),
            target.reason.clone().unwrap_or_else(|| counts(&target.counts)),
        )?;
    }
    for warning in &table.warnings {
        writeln!(out, "\n> ⚠️ {}", escape(warning))?;
    }
    let (agree, read): (Vec<_>, Vec<_>) = table.findings.iter().partition(|f| f.verdict == Verdict::Within);
    if !read.is_empty() {
        writeln!(out, "\n### Rows to read\n")?;
        rows(out, &read, SHOWN)?;
    }
    writeln!(out, "\n<details><summary>{} rows within their bands</summary>\n", agree.len())?;
    rows(out, &agree, FOLDED)?;
    writeln!(out, "\n</details>\n")?;
    writeln!(out, "Made again by `{}`", table.command)
}

fn rows(out: &mut String, findings: &[&Finding], most: usize) -> std::fmt::Result {
    writeln!(out, "| verdict | target | quantity | deviation | relative | detectable | worst | rule |")?;
    writeln!(out, "|---|---|---|---|--:|--:|---|---|")?;
    for finding in findings.iter().take(most) {
        let mut worst = finding.worst.as_ref().map_or_else(
            || finding.notes.join("; "),
            |w| format!("{:?}: {} against {}", w.index, value(w.candidate), value(w.reference)),
        );
        if let Some(attribution) = &finding.attribution {
            let _ = write!(worst, "; {}", attribution.sentence());
        }
        writeln!(
            out,
            "| {} | `{}` | `{}` | {} | {} | {} | {} | {} |",
            finding.verdict.name(),
            finding.target,
            escape(&finding.quantity),
            deviation(finding),
            finding.relative.map(number).unwrap_or_default(),
            finding.minimum_detectable.map(number).unwrap_or_default(),
            escape(&worst),
            finding.band.as_ref().map_or(String::new(), |b| format!("{} ({})", b.rule, b.line)),
        )?;
    }
    if findings.len() > most {
        writeln!(out, "\n… and {} more, in the JSON form.", findings.len() - most)?;
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
