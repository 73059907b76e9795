//! Every renderer on one table of exact values: what a reader sees, to the letter.

use super::{TerminalOptions, json, markdown, terminal};
use crate::verdict::{
    AppliedBand, Cause, Counts, Demands, DifferenceTable, Finding, PolicySummary, SubjectSummary,
    TABLE_SCHEMA_VERSION, TargetStatus, TargetSummary, Verdict, WorstElement, conclude,
};

fn band() -> AppliedBand {
    AppliedBand {
        pass: 3.0,
        fail: 6.0,
        unit: "floor".to_owned(),
        slack_ulp: None,
        rule: "floor".to_owned(),
        line: "tolerances/default.toml:62".to_owned(),
        reason: "a reason".to_owned(),
    }
}

fn judged(quantity: &str, verdict: Verdict, deviation: f64) -> Finding {
    let cause = (verdict != Verdict::Within).then_some(Cause::Deviation);
    let mut finding = Finding::about("candle:cpu@f32", quantity, verdict, cause, String::new());
    finding.shape = vec![10, 64];
    finding.role = "matmul".to_owned();
    finding.deviation = Some(deviation);
    finding.band = Some(band());
    finding.relative = Some(deviation * 1e-7);
    finding.minimum_detectable = Some(6e-7);
    finding.floor = Some(1e-7);
    finding.worst =
        Some(WorstElement { index: vec![3, 17], candidate: 0.25, reference: 0.125, ulp: 8_388_608.0 });
    finding
}

fn target(name: &str, status: TargetStatus, findings: &[Finding]) -> TargetSummary {
    let ran = status == TargetStatus::Ran;
    TargetSummary {
        target: name.to_owned(),
        engine: "candle 0.11.1".to_owned(),
        devices: if ran { vec!["cpu".to_owned()] } else { Vec::new() },
        device_name: None,
        emulated: false,
        precision: "f32".to_owned(),
        device: None,
        placement: None,
        status,
        reason: (!ran).then(|| "built without the `metal` feature; build with --features metal".to_owned()),
        modes: [("threads".to_owned(), "2".to_owned())].into(),
        counts: Counts::of(findings.iter().filter(|f| f.target == name)),
        loss: ran.then_some(0.125),
        top1: ran.then_some(0.5),
        top5: ran.then_some(1.0),
        forward_s: ran.then_some(0.0125),
        backward_s: ran.then_some(0.25),
        wall_s: None,
        peak_memory_bytes: ran.then_some(32 << 20),
        repeat_equal: Some(true),
        observer_equal: Some(true),
        notes: Vec::new(),
    }
}

fn table() -> DifferenceTable {
    let absent = "built without the `metal` feature; build with --features metal".to_owned();
    let findings = vec![
        judged("logits", Verdict::Within, 0.5),
        judged("gradient/encoder.layer.0.attention.attention.query.weight", Verdict::Outside, 12.5),
        Finding::about("candle:metal@f32", "target", Verdict::Missing, Some(Cause::Absent), absent),
    ];
    let targets = vec![
        target("candle:cpu@f32", TargetStatus::Ran, &findings),
        target("candle:metal@f32", TargetStatus::Absent, &findings),
    ];
    let mut table = DifferenceTable {
        schema_version: TABLE_SCHEMA_VERSION,
        tool: "parity 0.0.0".to_owned(),
        command: "parity check model --target candle:cpu@f32".to_owned(),
        subject: SubjectSummary {
            model: "model".to_owned(),
            family: "vit".to_owned(),
            fingerprint: "0123456789ab".to_owned(),
            mode: "eval".to_owned(),
            batch_size: 16,
            ..SubjectSummary::default()
        },
        policy: PolicySummary { name: "default".to_owned(), hash: "ba9876543210".to_owned() },
        reference: None,
        targets,
        counts: Counts::of(&findings),
        conclusion: conclude(&findings, Demands { absences_allowed: false, inconclusive_gradients: 0.05 }),
        warnings: vec!["`head.bias` holds 1 NaN".to_owned()],
        findings,
    };
    table.sort();
    table
}

#[test]
fn the_terminal_form_reads_as_agreed() {
    insta::assert_snapshot!(terminal(&table(), &TerminalOptions::default()));
}

#[test]
fn the_markdown_form_reads_as_agreed() {
    insta::assert_snapshot!(markdown(&table()));
}

#[test]
fn the_json_form_reads_as_agreed_and_is_read_back() {
    let text = json(&table());
    assert_eq!(serde_json::from_str::<DifferenceTable>(&text).unwrap(), table());
    insta::assert_snapshot!(text);
}
