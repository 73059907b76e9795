//! The terminal form: summary on top, then the rows worth reading first.
//!
//! Two lines a row fit 80 columns with the longest parameter names; wider terminals get
//! longer names. Colour is added only where the caller says that it can be shown.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::format::{
    bytes, counts, deviation, device_answers, engine, number, place, placement_line, seconds, value,
};
use crate::trace::is_host;
use crate::verdict::{DifferenceTable, Finding, TargetSummary, Verdict};

/// How to render.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether escape codes may be used.
    pub colour: bool,
    /// Whether every row is shown instead of the ones to read first.
    pub all_rows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 80, colour: false, all_rows: false }
    }
}

/// Agreeing rows shown as a sample: the ones nearest to their bands.
const NEAREST: usize = 5;
/// Rows of other verdicts shown; the rest is in the files.
const MOST: usize = 30;

/// The table as text for a terminal.
#[must_use]
pub fn render(table: &DifferenceTable, options: &Options) -> String {
    let mut out = String::new();
    Page { table, options, width: options.width.max(60) }
        .write(&mut out)
        .unwrap_or_else(|_| unreachable!("writing to a string cannot fail"));
    out
}

struct Page<'a> {
    table: &'a DifferenceTable,
    options: &'a Options,
    width: usize,
}

