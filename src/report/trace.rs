//! The trace of one target as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::TerminalOptions;
use super::format::{bytes_exact, seconds};
use crate::engine::KernelEvidence;
use crate::trace::{Fallback, OperatorRow, Placement, Summary};

/// Version of the JSON form of [`TraceReport`].
const SCHEMA_VERSION: u32 = 1;

/// What `parity trace` shows.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    /// As asked for.
    pub target: String,
    /// Engine and version.
    pub engine: String,
    /// Device as the engine names it.
    pub device: String,
    /// Software in place of the device.
    pub emulated: bool,
    /// Switches that change numbers or placement.
    pub modes: BTreeMap<String, String>,
    /// Operators, devices and transfers of the recorded pass.
    pub summary: Summary,
    /// What left the device, in all traced passes.
    pub placement: Placement,
    /// Kernels that the device executed, where something counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelEvidence>,
}

/// The report as JSON with a final newline.
#[must_use]
pub fn json(report: &TraceReport) -> String {
    #[derive(Serialize)]
    struct Versioned<'a> {
        schema_version: u32,
        #[serde(flatten)]
        report: &'a TraceReport,
    }
    let mut text = serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, report })
        .unwrap_or_else(|error| unreachable!("the report has string keys and finite numbers only: {error}"));
    text.push('\n');
    text
}

/// The report as text; `top` operators are listed.
#[must_use]
pub fn render(report: &TraceReport, options: &TerminalOptions, top: usize) -> String {
    let mut out = String::new();
    write(report, options, top, &mut out).unwrap_or_else(|_| unreachable!("writing to a string cannot fail"));
    out
}

fn write(report: &TraceReport, options: &TerminalOptions, top: usize, out: &mut String) -> std::fmt::Result {
    let TraceReport { summary, placement, .. } = report;
    let emulated = if report.emulated { " (emulated device)" } else { "" };
    writeln!(out, "trace of {}: {} on {}{emulated}", report.target, report.engine, report.device)?;
    writeln!(
        out,
        "{} events on {} {} in {}, {} traced {}",
        summary.events,
        summary.threads,
        plural(summary.threads, "thread"),
        time(summary.span_ns),
        placement.steps,
        plural(placement.steps as u64, "pass"),
    )?;
    for (name, value) in
        report.modes.iter().filter(|(name, _)| name.starts_with("PYTORCH") || name.starts_with("emulated"))
    {
        writeln!(out, "{name} = {value}")?;
    }
    if let Some(kernels) = &report.kernels {
        writeln!(
            out,
            "{}: {} kernels and {} copies on the device, {} of kernel time",
            kernels.source,
            kernels.kernels,
            kernels.copies,
            time(kernels.device_ns)
        )?;
    }
    operators(out, &summary.operators, summary.span_ns, options, top)?;
    writeln!(out, "\nby device          operators   own time")?;
    for (name, device) in &summary.devices {
        writeln!(out, "  {name:<16} {:>9} {:>10}", device.operators, time(device.self_ns))?;
    }
    writeln!(out, "\ntransfers between devices")?;
    if summary.transfers.is_empty() {
        writeln!(out, "  none")?;
    }
    for transfer in &summary.transfers {
        writeln!(
            out,
            "  {} to {}: {} in {} {}",
            transfer.from,
            transfer.to,
            bytes_exact(transfer.bytes),
            transfer.count,
            plural(transfer.count, "transfer")
        )?;
    }
    writeln!(out, "\nleft the device")?;
    if placement.fallbacks.is_empty() {
        writeln!(out, "  nothing: every operator ran on {}", placement.asked)?;
    }
    placement.fallbacks.iter().try_for_each(|fallback| row(out, fallback, placement.steps))
}

fn operators(
    out: &mut String,
    rows: &[OperatorRow],
    span_ns: u64,
    options: &TerminalOptions,
    top: usize,
) -> std::fmt::Result {
    let name = options.width.saturating_sub(52).clamp(24, 48);
    writeln!(
        out,
        "\n{:<name$} {:<9} {:>6} {:>10} {:>6}  devices",
        "operator", "phase", "calls", "own time", "share"
    )?;
    for row in rows.iter().take(top) {
        let share = if span_ns == 0 { 0.0 } else { 100.0 * row.self_ns as f64 / span_ns as f64 };
        writeln!(
            out,
            "{:<name$} {:<9} {:>6} {:>10} {share:>5.1}%  {}",
            row.op,
            row.phase.name(),
            row.calls,
            time(row.self_ns),
            row.devices.join("+")
        )?;
    }
    if rows.len() > top {
        let rest: u64 = rows.iter().skip(top).map(|row| row.self_ns).sum();
        writeln!(out, "… and {} more, {} (--top {})", rows.len() - top, time(rest), rows.len())?;
    }
    Ok(())
}

fn row(out: &mut String, fallback: &Fallback, steps: usize) -> std::fmt::Result {
    writeln!(out, "  {} ({})", fallback.operator, fallback.kind.name())?;
    let place = if fallback.path.is_empty() { "outside a module" } else { &fallback.path };
    writeln!(out, "      {} of {place}", fallback.phase.name())?;
    let arguments = fallback.arguments();
    if !arguments.is_empty() {
        writeln!(out, "      arguments {arguments}")?;
    }
    let mut text = String::new();
    let calls = fallback.calls_per_pass();
    write!(text, "{calls} {} a pass", plural(u64::from(calls), "call"))?;
    if steps > 1 {
        let hit = fallback.steps_hit();
        write!(text, ", in {hit} of {steps} passes")?;
    }
    write!(
        text,
        "; {} to the host, {} back; {:.1} % of the time",
        bytes_exact(fallback.bytes_to_host),
        bytes_exact(fallback.bytes_to_device),
        100.0 * fallback.share
    )?;
    writeln!(out, "      {text}")?;
    if !fallback.reason.is_empty() {
        writeln!(out, "      {}", fallback.reason)?;
    }
    Ok(())
}

fn time(ns: u64) -> String {
    seconds(ns as f64 * 1e-9)
}

fn plural(count: u64, word: &str) -> String {
    match (count, word) {
        (1, word) => word.to_owned(),
        (_, "pass") => "passes".to_owned(),
        (_, word) => format!("{word}s"),
    }
}