impl Page<'_> {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let subject = &self.table.subject;
        writeln!(out, "{} {} ({})", self.bold("parity check"), subject.model, subject.family)?;
        writeln!(
            out,
            "subject {}  seed {}  batch {}  mode {}  evaluation {} samples",
            subject.fingerprint, subject.seed, subject.batch_size, subject.mode, subject.evaluation_samples
        )?;
        writeln!(out, "policy  {} {}  {}", self.table.policy.name, self.table.policy.hash, self.table.tool)?;
        for warning in &self.table.warnings {
            self.wrapped(out, &format!("{} {warning}", self.paint(AnsiColor::Yellow, "warning:")), 2)?;
        }
        writeln!(out)?;
        for target in self.table.reference.iter().chain(&self.table.targets) {
            self.target(out, target)?;
        }
        writeln!(out)?;
        self.rows(out)?;
        let c = &self.table.counts;
        writeln!(
            out,
            "rows: {} within, {} marginal, {} outside, {} invalid, {} inconclusive,",
            c.within, c.marginal, c.outside, c.invalid, c.inconclusive
        )?;
        let allowed = if c.allowed > 0 { format!(", {} allowed", c.allowed) } else { String::new() };
        writeln!(
            out,
            "      {} skipped, {} missing, {} unchecked{allowed}",
            c.skipped, c.missing, c.unchecked
        )?;
        let colour = if self.table.conclusion.exit_code == 0 { AnsiColor::Green } else { AnsiColor::Red };
        self.wrapped(out, &self.paint(colour, &self.table.conclusion.sentence), 0)?;
        Ok(())
    }

    fn target(&self, out: &mut String, target: &TargetSummary) -> std::fmt::Result {
        let name = format!("{:<22}", target.target);
        let on = if target.devices.is_empty() { "" } else { "on " };
        writeln!(out, "{} {}, {on}{}", self.bold(&name), engine(target), place(target))?;
        if let Some(reason) = &target.reason {
            self.wrapped(out, &format!("{:23}{reason}", ""), 23)?;
        }
        let mut facts = Vec::new();
        facts.extend(target.loss.map(|loss| format!("loss {}", value(loss))));
        facts.extend(target.top1.map(|t| format!("top-1 {:.2} %", t * 100.0)));
        facts.extend(target.top5.map(|t| format!("top-5 {:.2} %", t * 100.0)));
        if !facts.is_empty() {
            writeln!(out, "{:23}{}", "", facts.join("  "))?;
        }
        let mut facts = Vec::new();
        facts.extend(target.forward_s.map(|s| format!("forward {}", seconds(s))));
        facts.extend(target.backward_s.map(|s| format!("backward {}", seconds(s))));
        facts.extend(target.peak_memory_bytes.map(|b| format!("peak {}", bytes(b))));
        if !facts.is_empty() {
            writeln!(out, "{:23}{}", "", facts.join("  "))?;
        }
        if let Some(device) = &target.device {
            self.wrapped(out, &format!("{:23}{}", "", device_answers(device)), 23)?;
        }
        if let Some(placement) = &target.placement
            && !is_host(&placement.asked)
        {
            self.wrapped(out, &format!("{:23}{}", "", placement_line(placement)), 23)?;
        }
        // What is off is off everywhere; the JSON form has it.
        let modes: Vec<_> = target
            .modes
            .iter()
            .filter(|(_, value)| !matches!(value.as_str(), "false" | "unset"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !modes.is_empty() {
            self.wrapped(out, &format!("{:23}{}", "", modes.join("  ")), 23)?;
        }
        for note in &target.notes {
            self.wrapped(out, &format!("{:23}{note}", ""), 23)?;
        }
        if target.counts != crate::verdict::Counts::default() {
            writeln!(out, "{:23}{}", "", counts(&target.counts))?;
        }
        Ok(())
    }

    fn rows(&self, out: &mut String) -> std::fmt::Result {
        let findings = &self.table.findings;
        if self.options.all_rows {
            findings.iter().try_for_each(|f| self.row(out, f))?;
            return writeln!(out);
        }
        let to_read: Vec<_> = findings.iter().filter(|f| f.verdict != Verdict::Within).collect();
        let agreeing: Vec<_> = findings.iter().filter(|f| f.verdict == Verdict::Within).collect();
        if !to_read.is_empty() {
            writeln!(out, "{}", self.bold("to read first"))?;
            to_read.iter().take(MOST).try_for_each(|f| self.row(out, f))?;
            if to_read.len() > MOST {
                writeln!(
                    out,
                    "… and {} more (--all-rows, or the files in the output directory)",
                    to_read.len() - MOST
                )?;
            }
            writeln!(out)?;
        }
        if !agreeing.is_empty() {
            writeln!(out, "{}", self.bold("within their bands, the nearest to them first"))?;
            agreeing.iter().take(NEAREST).try_for_each(|f| self.row(out, f))?;
            if agreeing.len() > NEAREST {
                writeln!(out, "… and {} more", agreeing.len() - NEAREST)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn row(&self, out: &mut String, finding: &Finding) -> std::fmt::Result {
        let verdict = format!("{:<12}", finding.verdict.name());
        let colour = match finding.verdict {
            Verdict::Within => AnsiColor::Green,
            Verdict::Marginal
            | Verdict::Inconclusive
            | Verdict::Skipped
            | Verdict::Unchecked
            | Verdict::Allowed => AnsiColor::Yellow,
            Verdict::Outside | Verdict::Invalid | Verdict::Missing => AnsiColor::Red,
        };
        let room = self.width.saturating_sub(13 + finding.target.len() + 2);
        writeln!(
            out,
            "{} {}  {}",
            self.paint(colour, &verdict),
            shorten(&finding.quantity, room.max(20)),
            finding.target
        )?;
        let mut line = deviation(finding);
        if let Some(relative) = finding.relative {
            let _ = write!(line, ", relative {}", number(relative));
        }
        if !line.is_empty() {
            self.wrapped(out, &format!("{:13}{line}", ""), 13)?;
        }
        let mut facts = Vec::new();
        if !finding.shape.is_empty() {
            facts.push(format!("{:?}", finding.shape));
        }
        if !finding.role.is_empty() {
            facts.push(finding.role.clone());
        }
        facts.extend(finding.minimum_detectable.map(|m| format!("sees from {} on", number(m))));
        facts.extend(finding.band.as_ref().map(|b| format!("rule `{}` ({})", b.rule, b.line)));
        if !facts.is_empty() {
            self.wrapped(out, &format!("{:13}{}", "", facts.join(", ")), 13)?;
        }
        if finding.verdict != Verdict::Within
            && let Some(worst) = &finding.worst
        {
            let text = format!(
                "worst {:?}: {} against {}, {} ulp",
                worst.index,
                value(worst.candidate),
                value(worst.reference),
                number(worst.ulp)
            );
            self.wrapped(out, &format!("{:13}{text}", ""), 13)?;
        }
        for note in &finding.notes {
            self.wrapped(out, &format!("{:13}{note}", ""), 13)?;
        }
        if let Some(attribution) = &finding.attribution {
            self.wrapped(out, &format!("{:13}{}", "", attribution.sentence()), 13)?;
        }
        Ok(())
    }

    /// Breaks at spaces so that lines fit; continuation lines are indented.
    fn wrapped(&self, out: &mut String, text: &str, indent: usize) -> std::fmt::Result {
        let lead: String = text.chars().take_while(|c| *c == ' ').collect();
        let mut line = lead.clone();
        let mut columns = lead.len();
        let mut empty = true;
        for word in text.split(' ').filter(|w| !w.is_empty()) {
            let length = word.chars().count();
            if !empty && columns + 1 + length > self.width {
                writeln!(out, "{line}")?;
                line = " ".repeat(indent);
                columns = indent;
                empty = true;
            }
            if !empty {
                line.push(' ');
                columns += 1;
            }
            line.push_str(word);
            columns += length;
            empty = false;
        }
        writeln!(out, "{line}")
    }

    fn bold(&self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    fn paint(&self, colour: AnsiColor, text: &str) -> String {
        self.styled(Style::new().fg_color(Some(colour.into())), text)
    }

    fn styled(&self, style: Style, text: &str) -> String {
        if self.options.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Keeps the end of a long name, which tells more than its start.
fn shorten(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return format!("{name:<room$}");
    }
    let tail: String = name.chars().skip(length + 1 - room).collect();
    format!("…{tail}")
}
